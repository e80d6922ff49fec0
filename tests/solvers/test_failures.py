"""Failure is never silent, and never called success."""

import re
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from cells import ONE_SYSTEM, cast, cells, check_true_residual, fewer_in_torch, methods_and_modes
from krylix import ConvergenceError, Diverged, NotConverged, Status, linear_solve, prepare
from krylix.solvers import METHODS
from modes import COMPILED, EAGER, MODES, array, compiled, native_sparse, solve, to_numpy
from problems import SYSTEMS, make_operator

# lsqr and lsmr, scipy-MINRES and the direct methods may stop early on such a system, but must say so
INCONSISTENT = ("constant null vector", "constant per region", "zero rows")


@pytest.mark.every_method
@pytest.mark.parametrize(("method", "dtype", "mode"), fewer_in_torch(cells(real=True)))
def test_inconsistent_is_never_converged(method: str, mode: str, dtype: str) -> None:
    for name in INCONSISTENT if mode in ("numpy", "torch") else INCONSISTENT[:1]:
        matrix = cast(SYSTEMS[name].matrix, dtype)
        b = cast(np.linspace(1, 2, len(matrix)), dtype)
        result = solve(mode, make_operator(mode, "dense", matrix), b, method=method, nullspace=None, **ONE_SYSTEM)
        assert not result.converged
        check_true_residual(result, matrix, b)


@pytest.mark.parametrize("name", [n for n, s in SYSTEMS.items() if s.singular])
@pytest.mark.parametrize(
    "method", ["CG", "CG-adaptive", "biCG-stab(2)", "GMRES", "IDR(4)", "MINRES", "direct", "scipy-direct", "auto"]
)
def test_singular_consistent_is_solved_at_any_size(method: str, name: str) -> None:
    system = SYSTEMS[name]
    for scale in (1e-8, 1.0, 1e10):
        matrix, b = scale * system.matrix, system.right_hand_side(seed=12)
        result = solve("numpy", make_operator("numpy", "scipy", matrix), b, method=method)
        check_true_residual(result, matrix, b)


LIMIT = "reached the limit of iterations"


@pytest.mark.compiled_by_default("CG", eagerly=True)
@pytest.mark.parametrize(("method", "mode"), methods_and_modes(m for m in METHODS if not METHODS[m].factorises))
def test_limit_of_iterations(method: str, mode: str) -> None:
    weights = np.logspace(0, 3, 12)
    matrix = weights[:, None] * SYSTEMS["definite"].matrix * weights
    A, b = make_operator(mode, "dense", matrix), np.ones(12)
    whole_cycles = method in ("scipy-lGMres", "scipy-GCrotMK")  # in each of their iterations
    # Each policy is a program, of which two are enough; torch.compile runs the eager solve between two graphs.
    policies = {"jax-jit": ["status"], "tf-function": ["warn"], "torch-compile": []}.get(mode, ["status", "warn"])
    for policy in policies[:1] if whole_cycles else policies:
        with pytest.warns(RuntimeWarning, match=LIMIT) if policy == "warn" else nullcontext():
            result = solve(mode, A, b, method=method, max_iter=1, on_failure=policy)
        check_true_residual(result, matrix, b)
        if not whole_cycles:
            assert result.status == Status.MAX_ITER and result.iterations == 1
            assert not result.converged and not result.diverged
            assert "max_iter" in result.message and method in result.message
    if not whole_cycles:
        with pytest.raises(Exception, match=LIMIT):
            solve(mode, A, b, method=method, max_iter=1)


@pytest.mark.parametrize("mode", EAGER)
def test_error_has_the_result(mode: str) -> None:
    A = make_operator(mode, "dense", SYSTEMS["definite"].matrix)
    with pytest.raises(NotConverged) as caught:
        linear_solve(A, array(mode, np.arange(12.0)), method="CG", max_iter=2)
    assert to_numpy(caught.value.result.iterations) == 2 and to_numpy(caught.value.result.x).shape == (12,)
    b = np.ones((2, 12))
    b[1, 3] = np.nan
    with pytest.raises(Diverged, match=r"1 of 2 systems.*system 1") as worst:
        linear_solve(A, array(mode, b), method="CG")
    assert to_numpy(worst.value.result.converged).tolist() == [True, False]
    assert isinstance(worst.value, krylix.ConvergenceError) and isinstance(worst.value, RuntimeError)


