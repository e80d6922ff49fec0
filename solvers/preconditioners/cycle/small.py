"""Single-level cycle: the dense (pseudo-)inverse of a small matrix, or of each of a batch."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ....sparse import Dense, Matrix
from ....sparse.operators.concrete import in_scipy
from ..target import Target
from .checked import hermitian_and_double
from .dense import known_inverse, rounding_of, traced_inverse
from .scales import scales_of, times_diagonals


def exact_inverse(matrix: Matrix, kind: str) -> tuple[Dense, bool | None]:
    """(Pseudo-)inverse, computed with a unit diagonal, and whether it is Hermitian (None: unknown).

    Raises:
        ValueError: an entry is not finite, or a row with entries has a zero on the diagonal.
    """
    known, target = in_scipy(matrix), Target(matrix, matrix.dtype)
    if known is None:
        return _traced(matrix), None
    if isinstance(known, sp.csr_array):
        hermitian, wide = hermitian_and_double(known, kind)
        return target.dense(_inverse(wide, hermitian, matrix.dtype)), hermitian
    each = [hermitian_and_double(A, kind) for A in known]
    hermitian = all(one for one, _ in each)
    found = [_inverse(A, hermitian, matrix.dtype) for _, A in each]
    dtype = found[0].dtype if found else matrix.dtype
    return target.dense(np.array(found, dtype).reshape(len(found), *matrix.shape)), hermitian


def _inverse(A: sp.csr_array, hermitian: bool, given: np.dtype) -> np.ndarray:
    left, right = scales_of(A, hermitian)
    inverse = known_inverse(times_diagonals(left, A, right).toarray(), hermitian, rounding_of(given, 1))
    found: np.ndarray = right[:, None] * inverse * left
    return found


def _traced(matrix: Matrix) -> Dense:
    bk = matrix.bk
    entries = bk.constant(matrix.dense())
    diagonal = bk.abs(bk.diagonal(entries))
    scale = bk.astype(bk.where(diagonal > 0, 1 / bk.sqrt(bk.where(diagonal > 0, diagonal, 1)), 1), matrix.dtype)
    both = scale[..., :, None] * scale[..., None, :]
    return Dense(bk, both * traced_inverse(bk, both * entries))
