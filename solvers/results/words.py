"""What happened in a solve, in words, and what to try where it failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from ..methods.method import Method
from ..run.outcome import Status, has_failed, iterations_in_words

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


_WITHOUT_SOLUTION = [
    "ask for the least-squares solution with method='LSMR' (in scipy: scipy-lsmr)",
    "check A and b: a pure Neumann problem needs a b whose sum is zero",
]


class MadeBy(NamedTuple):
    """Method that made x, with its kind of preconditioner or None; the name says which method it followed."""

    name: str
    method: Method | None
    preconditioner: str | None


def made_by_in_words(made_by: Sequence[MadeBy], rung: np.ndarray | None) -> str:
    """The names of what made x, with the numbers of systems where these are several.

    Args:
        made_by: by the numbers of `Outcome.rung`.
        rung: these numbers for each system; None where it is the first.
    """
    if rung is None or not rung.size:
        return made_by[0].name
    (first, *others), counts = np.unique(rung, return_counts=True)
    parts = (f", for {n} of {rung.size} systems {made_by[k].name}" for k, n in zip(others, counts[1:], strict=True))
    return made_by[first].name + "".join(parts)


class _Worst(NamedTuple):
    """End state of the system that is furthest from its tolerance."""

    kind: Status
    steps: int
    norm: float
    bound: float
    attainable: float

    @property
    def at_limit(self) -> bool:
        """Is its residual at the attainable level?"""
        return self.kind is Status.STAGNATED and self.norm <= self.attainable

    @property
    def out_of_reach(self) -> bool:
        """Is its tolerance below the attainable accuracy?"""
        return self.attainable > 0 and self.bound < self.attainable


def describe(
    status: np.ndarray,
    steps: np.ndarray,
    norm: np.ndarray,
    bound: np.ndarray,
    attainable: np.ndarray,
    null_part: np.ndarray,
    consistent: np.ndarray,
    singular: np.ndarray,
    rung: np.ndarray | None = None,
    *,
    made_by: Sequence[MadeBy],
    least_squares: bool = False,
    no_solution: str | None = None,
    causes: Sequence[Cause] | None = None,
    time_limit: float | None = None,
    parts: bool = False,
) -> str:
    """One sentence for success; for failures also the worst system, the causes that were found, and what to try.

    Args:
        status, steps, norm, bound, attainable, null_part, consistent, singular: of each system, see `SolveResult`.
        rung, made_by: see `made_by_in_words`.
        no_solution: why there is none.
        causes: of the failure, as diagnosed; None without a diagnosis.
        time_limit: seconds, or None.
        parts: are vectors cut over the members of a communicator?
    """
    name = made_by_in_words(made_by, rung)
    kind_of_norm = "normal residual norm" if least_squares else "residual norm"
    status, steps, norm, bound, attainable = map(np.atleast_1d, (status, steps, norm, bound, attainable))
    rung = None if rung is None else np.atleast_1d(rung)
    bound, precision = np.broadcast_to(bound, norm.shape), str(attainable.dtype)
    failed, clause = has_failed(status), _singular(*map(np.atleast_1d, (singular, null_part, consistent)))
    if not failed.any() and (status == Status.STOPPED).any():
        return _stopped(name, status == Status.STOPPED, steps, norm, bound, kind_of_norm) + clause
    if not failed.any():
        limited = np.any((attainable > 0) & (bound <= attainable))
        return _success(name, steps, norm, bound, kind_of_norm, precision if limited else None) + clause
    with np.errstate(all="ignore"):
        excess = np.where(failed, np.where(np.isfinite(norm), norm / bound, np.inf), -1)
    place = np.unravel_index(np.argmax(np.nan_to_num(excess, nan=np.inf)), status.shape)
    name, method, preconditioner = made_by[0 if rung is None else int(rung[place])]
    numbers = [float(a[place]) for a in (norm, bound, np.broadcast_to(attainable, norm.shape))]
    worst, where = _Worst(Status(int(status[place])), int(steps[place]), *numbers), ""
    if status.size > 1:
        index = place[0] if len(place) == 1 else tuple(int(i) for i in place)
        where = f" in {int(failed.sum())} of {status.size} systems; the worst, system {index},"
    why, limits = EXPLANATION[worst.kind], f"allows about {worst.attainable:.1e} here"
    seen = list(causes or _from_numbers(worst))
    judged = not (np.broadcast_to(consistent, norm.shape)[place] or np.broadcast_to(null_part, norm.shape)[place])
    if no_solution is None and judged:
        no_solution = "b has a part outside of the range of the matrix, by its factors"
    reasons = [] if no_solution is None else [f" There is no solution: {no_solution}."]
    if time_limit is not None and worst.kind is Status.TIME_LIMIT:
        why = f"reached the time limit of {time_limit:g} s"
    if worst.at_limit:
        why = f"has come to the limit of {precision}, which {limits}, and stopped"
    elif worst.out_of_reach and not any(cause.settles for cause in seen):
        reasons.append(f" {precision} {limits}.")
    if seen:
        reasons.append(f" Cause: {'; '.join(cause.seen for cause in seen)}.")
    general = advice(worst.kind, method, name, preconditioner, precision, causes is not None)
    general = for_parts(general) if parts else general
    found = _to_do(seen, no_solution, _larger_rtol(precision, name) if worst.out_of_reach else [], general)
    to_do = in_a_row(untried(found, method, name))
    return (
        f"{name}{where} {why} after {iterations_in_words(worst.steps)}: {kind_of_norm} {worst.norm:.3e}, "
        f"tolerance {worst.bound:.3e}.{''.join(reasons)}{clause} To do: {to_do}."
    )


def _singular(singular: np.ndarray, null_part: np.ndarray, consistent: np.ndarray) -> str:
    """Sentences about the matrices that are known to be singular, and what was taken off right-hand sides."""
    if not singular.any():
        return ""
    taken_off = np.where(consistent, 0, null_part)
    most = f" A part of b of norm {taken_off.max():.3e}, which no x reaches, was taken off." if taken_off.any() else ""
    which = "The matrix is" if singular.size == 1 else "The matrices are"
    if not singular.all():
        which = f"The matrices of {int(singular.sum())} of {singular.size} systems are"
    return f" {which} singular: x has no part in the null vectors that are known.{most}"


def _from_numbers(worst: _Worst) -> list[Cause]:
    """Findings from the numbers of a solve alone, without its inputs."""
    if worst.kind is not Status.DIVERGED or worst.steps or np.isfinite(worst.norm):
        return []
    return [from_the_start()]


def _to_do(seen: list[Cause], no_solution: str | None, larger_rtol: list[str], general: list[str]) -> list[str]:
    found = [one for cause in seen for one in cause.advice]
    settled = any(cause.settles and cause.advice for cause in seen)
    if no_solution is not None:
        return [*_WITHOUT_SOLUTION, *(one for one in found if settled and one not in SINGULAR)]
    if settled:
        return found
    if larger_rtol:
        return [*found, *larger_rtol]
    limited = any(one.startswith("raise max_iter") for one in found)
    return [*found, *(one for one in general if not (limited and one == "raise max_iter"))]


def _larger_rtol(precision: str, name: str) -> list[str]:
    larger = "use a larger rtol, or leave it out: the default takes what can be had"
    if precision != "float32":
        return [larger]
    mixed = [] if "mixed-" in name else ["a method 'mixed-...' with double precision outside"]
    return ["use double precision", *mixed, larger]


def _stopped(
    name: str, stopped: np.ndarray, steps: np.ndarray, norm: np.ndarray, bound: np.ndarray, kind_of_norm: str
) -> str:
    """A sentence about the stopped system that is furthest from its tolerance."""
    with np.errstate(all="ignore"):
        worst = int(np.argmax(np.where(stopped, np.nan_to_num(norm / bound, nan=np.inf), -1)))
    which = "" if stopped.size == 1 else f" in {int(stopped.sum())} of {stopped.size} systems"
    return (
        f"{name} was stopped by the callback{which} after {iterations_in_words(int(steps.flat[worst]))}: "
        f"{kind_of_norm} {norm.flat[worst]:.3e}, tolerance {bound.flat[worst]:.3e}."
    )


def _success(
    name: str, steps: np.ndarray, norm: np.ndarray, bound: np.ndarray, kind_of_norm: str, limit: str | None
) -> str:
    if steps.size == 0:
        return f"{name}: no systems to solve."
    taken = iterations_in_words(int(steps.min()), int(steps.max()))
    systems = "" if steps.size == 1 else f" for all {steps.size} systems"
    how = "" if limit is None else f" to the limit of {limit}"
    return (
        f"{name} converged{how} in {taken}{systems}: {kind_of_norm} {norm.max():.3e}, tolerance "
        f"{bound.flat[int(norm.argmax())]:.3e}."
    )
