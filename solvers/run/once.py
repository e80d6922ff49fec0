"""Factors applied once, in straight-line code: what a program holds of a direct method.

What is not solved then has the status BREAKDOWN, and another method solves it. The powers of two of b are taken out
once, so that no norm needs a scale of its own.

In single precision the default tolerance is out of reach for matrices with a condition of 1e2 and more, which may not
ask the host in each run: one refinement shows whether the precision is the limit. In double that begins at 1e5.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...backends import Array, Backend
from ..methods.method import apply
from .outcome import Outcome, Status
from .stopping import reached_by

_CONVERGED, _BREAKDOWN, _DIVERGED = int(Status.CONVERGED), int(Status.BREAKDOWN), int(Status.DIVERGED)


def solved_once(loop: Any, rtol: Array, atol: Array, singular: Array | None) -> Outcome:
    """`x0 + M (b - A x0)` and its true residual. Factors that are not finite solve nothing, b = 0 neither."""
    bk, A, x0 = loop.bk, loop.A, loop.x0
    norm = partial(_norm, bk)
    scale = bk.binary_scale(loop.b)
    if x0 is not None:
        scale = bk.maximum(scale, bk.binary_scale(A.apply(x0)))
    inverse = 1 / scale
    b = bk.times(inverse, loop.b)
    size = norm(b)
    asked = bk.maximum(rtol * size, atol * inverse)
    sound = bk.isfinite(asked) & (asked >= 0)
    if x0 is None:
        start, r, before = None, b, size
    else:
        start = bk.where(size == 0, bk.zeros_like(b), bk.times(inverse, x0))
        r = b - A.apply(start)
        before = norm(r)
        sound = sound & bk.isfinite(before)
    steps = bk.astype(before > asked, np.dtype(np.int32))
    x = bk.times(bk.astype(steps, bk.dtype(size)), apply(loop.M, loop.in_range(r)))
    x = loop.without_null(x if start is None else start + x)
    r = b - A.apply(x)
    left = norm(r)
    missed = sound & (left > asked)

    def refined(x: Array, r: Array, left: Array) -> tuple[Array, ...]:
        x = loop.without_null(x + apply(loop.M, loop.in_range(r)))
        image = A.apply(x)
        r = b - image
        left = norm(r)
        return x, r, left, reached_by(bk, A, x, image, size, False, norm) if loop.by_default else zero

    zero = reached = bk.zeros_like(left)
    again: Any = 0
    if bk.dtype(left) == np.float32:
        first = x, r, left
        new = bk.cond(bk.any(missed), refined, lambda *first: (*first, zero), *first)
        new = new if len(left) == 1 else [bk.where(missed, *two) for two in zip(new, (*first, zero))]
        x, r, left, reached = new
        reached, again = bk.where(left > asked, reached, zero), bk.astype(missed, np.dtype(np.int32))
    bound = bk.maximum(asked, reached)
    none = 0 * steps
    status = bk.where(sound, bk.where(left <= bound, none + _CONVERGED, _BREAKDOWN), _DIVERGED)
    numbers = (scale * left, scale * bound, scale * reached, zero, none + 1)
    products = none + A.products * ((1 if x0 is None else 2) + again)
    singular = none if singular is None else singular
    x, r = bk.times(scale, x), bk.times(scale, r)
    return Outcome(x, r, *numbers, status, steps + again, products, singular, none, ())


def _norm(bk: Backend, v: Array) -> Array:
    return bk.sqrt(bk.square_norm(v))
