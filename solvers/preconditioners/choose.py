"""The automatic choice of a preconditioner: a table of what is known about the matrix."""

from __future__ import annotations

from collections.abc import Container

import numpy as np

from ...sparse import Dense, Matrix, Operator
from ...sparse.operators.function import LinearFunction
from ...sparse.symmetry import seems_hermitian
from .known import at_hand

_SMALL = 5000  # unknowns up to which scaling takes less time than setting up a hierarchy


def choose_kind(A: Operator, kinds: Container[str]) -> str:
    """The kind of preconditioner that suits A, of those that there are.

    | known about A | kind |
    |---|---|
    | symmetric (Hermitian), diagonal of one sign, more than 5000 unknowns, one matrix | amg |
    | symmetric (Hermitian), smaller, or a batch | jacobi |
    | not symmetric, sparse, no zero on the diagonal | ilu |
    | products only | chebyshev |
    | anything else: dense, or values that are not known | jacobi |
    """
    A = A.without_offset
    if not isinstance(A, Matrix | LinearFunction) and "chebyshev" in kinds:
        return "chebyshev"
    if not isinstance(A, Matrix) or isinstance(A, Dense) or A.known() is None:
        return "jacobi"
    diagonal = at_hand(A).diagonals()
    if seems_hermitian(A):
        one_sign = bool(np.all(np.real(diagonal) > 0) or np.all(np.real(diagonal) < 0))
        large = A.shape[0] > _SMALL and A.systems is None
        return "amg" if large and one_sign and "amg" in kinds else "jacobi"
    return "ilu" if bool(np.all(diagonal != 0)) and "ilu" in kinds else "jacobi"
