"""What a message of failure is made of: a cause in words, or the advice for the family of the method."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from ..methods.method import Method
from ..run.outcome import Status

EXPLANATION = {
    Status.MAX_ITER: "reached the limit of iterations",
    Status.TIME_LIMIT: "reached its time limit",
    Status.STAGNATED: "stopped making progress before the tolerance",
    Status.BREAKDOWN: "broke down: a step divided by (nearly) zero or made nothing better, and a restart did not help",
    Status.DIVERGED: "left the finite numbers, or grew beyond what the precision can take back",
}

_FACTORS = {
    Status.MAX_ITER: ["raise max_iter"],
    Status.TIME_LIMIT: ["raise time_limit"],
    Status.DIVERGED: ["check A, b and x0 for NaN and infinity"],
}
LEAST_SQUARES = "ask for the least-squares solution (method='LSMR')"
SINGULAR = "check the entries of A", "name its null vectors (nullspace=...)", LEAST_SQUARES
_PRECONDITION = "give a preconditioner (preconditioner='auto' or your own)"
_SINGULAR = "check that A is not singular: name its null vectors (nullspace=...)"


def is_least_squares(method: Method) -> bool:
    """Is it a least-squares method?"""
    return method.least_squares or (method.minimises_residual and method.needs_transpose)


def advice(
    kind: Status, method: Method | None, name: str, preconditioner: str | None, precision: str, looked: bool
) -> list[str]:
    """Alternatives in the imperative, for a method of this family; nothing that has been tried.

    Args:
        kind: how the worst system ended.
        method: that failed, or the last one that was tried.
        name: what the result calls it, which names those tried before.
        preconditioner: the kind that was given, or None.
        precision: "float32" or "float64".
        looked: were A and M examined without finding a cause?
    """
    if method is None:  # of a result that was read from a file of another version
        found = ["look at A and b"]
    elif method.factorises:
        found = _of_factors(kind)
    elif is_least_squares(method):
        found = _of_least_squares(kind, method)
    else:
        found = _of_krylov(kind, method, name, preconditioner, looked)
    if precision == "float32" and kind in (Status.STAGNATED, Status.BREAKDOWN):
        found.append("use double precision")
    return found


def untried(advice: list[str], method: Method | None, name: str) -> list[str]:
    """Drop methods of families that have been tried."""
    squares = "LSMR" in name or (method is not None and is_least_squares(method))
    return [one for one in advice if not ((squares and "LSMR" in one) or ("direct" in name and "direct" in one))]


def for_parts(advice: list[str]) -> list[str]:
    """Advice where vectors are cut over the members of a communicator: no factors, and preconditioners of parts."""
    own = "give a preconditioner ('chebyshev', a function, or a matrix of each part)"
    return [own if one == _PRECONDITION else one for one in advice if "direct" not in one]


def in_a_row(advice: list[str]) -> str:
    """Alternatives as one clause, each once."""
    *most, last = dict.fromkeys(advice) or ["check A and b"]
    return f"{', '.join(most)}, or {last}" if most else last


def _of_factors(kind: Status) -> list[str]:
    found = list(_FACTORS.get(kind, ["loosen rtol"]))
    return [*found, _SINGULAR, LEAST_SQUARES]


def _of_least_squares(kind: Status, method: Method) -> list[str]:
    if kind is Status.DIVERGED:
        return ["check A, b and x0 for NaN and infinity", "bring the columns of A to one size"]
    limit = {Status.MAX_ITER: ["raise max_iter"], Status.TIME_LIMIT: ["raise time_limit"]}.get(kind, [])
    found = [*limit, "loosen rtol"]
    damped = ["damp the problem (damp=...)"] if method.least_squares else []
    return [*found, "bring the columns of A to one size", *damped]


def _of_krylov(kind: Status, method: Method, name: str, preconditioner: str | None, looked: bool) -> list[str]:
    first = {
        Status.MAX_ITER: ["raise max_iter", "loosen rtol"],
        Status.TIME_LIMIT: ["raise time_limit", "loosen rtol"],
        Status.STAGNATED: ["loosen rtol"],
        Status.DIVERGED: ["check A, b and x0 for NaN and infinity"],
    }.get(kind, [])
    found = list(first)
    if kind in (Status.STAGNATED, Status.BREAKDOWN):
        found.append(_SINGULAR)
    if method.needs_symmetry and not looked:
        sign = " and definite" if method.needs_definite else ""
        found.append(f"check that A is symmetric{sign}")
    if preconditioner is not None and not looked:
        signs = "symmetric and positive definite" if method.needs_hermitian else "close to the inverse of A"
        found.append(f"check that the preconditioner is {signs}")
    elif preconditioner is None and method.takes_preconditioner and kind in (Status.MAX_ITER, Status.TIME_LIMIT):
        found.append(_PRECONDITION)
    if method.holds_external:
        found.append("choose others of its settings")
    elif kind is Status.BREAKDOWN and "gmres" not in name.lower():
        found.append("use GMRES, which does not break down")
    if "direct" not in name:
        found.append("factorise (method='scipy-direct')")
    return found


class Cause(NamedTuple):
    """A cause and what to do about it.

    Attributes:
        seen: the finding, a sentence without its period.
        advice: what to do, alternatives in the imperative.
        settles: does it explain the failure by itself? Then the general advice is left out.
    """

    seen: str
    advice: tuple[str, ...] = ()
    settles: bool = True


class LookForCauses(Protocol):
    """Protocol of diagnoses after a solve."""

    def __call__(self, *numbers: np.ndarray) -> tuple[Cause, ...] | None:
        """Find the causes for the end states of the systems; None if nothing could be examined."""

    @property
    def name(self) -> str | None:
        """Name of a diagnosis in compiled functions, equal across processes; None if there is none."""


def from_the_start() -> Cause:
    """Cause of a solve that diverged in 0 steps, with an unknown right-hand side."""
    return Cause("b is not finite, or x0 or its product with A", ("look in b (and x0) for NaN and infinity",))
