"""Sparse matrix of a linear function, by tracing."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ...backends import Array, Backend, without_compilers
from ..errors import UnsupportedOperation
from ..formats import SparseMatrix
from ..layout import Layout
from ..tracing.front_end import front_end_of
from ..tracing.matrix_from_function import traced_matrix


class CoupledSystems(UnsupportedOperation):
    """Error for a function that couples its systems, so that there is no matrix of one."""


class Function(Protocol):
    """A linear function of rows `(systems, n)`."""

    bk: Backend
    dtype: np.dtype
    like: Array | None
    layout: Layout
    image: Layout

    def apply(self, x: Array) -> Array:
        """`(systems, columns)` -> `(systems, rows)`."""


def function_matrix(A: Function) -> SparseMatrix:
    """The one matrix by which a function multiplies each of its systems.

    Raises:
        NonlinearError: the function is not linear.
        CoupledSystems: it mixes its systems.
        UnsupportedOperation: it cannot be traced, or its systems have different matrices, or may have: with traced
            coefficients nobody knows.
    """
    matrix, _ = matrix_and_bias(A, A.bk.zeros((A.layout.systems, A.layout.size), A.dtype, A.like))
    shapes = [layout.shape if layout.structure is None else None for layout in (A.layout, A.image)]
    return SparseMatrix.build(
        A.bk, matrix.structure, matrix.known_or_arrays(), like=A.like, in_shape=shapes[0], out_shape=shapes[1]
    )


def matrix_and_bias(A: Function, like: Array, exact: bool = False) -> tuple[Any, Any]:
    """The matrix of `function_matrix`, and the image of zeros.

    Args:
        like: rows such as the function takes, of the library or of NumPy.
        exact: refuse a function that rounds more than its matrix does.

    Raises:
        As `function_matrix`.
    """
    systems = A.layout.systems
    matrix, bias = without_compilers(traced_matrix)(front_end_of(A.bk.name), A.apply, like, exact=exact)
    return (matrix if systems == 1 else _shared_block(matrix, systems)), bias


def _shared_block(matrix: Any, systems: int) -> Any:
    """The block that stands on the diagonal `systems` times.

    Raises:
        CoupledSystems: a system depends on another.
        UnsupportedOperation: there is none, or its values are not known.
    """
    n, m = (size // max(systems, 1) for size in matrix.shape)
    rows, cols, _ = matrix.structure.entries()
    if systems and np.any(rows // n != cols // m):
        raise CoupledSystems(
            f"The function takes {systems} systems at once, on its first axes, and mixes them, so it has no matrix of "
            "one system. Give batch_ndim=0, for one large system, or a function that keeps them apart."
        )
    if matrix.constant is None or systems == 0:
        raise UnsupportedOperation(
            f"The function takes {systems} systems at once, on its first axes. Its matrix for one system is known only "
            "if all coefficients are. Give the function of one system."
        )
    csr = matrix.to_scipy()
    first = csr[:n, :m]
    for i in range(1, systems):
        block = csr[i * n : (i + 1) * n, i * m : (i + 1) * m]
        parts = ((block.indptr, first.indptr), (block.indices, first.indices), (block.data, first.data))
        if not all(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc") for a, b in parts):
            raise UnsupportedOperation(
                f"System {i} of the function has another matrix than system 0. Give one function for each, or a dense "
                "array (systems, n, n)."
            )
    return matrix[:n, :m]
