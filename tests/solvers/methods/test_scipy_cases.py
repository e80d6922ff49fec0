"""SciPy's own test cases for its iterative solvers, with the methods of krylix in the place of SciPy's.

The functions that run are SciPy's; what is ours is the adapter and the table of exclusions. An excluded test still
runs: it has to fail in the way that the table says, and the exclusion has to go when it passes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from cells import METHOD_NAMES
from krylix.solvers import SolveResult
from scipy_cases import Adapter, Call, calls_of, failure_of, is_complex, is_symmetric, size
from tiers import REPRESENTATIVE

suite = pytest.importorskip(
    "scipy.sparse.linalg._isolve.tests.test_iterative", reason="this build of SciPy comes without its tests"
)

ONLY_FOR = {
    # tests of arguments and callbacks that one of SciPy's solvers has and linear_solve has not
    "test_show": ("scipy-TFQMR",),
    "TestGMRES.test_basic": ("scipy-GMres",),
    "TestGMRES.test_callback": ("scipy-GMres",),
    "TestGMRES.test_atol_legacy": ("scipy-GMres",),
    "TestGMRES.test_callback_type": ("scipy-GMres",),
    "TestGMRES.test_callback_x_monotonic": ("scipy-GMres",),
    # SciPy skips all others: with no solution to find, what they return grows out of rounding errors
    "test_maxiter_worsening": ("scipy-GMres", "scipy-lGMres", "scipy-QMR"),
}
COMPLEX = ("TestGMRES.test_abi",)  # tests that bring their own matrix
NOT_HERMITIAN = ("TestQMR.test_leftright_precond",)


def methods_for(test: str) -> tuple[str, ...]:
    return ONLY_FOR.get(test, METHOD_NAMES)


@dataclass(frozen=True)
class Exclusion:
    """Tests that cannot pass, and why. Which methods those are follows from the facts that a method declares.

    By name only SciPy's own functions are excluded, where SciPy's suite treats them in a special way too.
    """

    why: str
    tests: tuple[str, ...]  # none named: all
    applies: Callable[[Call], bool]
    fails: str  # pattern for "type of the error: its text | line of SciPy's test"
    instead: Callable[[Call, SolveResult], bool] | None = None  # what holds all the same for the last solve of the test
    may_pass: bool = False  # the test promises nothing of these methods: some pass, the others do `instead`

    def covers(self, call: Call) -> bool:
        return (not self.tests or call.test in self.tests) and self.applies(call)


def one_iteration(call: Call, result: SolveResult) -> bool:
    return bool(result.converged) and int(result.iterations) == 1


def converged(call: Call, result: SolveResult) -> bool:
    return bool(result.converged)


def finite(call: Call, result: SolveResult) -> bool:
    return not result.converged and bool(np.all(np.isfinite(result.x)))


def honest(call: Call, result: SolveResult) -> bool:
    """What SciPy asks of its solvers where they break down."""
    return not result.converged and result.residual_norm <= np.linalg.norm(call.problem.b)


def products_of_one_iteration(call: Call) -> int:
    """With A, and the true residual at the end."""
    return call.method.products_at_start + call.method.products_per_step + 1


def is_iterative(call: Call) -> bool:
    """In the library itself, with a preconditioner, and in the precision of the system."""
    return call.method.takes_preconditioner and not (call.method.on_host or call.method.lower_precision)


def minimises(call: Call) -> bool:
    """The residual, or the error in the norm of A; SciPy's CG divides by a zero where there is nothing left to gain."""
    method = call.method
    return method.minimises_residual or (method.needs_definite and not method.on_host)


