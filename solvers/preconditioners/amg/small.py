"""One level only: the (pseudo-)inverse of a small matrix, or of each of a batch, as a dense matrix."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ....sparse import Dense, Matrix
from ..cycle.dense import known_inverse, traced_inverse
from .known import Target
from .scales import scales_of, times_diagonals


def small_inverse(A: sp.csr_array, hermitian: bool) -> np.ndarray:
    """Of a known matrix, found in variables in which its diagonal is one."""
    left, right = scales_of(A, hermitian)
    found: np.ndarray = right[:, None] * known_inverse(times_diagonals(left, A, right).toarray(), hermitian) * left
    return found


def small_cycle(matrix: Matrix, known: tuple[sp.csr_array, ...] | None, hermitian: bool, target: Target) -> Dense:
    """Of the matrices of a batch, or of one whose values are traced."""
    if known is not None:
        wide = [A.astype(np.result_type(A.dtype, np.float64)) for A in known]
        each = [small_inverse(A, hermitian) for A in wide]
        return target.dense(np.array(each, wide[0].dtype if wide else matrix.dtype).reshape(-1, *matrix.shape))
    bk = matrix.bk
    entries = bk.constant(matrix.dense())
    diagonal = bk.abs(bk.diagonal(entries))
    scale = bk.astype(bk.where(diagonal > 0, 1 / bk.sqrt(bk.where(diagonal > 0, diagonal, 1)), 1), matrix.dtype)
    both = scale[..., :, None] * scale[..., None, :]
    return Dense(bk, both * traced_inverse(bk, both * entries))
