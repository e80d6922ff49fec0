"""Outcome of an iteration, in rows."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...backends import Array


class Outcome(NamedTuple):
    """Every array may have a first axis for checkpoints."""

    x: Array  # (batch, n)
    residual: Array  # (batch, n), b - A x
    norm: Array  # (batch, 1)
    bound: Array  # (batch, 1), residual norm that counts as converged
    attainable: Array  # (batch, 1), residual norm that the precision allows to expect; 0 where it was not asked for
    null_part: Array  # (batch, 1), norm of the part of b that no x reaches, in null vectors that are known
    status: Array  # (batch, 1)
    steps: Array  # (batch, 1)
    products: Array  # (batch, 1)
    singular: Array  # (batch, 1), what is known of its matrix: numbers of `Singularity`
    history: Any  # (most steps + 1, batch), NaN where nothing was recorded, or ()
