"""Arrays of numbers in MATLAB's .mat files up to version 7.

SciPy reads those of level 4. Its reader of level 5 (versions 5 to 7) ends the process where some bytes are malformed
(SciPy 1.17), so these are read here.

Source: MathWorks, MAT-File Format, 2015, section 1.
"""

from __future__ import annotations

import io
import math
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy
import scipy.sparse as sp

from .packed import most_unpacked

STARTS = (b"MATLAB 5.0 MAT-file", b"MATLAB 7.3 MAT-file", b"\x89HDF\r\n\x1a\n")
_MATRIX, _COMPRESSED = 14, 15
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_STRUCT, _SPARSE = 2, 5
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_COMPLEX, _LOGICAL = 0x800, 0x200


class Variable(NamedTuple):
    """An array of numbers with two axes.

    Attributes:
        shape: what its header says.
        read: returns it, dense or sparse; raises ValueError where it is malformed.
    """

    shape: tuple[int, int]
    read: Callable[[], Any]


class _Element(NamedTuple):
    kind: int
    data: memoryview


class _Head(NamedTuple):
    kind: int
    flags: int
    shape: tuple[int, ...]
    name: str
    parts: Iterator[_Element]  # that follow


def variables(content: bytes, record: str, name: str) -> dict[str, Variable]:
    """Arrays of numbers by name, and those in the fields of one record, as `record.field`.

    Raises:
        ValueError: it is of version 7.3 (HDF5), or malformed.
    """
    if content.startswith(STARTS[1:]):
        raise ValueError(
            f"{name}: is a MATLAB 7.3 file (HDF5); expected version 7 or older. "
            "In MATLAB: save('A.mat', 'A', 'b', '-v7')."
        )
    if content[126:128] not in (b"IM", b"MI") or 1 not in content[124:126]:
        return _of_level_4(content, name)
    order = "<" if content[126:128] == b"IM" else ">"
    found: dict[str, Variable] = {}
    for element in _elements(memoryview(content)[128:], order):
        if element.kind == _COMPRESSED:
            element = next(_elements(memoryview(_unpacked(element.data)), order), element)
        if element.kind == _MATRIX and len(element.data):
            head = _head(element.data, order)
            if head.kind == _STRUCT and head.name == record and math.prod(head.shape) == 1:
                found |= _fields(head, order)
            elif _is_matrix(head):
                found[head.name] = _variable(head, order)
    return found


def _of_level_4(content: bytes, name: str) -> dict[str, Variable]:
    """SciPy's reader of these is Python, and reads nothing but matrices."""
    try:
        shapes = [shape for _, shape, _ in scipy.io.whosmat(io.BytesIO(content))]
        if any(np.prod(shape, dtype=float) > len(content) for shape in shapes):
            raise ValueError(f"{name}: promises more numbers than it has bytes, {len(content)}.")
        read = scipy.io.loadmat(io.BytesIO(content))
    except Exception as error:  # which may quote what was taken for a name
        raise ValueError(f"{name}: is no MATLAB file, or is cut off.") from error
    arrays = {key: value for key, value in read.items() if sp.issparse(value) or isinstance(value, np.ndarray)}
    numbers = {key: value for key, value in arrays.items() if value.ndim == 2 and value.dtype.kind in "biufc"}
    return {key: Variable(value.shape, partial(arrays.get, key)) for key, value in numbers.items()}


def _fields(head: _Head, order: str) -> dict[str, Variable]:
    (length,) = _numbers(_next(head.parts), order)[:1]
    text = bytes(_next(head.parts).data)
    if length <= 0:
        raise ValueError("a record has fields without names")
    found = {}
    for i, element in enumerate(head.parts):
        name = text[i * length : (i + 1) * length].split(b"\0")[0].decode("latin-1")
        field = _head(element.data, order) if element.kind == _MATRIX and len(element.data) else None
        if field is not None and _is_matrix(field):
            found[f"{head.name}.{name}"] = _variable(field, order)
    return found


def _is_matrix(head: _Head) -> bool:
    return len(head.shape) == 2 and (head.kind == _SPARSE or head.kind in _CLASSES)


def _head(data: memoryview, order: str) -> _Head:
    parts = _elements(data, order)
    (flags, *_), shape = _numbers(_next(parts), order), _numbers(_next(parts), order)
    name = bytes(_next(parts).data).decode("latin-1")
    if np.any(shape < 0):
        raise ValueError(f"an array has the shape {tuple(shape.tolist())}")
    return _Head(int(flags) & 0xFF, int(flags), tuple(shape.tolist()), name, parts)


def _variable(head: _Head, order: str) -> Variable:
    parts = list(head.parts)
    m, n = head.shape
    return Variable((m, n), lambda: _array(head, parts, order))


def _array(head: _Head, parts: list[_Element], order: str) -> Any:
    arrays = [_numbers(part, order) for part in parts]
    wanted = (2 if head.kind == _SPARSE else 0) + (2 if head.flags & _COMPLEX else 1)
    if len(arrays) != wanted:
        raise ValueError(f"the array {head.name} has {len(arrays)} parts; expected {wanted}")
    values = arrays[-2] + 1j * arrays[-1] if head.flags & _COMPLEX else arrays[-1]
    if head.kind == _SPARSE:
        rows, starts = (array.astype(np.int64) for array in arrays[:2])
        used = int(starts[-1]) if len(starts) else 0  # there may be room for more
        values = values.astype(np.float64) if values.dtype.kind != "c" else values
        return sp.csc_array((values[:used], rows[:used], starts), shape=head.shape)
    if values.size != math.prod(head.shape):
        raise ValueError(f"the array {head.name} holds {values.size} numbers; expected {head.shape}")
    dtype = np.dtype(bool) if head.flags & _LOGICAL else np.dtype(_CLASSES[head.kind])
    return values.reshape(head.shape, order="F").astype(
        np.result_type(dtype, values) if values.dtype.kind == "c" else dtype
    )


def _next(parts: Iterator[_Element]) -> _Element:
    found = next(parts, None)
    if found is None:
        raise ValueError("an array is cut off")
    return found


def _numbers(element: _Element, order: str) -> np.ndarray:
    name = _TYPES.get(element.kind)
    if name is None or len(element.data) % np.dtype(name).itemsize:
        raise ValueError(f"{len(element.data)} bytes of type {element.kind} are no numbers")
    found = np.frombuffer(element.data, np.dtype(f"{order}{name}"))
    return found.astype(found.dtype.newbyteorder("="))


def _elements(data: memoryview, order: str) -> Iterator[_Element]:
    """Parts one after the other, each with a tag in front, of 8 bytes or, for short ones, of 4."""
    at = 0
    while at < len(data):
        if len(data) - at < 8:
            raise ValueError("the file is cut off")
        kind, size = struct.unpack_from(f"{order}II", data, at)
        short = kind >> 16
        if short:
            if short > 4:
                raise ValueError(f"a short part of {short} bytes")
            yield _Element(kind & 0xFFFF, data[at + 4 : at + 4 + short])
            at += 8
            continue
        if size > len(data) - at - 8:
            raise ValueError(f"truncated: a part of {size} bytes is announced, and {len(data) - at - 8} follow")
        yield _Element(kind, data[at + 8 : at + 8 + size])
        at += 8 + size + (0 if kind == _COMPRESSED else -size % 8)


def _unpacked(data: memoryview) -> bytes:
    most, unpacker = most_unpacked(len(data)), zlib.decompressobj()
    found = unpacker.decompress(data, most)
    if not unpacker.eof:
        raise ValueError(f"truncated, or unpacks to more than {most} bytes")
    return found
