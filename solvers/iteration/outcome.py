"""Outcome of an iteration, in rows."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...backends import Array


class Outcome(NamedTuple):
    """Outcome of a solve; every array may have a leading axis for checkpoints."""

    x: Array  # (batch, n)
    residual: Array  # (batch, n), b - A x
    norm: Array  # (batch, 1)
    bound: Array  # (batch, 1), residual norm that counts as converged
    attainable: Array  # (batch, 1), attainable residual norm; 0 where it was not computed
    null_part: Array  # (batch, 1), norm of the component of b in known null vectors of A^H
    status: Array  # (batch, 1)
    steps: Array  # (batch, 1)
    products: Array  # (batch, 1)
    singular: Array  # (batch, 1), what is known of its matrix: numbers of `Singularity`
    history: Any  # (most steps + 1, batch), NaN where nothing was recorded, or ()
