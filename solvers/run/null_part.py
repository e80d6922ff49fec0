"""Component of b in the null space of `A^H`: no x reaches it, so it is taken off b, and the rest is solved for.

Rounding of what b was computed from makes one, relative to b the larger the smaller b is: the divergence of a velocity
field that has been projected before is rounding, and so is its mean. The system that is left has a solution; its
right-hand side decides about its tolerance. Of null vectors that only the factors of A have shown, a part that is no
rounding means that there is no solution; not in the solve for a derivative, whose right-hand side may be nothing else.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...backends import Array, Backend, real_dtype
from ...sparse import Operator
from ..methods.direct.singular import in_range
from .outcome import Outcome, Status

_ROUNDING = 4  # times eps, of b: a rest that is no larger is none


class NullPart(NamedTuple):
    """Right-hand sides `(batch, n)` split into the known null-space component and the rest."""

    rest: Array
    part: Array

    @classmethod
    def of(cls, bk: Backend, b: Array, null: Operator) -> NullPart:
        """Split b by two projections: after one, the rest of a b in the null space still has rounding in it.

        Powers of two are taken out of b, so that neither sums nor the norms that decide overflow.
        """
        b = bk.materialize(b)  # computed twice by XLA, b - rest would have the rounding of b in it
        scale = bk.binary_scale(b)
        scaled = bk.times(1 / scale, b)
        rest = null.apply(null.apply(scaled))
        eps = float(np.finfo(real_dtype(bk.dtype(b))).eps)
        nothing = bk.norm(rest) <= _ROUNDING * eps * bk.norm(scaled)  # this way round: of a NaN it is not known to be
        rest = bk.times(scale, bk.where(nothing, bk.zeros_like(rest), rest))
        return cls(rest, b - rest)

    @classmethod
    def rest_of(cls, bk: Backend, b: Array, null: Operator | None, both: bool) -> Array:
        """The rest of b, where null vectors of A are known that the transpose has, too."""
        return cls.of(bk, b, null).rest if null is not None and both else b

    @classmethod
    def by_factors(cls, b: Array, factors: Operator | None) -> NullPart | None:
        """Split with the null vectors of the factors; None if they have none."""
        rest = in_range(factors, b)
        return None if rest is b else cls(rest, b - rest)

    def reported(self, bk: Backend, outcome: Outcome) -> Outcome:
        """The outcome for the rest, with the size of the part."""
        consistent = bk.where(self._is_rounding(bk), 0 * outcome.steps + 1, 0 * outcome.steps)
        return outcome._replace(null_part=bk.norm(self.part) + bk.zeros_like(outcome.norm), consistent=consistent)

    def judged(self, bk: Backend, outcome: Outcome, rtol: Array, atol: Array) -> Outcome:
        """Return the outcome for null vectors that only factors have shown.

        A part that is rounding is reported; a larger one belongs to the residual, and the system has no solution unless
        the tolerance allows that part.
        """
        reported, rounding = self.reported(bk, outcome), self._is_rounding(bk)
        norm = bk.where(rounding, outcome.norm, _hypot(bk, outcome.norm, reported.null_part))
        allowed = bk.maximum(rtol * bk.norm(self.rest), atol)  # never by what the precision reaches
        lost = ~rounding & ((reported.null_part > allowed) | bk.negated(norm <= outcome.bound))
        lost = lost & (outcome.status == int(Status.CONVERGED))
        return reported._replace(
            residual=bk.where(rounding, outcome.residual, outcome.residual + self.part),
            norm=norm,
            null_part=bk.where(rounding, reported.null_part, 0 * norm),
            consistent=bk.where(lost, reported.consistent, outcome.consistent),
            status=bk.where(lost, int(Status.STAGNATED), outcome.status),
        )

    def _is_rounding(self, bk: Backend) -> Array:
        size, rest = bk.norm(self.part), bk.norm(self.rest)
        most = float(np.finfo(bk.dtype(size)).eps) ** 0.5
        return (size <= most * bk.maximum(size, rest)) | ~bk.isfinite(size)  # a NaN in b is something else


def _hypot(bk: Backend, a: Array, b: Array) -> Array:
    """Norm of a sum of two orthogonal parts, of any magnitude."""
    most = bk.maximum(a, b)
    scaled = bk.safe_divide(a, most), bk.safe_divide(b, most)
    return bk.where(b == 0, a, most * bk.sqrt(scaled[0] * scaled[0] + scaled[1] * scaled[1]))
