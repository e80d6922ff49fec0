"""When a solve stops: its limits, the test on the recurrence in each step, the verdict on the true residual of a round.

Attainable accuracy is the residual that rounding of x leaves, measured by one product:
`D(x) = |A(t x (1 + eps s)) / t - A x|` with fixed signs s, one per unknown, and t = 0.7, no power of two. That is what
one rounding of x and the rounding of the product do. It needs no norm and no entries, and scales as the residual does.
`eps |A| |x|` would be the wrong quantity: where the columns of A differ in size it accepts wrong answers.

Where the precision decides, x must be plausible too: of a singular A with a b outside of its range, an iteration makes
x larger and larger along a null vector, until D is as large as the residual. Then `x^H A x / |x|` is no more than
D, because A x is nothing but noise. Regular systems that the precision limits have 15 D and more where A is Hermitian.

Source: the normwise backward error, Rigal and Gaches 1967; Higham, Accuracy and Stability of Numerical Algorithms,
2nd ed., Theorem 7.1, here for the perturbation of each entry of x.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend, real_dtype
from ...sparse import Operator
from ..methods.method import Goal
from .outcome import Status

_LATER_GOAL = 0.5  # of the bound, the goal of later rounds: one that ended just above the bound would count as stalled
_PROGRESS = 0.9  # a round that does not reduce the true residual to this part of its start has stalled
_RECURRENCE = 32  # rounding units of the first residual of a round, which its recurrence reaches
_PATIENCE = 2  # stalled rounds after a breakdown, each with another left vector, before giving up
_ROUNDINGS = 2  # of each entry of x: the best residuals that methods reach are 0.2 to 0.7 D, up to 3 D on hard systems
_LARGEST = 0.05  # of |b|: a system whose b is further than this from the range of A never counts as solved
_ROUNDED = 4e9  # rounding units of it, likewise: in double precision singular A make x so large that D is 0.02 |b|
_HOPELESS = 0.1  # of D: no method has reached a tolerance below
_FACTOR = 0.7  # no power of two: A (0.7 x) / 0.7 then differs from A x by rounding alone
# Plain integers, because arrays of some libraries do not mix with enums.
RUNNING, CONVERGED, MAX_ITER, STAGNATED, BREAKDOWN, DIVERGED, CANDIDATE, *_ = (int(s) for s in Status)


@dataclass(frozen=True)
class Limits:
    """Iteration limits; hashable, as programs depend on them.

    Attributes:
        rows: `(checkpoints, 1)` or, with limits of its own for each system, `(checkpoints, systems)`; increasing along
            the first axis. The last one ends the solve.
    """

    rows: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, counts: np.ndarray) -> Limits:
        """From an array `(checkpoints, 1 or systems)`."""
        return cls(tuple(tuple(int(c) for c in row) for row in counts))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def most(self) -> int:
        """Largest limit of any system."""
        return max(self.rows[-1], default=0)

    @property
    def last(self) -> int | np.ndarray:
        """Final limit: one number, or `(systems, 1)`."""
        return self.rows[-1][0] if len(self.rows[-1]) == 1 else np.array(self.rows[-1], np.int32)[:, None]

    def at_most(self, count: int) -> Limits:
        """Limits of at most so many iterations."""
        return Limits(tuple(tuple(min(limit, count) for limit in row) for row in self.rows))

    def of_systems(self, count: int) -> Limits:
        """Limits of a batch that repeats the systems, as under vmap."""
        own = len(self.rows[-1])
        return self if own <= 1 else Limits(tuple(row * (count // own) for row in self.rows))

    def table(self) -> np.ndarray:
        """`(1 or systems, checkpoints)`."""
        return np.array(self.rows, np.int32).T


class StoppingRule(NamedTuple):
    """Stopping rule of the steps of one round: the only test on the residual of the recurrence."""

    bk: Backend
    limit: int | Array  # of iterations
    enough: Array  # squared residual norm to be reached
    largest: Array  # squared residual norm up to which the precision suffices; finite, because of the unit of a solve

    @classmethod
    def of(cls, bk: Backend, goal: Goal, start: Array, limit: int | Array) -> StoppingRule:
        """The rule for a round from the residual norm `start`."""
        largest = start / float(np.finfo(bk.dtype(goal.norm)).eps)
        return cls(bk, limit, goal.norm * goal.norm, largest * largest)

    def goes_on(self, state: Any, steps: Array) -> Array:
        """Which systems take another step? None with NaN, because comparisons with it are false."""
        return (state.rr > self.enough) & (state.rr <= self.largest) & ~state.broken & (steps < self.limit)

    def status(self, state: Any, steps: Array) -> Array:
        """Why a system stops, or RUNNING."""
        where = self.bk.where
        status = where(state.broken, BREAKDOWN, 0 * steps)
        status = where(steps < self.limit, status, MAX_ITER)
        status = where(state.rr > self.enough, status, CANDIDATE)
        return where(state.rr <= self.largest, status, DIVERGED)


def goal_of_round(bk: Backend, norm: Array, bound: Array, size: Array, first: Array, exact: bool, given: bool) -> Array:
    """Residual norm at which the steps of a round stop.

    From an x0 far larger than the solution, a round below rounding of its first residual would iterate on noise: on the
    part in null vectors of A, say, which it cannot reduce. The goal is then no less than the norm that its recurrence
    can reach, and the next round starts from a true residual.

    Args:
        norm: of the residual at the start of the round.
        bound: residual norm that counts as converged.
        size: norm of b.
        first: of which systems is it the first round?
        exact: are corrections by factors, which reach the bound itself?
        given: was an x0 given?
    """
    goal = bound if exact else bk.where(first, bound, _LATER_GOAL * bound)
    if not given:
        return goal
    least = _RECURRENCE * float(np.finfo(bk.dtype(norm)).eps) * norm
    return bk.where(norm > size, bk.maximum(goal, least), goal)


def verdict(
    bk: Backend, before: Array, norm: Array, asked: Array, reached: Array, settled: Array | None, why: Array,
    attempt: Array, more: Array, by_default: bool,
) -> tuple[Array, Array, Array, Array]:  # fmt: skip
    """Decide elementwise whether systems have converged, start another round, or have failed.

    Args:
        before, norm: true residual norms at the start and the end of the round.
        asked: residual norm by the tolerances.
        reached: attainable residual norm, 0 where it was not measured.
        settled: see `Method.is_settled`.
        why: why the steps ended, as far as the recurrence knew.
        attempt: rounds so far that ended in a breakdown or without progress.
        more: are there iterations left?
        by_default: was the tolerance left to the library? Then the attainable accuracy counts as converged.

    Returns:
        The status (RUNNING if another round starts), attempts, the residual norm that counts as converged, and whether
        x may be worse than before, or without a value, after a breakdown or an overflow.
    """
    bound, at_rounding = asked, norm <= reached
    if by_default:
        bound = bk.maximum(asked, reached if settled is None else bk.where(settled, reached, 0 * reached))
    progress, enough = norm <= _PROGRESS * before, norm <= bound
    broken, candidate = why == BREAKDOWN, why == CANDIDATE
    hopeless = at_rounding & (bound < _HOPELESS / _ROUNDINGS * reached)
    hopeless = hopeless if settled is None else hopeless & settled
    attempt = bk.where(broken | ~progress, attempt + 1, attempt)
    again = ((candidate | broken) & progress) | (broken & (attempt <= _PATIENCE))
    status = bk.where(candidate & more, STAGNATED, bk.where(candidate, MAX_ITER, why))
    # A zero x is a candidate until its product has been seen, in which a NaN or an infinity in A shows.
    status = bk.where(candidate & ~bk.isfinite(norm), DIVERGED, status)
    status = bk.where(enough, CONVERGED, bk.where(again & ~hopeless & more, RUNNING, status))
    worse = (broken | (why == DIVERGED)) & bk.negated(norm <= before) & bk.negated(enough)
    return status, attempt, bound, worse


def attainable(
    bk: Backend, A: Operator, x: Array, image: Array, size: Array, missed: Array, norm: Callable[[Array], Array],
    iterated: bool,
) -> Array:  # fmt: skip
    """`(batch, 1)`: attainable residual norm of each system; 1 product if one `missed` its tolerance.

    0 for the others, and where it is so large that an inconsistent system would pass.

    Args:
        image: A x.
        size: norm of b.
        norm: of residuals.
        iterated: is x from an iteration, which null vectors may enlarge? Factors are judged by their corrections.
    """

    def measured(x: Array, image: Array, size: Array) -> Array:
        return reached_by(bk, A, x, image, size, iterated, norm)

    reached = bk.cond(bk.any(missed), measured, lambda *_: bk.zeros_like(size), x, image, size)
    return reached if int(x.shape[0]) == 1 else bk.where(missed, reached, bk.zeros_like(size))


def reached_by(
    bk: Backend, A: Operator, x: Array, image: Array, size: Array, iterated: bool, norm: Callable[[Array], Array]
) -> Array:
    """`attainable` of all systems, by 1 product."""
    real = real_dtype(bk.dtype(x))
    eps = float(np.finfo(real).eps)
    image = bk.copy(image)  # The function may overwrite the array that it returned.
    numbers = bk.reshape(bk.scatter_numbers(int(x.shape[1]), real, x), (1, -1))
    one = bk.full_like(numbers, 1)
    moved = bk.times(_FACTOR * bk.where(numbers < 0, one * (1 - eps), one * (1 + eps)), x)  # 1 - eps is a number too
    noise = norm(bk.times(one[:, :1] / _FACTOR, A.apply(moved)) - image)
    most = min(_LARGEST, _ROUNDED * eps) * size
    allowed = noise <= most
    if iterated:
        allowed = allowed & (bk.abs(bk.dot(x, image)) > noise * bk.norm(x))
    reached = _ROUNDINGS * noise
    return bk.where(allowed, bk.where(reached < most, reached, most), bk.zeros_like(most))
