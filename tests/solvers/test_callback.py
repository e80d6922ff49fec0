"""`callback`: what it sees after each iteration, and that True stops the solve; nothing else changes."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from frameworks import jax
from krylix import IterationState, NotConverged, Status, linear_solve, prepare
from krylix.solvers import METHODS
from modes import COMPILED, MODES, array, compiled, solve, to_numpy
from problems import make_operator

N = 40
MATRIX = np.diag(np.linspace(1, 30, N)) + 0.5 * (np.eye(N, k=1) + np.eye(N, k=-1))
B = np.cos(np.arange(N)) + 2
SUMMED = ("scipy-GMres", "scipy-lsqr", "scipy-lsmr")  # SciPy tells no x in between
ITERATIVE = [name for name, method in METHODS.items() if not method.factorises]


def norm_of(x: Any) -> float:
    return float(np.linalg.norm(B - MATRIX @ to_numpy(x)))


@pytest.mark.parametrize("method", ITERATIVE)
def test_what_it_sees(method: str) -> None:
    """Each iteration once, with the x that has this residual; the solve is the same to the last digit."""
    seen: list[IterationState] = []
    plain = linear_solve(MATRIX, B, method=method)
    result = linear_solve(MATRIX, B, method=method, callback=seen.append)
    np.testing.assert_array_equal(result.x, plain.x)
    assert result.iterations == plain.iterations and result.status == Status.CONVERGED
    told = [state.iterations for state in seen]
    assert told[-1] == result.iterations and told == sorted(set(told))
    if method not in SUMMED and not method.startswith("mixed-"):
        assert told == list(range(1, int(result.iterations) + 1))
    least_squares = METHODS[method].least_squares
    for state in seen:
        assert type(state.iterations) is int and type(state.residual_norm) is float and type(state.goal) is float
        assert state.x.shape == (N,) and state.x.dtype == np.float64
        if not least_squares:
            assert state.residual_norm == pytest.approx(norm_of(state.x), rel=1e-3, abs=1e-9)
    np.testing.assert_allclose(seen[-1].x, result.x, rtol=1e-7)
    assert len({id(state.x) for state in seen}) == len(seen)  # kept by the callback, and not written to
    assert not np.array_equal(seen[0].x, seen[-1].x) or len(seen) == 1


@pytest.mark.compiled_by_default("CG", modes=("jax-jit", "tf"))
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["CG", "GMRES", "scipy-CG"])
def test_true_stops(method: str, mode: str) -> None:
    """The result says so, with the x of that iteration and its true residual; nothing is raised."""
    seen: list[IterationState] = []

    def stop_at_three(state: IterationState) -> bool:
        seen.append(state)
        return state.iterations >= 3

    result = solve(mode, make_operator(mode, "dense", MATRIX), B, method=method, callback=stop_at_three)
    assert result.status == Status.STOPPED and result.iterations == 3 and not result.converged
    assert [state.iterations for state in seen] == [1, 2, 3]
    assert type(seen[0].x) is type(array(mode, B))
    np.testing.assert_allclose(to_numpy(seen[-1].x), to_numpy(result.x), rtol=1e-12)
    assert float(result.residual_norm) == pytest.approx(norm_of(result.x), rel=1e-9)
    assert "stopped by the callback after 3 iterations" in result.message and "To do" not in result.message


@pytest.mark.parametrize("method", ITERATIVE)
@pytest.mark.parametrize("on_failure", ["raise", "nan"])
def test_every_method_stops(method: str, on_failure: str) -> None:
    result = linear_solve(MATRIX, B, method=method, callback=lambda _: True, on_failure=on_failure)
    stopped = method not in ("scipy-lsqr", "scipy-lsmr", "scipy-GCrotMK")  # they are done when x is known
    assert result.status == (Status.STOPPED if stopped else Status.CONVERGED)
    assert np.isfinite(result.x).all() and result.residual_norm < np.linalg.norm(MATRIX @ B)


@pytest.mark.parametrize("method", ["CG", "GMRES", "block-CG", "scipy-CG", "scipy-MINRES"])
def test_a_batch(method: str) -> None:
    """Arrays per system; one that has ended keeps its numbers, and what has converged is not called stopped."""
    b, seen = np.stack([B, 0 * B, MATRIX @ np.eye(N)[0]])[:, None], []

    def callback(state: IterationState) -> bool:
        seen.append(state)
        return bool(np.max(state.iterations) >= 5)

    result = linear_solve(MATRIX, b, method=method, callback=callback)
    assert all(state.iterations.shape == state.residual_norm.shape == state.goal.shape == (3, 1) for state in seen)
    assert all(state.x.shape == (3, 1, N) and (state.x[1] == 0).all() for state in seen)
    assert result.iterations[0] == 5 and result.status[0] == Status.STOPPED and result.status[1] == Status.CONVERGED
    assert "stopped by the callback in" in result.message


def test_a_failure_beside_stopped_systems_is_one() -> None:
    b = np.stack([B, np.full(N, np.nan)])
    with pytest.raises(krylix.Diverged, match="1 of 2 systems"):
        linear_solve(MATRIX, b, method="CG", callback=lambda _: True)


def test_converged_is_the_truth() -> None:
    """Stopped at an x within the tolerance it has converged."""
    last = int(linear_solve(MATRIX, B, method="CG").iterations)
    result = linear_solve(MATRIX, B, method="CG", callback=lambda state: state.iterations == last)
    assert result.status == Status.CONVERGED and result.converged


def test_axes_and_grids() -> None:
    seen: list[Any] = []
    columns = np.stack([B, 2 * B], 1)
    result = linear_solve(sp.csr_array(MATRIX), columns, method="CG", axis=0, callback=lambda s: seen.append(s.x))
    assert seen[-1].shape == (N, 2)
    np.testing.assert_allclose(seen[-1], result.x, rtol=1e-6)
    grid = linear_solve(
        lambda u: 5 * u - np.roll(u, 1, 0), np.ones((3, 4, 5)), method="biCG-stab", batch_ndim=1,
        callback=lambda s: seen.append(s.x),
    )  # fmt: skip
    assert seen[-1].shape == grid.x.shape == (3, 4, 5)


def test_least_squares_preconditioners_and_starts() -> None:
    seen: list[IterationState] = []
    A = np.vstack([MATRIX, MATRIX])
    result = linear_solve(A, np.concatenate([B, B]), method="LSMR", callback=seen.append)
    assert seen[-1].x.shape == (N,) and len(seen) == result.iterations
    for method in ("CG", "GMRES", "FGMRES", "scipy-CG", "scipy-TFQMR"):
        seen.clear()
        result = linear_solve(
            MATRIX, B, x0=np.ones(N), preconditioner="ssor", method=method, callback=seen.append
        )  # fmt: skip
        assert len(seen) == result.iterations
        for state in seen:
            assert state.residual_norm == pytest.approx(norm_of(state.x), rel=1e-3, abs=1e-9)


@pytest.mark.parametrize("method", ["direct", "scipy-direct", "auto", "banded-direct"])
def test_direct_methods_call_once(method: str) -> None:
    seen: list[IterationState] = []
    result = linear_solve(MATRIX, B, method=method, callback=seen.append)
    np.testing.assert_array_equal(result.x, linear_solve(MATRIX, B, method=method).x)
    assert [state.iterations for state in seen] == [1] and result.converged
    np.testing.assert_array_equal(seen[0].x, result.x)
    solver = prepare(MATRIX, B, method=method)
    assert solver.solve(B, callback=lambda _: True).converged and solver.solve(B, callback=seen.append).converged
    assert len(seen) == 2


def test_prepared_and_cached_solvers() -> None:
    A = sp.csr_array(MATRIX)
    for _ in range(3):  # kept from the second on
        assert linear_solve(A, B, method="CG", callback=lambda s: s.iterations == 2).iterations == 2
    solver = prepare(A, B, method="CG")
    assert solver.solve(B, callback=lambda s: s.iterations == 2).status == Status.STOPPED
    assert solver.solve(B).converged


def test_no_other_method_is_tried_after_a_stop() -> None:
    A = sp.csr_array(MATRIX - 3 * np.eye(N) + np.diag(np.ones(N - 1) * 4, 1))
    calls: list[int] = []

    def callback(state: IterationState) -> bool:
        calls.append(state.iterations)
        return True

    solver = prepare(A, B)
    result = solver.solve(B, callback=callback)
    assert len(calls) == 1 and (result.status == Status.STOPPED or result.converged)
    assert "after" not in result.method


def test_history_and_checkpoints() -> None:
    result = linear_solve(MATRIX, B, method="CG", history=True, callback=lambda s: s.iterations == 4)
    assert result.history is not None and result.history.shape == (5,)
    several = linear_solve(MATRIX, B, method="CG", max_iter=[2, 4, 6], callback=lambda s: s.iterations == 3)
    assert several.iterations.tolist() == [2, 3, 3] and several.status.tolist()[1:] == [Status.STOPPED] * 2


@pytest.mark.parametrize("said", [1, 0, "stop", np.array([True, False])])
def test_other_answers_are_refused(said: Any) -> None:
    with pytest.raises(TypeError, match="expected True to stop the solve, False or None"):
        linear_solve(MATRIX, B, method="CG", callback=lambda _: said)


@pytest.mark.parametrize("mode", ["numpy", "jax", "torch", "tf"])
@pytest.mark.parametrize("method", ["CG", "scipy-CG", "scipy-MINRES", "scipy-lGMres"])
def test_its_errors_are_the_users(method: str, mode: str) -> None:
    def callback(_: IterationState) -> None:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match=r"^mine$"):
        linear_solve(array(mode, MATRIX), array(mode, B), method=method, callback=callback)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="callback must be a function"):
        linear_solve(MATRIX, B, callback=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="callback must be a function"):
        prepare(MATRIX, B).solve(B, callback="x")  # type: ignore[arg-type]


@pytest.mark.compiled_by_default
@pytest.mark.parametrize("mode", COMPILED)
def test_a_program_asks_each_time_it_runs(mode: str) -> None:
    calls: list[int] = []

    def callback(state: IterationState) -> bool:
        calls.append(state.iterations)
        return state.iterations == 2

    run = compiled(mode, lambda b: linear_solve(array(mode, MATRIX), b, method="CG", callback=callback).x)
    for k in (1, 2):
        run(array(mode, k * B))
        assert calls == [1, 2] * k


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_vmap_and_derivatives() -> None:
    A, b = array("jax", MATRIX), array("jax", np.stack([B, MATRIX @ np.eye(N)[0]]))
    calls: list[Any] = []

    def solved(b: Any) -> Any:
        result = linear_solve(A, b, method="CG", callback=calls.append)
        return result.x.sum(), result.iterations

    _, iterations = jax.block_until_ready(jax.jit(jax.vmap(solved))(b))
    assert len(calls) in (int(iterations.sum()), int(iterations.max()))
    calls.clear()
    gradient, iterations = jax.block_until_ready(jax.jit(jax.grad(solved, has_aux=True))(b[0]))
    np.testing.assert_allclose(gradient, np.linalg.solve(MATRIX.T, np.ones(N)), rtol=1e-6)
    assert len(calls) == iterations  # of the solve, not of its derivative


def test_a_program_for_xla_refuses() -> None:
    tf = pytest.importorskip("tensorflow")
    b = tf.constant(B)
    run = tf.function(
        lambda b: linear_solve(tf.constant(MATRIX), b, method="CG", callback=print).x, jit_compile=True, autograph=False
    )
    with pytest.raises(ValueError, match="callback and time_limit ask the host"):
        run(b)


def test_numpy_beside_a_function_of_jax() -> None:
    pytest.importorskip("jax")
    from jax import numpy as jnp

    seen: list[IterationState] = []
    result = linear_solve(lambda x: jnp.multiply(jnp.arange(1.0, 7), x), np.ones(6), method="CG", callback=seen.append)
    assert type(result.x) is type(seen[-1].x)


def test_the_limit_of_iterations_stays_a_failure() -> None:
    with pytest.raises(NotConverged, match="limit of iterations"):
        linear_solve(MATRIX, B, method="CG", max_iter=3, callback=lambda _: False)
