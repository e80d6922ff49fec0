"""Methods and preconditioners on one matrix: set-up, iterations and time of a solve with each.

`krylix compare` tries methods with preconditioners on a system, `inspect --preconditioners` every preconditioner.
"""

from __future__ import annotations

import argparse
import shlex
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..solvers import OPTIONAL_METHODS, PRECONDITIONERS, find_method, prepare, setup_cache
from ..solvers.methods.registry import is_auto
from ..solvers.prepared import prepare_for_one
from ..sparse.analysis.symmetry import is_hermitian, is_symmetric
from .facts import bytes_text, maps_constants_to_zero, status_word
from .files import SystemRead, read_system
from .solve import build_preconditioner, column_norms, result_of
from .terminal import Activity, Fact, SolveFailed, UsageError, as_options, errors_of_library

NONE, AUTO = "none", "auto"
_COSTS = ("memory", "work", "entries", "hermitian", "note")
_MOST_ITERATIONS = 2000  # with each preconditioner
_GENERAL = ("GMRES", "biCG-stab(2)", "IDR(4)")
_USUAL = (NONE, "jacobi", "ilu", "amg")
_OWN_FORMAT = "{:<15} {:>9} {:>9} {:>9}  {:<13} {:>10} {:>9} {:>9}  {}".format
_FORMAT = "{:<17} {:<14} {:>10} {:>9} {:>9} {:>9} {:>9} {:>10}  {}".format


@dataclass(frozen=True)
class ComparisonRow:
    """A solve with one method and one preconditioner; most of it is None where there is a `problem`."""

    kind: str  # of the preconditioner, or "none"
    problem: str | None = None  # why it cannot be built or used, in one line
    method: str | None = None
    set_up: float | None = None  # seconds until the first iteration could begin
    costs: dict[str, Any] | None = None  # of the preconditioner, by the names of its attributes
    iterations: int | None = None
    products: int | None = None  # with A
    seconds: float | None = None  # of the solve
    residual: float | None = None  # norm of the residual that counts, relative to b
    converged: bool = False
    status: str | None = None  # in words
    history: np.ndarray | None = None  # relative residual norms, from before the first iteration on
    bytes: int | None = None  # of the values of the preconditioner or the factors, if known
    wanted: tuple[str, str] = (AUTO, AUTO)  # the method and the preconditioner that were given

    @property
    def total(self) -> float:
        """Seconds of set-up and solve."""
        return (self.set_up or 0.0) + (self.seconds or 0.0)

    @property
    def end(self) -> str | None:
        """How it ended, with failures in capitals."""
        return self.status if self.converged else f"NOT CONVERGED: {self.status}"

    @property
    def entries(self) -> dict[str, Any]:
        """The row for programs, null where there is no value."""
        names = ("kind", "problem", "method", "iterations", "products", "converged", "status", "residual")
        costs = self.costs or dict.fromkeys(_COSTS)
        seconds = {"set_up": self.set_up, "solve": self.seconds}
        return {**{name: getattr(self, name) for name in names}, **costs, "seconds": seconds}


def measure(
    A: Any,
    b: np.ndarray,
    method: str | Callable[[Any], str],
    kind: str,
    part: tuple[int, int] | None = None,
    *,
    time_limit: float = float("inf"),
    **tolerances: Any,
) -> ComparisonRow:
    """Set up and solve, without the use of earlier set-ups.

    Args:
        method: a name, or a function that chooses one for a preconditioner.
        kind: of the preconditioner, or "none"; ignored where the method is "auto".
        part: number of finished rows and of all, for the line on the terminal.
        time_limit: seconds for both. A set-up is not interrupted, and a solve ends after an iteration.
    """
    name = method if isinstance(method, str) else None
    wanted = (name or AUTO, kind)
    try:
        with setup_cache(False), warnings.catch_warnings(action="ignore"):
            built = None if kind in (NONE, AUTO) else build_preconditioner(A, kind, {}, part)
            M = None if built is None else built.M
            name = method if isinstance(method, str) else method(M)
            with Activity(f"{kind}: solving by {name}", part):
                started = time.perf_counter()
                given = AUTO if name == AUTO else M
                solver = prepare_for_one(A, b, method=name, preconditioner=given, **tolerances)
                set_up = time.perf_counter() - started + (0.0 if built is None else built.seconds)
                if set_up >= time_limit:
                    raise SolveFailed(f"its set-up took {set_up:.3g} s (--time-limit {time_limit:g})")
                started = time.perf_counter()
                result = result_of(solver, b, history=True, time_limit=time_limit - set_up)
                seconds = time.perf_counter() - started
    except (UsageError, SolveFailed, ValueError, TypeError, ArithmeticError, RuntimeError, MemoryError) as error:
        text = " ".join(str(error or type(error).__name__).split())
        return ComparisonRow(kind, as_options(text.removeprefix(f"{kind}: ")), name, wanted=wanted)
    size = column_norms(A.conj().T @ b if result.least_squares else b)[0] or 1.0
    history, steps = np.asarray(result.history).reshape(-1), int(result.iterations)
    return ComparisonRow(
        result.preconditioner or NONE if name == AUTO else kind,
        method=result.method,
        set_up=set_up,
        costs=None if M is None else {cost: getattr(M, cost) for cost in _COSTS},
        iterations=steps,
        products=int(result.function_evaluations),
        seconds=seconds,
        residual=float(result.residual_norm) / size,
        converged=bool(result.converged),
        status=status_word(int(result.status)),
        history=history[: steps + 1] / size,
        bytes=None if solver.memory is None else solver.memory * A.dtype.itemsize,
        wanted=wanted,
    )


