"""The Jacobi preconditioner: divide by the diagonal."""

from __future__ import annotations

import numpy as np

from ...sparse import Operator
from .base import Preconditioner
from .diagonal import DiagonalOperator
from .known import known_or_diagonals, stored_entries


def jacobi(A: Operator) -> Preconditioner:
    """1 / diagonal of A; 1 where the diagonal is zero. Stores n numbers, costs one pass over the vector.

    A must show its diagonal: a matrix, or a function small enough to be evaluated column by column.

    Source: Saad, Iterative Methods for Sparse Linear Systems, 2nd ed., section 10.2.
    """
    bk, diagonal = known_or_diagonals(A)
    one = bk.full_like(diagonal, 1)
    values = one / bk.where(diagonal == 0, one, diagonal)
    hermitian = True if A.dtype.kind != "c" else None  # with a complex diagonal it is not, but that may be traced
    count, n = int(np.prod(tuple(values.shape))), A.shape[0]
    inner = DiagonalOperator(A.bk, values, A.systems is not None)
    return Preconditioner(inner, "jacobi", hermitian, memory=count, work=n, entries=stored_entries(A))
