"""Archives of arrays (`.npz`) with a description in JSON; all sizes and types are validated before they are used."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO

import numpy as np

HEADER = "header"  # the member that holds the description
_DIGEST = "digest"  # what the description says of itself
DTYPES = frozenset("?bhilqBHILQfdFD")  # by their characters
UNPACKED = 2**30  # bytes that any archive may unpack to
_USUAL = 20  # and, beyond these, for each of its bytes: indices of sparse matrices are packed to a tenth
_MOST_PACKED = 1032  # bytes that deflate makes of one
_LONGEST_HEADER = 10_000  # bytes, as NumPy has it
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def write(path: Any, description: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a file atomically: concurrent readers find the old one.

    Raises:
        ValueError: the path has another ending than `.npz`.
        TypeError: it is no path.
        OSError: it cannot be written.
    """
    name = path_of(path)
    if not name.lower().endswith(".npz"):
        raise ValueError(f"The file {name!r} was given; expected a name that ends with .npz.")
    final = os.path.realpath(name)  # the file that a link stands for
    text = json.dumps(description | {_DIGEST: digest_of(description, arrays)}, allow_nan=False).encode()
    part = os.path.join(os.path.dirname(final), f".{token_hex(8)}.part")
    try:
        with open(part, "xb") as stream:
            np.savez(stream, allow_pickle=False, **{HEADER: np.frombuffer(text, np.uint8)}, **arrays)
        if os.path.exists(final):
            shutil.copymode(final, part)
        os.replace(part, final)
    except OSError as error:
        Path(part).unlink(missing_ok=True)
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, name) from error  # the name of the part tells nobody anything
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


