"""Null vectors of matrices whose values are known when a compiled function runs, and not before; and of batches."""

from __future__ import annotations

import numpy as np

from ...backends import Array
from ...sparse import SparseMatrix
from .found import rounding_of_sums
from .projections import WithoutConstantsInside

_NEAR = 1e-3  # of the diagonal: sums of rows above make a closer look needless


def constants_at_run_time(A: SparseMatrix) -> WithoutConstantsInside:
    """What takes constants off where A and its transpose turn out to map them to zero.

    Of one region; rows and columns of zeros are regions of their own. `find_constants` sees more, where it can look.

    Cost: the sums of the rows; where they are small, also of the columns, and of the absolute values.
    """
    bk, rows, n = A.bk, A.systems or 1, A.shape[0]
    ones = bk.broadcast_to(bk.asarray(np.ones((1, n), A.dtype), like=A.stored.anchor()), (rows, n))
    sums = bk.abs(A.apply(ones))
    nothing = bk.full_like(sums, 1), bk.zeros_like(sums[:, :1])
    near = bk.max_abs(sums) <= _NEAR * bk.max_abs(bk.broadcast_to(A.diagonals(), (rows, n)))
    inside, weights = bk.cond(bk.any(near), lambda ones, sums: _told(A, ones, sums), lambda *_: nothing, ones, sums)
    return WithoutConstantsInside(bk, inside, weights)


def _told(A: SparseMatrix, ones: Array, sums: Array) -> tuple[Array, Array]:
    """The parts of what takes constants off."""
    bk = A.bk
    sizes = A._each(lambda v: A.stored.host.astype(A.stored.host.abs(v), A.dtype))
    scales = [bk.abs(M.apply(ones)) for M in (sizes, sizes.T)]
    inside = bk.where(scales[0] + scales[1] == 0, bk.zeros_like(sums), bk.full_like(sums, 1))
    eps = rounding_of_sums(A.dtype)
    bad = [~(found <= eps * scale) for found, scale in zip((sums, bk.abs(A.T.apply(ones))), scales)]  # NaN is bad
    count = bk.sum(inside, 1, keepdims=True)
    regular = bk.max_abs(bk.where(bad[0] | bad[1], inside, bk.zeros_like(inside))) > 0
    weights = bk.where(regular | (count == 0), bk.zeros_like(count), 1 / bk.maximum(count, bk.full_like(count, 1)))
    return bk.where(weights > 0, inside, bk.full_like(inside, 1)), weights
