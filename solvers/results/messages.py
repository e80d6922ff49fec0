"""Messages: the outcome of a solve, and advice where it failed; texts of warnings about singular matrices.

A message says what happened, the numbers, why, and what to do. Advice comes from tables: a cause that was found has
its own (`Cause`); else `ADVICE` has a row for each alternative, with its condition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array
from ..factors.singularity import Singularity
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
_WITHOUT_SOLUTION = [LEAST_SQUARES, "check A and b: a pure Neumann problem needs a b whose sum is zero"]


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
        """Flat index of that one of these systems that is furthest from its tolerance."""
        return furthest(which, self.residual_norm, self.tolerance)


def furthest(which: np.ndarray, norm: np.ndarray, tolerance: np.ndarray) -> int:
    """Flat index of that one of these systems whose norm is furthest from its tolerance."""
    with np.errstate(all="ignore"):
        excess = np.where(np.isfinite(norm), norm / tolerance, np.inf)
    return int(np.argmax(np.where(which, np.nan_to_num(excess, nan=np.inf), -1)))


def failed_in_words(failed: np.ndarray, worst: int) -> str:
    """Which systems of a batch failed, after the name of the method; nothing for one system.

    Args:
        worst: flat index.
    """
    if failed.size == 1:
        return ""
    position = tuple(map(int, np.unravel_index(worst, failed.shape)))
    index = position[0] if len(position) == 1 else position
    return f" failed in {_number(failed)}; the worst, system {index},"


def _number(which: np.ndarray) -> str:
    return f"{int(np.sum(which))} of {which.size} systems"


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
)  # of a solve that diverged in 0 steps, with an unknown right-hand side


class Background(NamedTuple):
    """Data of a message besides the end state.

    Attributes:
        made_by: the methods that may have made x, by the numbers of `Outcome.rung`.
        least_squares: are the norms those of the normal residual?
        no_solution: the reason why there is no solution, if known.
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
    worst, precision, no_solution = end.worst(failed), str(end.attainable.dtype), background.no_solution
    status, steps, norm, bound, attainable = (a.flat[worst] for a in end[:5])
    made_by = background.made_by[0 if end.rung is None else int(end.rung.flat[worst])]
    failure = Failure(Status(int(status)), *made_by, precision, background.causes is not None)
    causes = background.causes or ()
    if not causes and failure.kind is Status.DIVERGED and not steps and not np.isfinite(norm):
        causes = (FROM_THE_START,)
    if no_solution is None and not end.consistent.flat[worst] and not end.null_part.flat[worst]:
        no_solution = "b has a component outside the range of A, as its factors show"

    out_of_reach, what, why = attainable > 0 and bound < attainable, EXPLANATION[failure.kind], ""
    if failure.kind is Status.TIME_LIMIT and background.time_limit is not None:
        what = f"reached the time limit of {background.time_limit:g} s"
    if no_solution is not None:
        why += f" There is no solution: {no_solution}."
    if failure.kind is Status.STAGNATED and norm <= attainable:
        what = f"reached the accuracy that {precision} allows here (about {attainable:.1e}) and stopped"
    elif out_of_reach and not any(cause.settles for cause in causes):
        why += f" {precision} allows about {attainable:.1e} here."
    if causes:
        why += f" Cause: {'; '.join(cause.seen for cause in causes)}."

    general = failure.larger_rtol() if out_of_reach else failure.advice()
    if background.parts:  # no factors, and preconditioners of parts
        general = [_PRECONDITION_PARTS if a == _PRECONDITION else a for a in general if "direct" not in a]
    *most, last = failure.untried(_to_do(causes, no_solution, general)) or ["check A and b"]
    which, taken = failed_in_words(failed, worst), iterations_in_words(int(steps))
    return (
        f"{failure.name}{which} {what} after {taken}: {norms_in_words(_measure(background), norm, bound)}"
        f"{why}{_singular(end)} To do: {', '.join(most)}{', or ' if most else ''}{last}."
    )


def _to_do(causes: Sequence[Cause], no_solution: str | None, general: list[str]) -> list[str]:
    """The advice of the causes; for systems without a solution, or where no cause settles it, also the general one."""
    specific = [advice for cause in causes for advice in cause.advice]
    settled = any(cause.settles and cause.advice for cause in causes)
    if no_solution is not None:
        return [*_WITHOUT_SOLUTION, *(advice for advice in specific if settled and advice not in SINGULAR)]
    if settled:
        return specific
    limited = any(advice.startswith("raise max_iter") for advice in specific)  # to a number
    return [*specific, *(advice for advice in general if not (limited and advice == "raise max_iter"))]


