"""Symmetry check of a given preconditioner, before methods that need it."""

from __future__ import annotations

import numpy as np

from ...backends import real_dtype
from ...sparse import Matrix, UnsupportedOperation
from ...sparse.analysis.analysis import analyse_anew, analysis_of, forget
from .base import Preconditioner

_FAR, _FAR_IN_SINGLE = 1e-3, 1e-2
"""Relative asymmetries: those of spilu are 5e-3 and more, and rounding leaves complete factors far less, unless the
condition of the matrix is 1e12, in single precision 1e5."""


def far_from_hermitian(M: Preconditioner) -> float | None:
    """Relative asymmetry of a known matrix or of SuperLU factors; None if M is (nearly) Hermitian or unknown.

    Functions are not looked at: a failed solve does. Cost: two products with M, or solves with its factors, once.
    """
    if M.hermitian is not None or not (isinstance(M.inner, Matrix) or M.kind == "SuperLU"):
        return None
    own = M.inner if isinstance(M.inner, Matrix) else M
    if own.analysis is None:
        analyse_anew(own)
    relative = analysis_of(own).asymmetry
    single = M.dtype.itemsize < (16 if M.dtype.kind == "c" else 8)
    if relative is None or relative <= (_FAR_IN_SINGLE if single else _FAR):
        return None
    forget(own)  # it may be written to before it is tried again
    return relative


def far_from_symmetric(M: Preconditioner) -> float | None:
    """Relative size of M - M^T, without conjugation; None if M is (nearly) symmetric, unknown or a function.

    Cost: one product with M and one with its transpose.
    """
    bk, n = M.bk, M.shape[1]
    if M.kind == "user's function" or not n or bk.in_program() or bk.compiled(*bk.flatten(M.as_container())[0]):
        return None
    try:
        v = bk.astype(bk.reshape(bk.scatter_numbers(n, real_dtype(M.dtype), None), (1, -1)), M.dtype)
        v = bk.copy(bk.broadcast_to(v, (M.systems or 1, n)))
        with bk.errstate():
            forward, backward = bk.to_numpy(M.apply(v)), bk.to_numpy(M.transpose().apply(v))
    except (TypeError, UnsupportedOperation):  # it has no transpose: a failed solve tells
        return None
    with np.errstate(all="ignore"):
        scale = np.linalg.norm(forward) + np.linalg.norm(backward)
        relative = float(np.linalg.norm(forward - backward) / scale) if scale > 0 else 0.0
    return relative if relative > (_FAR_IN_SINGLE if M.dtype.itemsize < 16 else _FAR) else None