def read_archive(path: Any, named: Callable[[Any], set[str] | None]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read the description and the arrays that it names, each of a plain dtype; see `check_digest`, too.

    Args:
        named: finds the names in a description; None where it is none, which the caller refuses.

    Raises:
        ValueError: it is damaged, or no such archive; one line, which names it.
        OSError: it cannot be read.
        TypeError: it is no path.
        MemoryError: it does not fit.
    """
    name = path_of(path)
    try:
        with open(name, "rb") as stream:
            check_archive(stream, name)
            with np.load(stream, allow_pickle=False) as archive:
                if HEADER not in archive.files:
                    raise ValueError(f"{name}: {_foreign(archive.files)}")
                _refuse_packed(stream, name)
                description = json.loads(bytes(archive[HEADER].astype(np.uint8)))
                if (own := named(description)) is not None:
                    _refuse_strangers(own, archive.files, name)
                arrays = {key: archive[key] for key in archive.files if key != HEADER}
    except MemoryError as error:
        raise MemoryError(f"{name}: does not fit into memory.") from error
    except Exception as error:  # parsers raise anything, from KeyError to zlib.error; all of it is about this file
        unreadable = isinstance(error, OSError) and error.errno not in (None, errno.EINVAL)  # of places that are none
        if unreadable or str(error).startswith(f"{name}: "):
            raise
        raise damaged(name, error) from error
    for key, array in arrays.items():
        if array.dtype.char not in DTYPES:
            raise ValueError(f"{name}: is damaged: {key} holds {array.dtype}; expected numbers. Save it again.")
    if not isinstance(description, dict):
        raise ValueError(f"{name}: {_foreign(arrays)}")
    return description, {key: np.asarray(a, a.dtype.newbyteorder("=")) for key, a in arrays.items()}


def digest_of(description: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Digest of the description, dtypes and shapes; the archive has checksums of the numbers."""
    heads = {key: [array.dtype.char, list(array.shape)] for key, array in arrays.items()}
    text = json.dumps([{k: v for k, v in description.items() if k != _DIGEST}, heads], sort_keys=True)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def check_digest(description: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Compare the digest of a description with its content; those without a digest pass.

    Raises:
        ValueError: it is not.
    """
    if _DIGEST in description and description[_DIGEST] != digest_of(description, arrays):
        raise ValueError("the description, or the shape or the dtype of an array, is not the one that was written")


def path_of(path: Any) -> str:
    """The name of a file.

    Raises:
        TypeError: it is no path.
    """
    try:
        return os.fsdecode(path)
    except TypeError as error:
        raise TypeError(f"{path!r} was given; expected the path of a file.") from error


def damaged(name: str, why: object) -> ValueError:
    """Error for a damaged file, in one line."""
    return ValueError(f"{name}: is damaged: {' '.join(str(why or type(why).__name__).split())}. Save it again.")


def check_archive(stream: BinaryIO, name: str) -> None:
    """Check before memory is allocated that every member is an array of the size that its header says.

    Raises:
        ValueError: it is not so; one line, which names the file.
    """
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    if not zipfile.is_zipfile(stream):
        raise ValueError(f"{name}: is no .npz archive, or is cut off.")
    with zipfile.ZipFile(stream) as archive:
        if sum(member.compress_size for member in archive.infolist()) > size:
            raise ValueError(f"{name}: promises more bytes than it holds, {size}: its members overlap.")
        unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > max(UNPACKED, _USUAL * size):
            raise ValueError(
                f"{name}: would unpack to {unpacked} bytes, {unpacked // size} times its size; expected at most "
                f"{UNPACKED}, or {_USUAL} times. Save it uncompressed."
            )
        for member in archive.infolist():
            most = member.compress_size * (1 if member.compress_type == zipfile.ZIP_STORED else _MOST_PACKED)
            if member.compress_size > size or member.file_size > most + _MOST_PACKED:
                raise ValueError(f"{name}: promises {member.file_size} bytes in {member.filename}; it holds {size}.")
            if not member.filename.endswith(".npy"):
                raise ValueError(f"{name}: has the member {member.filename!r}; expected arrays (.npy) only.")
            _check_array(archive, member, name)
    stream.seek(0)


def _check_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> None:
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        if version not in HEADERS:
            raise ValueError(f"{name}: {member.filename} has the version {version} of .npy; expected 1.0 or 2.0.")
        start = stream.read(2 if version == (1, 0) else 4)
        length = int.from_bytes(start, "little")
        if length > _LONGEST_HEADER:
            raise ValueError(f"{name}: {member.filename} promises a head of {length} bytes; expected a short one.")
        shape, _, dtype = HEADERS[version](BytesIO(start + stream.read(length)))
        if dtype.hasobject:
            raise ValueError(f"{name}: {member.filename} holds Python objects; expected numbers.")
        promised = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or promised != member.file_size - stream.tell():
            found = member.file_size - stream.tell()
            raise ValueError(f"{name}: {member.filename} promises {promised} bytes for {shape}; it has {found}.")


def _refuse_packed(stream: BinaryIO, name: str) -> None:
    """Raises ValueError where a member is compressed: a few bytes would fill the memory. `write` compresses none."""
    with zipfile.ZipFile(stream) as archive:
        packed = [member for member in archive.infolist() if member.compress_type != zipfile.ZIP_STORED]
    if packed:
        sizes = [sum(member.file_size for member in packed), sum(member.compress_size for member in packed)]
        raise ValueError(
            f"{name}: is compressed, {sizes[0]} bytes in {sizes[1]}; expected plain arrays, as Preconditioner.save "
            "writes them."
        )


def _refuse_strangers(named: set[str], members: Sequence[str], name: str) -> None:
    """Raise ValueError for arrays that the description does not name, before they are read."""
    strangers = [key for key in members if key not in named and key != HEADER]
    if strangers or len(set(members)) < len(members):
        more = f"the array {strangers[0]!r}, which its description does not name" if strangers else "one array twice"
        raise ValueError(f"{name}: is damaged: it holds {more}. Save it again.")


def _foreign(members: Any) -> str:
    if {"format", "shape"} <= set(members):
        return "holds a matrix of scipy.sparse.save_npz; read it by krylix.sparse.load."
    return "was not written by krylix; expected what Preconditioner.save wrote."
