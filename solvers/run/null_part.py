"""Component of b in the null space of `A^H`: no x reaches it, so it is subtracted, and the remaining system is solved.

Rounding makes such a component of a consistent b: that of the divergence of a velocity field which is nearly free of
divergence may be all of it. The remaining system has a solution, and its right-hand side decides about its tolerance.
Where only the factors of A have shown null vectors, a component that is more than rounding means that there is no
solution. In the solve for a derivative it does not: its right-hand side may lie in the null space.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...backends import Array, Backend, real_dtype
from ...sparse import Operator
from ..factors.inverse import DirectInverse
from .outcome import Outcome, Status

_ROUNDING = 4  # times eps, relative to b: a smaller rest is zero


class NullPart(NamedTuple):
    """Right-hand sides `(batch, n)` split into the known null-space component and the rest."""

    rest: Array
    part: Array

    @classmethod
    def of(cls, bk: Backend, b: Array, null: Operator) -> NullPart:
        """Split b by two projections: after one, the rest of a b in the null space still has rounding in it.

        Powers of two are taken out of b, so that neither sums nor the norms that decide overflow.
        """
        b = bk.materialize(b)  # if XLA computed b twice, b - rest would contain the rounding of b
        scale = bk.binary_scale(b)
        scaled = bk.times(1 / scale, b)
        rest = null.apply(null.apply(scaled))
        eps = float(np.finfo(real_dtype(bk.dtype(b))).eps)
        zero = bk.norm(rest) <= _ROUNDING * eps * bk.norm(scaled)  # False for NaN
        rest = bk.times(scale, bk.where(zero, bk.zeros_like(rest), rest))
        return cls(rest, b - rest)

    @classmethod
    def rest_of(cls, bk: Backend, b: Array, null: Operator | None, both: bool) -> Array:
        """The rest of b, where null vectors of A are known that the transpose has, too."""
        return cls.of(bk, b, null).rest if null is not None and both else b

    @classmethod
    def by_factors(cls, b: Array, factors: Operator | None) -> NullPart | None:
        """Split with the null vectors of the factors; None if they have none."""
        rest = factors.in_range(b) if isinstance(factors, DirectInverse) else b
        return None if rest is b else cls(rest, b - rest)

    def reported(self, bk: Backend, outcome: Outcome) -> Outcome:
        """The outcome for the rest, with the size of the component."""
        consistent = bk.where(self._is_rounding(bk), 0 * outcome.steps + 1, 0 * outcome.steps)
        return outcome._replace(null_part=bk.norm(self.part) + bk.zeros_like(outcome.norm), consistent=consistent)

    def judged(self, bk: Backend, outcome: Outcome, rtol: Array, atol: Array) -> Outcome:
        """The outcome for null vectors that only factors have shown.

        A component that is rounding is reported. A larger one belongs to the residual, and the system has no solution
        unless the tolerance allows it.
        """
        reported, rounding = self.reported(bk, outcome), self._is_rounding(bk)
        norm = bk.where(rounding, outcome.norm, _hypot(bk, outcome.norm, reported.null_part))
        allowed = bk.maximum(rtol * bk.norm(self.rest), atol)  # not by the attainable accuracy
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
        return (size <= most * bk.maximum(size, rest)) | ~bk.isfinite(size)  # NaN in b shows elsewhere


def _hypot(bk: Backend, a: Array, b: Array) -> Array:
    """Norm of a sum of two orthogonal vectors, of any magnitude."""
    most = bk.maximum(a, b)
    scaled = bk.safe_divide(a, most), bk.safe_divide(b, most)
    return bk.where(b == 0, a, most * bk.sqrt(scaled[0] * scaled[0] + scaled[1] * scaled[1]))
