"""Construction of the linear system that the arguments describe."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..solvers import find_method
from ..solvers.methods.registry import is_auto
from .errors import UsageError
from .files import accepted_rhs, name_of, read_matrix, read_rhs


@dataclass(frozen=True)
class SystemRead:
    """A x = b on the host.

    Attributes:
        A: `(m, n)`, a dense array or a `csr_array`, of the same dtype as `b` (or its real counterpart).
        b: `(m,)` or `(m, k)`, one right-hand side per column.
        source: where A comes from, in words.
        rhs: where b comes from, in words.
        known: the solution, if it is known.
    """

    A: Any
    b: np.ndarray
    source: str
    rhs: str
    known: np.ndarray | None

    @property
    def rows(self) -> np.ndarray:
        """b as `linear_solve` takes it: `(m,)`, or `(k, m)` with one right-hand side per row."""
        return self.b if self.b.ndim == 1 else np.ascontiguousarray(self.b.T)


def load(options: argparse.Namespace) -> SystemRead:
    """Read the files, or the example.

    Raises:
        UsageError: a file that cannot be used, a shape that the method cannot solve, or numbers that --dtype cannot
            hold.
    """
    b: Any = None
    b_source = ""
    if options.example is not None:
        A, source = read_example(options.example), f"example {options.example} (pyamg)"
    else:
        _, A, source, b, b_source = read_matrix(options.matrix)
    _check_shape(A.shape, source, options.method)
    if options.rhs is not None:
        b, b_source = read_rhs(options.rhs, A.shape[0]), name_of(options.rhs)
    elif b is not None:
        b = accepted_rhs(b, A.shape[0], b_source)
    dtype = _common_dtype(options.dtype, A, b)
    A = _cast(A, dtype, source)
    if b is not None:
        return SystemRead(A, _cast(b, dtype, b_source), source, b_source, None)
    # Not the vector of ones: many real matrices (pure Neumann problems) map it to zero.
    known = np.sin(np.arange(1, A.shape[1] + 1)).astype(dtype)
    if A.shape[0] < A.shape[1]:
        return SystemRead(A, A @ known, source, "none given; b = A x for x_i = sin(i), which is one x of many", None)
    return SystemRead(A, A @ known, source, "none given; b = A x for the known x_i = sin(i)", known)


def _check_shape(shape: tuple[int, int], source: str, method: str) -> None:
    if 0 in shape:
        raise UsageError(f"{source}: the matrix is empty, {shape[0]} x {shape[1]}; expected at least one row.")
    square = is_auto(method) or not find_method(method).least_squares
    if square and shape[0] != shape[1]:
        raise UsageError(
            f"{source}: got an array of shape {shape}; expected a square matrix. For least squares: --method LSMR."
        )


def read_example(name: str) -> Any:
    """One of the matrices that pyamg brings along."""
    from pyamg.gallery import load_example

    return sp.csr_array(load_example(name)["A"])


def in_precision(A: Any, wanted: str, source: str) -> Any:
    """The matrix in "single" or "double" precision.

    Raises:
        UsageError: it holds numbers that are too large.
    """
    return _cast(A, _common_dtype(wanted), source)


def _common_dtype(wanted: str | None, *arrays: Any) -> np.dtype:
    """The real dtype in which both are given to the solver."""
    if wanted is not None:
        return np.dtype(np.float32 if wanted == "single" else np.float64)
    return max((np.finfo(a.dtype).dtype for a in arrays if a is not None), key=lambda dtype: dtype.itemsize)


def _cast(array: Any, real: np.dtype, name: str) -> Any:
    """`array` with real parts of dtype `real`."""
    dtype = np.result_type(real, np.complex64) if array.dtype.kind == "c" else real
    with np.errstate(over="ignore"):
        cast = array.astype(dtype)
    if not np.isfinite(cast.data if sp.issparse(cast) else cast).all():
        raise UsageError(f"{name}: holds numbers that are too large for {dtype}; leave out --dtype single.")
    return cast
