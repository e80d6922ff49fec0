"""Comparison of preconditioners and methods on one matrix: set-up, iterations and time of a solve with each."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...solvers import PRECONDITIONERS, ConvergenceError, PreparedSolver, SolveResult
from ...solvers.prepared import prepare_for_one
from ...sparse.analysis.facts import is_hermitian
from ..activity import Activity
from ..errors import SolveFailed, UsageError, as_options
from ..facts import column_norms, maps_constants_to_zero
from ..preconditioning import build
from ..report import status_word

NONE, AUTO = "none", "auto"
COSTS = ("memory", "work", "entries", "hermitian", "note")
_MOST_ITERATIONS = 2000


@dataclass(frozen=True)
class Settings:
    """What all solves of a comparison have in common; `time_limit` is of set-up and solve together."""

    rtol: float | None = None
    atol: float = 0.0
    max_iter: int | None = None
    time_limit: float = float("inf")


@dataclass(frozen=True)
class ComparisonRow:
    """A solve with one method and one preconditioner.

    Attributes:
        kind: name of the preconditioner; "none" for a solve without one.
        problem: why it cannot be built or used, in one line; then most of the rest is None.
        method: what solved with it.
        set_up: seconds until the first iteration could begin.
        costs: of the preconditioner, by the names of its attributes; None without one.
        iterations, products: of the solve; products are those with A.
        seconds: of the solve.
        residual: norm of b - A x relative to b, or of the residual that counts.
        converged: did it?
        status: how it ended, in words.
        history: relative residual norms, from before the first iteration on.
        bytes: memory of the values of the preconditioner or the factors; None where that is not known.
        wanted: the method and the preconditioner that were asked for, which may be "auto".
    """

    kind: str
    problem: str | None = None
    method: str | None = None
    set_up: float | None = None
    costs: dict[str, Any] | None = None
    iterations: int | None = None
    products: int | None = None
    seconds: float | None = None
    residual: float | None = None
    converged: bool = False
    status: str | None = None
    history: np.ndarray | None = None
    bytes: int | None = None
    wanted: tuple[str, str] = (AUTO, AUTO)

    @property
    def total(self) -> float:
        """Seconds of set-up and solve."""
        return (self.set_up or 0.0) + (self.seconds or 0.0)


def check_square(A: Any) -> None:
    """Raises UsageError for a matrix that has no preconditioner."""
    if A.shape[0] != A.shape[1] or not A.shape[0]:
        raise UsageError(f"--preconditioners: got a matrix of shape {A.shape}; expected a square one with some rows.")


def compare(A: Any) -> Iterator[ComparisonRow]:
    """A row for no preconditioner and one for each kind, for a random right-hand side and the default tolerance.

    Methods: CG where A is symmetric with a positive diagonal and M is not known to be unsymmetric, else biCG-stab(2).
    """
    import pyamg  # noqa: F401  # takes a second, which is not that of a set-up

    rng = np.random.default_rng(0)
    b = rng.standard_normal(A.shape[0]) + (1j * rng.standard_normal(A.shape[0]) if A.dtype.kind == "c" else 0)
    if maps_constants_to_zero(A):  # most right-hand sides have no solution
        b = A @ b
    symmetric = bool(is_hermitian(A) and np.all(A.diagonal().real > 0))
    kinds = (NONE, *PRECONDITIONERS)
    settings = Settings(max_iter=min(10 * len(b), _MOST_ITERATIONS))
    for done, kind in enumerate(kinds):

        def method(M: Any) -> str:
            return "CG" if symmetric and (M is None or M.hermitian is not False) else "biCG-stab(2)"

        yield measure(A, b.astype(A.dtype), method, kind, settings, (done, len(kinds)))


def measure(
    A: Any,
    b: np.ndarray,
    method: str | Callable[[Any], str],
    kind: str,
    settings: Settings,
    part: tuple[int, int] | None = None,
) -> ComparisonRow:
    """Set up and solve.

    Args:
        method: a name, or what chooses one for a preconditioner.
        kind: of the preconditioner, or "none"; of no account where the method is "auto".
        part: how many are done, and of how many, for the line on the terminal.
    """
    name = method if isinstance(method, str) else None
    try:
        built = None if kind in (NONE, AUTO) else build(A, kind, {}, part)
        M = None if built is None else built.M
        name = method if isinstance(method, str) else method(M)
        with Activity(f"{kind}: solving by {name}", part), warnings.catch_warnings(action="ignore"):
            started = time.perf_counter()
            given = AUTO if name == AUTO else M
            tolerances = {"rtol": settings.rtol, "atol": settings.atol, "max_iter": settings.max_iter}
            solver = prepare_for_one(A, b, method=name, preconditioner=given, **tolerances)
            set_up = time.perf_counter() - started + (0.0 if built is None else built.seconds)
            if set_up >= settings.time_limit:
                raise SolveFailed(f"its set-up took {set_up:.3g} s (--time-limit {settings.time_limit:g})")
            started = time.perf_counter()
            result = _solved(solver, b, settings.time_limit - set_up)
            seconds = time.perf_counter() - started
    except (UsageError, SolveFailed, ValueError, TypeError, ArithmeticError, RuntimeError, MemoryError) as error:
        text = " ".join(str(error or type(error).__name__).split())
        return ComparisonRow(kind, as_options(text.removeprefix(f"{kind}: ")), name)
    size = column_norms(A.conj().T @ b if result.least_squares else b)[0] or 1.0
    history, steps = np.asarray(result.history).reshape(-1), int(result.iterations)
    return ComparisonRow(
        result.preconditioner or NONE if name == AUTO else kind,
        method=result.method,
        set_up=set_up,
        costs=None if M is None else {name: getattr(M, name) for name in COSTS},
        iterations=steps,
        products=int(result.function_evaluations),
        seconds=seconds,
        residual=float(result.residual_norm) / size,
        converged=bool(result.converged),
        status=status_word(int(result.status)),
        history=history[: steps + 1] / size,
        bytes=None if solver.memory is None else solver.memory * A.dtype.itemsize,
        wanted=(name, kind),
    )


def _solved(solver: PreparedSolver, b: np.ndarray, time_limit: float) -> SolveResult:
    try:
        return solver.solve(b, history=True, time_limit=time_limit)
    except ConvergenceError as failure:
        if failure.result is None:
            raise
        return failure.result


_FORMAT = "{:<15} {:>9} {:>9} {:>9}  {:<13} {:>10} {:>9} {:>9}  {}".format
HEAD = (
    _FORMAT("", "set-up", "memory", "work", "", "", "products", "", ""),
    _FORMAT("preconditioner", "s", "of A", "of A x", "method", "iterations", "with A", "solve s", "end"),
)


def text(row: ComparisonRow) -> str:
    """A row of the table under `HEAD`."""
    if row.problem is not None:
        return f"{row.kind:<15} cannot be used: {row.problem}"
    costs = row.costs or {}
    memory, work = (_ratio(costs.get(name), costs.get("entries")) for name in ("memory", "work"))
    set_up = "" if row.costs is None else f"{row.set_up:.3g}"
    end = row.status if row.converged else f"NOT CONVERGED: {row.status}"
    return _FORMAT(
        row.kind, set_up, memory, work, row.method, row.iterations, row.products, f"{row.seconds:.3g}", end
    ).rstrip()


def _ratio(number: int | None, entries: int | None) -> str:
    return "" if number is None or not entries else f"{number / entries:.3g}"


_OF_ROW = ("kind", "problem", "method", "iterations", "products", "converged", "status", "residual")


def as_object(row: ComparisonRow) -> dict[str, Any]:
    """A row for programs; what is not there is null."""
    costs = row.costs or dict.fromkeys(COSTS)
    return {**{n: getattr(row, n) for n in _OF_ROW}, **costs, "seconds": {"set_up": row.set_up, "solve": row.seconds}}
