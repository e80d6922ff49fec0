"""Archives of the SuiteSparse collection: a matrix, and files such as its right-hand side, in a .tar.gz.

Nothing is written to disk, whatever the members are called.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Any

from .contents import Contents, chosen

Reader = Callable[[bytes, str, str], Any]
_OTHERS = ("_b", "_x", "_c", "_coord", "_nodename", "_zeros")  # what the collection appends to names of other files


def is_archive(content: bytes) -> bool:
    """Does a member begin here?"""
    return content[257:262] == b"ustar"


def read_collection(
    content: bytes, part: str | None, wants_rhs: bool, name: str, is_readable: Callable[[str], bool], read: Reader
) -> Contents:
    """The member `part`, or the matrix that has the name of its folder or of which there is no other; and its `..._b`.

    Args:
        content: of the archive, unpacked.
        part: name of a member, its folder may be left out.
        wants_rhs: take the right-hand side of the archive, `..._b`, instead of its matrix.
        name: what to call the archive in a message.
        is_readable: by the name of a member.
        read: a member, by its bytes, its name, and what to call it in a message.

    Raises:
        ValueError: malformed, or there is no or more than one such member.
    """
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        members = {m.name: m for m in archive if m.isreg() and not m.issparse() and is_readable(m.name)}
        key = _chosen(part, wants_rhs, list(members), name)

        def member(key: str) -> Any:
            stream = archive.extractfile(members[key])
            found = b"" if stream is None else stream.read()
            if len(found) != members[key].size:
                raise ValueError(f"{name}: truncated in {key}.")
            return read(found, key, f"{name}: {key}")

        beside = None if wants_rhs else _beside(key, members)
        return Contents(member(key), key, None if beside is None else member(beside), beside or "")


def _chosen(part: str | None, wants_rhs: bool, names: Sequence[str], name: str) -> str:
    by_last = {PurePosixPath(key).name: key for key in names}
    if part is not None and part not in names:
        part = by_last.get(part, part)
    if wants_rhs:
        return chosen(
            part, names, [key for key in names if _stem(key).endswith("_b")] or names, "right-hand side", name
        )
    stems = {_stem(key) for key in names}
    found = [key for key in names if not any(_stem(key) == stem + end for stem in stems for end in _OTHERS)]
    named = [key for key in found if PurePosixPath(key).parent.name == _stem(key)]
    return chosen(part, names, named or found, "matrix", name)


def _stem(key: str) -> str:
    return PurePosixPath(key).name.partition(".")[0]


def _beside(key: str, members: Any) -> str | None:
    path = PurePosixPath(key)
    stem, dot, ending = path.name.partition(".")
    other = str(path.with_name(f"{stem}_b{dot}{ending}"))
    return other if other in members else None