def _success(end: EndState, background: Background) -> str:
    method, measure = methods_in_words(background.made_by, end.rung), _measure(background)
    stopped, count = end.status == Status.STOPPED, end.status.size
    if stopped.any():
        worst = end.worst(stopped)
        which = "" if count == 1 else f" in {_number(stopped)}"
        taken = iterations_in_words(int(end.iterations.flat[worst]))
        norms = norms_in_words(measure, end.residual_norm.flat[worst], end.tolerance.flat[worst])
        return f"{method} was stopped by the callback{which} after {taken}: {norms}{_singular(end)}"
    limited = np.any((end.attainable > 0) & (end.tolerance <= end.attainable))
    limit = f" to the limit of {end.attainable.dtype}" if limited else ""
    sentence = success_in_words(f"{method} converged{limit}", measure, end.iterations, end.residual_norm, end.tolerance)
    return f"{sentence}{_singular(end)}"


def success_in_words(
    who: str, measure: str, steps: np.ndarray, norm: np.ndarray, tolerance: np.ndarray
) -> str:  # fmt: skip
    """Message of a solve, of at least one system, that has converged; `who` ends in the verb, `measure` is the norm."""
    worst, systems = int(norm.argmax()), "" if steps.size == 1 else f" for all {steps.size} systems"
    taken = iterations_in_words(int(steps.min()), int(steps.max()))
    return f"{who} in {taken}{systems}: {norms_in_words(measure, norm.flat[worst], tolerance.flat[worst])}"


def norms_in_words(measure: str, norm: float, tolerance: float) -> str:
    """The norm that was reached, and the one that counts as converged."""
    return f"{measure} {norm:.3e}, tolerance {tolerance:.3e}."


def _measure(background: Background) -> str:
    return f"{'normal ' * background.least_squares}residual norm"


def _singular(end: EndState) -> str:
    """Sentences about matrices known to be singular, and components subtracted from right-hand sides."""
    count, total = int(np.sum(end.singular)), end.singular.size
    if not count:
        return ""
    which = f"The matrices of {_number(end.singular)} are" if count < total else "The matrices are"
    which = "The matrix is" if total == 1 else which
    part = np.where(end.consistent, 0, end.null_part).max()
    lost = f" A component of b of norm {part:.3e}, which no x reaches, was subtracted." if part else ""
    return f" {which} singular; x is orthogonal to the known null vectors.{lost}"


class Failure(NamedTuple):
    """Failure of one system, the worst of a batch, and its method.

    Attributes:
        name: of the last method in the result, which names those tried before.
        method: the last one that was tried; None in a result that was read from a file of another version.
        preconditioner: the kind that was given, or None.
        precision: "float32" or "float64".
        looked: were A and M examined?
    """

    kind: Status
    name: str
    method: Method | None
    preconditioner: str | None
    precision: str
    looked: bool

    def advice(self) -> list[str]:
        """Alternatives in the imperative for a method of this family."""
        method = self.method
        if method is None:
            return ["look at A and b"]
        words = {
            "limit": self.kind.name.lower(),
            "properties": "symmetric and definite" if method.needs_definite else "symmetric",
            "of_M": "symmetric and positive definite" if method.needs_hermitian else "close to the inverse of A",
        }
        family = _FACTORS if method.factorises else _SQUARES if is_least_squares(method) else _KRYLOV
        rows = ((holds, sentence) for families, holds, sentence in ADVICE if family in families)
        return [sentence.format(**words) for holds, sentence in rows if holds(self, method)]

    def larger_rtol(self) -> list[str]:
        larger = "use a larger rtol, or leave it out: by default the attainable accuracy is accepted"
        if self.precision != "float32":
            return [larger]
        mixed = [] if "mixed-" in self.name else ["a method 'mixed-...' with double precision outside"]
        return ["use double precision", *mixed, larger]

    def untried(self, advice: Sequence[str]) -> list[str]:
        """Each once, without methods of families that have been tried."""
        tried = ["direct"] if "direct" in self.name else []
        if "LSMR" in self.name or (self.method is not None and is_least_squares(self.method)):
            tried.append("LSMR")
        return [a for a in dict.fromkeys(advice) if not any(name in a for name in tried)]


