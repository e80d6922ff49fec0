"""SciPy's test cases for its iterative solvers, as calls of SciPy's own test functions with another solver in place."""

from __future__ import annotations

import inspect
import itertools
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from krylix.solvers import METHODS, Method, SolveResult, Status

# Tests that call one of SciPy's solvers by its name in their module: there the adapter takes its place. (The other
# tests are handed a solver, and treat some of SciPy's in a special way, which must not catch the adapter.)
STAND_INS = {"TestGMRES": "gmres", "TestQMR": "qmr", "test_show": "tfqmr", "test_maxiter_worsening": "gmres"}


class Adapter:
    """`krylix.linear_solve` with one method, called as SciPy's solvers are.

    The info is 0 for converged, -1 for broken down or diverged, else the count of iterations. A method that takes no
    preconditioner is not given that of the test. A callback gets the residual norm, as krylix does not show x so early.
    """

    def __init__(self, method: str) -> None:
        self.method, self.__name__ = METHODS[method], method
        self.last: SolveResult | None = None

    def __call__(
        self,
        A: Any,
        b: Any,
        x0: Any = None,
        *,
        rtol: Any = 1e-5,
        atol: Any = 0.0,
        maxiter: int | None = None,
        M: Any = None,
        M1: Any = None,
        M2: Any = None,
        callback: Callable[[Any], None] | None = None,
    ) -> tuple[Any, int]:
        if M1 is not None:
            M = M1 if M2 is None else M2 @ M1
        if isinstance(x0, str):  # "Mb", which SciPy takes
            x0 = b if M is None else M @ b
        self.last = krylix.linear_solve(
            A,
            b,
            x0=x0,
            method=self.__name__,
            preconditioner=M if self.method.takes_preconditioner else None,
            rtol=rtol,
            atol=atol,
            max_iter=maxiter,
            nullspace=None,  # nothing is taken off b in SciPy
            on_failure="status",
            progress=False if callback is None else lambda _, norm, __: callback(np.float64(norm)),
        )
        return self.last.x, _info(self.last)


def _info(result: SolveResult) -> int:
    if result.converged:
        return 0
    broken = (Status.BREAKDOWN, Status.DIVERGED)
    return -1 if int(result.status) in broken else max(1, int(result.iterations))


@dataclass(frozen=True)
class Call:
    """One of SciPy's tests, on one of its problems (unless it has its own), with one method of krylix."""

    test: str
    name: str  # of the method
    function: Callable[..., None]
    problem: Any = None  # SciPy's `Case`
    is_single: bool = False  # does the test take problem and solver as one?
    settings: dict[str, Any] = field(default_factory=dict)  # SciPy's own parameters

    @property
    def method(self) -> Method:
        return METHODS[self.name]

    @property
    def case(self) -> str:
        return self.problem.name if self.problem else ""

    @property
    def id(self) -> str:
        return "-".join(str(part) for part in (self.test, self.name, self.case, *self.settings.values()) if part != "")

    @property
    def filters(self) -> list[pytest.MarkDecorator]:
        """The warnings that SciPy ignores in this test."""
        marks = getattr(self.function, "pytestmark", [])
        return [pytest.mark.filterwarnings(*m.args) for m in marks if m.name == "filterwarnings"]

    def run(
        self, suite: ModuleType, solver: Adapter, request: pytest.FixtureRequest, patch: pytest.MonkeyPatch
    ) -> None:
        patch.setattr(suite, "_SOLVERS", [solver])
        stand_in = STAND_INS.get(self.test.split(".")[0])
        if stand_in:
            patch.setattr(suite, stand_in, solver)
        case = self.problem
        if self.is_single:
            case = suite.SingleTest(case.A, case.b, solver, case.name)
        given = {"solver": solver, "case": case, **self.settings}
        names = inspect.signature(self.function).parameters
        self.function(**{name: given[name] if name in given else request.getfixturevalue(name) for name in names})


def calls_of(suite: ModuleType, methods_for: Callable[[str], tuple[str, ...]]) -> Iterator[Call]:
    """Every test of SciPy's module, with every problem and every method of `methods_for(test)`."""
    problems = suite.IterativeParams().cases
    for test, function in _tests_of(suite):
        axes = {m.args[0]: m.args[1] for m in getattr(function, "pytestmark", []) if m.name == "parametrize"}
        axes.pop("solver", None)
        is_single = "case" in inspect.signature(function).parameters and "case" not in axes
        cases = problems if is_single else axes.pop("case", [None])
        for name, case, values in itertools.product(methods_for(test), cases, itertools.product(*axes.values())):
            yield Call(test, name, function, case, is_single, dict(zip(axes, values, strict=True)))


def _tests_of(suite: ModuleType) -> Iterator[tuple[str, Callable[..., None]]]:
    for name, value in vars(suite).items():
        if name.startswith("test_") and inspect.isfunction(value):
            yield name, value
        elif name.startswith("Test") and inspect.isclass(value):
            yield from ((f"{name}.{test}", getattr(value(), test)) for test in vars(value) if test.startswith("test_"))


def failure_of(suite: ModuleType, run: Callable[[], None]) -> tuple[BaseException, str] | None:
    """What a test raises, with the line of SciPy's module where it did; None if it passes. A skip is a failure."""
    try:
        run()
    except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:
        lines = [f.line or "" for f in traceback.extract_tb(error.__traceback__) if f.filename == suite.__file__]
        return error, f"{type(error).__name__}: {error} | {lines[-1] if lines else ''}"
    return None


def is_complex(call: Call) -> bool:
    return call.problem is not None and call.problem.A.dtype.kind == "c"


def is_symmetric(call: Call) -> bool:
    """SciPy's problem, with or without conjugation as the method asks; True for a test that has its own matrix."""
    if call.problem is None:
        return True
    return _is_symmetric(call.problem, call.method.needs_symmetric)


@cache
def _is_symmetric(problem: Any, without_conjugation: bool) -> bool:
    dense = problem.A.toarray() if sp.issparse(problem.A) else problem.A
    return bool(np.allclose(dense, dense.T if without_conjugation else dense.conj().T))


def size(call: Call) -> int:
    return call.problem.A.shape[0]