@pytest.mark.parametrize("mode", ["jax-jit", "tf-function"])
@pytest.mark.parametrize("method", ["CG", "scipy-CG"])
def test_compiled_function_fails_only_when_the_data_do(method: str, mode: str) -> None:
    """One compiled function, used with a good and a bad right-hand side."""
    A = make_operator(mode, "dense", SYSTEMS["definite"].matrix)
    function = compiled(mode, lambda b: linear_solve(A, b, method=method).x)
    good, bad = np.ones(12), np.full(12, np.nan)
    np.testing.assert_allclose(to_numpy(function(array(mode, good))), np.linalg.solve(SYSTEMS["definite"].matrix, good))
    of_jax = "ValueError" if METHODS[method].on_host else "JaxRuntimeError"  # as docs/contracts.md says
    with pytest.raises(Exception, match=f"Diverged: {method} produced NaN or infinity") as failed:
        to_numpy(function(array(mode, bad)))
    assert type(failed.value).__name__ == (of_jax if mode == "jax-jit" else "UnknownError")
    assert np.isfinite(to_numpy(function(array(mode, good)))).all()


@pytest.mark.compiled_by_default("CG", "direct", eagerly=True)
@pytest.mark.parametrize(
    ("method", "mode"),
    [
        pytest.param(method, mode, marks=pytest.mark.slow if method == "direct" and mode in COMPILED[1:] else ())
        for method in ("CG", "biCG-stab(2)", "direct", "scipy-direct", "auto")
        for mode in MODES
    ],
)
def test_nan_and_infinity_in_the_matrix(method: str, mode: str) -> None:
    for value in (np.nan, np.inf):
        matrix = SYSTEMS["definite"].matrix.copy()
        matrix[3, 4] = matrix[4, 3] = value
        matrix, b = (a.astype("float32" if mode == "jax-jit" else float) for a in (matrix, np.ones(12)))
        assert not solve(mode, make_operator(mode, "dense", matrix), b, method=method, **ONE_SYSTEM).converged


def neumann(n: int) -> sp.csr_array:
    """The chain without ends: every row and column sums to zero."""
    diagonal = np.full(n, 2.0)
    diagonal[[0, -1]] = 1
    return sp.csr_array(sp.diags_array([np.full(n - 1, -1.0), diagonal, np.full(n - 1, -1.0)], offsets=[-1, 0, 1]))


