"""Restart decision: whether a system has converged, is restarted or has failed, from the true residual of a round."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from ...backends import Array, Backend
from ..methods.method import Method
from .attainable import is_hopeless
from .outcome import Status

_LATER_GOAL = 0.5  # of the bound, the goal of later rounds: one that ended just above the bound would count as stalled
_PROGRESS = 0.9  # a round that does not reduce the true residual to this part of its start has stalled
_RECURRENCE = 32  # rounding units of the first residual of a round, which its recurrence reaches
_PATIENCE = 2  # stalled rounds after a breakdown, each with another left vector, before giving up
# plain integers: arrays of some libraries do not mix with enums
_RUNNING, _CONVERGED, _MAX_ITER, _STAGNATED, _BREAKDOWN, _DIVERGED, _CANDIDATE, *_ = (int(s) for s in Status)


class Start(Protocol):
    """The start of a round; see `Between`."""

    @property
    def norm(self) -> Array: ...
    @property
    def asked(self) -> Array: ...
    @property
    def attempt(self) -> Array: ...


class End(NamedTuple):
    """The end of a round."""

    status: Array  # why its iterations ended, as far as the recurrence knew
    steps: Array
    norm: Array  # of the true residual
    attainable: Array  # see Outcome
    settled: Array  # see `Method.is_settled`


class Decision(NamedTuple):
    """The status is RUNNING if the system is restarted."""

    status: Array
    attempt: Array
    bound: Array  # residual norm that counts as converged
    worse: Array  # a breakdown or an overflow may leave x worse than it was, or without a value


def restart_decision(bk: Backend, start: Start, end: End, limit: int | Array, by_default: bool) -> Decision:
    """Decide elementwise for the systems that were running.

    Args:
        by_default: see `Iteration`.
    """
    norm, bound, more = end.norm, start.asked, end.steps < limit
    if by_default:
        bound = bk.maximum(bound, bk.where(end.settled, end.attainable, bk.zeros_like(norm)))
    progress, enough = norm <= _PROGRESS * start.norm, norm <= bound
    broken, candidate = end.status == _BREAKDOWN, end.status == _CANDIDATE
    attempt = bk.where(broken | ~progress, start.attempt + 1, start.attempt)
    again = (candidate & progress) | (broken & (progress | (attempt <= _PATIENCE)))
    again = again & ~(end.settled & is_hopeless(norm, bound, end.attainable)) & more
    status = bk.where(candidate, bk.where(more, _STAGNATED, 0 * end.status + _MAX_ITER), end.status)
    status = bk.where(enough, _CONVERGED, bk.where(again, _RUNNING, status))
    worse = (broken | (end.status == _DIVERGED)) & bk.negated(norm <= start.norm) & bk.negated(enough)
    return Decision(status, attempt, bound, worse)


def later_goal(method: Method, bound: Array) -> Array:
    """Residual norm at which a round after the first one stops."""
    return bound if method.factorises else _LATER_GOAL * bound


def within_reach(bk: Backend, goal: Array, norm: Array, size: Array) -> Array:
    """The goal of a round from an x whose residual is larger than b: no less than its recurrence can reach.

    From an x0 far larger than the solution, a round below rounding of its first residual would iterate on noise: on the
    part in null vectors of A, say, which it cannot reduce. The next round starts from a true residual.

    Args:
        goal: as the tolerance has it.
        norm: of the residual at the start of the round.
        size: of b.
    """
    least = _RECURRENCE * float(np.finfo(bk.dtype(norm)).eps) * norm
    return bk.where(norm > size, bk.maximum(goal, least), goal)
