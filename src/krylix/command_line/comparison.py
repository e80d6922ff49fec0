"""Comparison of all preconditioners on one matrix: set-up, iterations and time of a solve with each."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..solvers import PRECONDITIONERS, ConvergenceError, SolveResult, prepare
from ..sparse.analysis.facts import is_hermitian
from .activity import Activity
from .errors import SolveFailed, UsageError
from .facts import column_norms, maps_constants_to_zero
from .preconditioning import Built, build
from .report import status_word

NONE = "none"
_MOST_ITERATIONS = 2000


@dataclass(frozen=True)
class ComparisonRow:
    """One preconditioner.

    Attributes:
        kind: its name; "none" for a solve without one.
        problem: why it cannot be built or used, in one line; then the rest is None.
        built: it, and the time of its set-up; None without one.
        method: what solved with it.
        iterations, products: of the solve; products are those with A.
        seconds: of the solve.
        converged: did it?
        status: how it ended, in words.
        history: relative residual norms, from before the first iteration on.
    """

    kind: str
    problem: str | None = None
    built: Built | None = None
    method: str | None = None
    iterations: int | None = None
    products: int | None = None
    seconds: float | None = None
    converged: bool = False
    status: str | None = None
    history: np.ndarray | None = None

    @property
    def set_up(self) -> float:
        """Seconds of the set-up."""
        return 0.0 if self.built is None else self.built.seconds


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
    for done, kind in enumerate(kinds):
        yield _row(A, b.astype(A.dtype), kind, symmetric, (done, len(kinds)))


def _row(A: Any, b: np.ndarray, kind: str, symmetric: bool, part: tuple[int, int]) -> ComparisonRow:
    try:
        built = None if kind == NONE else build(A, kind, {}, part)
        M = None if built is None else built.M
        method = "CG" if symmetric and (M is None or M.hermitian is not False) else "biCG-stab(2)"
        with Activity(f"{kind}: solving by {method}", part), warnings.catch_warnings(action="ignore"):
            started = time.perf_counter()
            result = _solved(A, b, M, method)
            seconds = time.perf_counter() - started
    except (UsageError, SolveFailed, ValueError, TypeError, ArithmeticError, RuntimeError, MemoryError) as error:
        text = " ".join(str(error or type(error).__name__).split())
        return ComparisonRow(kind, problem=text.removeprefix(f"{kind}: "))
    history = np.asarray(result.history).reshape(-1) / column_norms(b)[0]
    return ComparisonRow(
        kind, None, built, method, int(result.iterations), int(result.function_evaluations), seconds,
        bool(result.converged), status_word(int(result.status)), history[: int(result.iterations) + 1],
    )  # fmt: skip


def _solved(A: Any, b: np.ndarray, M: Any, method: str) -> SolveResult:
    most = min(10 * len(b), _MOST_ITERATIONS)
    try:
        return prepare(A, b, method=method, preconditioner=M, max_iter=most).solve(b, history=True)
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
    M = None if row.built is None else row.built.M
    memory, work = (_ratio(n, M.entries) if M is not None else "" for n in ((M.memory, M.work) if M else (0, 0)))
    set_up = "" if row.built is None else f"{row.built.seconds:.3g}"
    end = row.status if row.converged else f"NOT CONVERGED: {row.status}"
    return _FORMAT(
        row.kind, set_up, memory, work, row.method, row.iterations, row.products, f"{row.seconds:.3g}", end
    ).rstrip()


def _ratio(number: int | None, entries: int | None) -> str:
    return "" if number is None or not entries else f"{number / entries:.3g}"


_OF_ROW = ("kind", "problem", "method", "iterations", "products", "converged", "status")
_OF_M = ("memory", "work", "entries", "hermitian", "note")


def as_object(row: ComparisonRow) -> dict[str, Any]:
    """A row for programs; what is not there is null."""
    M = None if row.built is None else row.built.M
    costs = {name: None if M is None else getattr(M, name) for name in _OF_M}
    seconds = {"set_up": None if row.built is None else row.built.seconds, "solve": row.seconds}
    return {**{name: getattr(row, name) for name in _OF_ROW}, **costs, "seconds": seconds}
