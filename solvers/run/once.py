"""Factors applied once, in straight-line code: what a program holds of a direct method.

What is not solved then has the status BREAKDOWN, and another method solves it. The powers of two of b are taken out
once, so that no norm needs a scale of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends import Array, Backend
from .outcome import Outcome, Status

_CONVERGED, _BREAKDOWN, _DIVERGED = int(Status.CONVERGED), int(Status.BREAKDOWN), int(Status.DIVERGED)


def solved_once(loop: Any, rtol: Array, atol: Array, singular: Array | None) -> Outcome:
    """`x0 + M (b - A x0)` with its true residual; factors that are not finite solve nothing."""
    bk, A, M, x0 = loop.bk, loop.A, loop.M, loop.x0
    scale = bk.binary_scale(loop.b)
    if x0 is not None:
        scale = bk.maximum(scale, bk.binary_scale(A.apply(x0)))
    b = bk.times(1 / scale, loop.b)
    size = _norm(bk, b)
    asked = bk.maximum(rtol * size, atol / scale)
    if x0 is None:
        x, r, norm = bk.zeros_like(b), b, size
    else:
        x = bk.where(size == 0, bk.zeros_like(b), bk.times(1 / scale, x0))
        r = b - A.apply(x)
        norm = _norm(bk, r)
    d = M.apply(loop.in_range(r))
    running = ~(norm <= asked)
    x = bk.where(running, loop.without_null(x + d), x)
    residual = b - A.apply(x)
    sound, norm = bk.isfinite(norm) & bk.isfinite(asked) & (asked >= 0), _norm(bk, residual)
    none = bk.zeros(tuple(norm.shape), np.dtype(np.int32), norm)
    steps = bk.where(running & sound, none + 1, none)
    solved = (norm <= asked) & bk.isfinite(bk.max_abs(d))
    status = bk.where(sound, bk.where(solved, _CONVERGED, none + _BREAKDOWN), _DIVERGED)
    products = none + A.products * (1 if x0 is None else 2)
    norm, asked, zero = scale * norm, scale * asked, bk.zeros_like(norm)
    singular = none if singular is None else singular
    return Outcome(
        bk.times(scale, x), bk.times(scale, residual), norm, asked, zero, zero, none + 1, status, steps, products,
        singular, none, (),
    )  # fmt: skip


def _norm(bk: Backend, v: Array) -> Array:
    return bk.sqrt(bk.square_norm(v))
