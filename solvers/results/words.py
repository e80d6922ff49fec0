"""Messages: what happened in a solve, and what to try where it failed; the texts of warnings about singular matrices.

A message says what happened, the numbers, why, and what to do. The last comes from tables: a cause that was found has
its own advice (`Cause`); else `ADVICE` has a row for each alternative, with the condition under which it is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...backends import Array
from ..methods.direct.singular import Singularity
from ..methods.method import Method
from ..run.outcome import Status, has_failed, iterations_in_words

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
_PRECONDITION = "give a preconditioner (preconditioner='auto' or your own)"
_PRECONDITION_PARTS = "give a preconditioner ('chebyshev', a function, or a matrix of each part)"
_WITHOUT_SOLUTION = [
    "ask for the least-squares solution with method='LSMR' (in scipy: scipy-lsmr)",
    "check A and b: a pure Neumann problem needs a b whose sum is zero",
]


class EndState(NamedTuple):
    """How each system ended, `(*batch,)`: attributes of `SolveResult`; `rung` where several methods may have made x."""

    status: Any
    iterations: Any
    residual_norm: Any
    tolerance: Any
    attainable: Any
    null_part: Any
    consistent: Any
    singular: Any
    rung: Any = None

    @classmethod
    def in_numpy(cls, arrays: Sequence[Any]) -> EndState:
        """Arrays of NumPy with at least one axis, all of one shape."""
        return cls(*np.broadcast_arrays(*map(np.atleast_1d, arrays)))

    def arrays(self) -> tuple[Array, ...]:
        return tuple(self[:8] if self.rung is None else self)

    def worst(self, which: np.ndarray) -> int:
        """Flat index of the one among these systems that is furthest from its tolerance."""
        with np.errstate(all="ignore"):
            excess = np.where(np.isfinite(self.residual_norm), self.residual_norm / self.tolerance, np.inf)
        return int(np.argmax(np.where(which, np.nan_to_num(excess, nan=np.inf), -1)))


class MadeBy(NamedTuple):
    """Method that made x, with its kind of preconditioner or None; the name says which method it followed."""

    name: str
    method: Method | None
    preconditioner: str | None


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
    """Diagnosis of a failed solve. `name` is the same in all processes, None if there is none; see `Diagnosis`."""

    def __call__(self, end: EndState) -> tuple[Cause, ...] | None: ...

    @property
    def name(self) -> str | None: ...


class Background(NamedTuple):
    """What a message tells besides the end state.

    Attributes:
        made_by: the methods that may have made x, by the numbers of `Outcome.rung`.
        least_squares: are the norms those of the normal residual?
        no_solution: why there is none, where that is known.
        causes: of the failure, as diagnosed; None without a diagnosis.
        time_limit: seconds, or None.
        parts: are vectors cut over the members of a communicator?
    """

    made_by: tuple[MadeBy, ...]
    least_squares: bool = False
    no_solution: str | None = None
    causes: tuple[Cause, ...] | None = None
    time_limit: float | None = None
    parts: bool = False


def methods_in_words(made_by: Sequence[MadeBy], rung: np.ndarray | None) -> str:
    """Names of the methods that made x, with the number of systems of each.

    Args:
        rung: index into `made_by` for each system; None where the first made all.
    """
    if rung is None or not rung.size:
        return made_by[0].name
    (first, *others), counts = np.unique(rung, return_counts=True)
    parts = (f", for {n} of {rung.size} systems {made_by[k].name}" for k, n in zip(others, counts[1:], strict=True))
    return made_by[first].name + "".join(parts)


def describe(end: EndState, background: Background) -> str:
    """One sentence for success; for failures also the worst system, the causes that were found, and what to try.

    Args:
        end: in arrays of NumPy.
    """
    failed, count = has_failed(end.status), end.status.size
    if not count:
        return f"{methods_in_words(background.made_by, end.rung)}: no systems to solve."
    if not failed.any():
        return _success(end, background)
    worst = end.worst(failed)
    case = _FailedSystem.of(end, background, worst)
    where = ""
    if count > 1:
        place = tuple(map(int, np.unravel_index(worst, end.status.shape)))
        index = place[0] if len(place) == 1 else place
        where = f" failed in {int(failed.sum())} of {count} systems; the worst, system {index},"
    *most, last = case.to_do()
    return (
        f"{case.name}{where} {case.what_happened()} after {iterations_in_words(case.steps)}: "
        f"{_norms(case.norm, case.bound, background)}{case.reasons()}{_singular(end)} "
        f"To do: {', '.join(most)}{', or ' if most else ''}{last}."
    )


def _success(end: EndState, background: Background) -> str:
    stopped, count = end.status == Status.STOPPED, end.status.size
    if stopped.any():
        worst = end.worst(stopped)
        which = "" if count == 1 else f" in {int(stopped.sum())} of {count} systems"
        what = f"was stopped by the callback{which} after {iterations_in_words(int(end.iterations.flat[worst]))}"
    else:
        worst = int(end.residual_norm.argmax())
        limited = np.any((end.attainable > 0) & (end.tolerance <= end.attainable))
        limit = f" to the limit of {end.attainable.dtype}" if limited else ""
        systems = "" if count == 1 else f" for all {count} systems"
        what = (
            f"converged{limit} in {iterations_in_words(int(end.iterations.min()), int(end.iterations.max()))}{systems}"
        )
    norms = _norms(end.residual_norm.flat[worst], end.tolerance.flat[worst], background)
    return f"{methods_in_words(background.made_by, end.rung)} {what}: {norms}{_singular(end)}"


def _norms(norm: float, bound: float, background: Background) -> str:
    return f"{'normal ' * background.least_squares}residual norm {norm:.3e}, tolerance {bound:.3e}."


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


class _FailedSystem(NamedTuple):
    """The worst of the systems that failed.

    Attributes:
        kind: how it ended, after `steps`, with `norm` for a tolerance of `bound`; the precision may allow `attainable`.
        name: what the result calls the last method, which names those tried before.
        method: the last one that was tried; None in a result that was read from a file of another version.
        preconditioner: the kind that was given, or None.
        precision: "float32" or "float64".
        causes: that were found.
        no_solution: why there is none, or None.
        looked: were A and M examined?
    """

    kind: Status
    steps: int
    norm: float
    bound: float
    attainable: float
    name: str
    method: Method | None
    preconditioner: str | None
    precision: str
    causes: tuple[Cause, ...]
    no_solution: str | None
    background: Background

    @classmethod
    def of(cls, end: EndState, background: Background, index: int) -> _FailedSystem:
        status, steps, norm, bound, attainable = (a.flat[index] for a in end[:5])
        kind, no_solution = Status(int(status)), background.no_solution
        at_start = kind is Status.DIVERGED and not steps and not np.isfinite(norm)
        if no_solution is None and not end.consistent.flat[index] and not end.null_part.flat[index]:
            no_solution = "b has a component outside the range of A, as its factors show"
        made_by = background.made_by[0 if end.rung is None else int(end.rung.flat[index])]
        causes = background.causes or ((FROM_THE_START,) if at_start else ())
        precision = str(end.attainable.dtype)
        return cls(kind, int(steps), norm, bound, attainable, *made_by, precision, causes, no_solution, background)

    @property
    def is_out_of_reach(self) -> bool:
        """Is the tolerance below what the precision allows?"""
        return self.attainable > 0 and self.bound < self.attainable

    def what_happened(self) -> str:
        if self.kind is Status.TIME_LIMIT and self.background.time_limit is not None:
            return f"reached the time limit of {self.background.time_limit:g} s"
        if self.kind is Status.STAGNATED and self.norm <= self.attainable:
            return f"reached the accuracy that {self.precision} allows here (about {self.attainable:.1e}) and stopped"
        return EXPLANATION[self.kind]

    def reasons(self) -> str:
        reasons, stopped_there = "", self.kind is Status.STAGNATED and self.norm <= self.attainable
        if self.no_solution is not None:
            reasons += f" There is no solution: {self.no_solution}."
        if self.is_out_of_reach and not stopped_there and not any(cause.settles for cause in self.causes):
            reasons += f" {self.precision} allows about {self.attainable:.1e} here."
        if self.causes:
            reasons += f" Cause: {'; '.join(cause.seen for cause in self.causes)}."
        return reasons

    def to_do(self) -> list[str]:
        """Alternatives in the imperative, each once; nothing that has been tried."""
        general = Advisor(
            self.kind, self.method, self.name, self.preconditioner, self.precision, self.background.causes is not None
        )
        specific = [advice for cause in self.causes for advice in cause.advice]
        settled = any(cause.settles and cause.advice for cause in self.causes)
        if self.no_solution is not None:
            todo = [*_WITHOUT_SOLUTION, *(a for a in specific if settled and a not in SINGULAR)]
        elif settled:
            todo = specific
        elif self.is_out_of_reach:
            todo = specific + general.larger_rtol()
        else:
            limited = any(a.startswith("raise max_iter") for a in specific)  # to a number
            todo = specific + [a for a in general.advice() if not (limited and a == "raise max_iter")]
            if self.background.parts:  # no factors, and preconditioners of parts
                todo = [_PRECONDITION_PARTS if a == _PRECONDITION else a for a in todo if "direct" not in a]
        return list(dict.fromkeys(general.untried(todo))) or ["check A and b"]


# --- general advice


class Advisor(NamedTuple):
    """What is known of a failure whose cause is not: how it ended, and by what method.

    Attributes:
        looked: were A and M examined without finding a cause?
    """

    kind: Status
    method: Method | None
    name: str
    preconditioner: str | None
    precision: str
    looked: bool

    def advice(self) -> list[str]:
        """Alternatives for a method of this family."""
        if self.method is None:
            return ["look at A and b"]
        return [words.format(**self.words()) for holds, words in ADVICE if holds(self, self.method)]

    def words(self) -> dict[str, str]:
        definite = self.method is not None and self.method.needs_definite
        positive = self.method is not None and self.method.needs_hermitian
        return {
            "limit": self.kind.name.lower(),
            "properties": "symmetric and definite" if definite else "symmetric",
            "of_M": "symmetric and positive definite" if positive else "close to the inverse of A",
        }

    def larger_rtol(self) -> list[str]:
        larger = "use a larger rtol, or leave it out: by default the attainable accuracy is accepted"
        if self.precision != "float32":
            return [larger]
        mixed = [] if "mixed-" in self.name else ["a method 'mixed-...' with double precision outside"]
        return ["use double precision", *mixed, larger]

    def untried(self, advice: Sequence[str]) -> list[str]:
        """Without methods of families that have been tried."""
        squares = "LSMR" in self.name or (self.method is not None and is_least_squares(self.method))
        return [a for a in advice if not ((squares and "LSMR" in a) or ("direct" in self.name and "direct" in a))]

    @property
    def at_limit(self) -> bool:
        return self.kind in (Status.MAX_ITER, Status.TIME_LIMIT)

    @property
    def is_stuck(self) -> bool:
        return self.kind in (Status.STAGNATED, Status.BREAKDOWN)


def is_least_squares(method: Method) -> bool:
    """Is it a least-squares method?"""
    return method.least_squares or (method.minimises_residual and method.needs_transpose)


def _is_krylov(method: Method) -> bool:
    return not (method.factorises or is_least_squares(method))


def _may_loosen(failure: Advisor, method: Method) -> bool:
    if failure.kind is Status.DIVERGED:
        return False
    ends = (Status.BREAKDOWN,) if method.factorises else (Status.MAX_ITER, Status.TIME_LIMIT)
    return is_least_squares(method) or failure.kind in (Status.STAGNATED, *ends)


ADVICE: tuple[tuple[Callable[[Advisor, Method], bool], str], ...] = (
    (lambda f, m: f.at_limit, "raise {limit}"),
    (lambda f, m: f.kind is Status.DIVERGED, "check A, b and x0 for NaN and infinity"),
    (_may_loosen, "loosen rtol"),
    (
        lambda f, m: m.factorises or (_is_krylov(m) and f.is_stuck),
        "check that A is not singular: name its null vectors (nullspace=...)",
    ),
    (lambda f, m: m.factorises, LEAST_SQUARES),
    (lambda f, m: is_least_squares(m) and not m.factorises, "scale the columns of A to equal norms"),
    (
        lambda f, m: m.least_squares and not m.factorises and f.kind is not Status.DIVERGED,
        "damp the problem (damp=...)",
    ),
    (lambda f, m: _is_krylov(m) and m.needs_symmetry and not f.looked, "check that A is {properties}"),
    (
        lambda f, m: _is_krylov(m) and f.preconditioner is not None and not f.looked,
        "check that the preconditioner is {of_M}",
    ),
    (
        lambda f, m: _is_krylov(m) and f.preconditioner is None and m.takes_preconditioner and f.at_limit,
        _PRECONDITION,
    ),
    (lambda f, m: _is_krylov(m) and m.holds_external, "choose other settings of it"),
    (
        lambda f, m: (
            _is_krylov(m) and not m.holds_external and f.kind is Status.BREAKDOWN and "gmres" not in f.name.lower()
        ),
        "use GMRES, which does not break down",
    ),
    (lambda f, m: _is_krylov(m) and "direct" not in f.name, FACTORISE),
    (lambda f, m: f.precision == "float32" and f.is_stuck, "use double precision"),
)
"""What to try, for whom, in this order."""


# --- warnings of singular matrices


def inconsistent_in_words(method: str, which: np.ndarray, vectors: str) -> str:
    """That these systems were solved without a component of b in the null vectors `vectors` of the adjoint."""
    return (
        f"{method}: b{_of_which(which)} has a component in {vectors}, which the adjoint of A maps to zero, so no x "
        "reaches it. It was subtracted (result.null_part is its norm), and x is a least-squares solution. Subtract it "
        "from b, check b and the boundary conditions, or give nullspace=None, with which such a system fails."
    )


def singular_in_words(method: str, which: np.ndarray, kind: Singularity) -> str:
    """That factors of the matrices of these systems show them to be singular, or nearly so."""
    return f"{method}: the matrix{_of_which(which)} {SINGULARITIES[kind]}"


def _of_which(chosen: np.ndarray) -> str:
    return "" if chosen.size == 1 else f" of {int(chosen.sum())} of {chosen.size} systems"


SINGULARITIES = {
    Singularity.SINGULAR: "is singular: a pivot is zero up to rounding, so x is one of many solutions, the one "
    "orthogonal to the null vectors that were found. Name them with nullspace=..., add a constraint that fixes x, or "
    "check the matrix.",
    Singularity.ILL_CONDITIONED: "is ill-conditioned: its reciprocal condition number is below the rounding unit, so x "
    "may have no correct digit, though its residual is small. Scale or reformulate the system, or use more precision.",
}
