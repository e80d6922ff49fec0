"""Messages: what happened in a solve, and what to try where it failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from ..methods.method import Method
from ..run.outcome import Status, has_failed, iterations_in_words
from .numbers import EndState

EXPLANATION = {
    Status.MAX_ITER: "reached the limit of iterations",
    Status.TIME_LIMIT: "reached its time limit",
    Status.STAGNATED: "stopped making progress before the tolerance",
    Status.BREAKDOWN: "broke down (a step divided by nearly zero or gained nothing, and a restart did not help)",
    Status.DIVERGED: "produced NaN or infinity, or numbers too large for this precision",
}

LEAST_SQUARES = "ask for the least-squares solution (method='LSMR')"
SINGULAR = "check the entries of A", "name its null vectors (nullspace=...)", LEAST_SQUARES
FACTORISE = "factorise (method='scipy-direct')"
_CHECK_SINGULAR = "check that A is not singular: name its null vectors (nullspace=...)"
_PRECONDITION = "give a preconditioner (preconditioner='auto' or your own)"
_PRECONDITION_PARTS = "give a preconditioner ('chebyshev', a function, or a matrix of each part)"
_WITHOUT_SOLUTION = [
    "ask for the least-squares solution with method='LSMR' (in scipy: scipy-lsmr)",
    "check A and b: a pure Neumann problem needs a b whose sum is zero",
]


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


FROM_THE_START = Cause(
    "b is not finite, or x0 or its product with A", ("look for NaN and infinity in b (and x0)",)
)  # of a solve that diverged in 0 steps, whose right-hand side is not known


class LookForCauses(Protocol):
    """Diagnosis of a failed solve. `name` is the same in all processes, None if there is none; see `Look`."""

    def __call__(self, end: EndState) -> tuple[Cause, ...] | None: ...

    @property
    def name(self) -> str | None: ...


class MadeBy(NamedTuple):
    """Method that made x, with its kind of preconditioner or None; the name says which method it followed."""

    name: str
    method: Method | None
    preconditioner: str | None


def made_by_in_words(made_by: Sequence[MadeBy], rung: np.ndarray | None) -> str:
    """Names of the methods that made x, with the number of systems of each.

    Args:
        made_by: by the numbers of `Outcome.rung`.
        rung: index into `made_by` for each system; None where the first made all.
    """
    if rung is None or not rung.size:
        return made_by[0].name
    (first, *others), counts = np.unique(rung, return_counts=True)
    parts = (f", for {n} of {rung.size} systems {made_by[k].name}" for k, n in zip(others, counts[1:], strict=True))
    return made_by[first].name + "".join(parts)


def describe(
    end: EndState,
    made_by: Sequence[MadeBy],
    least_squares: bool = False,
    no_solution: str | None = None,
    causes: Sequence[Cause] | None = None,
    time_limit: float | None = None,
    parts: bool = False,
) -> str:
    """One sentence for success; for failures also the worst system, the causes that were found, and what to try.

    Args:
        end: in arrays of NumPy.
        no_solution: why there is none.
        causes: of the failure, as diagnosed; None without a diagnosis.
        time_limit: seconds, or None.
        parts: are vectors cut over the members of a communicator?
    """
    name, failed, stopped = made_by_in_words(made_by, end.rung), has_failed(end.status), end.status == Status.STOPPED
    count, precision = end.status.size, str(end.attainable.dtype)

    def norms(norm: float, bound: float) -> str:
        return f"{'normal ' * least_squares}residual norm {norm:.3e}, tolerance {bound:.3e}."

    if not failed.any():
        if stopped.any():
            worst = end.worst(stopped)
            which = "" if count == 1 else f" in {int(stopped.sum())} of {count} systems"
            said = f"was stopped by the callback{which} after {iterations_in_words(int(end.iterations.flat[worst]))}"
        elif not count:
            return f"{name}: no systems to solve."
        else:
            worst = int(end.residual_norm.argmax())
            taken = iterations_in_words(int(end.iterations.min()), int(end.iterations.max()))
            limited = np.any((end.attainable > 0) & (end.tolerance <= end.attainable))
            said = f"converged{f' to the limit of {precision}' * bool(limited)} in {taken}"
            said += "" if count == 1 else f" for all {count} systems"
        return f"{name} {said}: {norms(end.residual_norm.flat[worst], end.tolerance.flat[worst])}{_singular(end)}"
    worst = end.worst(failed)
    status, steps, norm, bound, attainable = (a.flat[worst] for a in end[:5])
    kind, where = Status(int(status)), ""
    name, method, preconditioner = made_by[0 if end.rung is None else int(end.rung.flat[worst])]
    if count > 1:
        place = tuple(map(int, np.unravel_index(worst, end.status.shape)))
        index = place[0] if len(place) == 1 else place
        where = f" failed in {int(failed.sum())} of {count} systems; the worst, system {index},"
    why, reasons = EXPLANATION[kind], []
    out_of_reach = attainable > 0 and bound < attainable
    at_start = kind is Status.DIVERGED and not steps and not np.isfinite(norm)
    seen = list(causes or ([FROM_THE_START] if at_start else []))
    if no_solution is None and not end.consistent.flat[worst] and not end.null_part.flat[worst]:
        no_solution = "b has a component outside the range of A, as its factors show"
    if no_solution is not None:
        reasons.append(f" There is no solution: {no_solution}.")
    if time_limit is not None and kind is Status.TIME_LIMIT:
        why = f"reached the time limit of {time_limit:g} s"
    if kind is Status.STAGNATED and norm <= attainable:
        why = f"reached the accuracy that {precision} allows here (about {attainable:.1e}) and stopped"
    elif out_of_reach and not any(cause.settles for cause in seen):
        reasons.append(f" {precision} allows about {attainable:.1e} here.")
    if seen:
        reasons.append(f" Cause: {'; '.join(cause.seen for cause in seen)}.")
    general = advice(kind, method, name, preconditioner, precision, causes is not None)
    if parts:  # no factors, and preconditioners of parts
        general = [_PRECONDITION_PARTS if a == _PRECONDITION else a for a in general if "direct" not in a]
    todo = _to_do(seen, no_solution, _larger_rtol(precision, name) if out_of_reach else [], general)
    *most, last = dict.fromkeys(untried(todo, method, name)) or ["check A and b"]
    return (
        f"{name}{where} {why} after {iterations_in_words(int(steps))}: {norms(norm, bound)}{''.join(reasons)}"
        f"{_singular(end)} To do: {', '.join(most)}{', or ' if most else ''}{last}."
    )


def _singular(end: EndState) -> str:
    """Sentences about matrices that are known to be singular, and what was subtracted from right-hand sides."""
    count, total = int(np.sum(end.singular)), end.singular.size
    if not count:
        return ""
    which = f"The matrices of {count} of {total} systems are" if count < total else "The matrices are"
    which = "The matrix is" if total == 1 else which
    part = np.where(end.consistent, 0, end.null_part).max()
    lost = f" A component of b of norm {part:.3e}, which no x reaches, was subtracted." if part else ""
    return f" {which} singular; x is orthogonal to the known null vectors.{lost}"


def _to_do(seen: list[Cause], no_solution: str | None, larger_rtol: list[str], general: list[str]) -> list[str]:
    specific = [advice for cause in seen for advice in cause.advice]
    settled = any(cause.settles and cause.advice for cause in seen)
    if no_solution is not None:
        return [*_WITHOUT_SOLUTION, *(advice for advice in specific if settled and advice not in SINGULAR)]
    if settled:
        return specific
    if larger_rtol:
        return [*specific, *larger_rtol]
    limited = any(advice.startswith("raise max_iter") for advice in specific)  # to a number
    return [*specific, *(advice for advice in general if not (limited and advice == "raise max_iter"))]


def _larger_rtol(precision: str, name: str) -> list[str]:
    larger = "use a larger rtol, or leave it out: by default the attainable accuracy is accepted"
    if precision != "float32":
        return [larger]
    mixed = [] if "mixed-" in name else ["a method 'mixed-...' with double precision outside"]
    return ["use double precision", *mixed, larger]


def is_least_squares(method: Method) -> bool:
    """Is it a least-squares method?"""
    return method.least_squares or (method.minimises_residual and method.needs_transpose)


def untried(advice: list[str], method: Method | None, name: str) -> list[str]:
    """Drop methods of families that have been tried."""
    squares = "LSMR" in name or (method is not None and is_least_squares(method))
    return [a for a in advice if not ((squares and "LSMR" in a) or ("direct" in name and "direct" in a))]


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
        return ["look at A and b"]
    squares, limited = is_least_squares(method), kind in (Status.MAX_ITER, Status.TIME_LIMIT)
    todo = [f"raise {kind.name.lower()}"] if limited else []  # max_iter, time_limit
    if kind is Status.DIVERGED:
        todo.append("check A, b and x0 for NaN and infinity")
    elif squares or kind is Status.STAGNATED or (kind is Status.BREAKDOWN if method.factorises else limited):
        todo.append("loosen rtol")
    if method.factorises:
        todo += [_CHECK_SINGULAR, LEAST_SQUARES]
    elif squares:
        damp = method.least_squares and kind is not Status.DIVERGED
        todo += ["scale the columns of A to equal norms", *["damp the problem (damp=...)"] * damp]
    else:
        todo += _for_krylov(kind, method, name, preconditioner, looked)
    if precision == "float32" and kind in (Status.STAGNATED, Status.BREAKDOWN):
        todo.append("use double precision")
    return todo


def _for_krylov(kind: Status, method: Method, name: str, preconditioner: str | None, looked: bool) -> list[str]:
    todo = [_CHECK_SINGULAR] if kind in (Status.STAGNATED, Status.BREAKDOWN) else []
    if method.needs_symmetry and not looked:
        todo.append(f"check that A is symmetric{' and definite' if method.needs_definite else ''}")
    if preconditioner is not None and not looked:
        signs = "symmetric and positive definite" if method.needs_hermitian else "close to the inverse of A"
        todo.append(f"check that the preconditioner is {signs}")
    elif preconditioner is None and method.takes_preconditioner and kind in (Status.MAX_ITER, Status.TIME_LIMIT):
        todo.append(_PRECONDITION)
    if method.holds_external:
        todo.append("choose other settings of it")
    elif kind is Status.BREAKDOWN and "gmres" not in name.lower():
        todo.append("use GMRES, which does not break down")
    return todo if "direct" in name else [*todo, FACTORISE]