@pytest.mark.parametrize("mode", ["numpy", "torch"])
@pytest.mark.parametrize("n", [20, 400])
@pytest.mark.parametrize("method", ["CG", "GMRES", "MINRES", "direct", "scipy-direct"])
def test_a_system_without_a_solution_is_called_that(method: str, n: int, mode: str) -> None:
    b = np.cos(np.arange(n))
    b += 0.5 - b.mean()
    for A in (neumann(n), sp.block_diag([neumann(n // 2), sp.eye_array(n - n // 2 - 1), sp.csr_array((1, 1))], "csr")):
        A = A.toarray() if method == "direct" else A
        with pytest.raises(ConvergenceError, match="There is no solution: no x leaves a residual norm below") as failed:
            linear_solve(A, array(mode, b), method=method, max_iter=50, nullspace=None)
        entries = A if method == "direct" else A.toarray()
        least = np.linalg.norm(b - entries @ np.linalg.lstsq(entries, b)[0])
        assert float(re.search(r"norm below (\S+),", str(failed.value))[1]) == pytest.approx(least, rel=1e-3)
        assert failed.value.result.message == str(failed.value)


@pytest.mark.parametrize("n", [20, 400])
def test_a_system_with_a_solution_is_not_called_one_without(n: int) -> None:
    b = np.cos(np.arange(n))
    for A, rhs in ((neumann(n), b - b.mean()), (neumann(n) + 1e-9 * sp.eye_array(n), b), (neumann(n)[::-1], b * 0)):
        result = linear_solve(A, rhs, method="biCG-stab", max_iter=2, rtol=1e-14, on_failure="status")
        assert "no solution" not in result.message


@pytest.mark.parametrize("kind", ["dense", "scipy"])
def test_units_do_not_make_a_system_one_without_a_solution(kind: str) -> None:
    """Small singular values of a matrix with rows or columns of different units say nothing; null vectors stay some."""

    def message(A: sp.csr_array, b: np.ndarray) -> str:
        result = linear_solve(
            A if kind == "scipy" else A.toarray(), b, method="GMRES(30)", max_iter=1, on_failure="warn"
        )
        return result.message

    with pytest.warns(RuntimeWarning):
        assert "no solution" not in message(sp.diags_array([1.0, 2.0, 3e-18]).tocsr(), np.ones(3))
        for n in (20, 400):
            b, scale = np.cos(np.arange(n)), sp.diags_array(np.exp2(np.arange(n) % 50))
            regular = neumann(n) + sp.diags_array(np.r_[1e-3, np.zeros(n - 1)])
            for A in (scale @ regular, regular @ scale, scale @ regular @ scale):
                assert "no solution" not in message(A.tocsr(), b)
        b, scale, left = b[:20], sp.diags_array(np.exp2(np.arange(20))), np.exp2(-np.arange(20))
        A = scale @ neumann(20) @ scale
        assert np.all(A.T @ left == 0)
        least = float(re.search(r"There is no solution: .* norm below (\S+),", message(A.tocsr(), b))[1])
        assert least == pytest.approx(abs(left @ b) / np.linalg.norm(left), rel=1e-3)


@pytest.mark.compiled_by_default("CG", modes=("jax", "tf"))
@pytest.mark.parametrize("mode", ["numpy", "jax", "torch", "tf"])
@pytest.mark.parametrize("kind", ["dense", "scipy", "native"])
@pytest.mark.parametrize("method", ["CG", "auto", "scipy-direct", "LSMR"])
def test_known_entries_that_are_not_finite_are_named(method: str, kind: str, mode: str) -> None:
    matrix = SYSTEMS["definite"].matrix.copy()
    matrix[3, 4] = matrix[4, 3] = np.inf
    matrix[7, 7] = np.nan
    makers = {"dense": lambda: array(mode, matrix), "scipy": lambda: sp.csr_array(matrix)}
    A = makers.get(kind, lambda: native_sparse(mode, matrix))()
    for call in (linear_solve, prepare):
        with pytest.raises(ValueError, match=r"3 of \d+ entries are not finite; the first is inf in row 3, column 4"):
            call(A, array(mode, np.ones(12)), method=method)


@pytest.mark.parametrize("mode", ["numpy", "torch"])
def test_entries_that_are_large_or_of_one_system(mode: str) -> None:
    """A sum that overflows is no infinite entry; and one matrix with a NaN leaves the others alone."""
    large = np.diag(np.full(4, 1e308))
    assert linear_solve(array(mode, large), array(mode, np.ones(4)), method="direct", on_failure="status").x is not None
    matrices = np.stack([SYSTEMS["definite"].matrix] * 3)
    matrices[1, 2, 2] = np.nan
    b = array(mode, np.ones((3, 12)))
    with pytest.raises(Diverged, match="1 of 3 systems") as failed:
        linear_solve(array(mode, matrices), b, method="CG")
    assert to_numpy(failed.value.result.converged).tolist() == [True, False, True]
    matrices[:, 2, 2] = np.nan
    with pytest.raises(ValueError, match="3 of 432 entries are not finite; the first is nan in row 2, column 2"):
        linear_solve(array(mode, matrices), b, method="CG")


@pytest.mark.compiled_by_default("biCG-stab(2)")
@pytest.mark.parametrize("mode", ["numpy", "torch", "jax-jit"])
@pytest.mark.parametrize("method", ["biCG-stab", "biCG-stab(2)", "biCG-stab(4)", "GMRES", "IDR(1)", "IDR(4)"])
def test_breakdown_is_survived(method: str, mode: str) -> None:
    """For a skew matrix <r, A r> = 0: with r as the left vector the first step divides by zero."""
    rotation = np.kron(np.diag([1.0, 2, 3, 4]), np.array([[0.0, 1], [-1, 0]]))
    b = np.arange(1.0, 9)
    result = solve(mode, make_operator(mode, "dense", rotation), b, method=method, on_failure="status")
    assert result.converged or result.status in (Status.BREAKDOWN, Status.STAGNATED, Status.MAX_ITER)
    check_true_residual(result, rotation, b)
    if method != "biCG-stab":  # degree one cannot represent purely imaginary eigenvalues
        assert result.converged, result.message


@pytest.mark.compiled_by_default("CG")
@pytest.mark.parametrize("mode", ["numpy", "jax-jit"])
@pytest.mark.parametrize("method", ["CG", "biCG-stab(2)"])
def test_drift_is_noticed(method: str, mode: str) -> None:
    """In single precision the recurrence of an ill-conditioned system drifts off; what is beyond reach is not met."""
    matrix = np.diag(np.logspace(0, 6, 40)).astype(np.float32)
    matrix[0, 1] = matrix[1, 0] = 0.5
    b = np.ones(40, np.float32)
    result = solve(mode, make_operator(mode, "dense", matrix), b, method=method, rtol=1e-12, on_failure="status")
    assert not result.converged
    check_true_residual(result, matrix.astype(float), b)


@pytest.mark.compiled_by_default("CG", "direct", modes=("jax-jit", "tf"))
@pytest.mark.parametrize(
    ("method", "mode"),
    methods_and_modes(["CG", "biCG-stab(2)", "GMRES(5)", "IDR(4)", "MINRES", "direct", "scipy-direct", "scipy-GMres"]),
)
@pytest.mark.parametrize("scale", [1e-30, 1e30, *(pytest.param(s, marks=pytest.mark.slow) for s in (1e-12, 1e12))])
def test_units_play_no_role_in_single_precision(method: str, scale: float, mode: str) -> None:
    """The squares of these right-hand sides overflow or vanish in float32."""
    matrix = SYSTEMS["definite"].matrix.astype(np.float32)
    b = np.linspace(1, 2, 12).astype(np.float32)
    A = make_operator(mode, "dense", matrix)
    result = solve(mode, A, b * np.float32(scale), method=method, **ONE_SYSTEM)
    np.testing.assert_allclose(result.x.astype(float), scale * np.linalg.solve(matrix.astype(float), b), rtol=1e-3)


def frames_of(call: Callable[[], object]) -> list[str]:
    """The functions in what is printed of its error, after this one."""
    try:
        call()
    except Exception as error:
        printed = "".join(traceback.format_exception(error))
        return re.findall(r'File ".*", line \d+, in (\S+)', printed)
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("mode", EAGER)
def test_tracebacks_show_users_and_one_frame_of_ours(mode: str) -> None:
    A, b = make_operator(mode, "dense", SYSTEMS["definite"].matrix), array(mode, np.arange(12.0))
    outside = ["frames_of", "<lambda>"]
    solver = prepare(A, method="CG", max_iter=2)
    assert frames_of(lambda: linear_solve(A, b, method="CG", max_iter=2)) == [*outside, "linear_solve"]
    assert frames_of(lambda: linear_solve(A, b[:3])) == [*outside, "linear_solve"]
    assert frames_of(lambda: linear_solve(A, b, method="Jacobian")) == [*outside, "linear_solve"]
    assert frames_of(lambda: solver.solve(b)) == [*outside, "solve"]
    assert frames_of(lambda: krylix.preconditioner(A, "chess")) == [*outside, "preconditioner"]


def test_tracebacks_keep_users_functions() -> None:
    def inner(x: np.ndarray) -> np.ndarray:
        if np.any(x):
            raise ZeroDivisionError("of the user")
        return x

    def A(x: np.ndarray) -> np.ndarray:
        return inner(2 * x)

    def stencil(x: np.ndarray) -> np.ndarray:
        return x[::2] @ np.ones(3)

    b, outside = np.ones(12), ["frames_of", "<lambda>"]
    assert frames_of(lambda: linear_solve(A, b, method="CG")) == [*outside, "linear_solve", "A", "inner"]
    wrapped = frames_of(lambda: linear_solve(stencil, b, method="CG"))
    assert wrapped[0] == "stencil" and wrapped[-3:] == [*outside, "linear_solve"]  # the cause, and what became of it
    assert frames_of(lambda: krylix.minimize(lambda x: inner(x).sum(), b))[-2:] == ["<lambda>", "inner"]


def test_failures_inside_of_krylix_keep_their_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["krylix.solvers.linear_solve"]
    monkeypatch.setattr(module, "solve_small_dense", None)  # which is called
    assert "_linear_solve" in frames_of(lambda: linear_solve(np.eye(3), np.ones(3)))
