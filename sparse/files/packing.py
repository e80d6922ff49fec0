"""Compressed streams, and how many bytes they may unpack to."""

from __future__ import annotations

import bz2
import gzip
import os
from typing import Any, BinaryIO, cast

from .archive import UNPACKED

PACKINGS: dict[str, Any] = {"gz": gzip.open, "bz2": bz2.open}
STARTS = {b"\x1f\x8b": "gz", b"BZh": "bz2"}
MOST = {None: 1, "gz": 1032, "bz2": 46_000}  # bytes that each makes of one
_USUAL = 20  # as in archive.py: numbers as text are packed to a tenth


def opened(stream: BinaryIO, packing: str | None) -> BinaryIO:
    """The stream, or what it unpacks to; both can be read twice."""
    return stream if packing is None else cast(BinaryIO, PACKINGS[packing](stream))


def size_of(stream: BinaryIO) -> int:
    """Number of bytes; the stream is set to its start."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    return size


def content_of(stream: BinaryIO, packing: str | None, name: str) -> bytes:
    """All bytes, unpacked.

    Raises:
        ValueError: these are more than 1 GiB and more than 20 times the bytes that there are.
    """
    size = size_of(stream)
    most = size if packing is None else max(UNPACKED, _USUAL * size)
    found = opened(stream, packing).read(most + 1)
    if len(found) > most:
        raise ValueError(f"{name}: unpacks to more than {most} bytes; expected at most {UNPACKED}, or {_USUAL} times.")
    return found
