"""MATLAB's .mat files up to version 7: the matrix, and the right-hand side beside it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp

from .contents import Contents, chosen
from .matlab5 import Variable, is_level_5, variables

STARTS = (b"MATLAB 5.0 MAT-file", b"MATLAB 7.3 MAT-file", b"\x89HDF\r\n\x1a\n")
_PROBLEM = "Problem"  # the record of a matrix of the SuiteSparse collection


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
    found = variables(content, _PROBLEM) if is_level_5(content) else _of_level_4(content, name)
    shapes = {key: variable.shape for key, variable in found.items()}
    usual = ("b", f"{_PROBLEM}.b") if wants_rhs else ("A", f"{_PROBLEM}.A")
    what = "right-hand side" if wants_rhs else "matrix"
    key = chosen(part, list(shapes), _unasked(shapes, usual, wants_rhs), what, name)
    rhs = f"{_PROBLEM}.b" if key.startswith(f"{_PROBLEM}.") else "b"
    if wants_rhs or rhs == key or not _fits(shapes, rhs, key):
        return Contents(found[key].read(), key)
    return Contents(found[key].read(), key, found[rhs].read(), rhs)


def _unasked(shapes: dict[str, Any], usual: Sequence[str], wants_rhs: bool) -> list[str]:
    for key in usual:
        if key in shapes:
            return [key]
    return [key for key, shape in shapes.items() if wants_rhs or min(shape) > 1] or list(shapes)


def _fits(shapes: dict[str, Any], b: str, A: str) -> bool:
    return b in shapes and shapes[b][0] == shapes[A][0] and shapes[b][1] > 0


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
    return {key: _known(value) for key, value in arrays.items() if value.ndim == 2 and value.dtype.kind in "biufc"}


def _known(value: Any) -> Variable:
    return Variable(value.shape, lambda: value)