def is_least_squares(method: Method) -> bool:
    """Is it a least-squares method?"""
    return method.least_squares or (method.minimises_residual and method.needs_transpose)


def _ends(*kinds: Status) -> Callable[[Failure, Method], bool]:
    return lambda failure, _: failure.kind in kinds


_LIMITED, _STUCK = _ends(Status.MAX_ITER, Status.TIME_LIMIT), _ends(Status.STAGNATED, Status.BREAKDOWN)
_DIVERGED, _FINITE = _ends(Status.DIVERGED), _ends(*(kind for kind in Status if kind is not Status.DIVERGED))
_FACTORS, _SQUARES, _KRYLOV = "factors", "least squares", "Krylov"
_ALL = _FACTORS, _SQUARES, _KRYLOV
_REGULAR = "check that A is not singular: name its null vectors (nullspace=...)"

ADVICE: tuple[tuple[tuple[str, ...], Callable[[Failure, Method], bool], str], ...] = (
    (_ALL, _LIMITED, "raise {limit}"),
    (_ALL, _DIVERGED, "check A, b and x0 for NaN and infinity"),
    ((_FACTORS,), _STUCK, "loosen rtol"),
    ((_SQUARES,), _FINITE, "loosen rtol"),
    ((_KRYLOV,), _ends(Status.MAX_ITER, Status.TIME_LIMIT, Status.STAGNATED), "loosen rtol"),
    ((_FACTORS,), lambda f, m: True, _REGULAR),
    ((_FACTORS,), lambda f, m: True, LEAST_SQUARES),
    ((_SQUARES,), lambda f, m: True, "scale the columns of A to equal norms"),
    ((_SQUARES,), lambda f, m: m.least_squares and _FINITE(f, m), "damp the problem (damp=...)"),
    ((_KRYLOV,), _STUCK, _REGULAR),
    ((_KRYLOV,), lambda f, m: m.needs_symmetry and not f.looked, "check that A is {properties}"),
    (
        (_KRYLOV,),
        lambda f, m: f.preconditioner is not None and not f.looked,
        "check that the preconditioner is {of_M}",
    ),
    (
        (_KRYLOV,),
        lambda f, m: f.preconditioner is None and m.takes_preconditioner and _LIMITED(f, m),
        _PRECONDITION,
    ),
    ((_KRYLOV,), lambda f, m: m.holds_external, "choose other settings of it"),
    (
        (_KRYLOV,),
        lambda f, m: not m.holds_external and f.kind is Status.BREAKDOWN and "gmres" not in f.name.lower(),
        "use GMRES, which does not break down",
    ),
    ((_KRYLOV,), lambda f, m: "direct" not in f.name, FACTORISE),
    (_ALL, lambda f, m: f.precision == "float32" and _STUCK(f, m), "use double precision"),
)
"""Advice in this order: families of methods, condition, text."""


# --- warnings of singular matrices


def inconsistent_in_words(method: str, which: np.ndarray, vectors: str) -> str:
    """Warning of systems solved without a component of b in the null vectors `vectors` of the adjoint."""
    return (
        f"{method}: b{_of_which(which)} has a component in {vectors}, which the adjoint of A maps to zero, so no x "
        "reaches it. It was subtracted (result.null_part is its norm), and x is a least-squares solution. Subtract it "
        "from b, check b and the boundary conditions, or give nullspace=None, with which such a system fails."
    )


def singular_in_words(method: str, which: np.ndarray, kind: Singularity) -> str:
    """Warning of matrices that factors show to be singular or ill-conditioned."""
    return f"{method}: the matrix{_of_which(which)} {SINGULARITIES[kind]}"


def _of_which(chosen: np.ndarray) -> str:
    return "" if chosen.size == 1 else f" of {_number(chosen)}"


SINGULARITIES = {
    Singularity.SINGULAR: "is singular: a pivot is zero up to rounding, so x is one of many solutions, the one "
    "orthogonal to the null vectors that were found. Name them with nullspace=..., add a constraint that fixes x, or "
    "check the matrix.",
    Singularity.ILL_CONDITIONED: "is ill-conditioned: its reciprocal condition number is below the rounding unit, so x "
    "may have no correct digit, though its residual is small. Scale or reformulate the system, or use more precision.",
}
