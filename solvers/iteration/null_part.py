"""Component of b in the null space of `A^H`: no x reaches it, so it is subtracted, reported and judged at the end.

Rounding of what b was computed from makes one, relative to b the larger the smaller b is: the divergence of a velocity
field that has been projected before is as small as the first tolerance, and its mean is rounding of the field. A solve
that fails for it could not be helped by anybody. A part of more than `2 sqrt(eps)` of b is no rounding: then there is
no solution. A solve for a derivative is not judged, as its right-hand side may be rounding in null vectors alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...backends import Array, Backend, real_dtype
from ...sparse import Operator
from ..methods.direct.singular import in_range
from .outcome import Outcome, Status

_LARGEST = 2  # times sqrt(eps), of b
_ROUNDING = 4  # times eps, of b: a rest that is no larger is none


class NullPart(NamedTuple):
    """Right-hand sides `(batch, n)` split into the known null-space component and the rest."""

    rest: Array
    part: Array

    @classmethod
    def of(cls, bk: Backend, b: Array, null: Operator) -> NullPart:
        """Split b by two projections: after one, the rest of a b in the null space still has rounding in it."""
        b = bk.materialize(b)  # computed twice by XLA, b - rest would have the rounding of b in it
        rest = null.apply(null.apply(b))
        eps = float(np.finfo(real_dtype(bk.dtype(b))).eps)
        nothing = bk.norm(rest) <= _ROUNDING * eps * bk.norm(b)  # this way round: of a NaN it is not known to be
        rest = bk.where(nothing, bk.zeros_like(rest), rest)
        return cls(rest, b - rest)

    @classmethod
    def by_factors(cls, b: Array, factors: Operator | None) -> NullPart | None:
        """Split with the null vectors of the factors; None if they have none."""
        rest = in_range(factors, b)
        return None if rest is b else cls(rest, b - rest)

    def told(self, bk: Backend, outcome: Outcome, rtol: Array, atol: Array, derived: bool) -> Outcome:
        """Convert the outcome for the rest to that for b.

        Args:
            derived: is it the solve for a derivative?
        """
        size, rest = bk.norm(self.part), bk.norm(self.rest)
        asked = bk.maximum(rtol * rest, atol)
        rounding = _LARGEST * float(np.finfo(bk.dtype(size)).eps) ** 0.5 * bk.maximum(size, rest)
        lost = size > bk.maximum(asked, rounding)
        status = outcome.status
        if not derived:
            converged = status == int(Status.CONVERGED)
            status = bk.where(lost & converged, int(Status.STAGNATED), status)
        null_part = size + bk.zeros_like(outcome.norm)
        allowed = bk.where(lost & (not derived), 0 * null_part, null_part)
        return outcome._replace(
            residual=outcome.residual + self.part,
            norm=_hypot(bk, outcome.norm, null_part),
            bound=_hypot(bk, outcome.bound, allowed),
            attainable=bk.where(outcome.attainable > 0, _hypot(bk, outcome.attainable, allowed), outcome.attainable),
            null_part=null_part,
            status=status,
        )


def _hypot(bk: Backend, a: Array, b: Array) -> Array:
    """Norm of a sum of two orthogonal parts, of any magnitude."""
    most = bk.maximum(a, b)
    scaled = bk.safe_divide(a, most), bk.safe_divide(b, most)
    return bk.where(b == 0, a, most * bk.sqrt(scaled[0] * scaled[0] + scaled[1] * scaled[1]))
