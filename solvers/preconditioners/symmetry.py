"""Symmetry check of a given preconditioner, before methods that need it."""

from __future__ import annotations

from ...sparse import Matrix
from ...sparse.analysis.analysis import analysis_of
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
    relative = analysis_of(M.inner if isinstance(M.inner, Matrix) else M).asymmetry
    single = M.dtype.itemsize < (16 if M.dtype.kind == "c" else 8)
    return relative if relative is not None and relative > (_FAR_IN_SINGLE if single else _FAR) else None
