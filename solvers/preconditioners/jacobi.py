"""The Jacobi preconditioner: divide by the diagonal."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...sparse import Operator
from ..diagonal import DiagonalOperator
from .base import Preconditioner
from .pipeline import of_operator


@of_operator(needs_entries=False, eagerly_on_host=False)
def jacobi(own: Operator, _: Any) -> Preconditioner:
    """1 / diagonal of A; 1 where the diagonal is zero. Stores n numbers, costs one pass over the vector.

    A must show its diagonal: a matrix, or a function small enough to be evaluated column by column. What is NaN there
    is so in M.

    Source: Saad, Iterative Methods for Sparse Linear Systems, 2nd ed., section 10.2.
    """
    bk, diagonal = own.bk, own.diagonals()
    one = bk.full_like(diagonal, 1)
    values = one / bk.where(diagonal == 0, one, diagonal)
    hermitian = True if own.dtype.kind != "c" else None  # with a complex diagonal it is not, but that may be traced
    count = int(np.prod(tuple(values.shape)))
    inner = DiagonalOperator(bk, values, own.systems is not None)
    return Preconditioner(inner, "jacobi", hermitian, memory=count, work=own.shape[0])
