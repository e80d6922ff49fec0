"""Special functions, composed."""

from __future__ import annotations

from math import factorial as exact
from typing import Any

import numpy as np

from ..interface.arrays import Array

_MOST = {4: 12, 8: 20}  # integers whose factorial fits into so many bytes


def sigmoid(bk: Any, x: Array) -> Array:
    """The logistic function 1 / (1 + exp(-x)), without overflow and exact in the tails, for real x."""
    x = bk.divide(x, 1)
    small = bk.xp.exp(bk.xp.where(x < 0, x, -x))  # not of -abs(x), which has no derivative at 0
    return bk.xp.where(x < 0, small, 1) / (1 + small)


def softplus(bk: Any, x: Array) -> Array:
    """log(1 + exp(x)), without overflow and exact in the tails."""
    return bk.logaddexp(x, 0)


def factorial(bk: Any, x: Array) -> Array:
    """x! of integers, exact, in int64 (int32 in JAX without double precision); of others the gamma function of x + 1.

    Integers that have no factorial which fits raise where they are known, and give 0 where they are not; real numbers
    up to -1 give NaN.
    """
    if bk.dtype(x).kind not in "biu":
        return bk.xp.where(x > -1, bk.xp.exp(bk.lgamma(bk.xp.where(x > -1, x, 0) + 1)), np.nan)
    if bk.dtype(x).kind == "b":
        x = bk.xp.astype(x, bk.xp.int32)
    widest = bk.stored_dtype(np.dtype(np.int64))
    most, known = _MOST[widest.itemsize], bk.host_view(x)
    if known is not None and known.size and (known.min() < 0 or known.max() > most):
        raise ValueError(
            f"factorial got integers from {known.min()} to {known.max()}; expected 0 to {most}, whose factorials fit "
            "into integers. Give real numbers for larger ones."
        )
    there = bk.xp.logical_and(x >= 0, x <= most)
    table = bk.asarray(np.array([exact(i) for i in range(most + 1)], widest), like=x)
    return bk.xp.where(there, bk.xp.take(table, bk.xp.astype(bk.xp.where(there, x, 0), bk.xp.int32), axis=0), 0)
