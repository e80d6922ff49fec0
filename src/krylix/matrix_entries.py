"""Values and pattern of a square matrix, as layers of PyTorch and Keras store them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .sparse import SparseMatrix, as_operator


class MatrixEntries(NamedTuple):
    """Values `(n, n)` of a dense matrix; of a sparse one `(nnz,)` in the order of rows, with rows and columns."""

    values: np.ndarray
    rows: np.ndarray | None
    columns: np.ndarray | None
    n: int


def entries_of(A: Any) -> MatrixEntries:
    """Entries of a matrix of NumPy, SciPy or krylix.

    Raises:
        TypeError: A is not a matrix whose entries are known.
        ValueError: it is not one square matrix.
    """
    matrix: Any = as_operator(A)
    if not hasattr(matrix, "toarray"):
        raise TypeError(f"A is {matrix!r}; expected a matrix, whose entries are known, or a function.")
    shape = (*(() if matrix.systems is None else (matrix.systems,)), *matrix.shape)  # of a batch: that of one of them
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"A has the shape {shape}; expected one square matrix (n, n).")
    if not isinstance(matrix, SparseMatrix):
        return MatrixEntries(np.asarray(matrix.toarray()), None, None, shape[0])
    coo = matrix.to_scipy().tocoo()
    return MatrixEntries(coo.data, coo.row.astype(np.int64), coo.col.astype(np.int64), shape[0])
