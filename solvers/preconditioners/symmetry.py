"""Symmetry check of a given preconditioner, before methods that need it."""

from __future__ import annotations

from weakref import WeakSet

from ...sparse import Matrix
from ...sparse.symmetry import asymmetry
from .base import Preconditioner

_FAR, _FAR_IN_SINGLE = 1e-3, 1e-2
"""Relative asymmetries: those of spilu are 5e-3 and more, and rounding leaves complete factors far less, unless the
condition of the matrix is 1e12, in single precision 1e5."""

_near: WeakSet[Preconditioner] = WeakSet()  # those that were seen not to be far: prepared ones are asked for each solve


def far_from_hermitian(M: Preconditioner) -> float | None:
    """Relative asymmetry of a known matrix or of SuperLU factors; None if M is (nearly) Hermitian or unknown.

    Functions are not looked at: a failed solve does. Cost: two products with M, or solves with its factors, once.
    """
    looks = M.hermitian is None and (isinstance(M.inner, Matrix) or M.kind == "SuperLU")
    if not looks or M in _near:
        return None
    relative = asymmetry(M.inner if isinstance(M.inner, Matrix) else M)
    if relative is None:
        return None
    if relative > (_FAR if M.dtype.itemsize >= (16 if M.dtype.kind == "c" else 8) else _FAR_IN_SINGLE):
        return relative
    _near.add(M)
    return None
