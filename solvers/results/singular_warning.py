"""SingularMatrixWarning: the solution is one of many, or decided by rounding."""

from __future__ import annotations

import sys
import warnings

import numpy as np
from scipy.linalg import LinAlgWarning

from ...backends import Array, Backend
from ..methods.direct.singular import Singularity

_LIBRARIES = (__name__.partition(".")[0], "tensorflow", "torch", "jax")  # some call us for the user


class SingularMatrixWarning(LinAlgWarning):
    """The matrix is singular, or so ill-conditioned that x may have no correct digit, though its residual is small."""


def warn_of_singular(bk: Backend, method: str, singularity: Array, converged: Array) -> None:
    """Warn where factors have met a zero pivot, or rounding may have decided about x.

    Not where null vectors were given, or found before: there x is what was asked for. Failures speak for themselves.

    Args:
        singularity: numbers of `Singularity`, of all systems, that are known now.
        converged: bools of the same shape.
    """
    found = np.where(bk.to_numpy(converged), bk.to_numpy(singularity), int(Singularity.REGULAR)).reshape(-1)
    for kind, text in _TEXTS.items():
        count = int(np.count_nonzero(found == kind))
        if count:
            which = "" if len(found) == 1 else f" of {count} of {len(found)} systems"
            warnings.warn(f"{method}: the matrix{which} {text}", SingularMatrixWarning, stacklevel=_outside())


_TEXTS = {
    Singularity.SINGULAR: "is singular: a pivot is zero, but for rounding, so x is one of many solutions. It has no "
    "part in the null vectors that were found. Name them with nullspace=..., add what fixes x, or check the matrix.",
    Singularity.ILL_CONDITIONED: "is ill-conditioned: its reciprocal condition number is below the rounding unit, so x "
    "may have no correct digit, though its residual is small. Scale or reformulate the system, or use more precision.",
}


def _outside() -> int:
    """Stack level of the first caller outside of this library, for `warn_of_singular`."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES:
        level, frame = level + 1, frame.f_back
    return level