# ---- krylix compare


def read_one_system(options: argparse.Namespace) -> SystemRead:
    """The system, square or for least squares; of several right-hand sides the first."""
    with errors_of_library("the set-up"):
        for method in ("CG", *(name for name in options.methods if name in OPTIONAL_METHODS)):
            prepare(np.eye(1), np.ones(1), method=method, **_tolerances(options))
    system = read_system(options, square=False)
    if system.b.ndim == 1:
        return system
    rhs = system.rhs if system.b.shape[1] == 1 else f"{system.rhs}, the first of {system.b.shape[1]} columns"
    return replace(system, b=np.ascontiguousarray(system.b[:, 0]), rhs=rhs)


def compare(options: argparse.Namespace, system: SystemRead) -> list[ComparisonRow]:
    """All rows: converged ones first, sorted by time."""
    import pyamg  # noqa: F401  # takes a second, which is not that of a set-up

    for method in ("CG", "scipy-direct"):  # imports their packages
        measure(sp.csr_array(np.eye(3)), np.ones(3), method, NONE)
    pairs = combinations(system.A, options.methods, options.preconditioners)
    rows = [
        measure(system.A, system.b, *pair, (done, len(pairs)), time_limit=options.time_limit, **_tolerances(options))
        for done, pair in enumerate(pairs)
    ]
    return sorted(rows, key=lambda row: (row.problem is not None, not row.converged, row.total))


def _tolerances(options: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(options, name) for name in ("rtol", "atol", "max_iter")}


