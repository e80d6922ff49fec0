"""Compressed streams and archives of arrays: what they unpack to is checked before memory is taken for it."""

from __future__ import annotations

import bz2
import gzip
import math
import os
import zipfile
from io import BytesIO
from typing import Any, BinaryIO, cast

import numpy as np

UNPACKED = 2**30  # bytes that any file may unpack to
_USUAL = 20  # and, beyond these, for each of its bytes: numbers as text and indices are packed to a tenth
_MOST_OF = {None: 1, "gz": 1032, "bz2": 46_000}  # bytes that each makes of one; .npz is packed as .gz
PACKINGS: dict[str, Any] = {"gz": gzip.open, "bz2": bz2.open}
STARTS = {b"\x1f\x8b": "gz", b"BZh": "bz2"}
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_LONGEST_HEADER = 10_000  # bytes, as NumPy has it


def most_unpacked(size: int) -> int:
    """Bytes that so many may unpack to: 1 GiB, or 20 times as many."""
    return max(UNPACKED, _USUAL * size)


def opened(stream: BinaryIO, packing: str | None) -> tuple[BinaryIO, int]:
    """The stream, or what it unpacks to, and how many bytes that may be at all; it can be read twice."""
    size = _size_of(stream)
    return stream if packing is None else cast(BinaryIO, PACKINGS[packing](stream)), _MOST_OF[packing] * size


def content_of(stream: BinaryIO, packing: str | None, name: str) -> bytes:
    """All bytes, unpacked.

    Raises:
        ValueError: these are more than 1 GiB and more than 20 times the bytes that there are.
    """
    size = _size_of(stream)
    most = size if packing is None else most_unpacked(size)
    found = opened(stream, packing)[0].read(most + 1)
    if len(found) > most:
        raise ValueError(f"{name}: unpacks to more than {most} bytes; expected at most {UNPACKED}, or {_USUAL} times.")
    return found


def _size_of(stream: BinaryIO) -> int:
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    return size


def check_archive(stream: BinaryIO, name: str) -> None:
    """Check that every member of an `.npz` archive is an array of the size that its header says.

    Raises:
        ValueError: it is not so; one line, which names the file.
    """
    size = _size_of(stream)
    if not zipfile.is_zipfile(stream):
        raise ValueError(f"{name}: is no .npz archive, or is cut off.")
    with zipfile.ZipFile(stream) as archive:
        members = archive.infolist()
        if sum(member.compress_size for member in members) > size:
            raise ValueError(f"{name}: promises more bytes than it holds, {size}: its members overlap.")
        unpacked = sum(member.file_size for member in members)
        if unpacked > most_unpacked(size):
            raise ValueError(
                f"{name}: would unpack to {unpacked} bytes, {unpacked // size} times its size; expected at most "
                f"{UNPACKED}, or {_USUAL} times. Save it uncompressed."
            )
        for member in members:
            most = member.compress_size * (1 if member.compress_type == zipfile.ZIP_STORED else _MOST_OF["gz"])
            if member.compress_size > size or member.file_size > most + _MOST_OF["gz"]:
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
        promised, found = math.prod(shape) * dtype.itemsize, member.file_size - stream.tell()
        if min(shape, default=0) < 0 or promised != found:
            raise ValueError(f"{name}: {member.filename} promises {promised} bytes for {shape}; it has {found}.")