EXCLUSIONS = (
    # --- refused before any iteration, by what the method declares to need
    Exclusion(
        "the method is for real systems and says so",
        (),
        lambda c: not c.method.takes_complex and (is_complex(c) or c.test in COMPLEX),
        "^TypeError: .* takes real systems only",
    ),
    Exclusion(
        "the method needs a symmetric matrix and says so",
        (),
        lambda c: (
            c.method.needs_symmetry
            and (c.method.takes_complex or not (is_complex(c) or c.test in COMPLEX))
            and (not is_symmetric(c) or c.test in NOT_HERMITIAN)
        ),
        "^ValueError: .* needs a (symmetric|Hermitian) matrix",
    ),
    # --- arguments
    Exclusion(
        "a word is a TypeError to krylix",
        ("test_invalid_atol",),
        lambda c: c.settings["atol"] == "legacy",
        "^TypeError: atol must be a number",
    ),
    Exclusion(
        "None means the default to krylix",
        ("test_invalid_atol",),
        lambda c: c.settings["atol"] is None,
        "^Failed: DID NOT RAISE",
        converged,
    ),
    Exclusion(
        "a test of GMRES's restart and callback_type, or of what TFQMR prints; linear_solve has no such arguments",
        (
            "test_show",
            *(f"TestGMRES.test_{t}" for t in ("basic", "atol_legacy", "callback_type", "callback_x_monotonic")),
        ),
        lambda c: True,
        "^TypeError: .* unexpected keyword argument '(restart|show)'",
    ),
    Exclusion(
        "GMRES's callback gets the preconditioned residual norm relative to that of b; krylix reports the true one",
        ("TestGMRES.test_callback",),
        lambda c: True,
        r"^AssertionError: .*\| assert_allclose\(rvec",
    ),
    # --- what a method is not made for
    Exclusion(
        "SciPy has made this problem for the breakdown of such solvers: <p, A p> = 0 in the first steps of CG",
        ("test_convergence", "test_precond_dummy"),
        lambda c: (c.method.needs_definite or c.method.may_break_down) and c.case == "sym-nonpd",
        r"^AssertionError: .*\| assert info == 0",
        honest,
    ),
    Exclusion(
        "as above, and SciPy divides by that zero, so that one step is a breakdown already and not 1 iteration",
        ("test_maxiter",),
        lambda c: c.name == "scipy-CG" and c.case == "sym-nonpd",
        r"^AssertionError: .*\| assert info == 1",
        honest,
    ),
    Exclusion(
        "CGS and TFQMR do not converge on this one, as SciPy remarks ('algorithmic limitation apparently'); it runs no "
        "start at all but zero with TFQMR",
        ("test_convergence", "test_precond_dummy", "test_x0_equals_Mb"),
        lambda c: (
            c.method.amplifies_rounding
            and c.case in ("nonsymposdef", "nonsymposdef-F")
            and (c.test != "test_x0_equals_Mb" or c.name == "scipy-TFQMR")
        ),
        r"^AssertionError: .*\| assert info == 0",
        honest,
    ),
    Exclusion(
        "the test asks for 1e-8 in single precision; whether rounding allows it is another thing on each processor",
        ("test_precond_dummy",),
        lambda c: c.name == "scipy-biCG" and c.case == "nonsymposdef-F",
        r"^AssertionError: .*\| assert info == 0",
        honest,
        may_pass=True,
    ),
    # --- counts
    Exclusion(
        "one iteration of this method is a factorisation, or as many steps as the problem has unknowns: it converges "
        "(SciPy's outer iterations do so too, but see it only at the start of the next)",
        ("test_maxiter",),
        lambda c: size(c) <= c.method.steps_per_iteration,
        r"^AssertionError: .*\| assert info == 1",
        one_iteration,
    ),
    Exclusion(
        "an iteration of this method, what it needs at the start and the residual at the end are more than 3 products",
        ("test_precond_inverse",),
        lambda c: is_iterative(c) and products_of_one_iteration(c) > (2 if c.method.products_at_start else 3),
        r"^AssertionError: .*\| assert matvec_count\[0\] <= 3",
        one_iteration,
    ),
    Exclusion(
        "each correction ends with a residual in double precision, and a perfect M is not perfect in single precision",
        ("test_precond_inverse",),
        lambda c: c.method.lower_precision,
        r"^AssertionError: .*\| assert matvec_count\[0\] <= 3",
        lambda c, result: bool(result.converged) and int(result.iterations) <= 2,
    ),
    Exclusion(
        "the true residuals at the start, after SciPy's return and at the end are 3 products on top of SciPy's own",
        ("test_precond_inverse",),
        lambda c: c.method.on_host and c.method.takes_preconditioner,
        r"^AssertionError: .*\| assert matvec_count\[0\] <= 3",
        one_iteration,
    ),
    Exclusion(
        "the method takes no preconditioner",
        ("test_precond_inverse",),
        lambda c: not c.method.takes_preconditioner,
        r"^AssertionError: .*\| assert matvec_count\[0\] <= 3",
        converged,
    ),
    # --- tolerances that any x meets
    Exclusion(
        "tolerances that any x meets are refused",
        ("test_atol", "test_zero_rhs"),
        lambda c: True,
        r"^ValueError: (atol must be >= 0 and finite; got .*inf|rtol must be >= 0 and below 1; got .*1\.0)",
        converged,
    ),
    # --- singular matrices and preconditioners
    Exclusion(
        "<b, A b> = 0: these methods cannot take their first step, and a restart from zero is the same",
        ("TestGMRES.test_defective_matrix_breakdown",),
        lambda c: c.method.needs_definite or c.method.may_break_down,
        r"^AssertionError: .*\| assert_allclose\(A @ \(A @ x\), A @ b\)",
        lambda c, result: not result.converged and bool(np.all(result.x == 0)),
    ),
    Exclusion(
        "the system has no solution; the test is for methods that minimise the residual all the same",
        ("TestGMRES.test_defective_matrix_breakdown",),
        lambda c: (
            not (c.method.needs_definite or c.method.may_break_down or c.method.factorises)
            and not c.method.minimises_residual
        ),
        r"^AssertionError: .*\| assert_allclose\(A @ \(A @ x\), A @ b\)",
        finite,
        may_pass=True,
    ),
    Exclusion(
        "the system has no solution; the test wants exact zeros in A A x, these methods solve a shifted system",
        ("TestGMRES.test_defective_matrix_breakdown",),
        lambda c: c.method.factorises,
        r"^AssertionError: .*\| assert_allclose\(A @ \(A @ x\), A @ b\)",
        # b has a part of norm 1 outside the range of A: no x leaves less.
        lambda c, result: not result.converged and abs(float(result.residual_norm) - 1) < 1e-12,
    ),
    Exclusion(
        "with a singular M the preconditioned system has no solution; the test is for methods that minimise the "
        "residual all the same",
        ("TestGMRES.test_defective_precond_breakdown",),
        lambda c: c.method.takes_preconditioner and not minimises(c),
        r"^AssertionError: .*\| assert_allclose\(M @ \(A @ x\), M @ b\)",
        finite,
        may_pass=True,
    ),
    Exclusion(
        "the test asks for an exact zero; the residual outside of the null space of M is one rounding error",
        ("TestGMRES.test_defective_precond_breakdown",),
        lambda c: c.method.takes_preconditioner and minimises(c),
        r"^AssertionError: .*\| assert_allclose\(M @ \(A @ x\), M @ b\)",
        lambda c, result: not result.converged and bool(np.all(np.abs(result.residual[:2]) < 1e-15)),
        may_pass=True,
    ),
    Exclusion(
        "the method takes no preconditioner and solves the system; the test asks for an exact zero",
        ("TestGMRES.test_defective_precond_breakdown",),
        lambda c: not c.method.takes_preconditioner,
        r"^AssertionError: .*\| assert_allclose\(M @ \(A @ x\), M @ b\)",
        converged,
        may_pass=True,
    ),
    Exclusion(
        "no x solves the system, and SciPy expects its own test to fail; how much the residual grows is another thing "
        "on each processor",
        ("test_maxiter_worsening",),
        lambda c: c.method.on_host,
        r"^AssertionError: .*\| assert error <= slack_tol \* best_error",
        lambda c, result: not result.converged and float(result.residual_norm) < 1e-2,  # of a b of norm 2
        may_pass=True,
    ),
    Exclusion(
        "the method takes no preconditioner, and without it the test's 15 iterations are too few",
        ("TestQMR.test_leftright_precond",),
        lambda c: not c.method.takes_preconditioner and not c.method.factorises,
        r"^AssertionError: .*\| assert info == 0",
        lambda c, result: not result.converged,
    ),
)