def combinations(A: Any, methods: Sequence[str] = (), kinds: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Methods and preconditioners that suit the matrix, or all of the methods and kinds that are named.

    | matrix | methods | preconditioners |
    |---|---|---|
    | Hermitian with a positive diagonal | CG | all there are |
    | | MINRES | none, jacobi |
    | Hermitian | MINRES | none, jacobi |
    | complex symmetric | COCR | none, jacobi, ilu |
    | all but the first | GMRES, biCG-stab(2), IDR(4) | none, jacobi, ilu, amg |
    | any square one | auto, and LU factors | |
    | rectangular | LSMR, CGLS | |
    """

    def takes_one(method: str) -> bool:
        return not is_auto(method) and find_method(method).takes_preconditioner

    usual = _usual(A)
    if not methods and not kinds:
        return usual
    methods = methods or [method for method, _ in usual if takes_one(method)]
    kinds = kinds or [kind for _, kind in usual if kind != AUTO]
    pairs: dict[tuple[str, str], None] = {}  # in order, without duplicates
    for method in methods:
        suited = [AUTO] if is_auto(method) else kinds if takes_one(method) else [NONE]
        pairs |= dict.fromkeys((method, kind) for kind in suited)
    return list(pairs)


def _usual(A: Any) -> list[tuple[str, str]]:
    if A.shape[0] != A.shape[1]:
        return [("LSMR", NONE), ("CGLS", NONE)]
    direct = [(AUTO, AUTO), ("scipy-direct" if sp.issparse(A) else "direct", NONE)]
    by_minres = [("MINRES", NONE), ("MINRES", "jacobi")]
    general = [(method, kind) for method in _GENERAL for kind in _USUAL]
    if is_hermitian(A):
        if np.all(A.diagonal().real > 0):
            return [*direct, *(("CG", kind) for kind in (NONE, *PRECONDITIONERS)), *by_minres]
        return [*direct, *by_minres, *general]
    if A.dtype.kind == "c" and is_symmetric(A):
        return [*direct, *(("COCR", kind) for kind in _USUAL[:3]), *general]
    return [*direct, *general]


def of_comparison(options: argparse.Namespace, rows: Sequence[ComparisonRow]) -> list[Fact]:
    """The command that solves in the fastest way, and all rows for programs."""
    best = next((row for row in rows if row.converged), None)
    text = "none converged; see --time-limit, --max-iter, --rtol and `krylix methods`"
    if best is not None:
        method, kind = best.wanted
        words = ["krylix", "solve"]
        words += ["--example", options.example] if options.example is not None else [str(options.matrix)]
        words += [str(options.rhs)] if options.rhs is not None else []
        given = {
            "--method": None if method == AUTO else method,
            "--preconditioner": None if kind in (NONE, AUTO) else kind,
            "--rtol": options.rtol,
            "--atol": options.atol or None,
            "--dtype": options.dtype,
        }
        words += [word for option, value in given.items() if value is not None for word in (option, str(value))]
        text = shlex.join(words)
    objects = []
    for row in rows:
        wanted = dict(zip(("method", "preconditioner"), row.wanted, strict=True))
        objects.append({**row.entries, "bytes": row.bytes, "wanted": wanted})
    return [Fact("fastest", text, {"time_limit": options.time_limit, "rows": objects})]


def table(rows: Sequence[ComparisonRow]) -> Iterator[str]:
    """Lines for people."""
    yield _FORMAT("", "", "", "relative", "set-up", "solve", "total", "", "").rstrip()
    yield _FORMAT("method", "preconditioner", "iterations", "residual", "s", "s", "s", "memory", "end")
    for row in rows:
        if row.problem is not None:
            yield f"{row.method:<17} {row.kind:<14} failed: {row.problem}"
            continue
        seconds = (f"{number or 0:.3g}" for number in (row.set_up, row.seconds, row.total))
        memory = "" if row.bytes is None else bytes_text(row.bytes)
        by_auto = ", chosen by auto" if row.wanted[0] == AUTO else ""
        residual = f"{row.residual:.1e}"
        yield _FORMAT(row.method, row.kind, row.iterations, residual, *seconds, memory, f"{row.end}{by_auto}")


# ---- krylix inspect --preconditioners


def check_square(A: Any) -> None:
    """Raise UsageError for a matrix that has no preconditioner."""
    if A.shape[0] != A.shape[1] or not A.shape[0]:
        raise UsageError(f"--preconditioners: got a matrix of shape {A.shape}; expected a square one with some rows.")


def compare_preconditioners(A: Any) -> Iterator[ComparisonRow]:
    """A row for no preconditioner and one for each kind, for a random right-hand side and the default tolerance.

    Methods: CG where A is symmetric with a positive diagonal and M is not known to be unsymmetric, else biCG-stab(2).
    """
    import pyamg  # noqa: F401  # takes a second, which is not that of a set-up

    rng = np.random.default_rng(0)
    b = rng.standard_normal(A.shape[0]) + (1j * rng.standard_normal(A.shape[0]) if A.dtype.kind == "c" else 0)
    if maps_constants_to_zero(A):  # most right-hand sides have no solution
        b = A @ b
    symmetric = bool(is_hermitian(A) and np.all(A.diagonal().real > 0))
    kinds, max_iter = (NONE, *PRECONDITIONERS), min(10 * len(b), _MOST_ITERATIONS)

    def method(M: Any) -> str:
        return "CG" if symmetric and (M is None or M.hermitian is not False) else "biCG-stab(2)"

    for done, kind in enumerate(kinds):
        yield measure(A, b.astype(A.dtype), method, kind, (done, len(kinds)), max_iter=max_iter)


def head_of_preconditioners() -> list[str]:
    """The first lines of the table whose rows are `line_of_preconditioner`."""
    return [
        _OWN_FORMAT("", "set-up", "memory", "work", "", "", "products", "", ""),
        _OWN_FORMAT("preconditioner", "s", "of A", "of A x", "method", "iterations", "with A", "solve s", "end"),
    ]


def line_of_preconditioner(row: ComparisonRow) -> str:
    """A row of the table."""
    if row.problem is not None:
        return f"{row.kind:<15} cannot be used: {row.problem}"

    def relative(name: str) -> str:
        costs = row.costs or {}
        return f"{costs[name] / costs['entries']:.3g}" if costs.get("entries") and costs[name] is not None else ""

    set_up = "" if row.costs is None else f"{row.set_up:.3g}"
    costs = (set_up, relative("memory"), relative("work"))
    return _OWN_FORMAT(row.kind, *costs, row.method, row.iterations, row.products, f"{row.seconds:.3g}", row.end)
