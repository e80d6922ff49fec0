"""`stack`: single matrices of one pattern as one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....backends import choose_backend
from ..dense import Dense
from ..matrix import Matrix
from ..sparse_matrix import SparseMatrix
from .assemble import Given, of_one_library
from .batch import matrix_batch


def stack(matrices: Sequence[Given], *, format: str | None = None) -> Matrix:
    """One batch of single matrices of one pattern: entries at the same places, of which only the values differ.

    Args:
        matrices: of krylix, or sparse ones of SciPy, of one library and shape; all dense or all sparse. Traced values
            keep their derivatives.
        format: of the result; None: that of the matrices, or what suits where these have several.

    Raises:
        ValueError: there is none, they are batches, or their shapes or patterns differ.
        TypeError: they are dense and sparse ones, or something else.

    Examples:
        >>> import numpy as np
        >>> from krylix import linear_solve
        >>> from krylix.sparse import eye, stack
        >>> A = stack([2 * eye(3), 4 * eye(3)])
        >>> linear_solve(A, np.ones(3)).x
        array([[0.5 , 0.5 , 0.5 ],
               [0.25, 0.25, 0.25]])
    """
    given = list(matrices)
    _check_single(given)
    dense = [isinstance(A, Dense) for A in given]
    if any(dense) and not all(dense):
        raise TypeError('Dense and sparse matrices were given; expected one kind. Take A.to("csr") of the dense ones.')
    batch: Matrix = _stacked_dense(given) if all(dense) else _stacked_sparse(given)
    return batch if format is None else batch.to(format)


def _check_single(matrices: list[Any]) -> None:
    """Refuse what is no matrix, batches, and several shapes."""
    if not matrices:
        raise ValueError("No matrix was given; expected at least one.")
    for i, A in enumerate(matrices):
        if len(getattr(A, "shape", ())) != 2:
            raise TypeError(f"matrices[{i}] is of type {type(A).__name__}; expected a matrix of krylix or SciPy.")
        if getattr(A, "systems", None) is not None:
            raise ValueError(
                f"matrices[{i}] is a batch of {A.systems}; expected single matrices. Take its parts, A[k]."
            )
    shapes = {tuple(A.shape): None for A in matrices}
    if len(shapes) > 1:
        raise ValueError(f"Matrices of the shapes {', '.join(map(str, shapes))} were given; expected one shape.")


def _stacked_dense(matrices: list[Dense]) -> Dense:
    bk = choose_backend(*matrices)
    dtype = np.result_type(*(A.dtype for A in matrices))
    moved = [(A if A.bk is bk else A.on_backend(bk, None)).astype(dtype) for A in matrices]
    constants = [A.constant for A in moved]
    constant = np.stack([c for c in constants if c is not None]) if all(c is not None for c in constants) else None
    return Dense(bk, constant if bk.on_host and constant is not None else bk.stack([A.matrix for A in moved]), constant)


def _stacked_sparse(matrices: list[Given]) -> SparseMatrix:
    stored: list[Any] = of_one_library([A.copy() if sp.issparse(A) else A for A in matrices])  # kept: own index arrays
    if all(A.structure == stored[0].structure for A in stored):
        return matrix_batch(stored)
    rows = [A.to("csr") for A in stored]  # two structures may hold the same places
    for i, A in enumerate(rows):
        if A.structure != rows[0].structure:
            raise ValueError(
                f"Matrices 0 and {i} have their {rows[0].nnz} and {A.nnz} entries at different places; expected the "
                "same, with zeros stored. as_operator(matrices) makes a batch on the union of all patterns."
            )
    return matrix_batch(rows).in_suitable_format()
