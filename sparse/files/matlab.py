"""MATLAB's .mat files up to version 7: the matrix, and the right-hand side beside it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp

from .contents import Contents, chosen

STARTS = (b"MATLAB 5.0 MAT-file", b"MATLAB 7.3 MAT-file", b"\x89HDF\r\n\x1a\n")
_NUMBERS = {
    "double",
    "single",
    "sparse",
    "logical",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}
_PROBLEM = "Problem"  # the record of a matrix of the SuiteSparse collection
_MOST_PACKED = 1032  # bytes that deflate makes of one


def read_matlab(content: bytes, part: str | None, wants_rhs: bool, name: str) -> Contents:
    """The variable `part`, or the only one that can be meant.

    Unasked this is `A`, or the field `A` of the record `Problem` of the SuiteSparse collection, or the only matrix that
    is no vector; of right-hand sides it is `b`, or the only array. `b` is taken along with a matrix that it fits.

    Raises:
        ValueError: it is of version 7.3 (HDF5), malformed, or holds no or several such variables.
    """
    if content.startswith(STARTS[1:]):
        raise ValueError(
            f"{name}: is a MATLAB 7.3 file (HDF5); expected version 7 or older. "
            "In MATLAB: save('A.mat', 'A', 'b', '-v7')."
        )
    there = scipy.io.whosmat(io.BytesIO(content))
    shapes = {key: shape for key, shape, kind in there if kind in _NUMBERS and len(shape) == 2}
    _check_sizes(there, len(content), name)
    record = _problem(content) if any(key == _PROBLEM and kind == "struct" for key, _, kind in there) else {}
    shapes |= {key: value.shape for key, value in record.items()}
    usual = ("b", f"{_PROBLEM}.b") if wants_rhs else ("A", f"{_PROBLEM}.A")
    key = chosen(
        part, list(shapes), _unasked(shapes, usual, wants_rhs), "right-hand side" if wants_rhs else "matrix", name
    )
    rhs = None if wants_rhs else next((b for b in _beside(key) if b != key and _fits(shapes, b, key)), None)
    read = record | _variables(content, [k for k in (key, rhs) if k is not None and k not in record])
    return Contents(read[key], key, None if rhs is None else read[rhs], rhs or "")


def _unasked(shapes: dict[str, Any], usual: Sequence[str], wants_rhs: bool) -> list[str]:
    for key in usual:
        if key in shapes:
            return [key]
    return [key for key, shape in shapes.items() if wants_rhs or min(shape) > 1] or list(shapes)


def _beside(key: str) -> tuple[str, ...]:
    return (f"{_PROBLEM}.b",) if key.startswith(f"{_PROBLEM}.") else ("b",)


def _fits(shapes: dict[str, Any], b: str, A: str) -> bool:
    return b in shapes and shapes[b][0] == shapes[A][0] and shapes[b][1] > 0


def _check_sizes(there: Any, size: int, name: str) -> None:
    for key, shape, kind in there:
        if kind in _NUMBERS - {"sparse"} and np.prod(shape, dtype=float) > _MOST_PACKED * size:
            raise ValueError(
                f"{name}: promises an array {key} of {' x '.join(map(str, shape))}; it holds {size} bytes."
            )


def _problem(content: bytes) -> dict[str, Any]:
    """Matrices of the record, by their full names."""
    record = scipy.io.loadmat(io.BytesIO(content), variable_names=[_PROBLEM])[_PROBLEM]
    if record.size != 1 or record.dtype.names is None:
        return {}
    fields = {f"{_PROBLEM}.{key}": record.reshape(-1)[0][key] for key in record.dtype.names}
    return {key: value for key, value in fields.items() if sp.issparse(value) or _is_array(value)}


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype.kind in "biufc"


def _variables(content: bytes, keys: list[str]) -> dict[str, Any]:
    return scipy.io.loadmat(io.BytesIO(content), variable_names=keys) if keys else {}