CALLS = tuple(calls_of(suite, methods_for))


def tier_of(call: Call, number: int) -> list[Any]:
    """Methods that stand for others run by default, a third of the calls of the others before a merge."""
    if call.name in REPRESENTATIVE:
        return []
    return [pytest.mark.slow if number % 3 else pytest.mark.merge]


CASES = [pytest.param(c, id=c.id, marks=[*c.filters, *tier_of(c, i)]) for i, c in enumerate(CALLS)]


@pytest.mark.parametrize("call", CASES)
def test_scipy_case(call: Call, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    solver = Adapter(call.name)
    exclusion = next((e for e in EXCLUSIONS if e.covers(call)), None)
    failure = failure_of(suite, lambda: call.run(suite, solver, request, monkeypatch))
    if failure is None:
        assert exclusion is None or exclusion.may_pass, f"passes: take it out of the exclusions ({exclusion.why})"
        return
    error, text = failure
    if exclusion is None:
        pytest.fail(f"{text}\n{solver.last}")
    if not re.search(exclusion.fails, text, re.DOTALL):
        raise AssertionError(f"excluded ({exclusion.why}), but fails differently: {text}\n{solver.last}") from error
    if exclusion.instead is not None:
        assert exclusion.instead(call, solver.last), f"excluded ({exclusion.why}), but worse: {solver.last}"
    pytest.xfail(exclusion.why)


@pytest.mark.parametrize("exclusion", EXCLUSIONS, ids=lambda e: e.why[:40])
def test_exclusion_applies(exclusion: Exclusion) -> None:
    covered = [call for call in CALLS if exclusion.covers(call)]
    assert covered, "covers no test"
    for call in covered:
        assert [e.why for e in EXCLUSIONS if e.covers(call)] == [exclusion.why], f"{call.id} is excluded twice"
