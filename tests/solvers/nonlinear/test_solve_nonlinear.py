"""`solve_nonlinear`: solutions, batches, failures and refusals, in every library."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize

import krylix
from krylix import Status
from modes import EAGER, MODES, array, compiled, library, to_numpy

W = np.array([[0.5, 1.0, 1.5, 0.7], [1.2, 0.6, 0.9, 1.4], [2.0, 0.3, 1.1, 0.8]])
START = np.ones((3, 4))


def coupled(mode: str) -> Callable[..., Any]:
    """x^3 + w x - 1 + 0.1 (x of the neighbour), along the last axis."""
    xp = krylix.choose_backend(library(mode)).xp
    return lambda x, w: x**3 + w * x - 1.0 + 0.1 * xp.roll(x, 1, axis=-1)


def squares(x: Any, w: Any) -> Any:
    return x * x - w


def program(mode: str, f: Callable[..., Any], **settings: Any) -> Callable[..., Any]:
    """A function of NumPy arrays: x0 and the arguments of f."""
    run = compiled(mode, lambda x0, *args: krylix.solve_nonlinear(f, x0, args=args, **settings))
    return lambda *arrays: run(*(array(mode, a) for a in arrays))


def solved(mode: str, f: Callable[..., Any], x0: np.ndarray, *args: np.ndarray, **settings: Any) -> Any:
    return program(mode, f, **settings)(x0, *args)


def reference(w: np.ndarray) -> np.ndarray:
    return scipy.optimize.root(lambda x: x**3 + w * x - 1 + 0.1 * np.roll(x, 1), np.ones(len(w)), tol=1e-13).x


MERGE = pytest.mark.merge


@pytest.mark.parametrize("mode", [pytest.param(m, marks=MERGE) if m in ("jax", "tf-function") else m for m in MODES])
def test_solution(mode: str) -> None:
    """A compiled function raises when it runs."""
    run = program(mode, coupled(mode), batch_ndim=1, history=True)
    result = run(START, W)
    expected = np.stack([reference(w) for w in W])
    np.testing.assert_allclose(to_numpy(result.x), expected, rtol=1e-9)
    assert to_numpy(result.converged).all() and to_numpy(result.x).dtype == np.float64
    assert result.method == "Newton" and "converged in 5 iterations for all 3 systems" in result.message
    steps, history = to_numpy(result.iterations), to_numpy(result.history)
    assert history.shape == (51, 3)
    for i in range(3):
        assert np.isfinite(history[: steps[i] + 1, i]).all() and np.isnan(history[steps[i] + 1 :, i]).all()
        assert history[steps[i], i] == to_numpy(result.residual_norm)[i] <= to_numpy(result.tolerance)[i]
    # In a graph of TensorFlow the linear solve, which comes first, may be told first.
    first = r"in 1 of 3 systems.*(f\(x0\) is not finite|produced NaN)"
    words = first if mode == "tf-function" else r"f\(x0\) is not finite"
    with pytest.raises(Exception, match=words):
        to_numpy(run(START, W * np.array([[1.0], [np.nan], [1.0]])).x)


@pytest.mark.parametrize("mode", ["numpy", "torch", "tf"])
def test_a_batch_equals_its_single_solves(mode: str) -> None:
    f, starts = coupled(mode), START * np.array([[1.0], [30.0], [-1e-3]])
    both = solved(mode, f, starts, W, batch_ndim=1)
    assert len(set(to_numpy(both.iterations))) > 1
    for i in range(3) if mode != "tf" else (1,):
        alone = solved(mode, f, starts[i], W[i])
        for name in ("x", "iterations", "function_evaluations", "status", "residual_norm"):
            np.testing.assert_array_equal(to_numpy(getattr(alone, name)), to_numpy(getattr(both, name))[i], name)


FAILING = np.array([[4.0, 9.0], [-1.0, 1.0], [np.nan, 1.0], [1.0, 0.25]])


@pytest.mark.parametrize("mode", ["numpy", "torch", "tf", "jax-jit"])
def test_failures(mode: str) -> None:
    """Without a root, and NaN, beside good systems."""
    for policy in ("nan",) if mode == "jax-jit" else ("status", "nan"):  # two programs in `jit`
        result = solved(mode, squares, np.ones((4, 2)), FAILING, batch_ndim=1, on_failure=policy)
        status, x = to_numpy(result.status), to_numpy(result.x)
        assert status[[0, 3]].tolist() == [Status.CONVERGED] * 2 and status[2] == Status.DIVERGED
        assert status[1] in (Status.STAGNATED, Status.BREAKDOWN, Status.MAX_ITER)
        assert to_numpy(result.converged).tolist() == [True, False, False, True]
        assert to_numpy(result.diverged).tolist() == [False, False, True, False]
        np.testing.assert_allclose(x[[0, 3]], [[2, 3], [1, 0.5]], rtol=1e-9)
        assert "2 of 4 systems" in result.message and "To do:" in result.message
        assert np.isnan(x[1:3]).all() if policy == "nan" else np.isfinite(x[1]).all()


@pytest.mark.filterwarnings("ignore:.*b has a component in constants")  # of a step from where the derivative is zero
@pytest.mark.parametrize("mode", ["numpy", "torch"])
def test_failures_raise_and_warn(mode: str) -> None:
    with pytest.raises(krylix.Diverged, match=r"f\(x0\) is not finite") as diverged:
        solved(mode, squares, np.ones((4, 2)), FAILING, batch_ndim=1)
    assert isinstance(diverged.value.result, krylix.NonlinearResult)
    with pytest.raises(krylix.NotConverged, match=r"linear system of a step|no step along"):
        solved(mode, lambda x: x * x + 1.0, np.zeros(1))
    with pytest.raises(krylix.NotConverged, match="reached the limit of iterations after 2") as limited:
        solved(mode, coupled(mode), START[0], W[0], max_iter=2)
    assert pickle.loads(pickle.dumps(limited.value)).result.iterations == 2
    with pytest.warns(RuntimeWarning, match="limit of iterations after 0"), krylix.on_failure("warn"):
        solved(mode, coupled(mode), START[0], W[0], max_iter=0)


@pytest.mark.parametrize("mode", [pytest.param(m, marks=MERGE) if m == "jax" else m for m in EAGER])
def test_a_start_that_is_a_solution_stays(mode: str) -> None:
    exact = solved(mode, squares, np.array([2.0, 3.0]), np.array([4.0, 9.0]))
    assert int(exact.iterations) == 0 and to_numpy(exact.x).tolist() == [2, 3]
    if mode in ("numpy", "torch"):
        root = np.sqrt([2.0, 3.0, 5.0])  # but for rounding
        again = solved(mode, squares, root, np.array([2.0, 3.0, 5.0]))
        assert bool(again.converged) and int(again.iterations) <= 1
        np.testing.assert_allclose(to_numpy(again.x), root, rtol=4e-16)


def test_rounding_is_no_excuse_for_a_given_rtol_nor_for_a_bad_x() -> None:
    root = np.sqrt([2.0, 3.0, 5.0])
    with pytest.raises(krylix.NotConverged):
        krylix.solve_nonlinear(lambda x: x * x - [2.0, 3.0, 5.0], root, rtol=1e-10)
    with pytest.raises(krylix.NotConverged):  # a minimum of |f| which is no root
        krylix.solve_nonlinear(lambda x: x * x + 1e-3, np.array([1.0]))


@pytest.mark.parametrize("mode", ["numpy", "torch", "tf"])
def test_single_precision(mode: str) -> None:
    result = solved(mode, coupled(mode), START.astype(np.float32), W.astype(np.float32), batch_ndim=1)
    assert to_numpy(result.x).dtype == to_numpy(result.residual_norm).dtype == np.float32
    np.testing.assert_allclose(to_numpy(result.x), np.stack([reference(w) for w in W]), rtol=2e-5)


@pytest.mark.parametrize("mode", ["torch", "tf", pytest.param("jax", marks=MERGE)])
def test_many_unknowns(mode: str) -> None:
    """Traced matrices for one system, products for a batch."""
    n = 240
    xp = krylix.choose_backend(library(mode)).xp

    def f(x: Any) -> Any:
        return 3.0 * x + x**3 - xp.roll(x, 1, axis=-1) - 0.5 * xp.roll(x, -1, axis=-1) - 1.0

    x0 = np.linspace(0, 1, n)
    one = solved(mode, f, x0)
    assert np.abs(to_numpy(f(one.x))).max() < 1e-8
    if mode == "torch":
        both = solved(mode, f, np.stack([x0, 2 * x0]), batch_ndim=1, linear_solver="GMRES")
        assert np.abs(to_numpy(f(both.x))).max() < 1e-8


@pytest.mark.parametrize("mode", ["numpy", "torch"])
def test_containers_and_numbers(mode: str) -> None:
    def f(x: dict[str, Any]) -> dict[str, Any]:
        return {"b": x["a"] * x["b"] - 6.0, "a": x["a"][..., :1] - x["b"] + array(mode, np.array([1.0, 1.0]))}

    found = krylix.solve_nonlinear(f, {"a": array(mode, np.ones(2)), "b": array(mode, np.ones(2))})
    np.testing.assert_allclose(to_numpy(found.x["a"]), [2, 2])
    np.testing.assert_allclose(to_numpy(found.x["b"]), [3, 3])
    assert float(krylix.solve_nonlinear(lambda x: x * x - 2.0, array(mode, 1)).x) == pytest.approx(2**0.5, rel=1e-5)


def test_inputs_are_not_modified() -> None:
    x0 = START.copy()
    result = krylix.solve_nonlinear(coupled("numpy"), x0, args=(W,), batch_ndim=1, max_iter=1, on_failure="status")
    np.testing.assert_array_equal(x0, START)
    exact = krylix.solve_nonlinear(squares, x0, args=(1.0,))
    assert not np.shares_memory(exact.x, x0) and not np.shares_memory(result.x, x0)


def test_a_function_with_a_reverse_derivative_only() -> None:
    torch = pytest.importorskip("torch")

    class Cube(torch.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(x: Any) -> Any:
            return x**3

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, cotangent: Any) -> Any:
            return 3 * ctx.saved_tensors[0] ** 2 * cotangent

    w = torch.full((210,), 2.0, dtype=torch.float64, requires_grad=True)
    ones = torch.ones(210, dtype=torch.float64)
    found = krylix.solve_nonlinear(lambda x: Cube.apply(x) + x - w, 0.7 * ones)
    assert int(found.iterations) > 1
    torch.testing.assert_close(found.x.detach(), ones)
    torch.testing.assert_close(torch.autograd.grad(found.x.sum(), w)[0], 0.25 * ones)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_a_function_that_returns_its_buffer(batch: tuple[int, ...]) -> None:
    buffer, sides = np.empty((*batch, 3)), np.array([2.0, 3.0, 5.0])
    found = krylix.solve_nonlinear(
        lambda x: np.subtract(x * x, sides, out=buffer), np.ones((*batch, 3)), batch_ndim=len(batch)
    )
    np.testing.assert_allclose(found.x, np.broadcast_to(np.sqrt(sides), (*batch, 3)), rtol=1e-9)
    np.testing.assert_array_equal(found.residual, found.x * found.x - sides)
    assert not np.shares_memory(found.residual, buffer)


REFUSED: list[tuple[dict[str, Any], Any, str]] = [
    ({"f": 3.0}, TypeError, "must be a function"),
    ({"f": lambda x: x[:2]}, ValueError, r"shape \(2,\); expected an array of shape \(3,\)"),
    ({"f": lambda x: x + 1j}, TypeError, "complex numbers; expected real"),
    ({"f": lambda x: "x"}, TypeError, "returned a builtins.str"),
    ({"x0": np.ones(3) * 1j}, TypeError, "x0 is complex"),
    ({"x0": np.ones(0)}, ValueError, "no elements"),
    ({"x0": None}, (TypeError, krylix.NoBackendFound), "NoneType|None"),
    ({"x0": np.ones(201)}, krylix.UnsupportedOperation, "NumPy has no derivatives|numpy has no derivatives"),
    ({"args": 1.0}, TypeError, "must be a tuple"),
    ({"method": "Halley"}, ValueError, "has no method 'Halley'; there are Newton"),
    ({"rtol": 2.0}, ValueError, "rtol must be"),
    ({"max_iter": -1}, ValueError, "max_iter must be"),
    ({"max_iter": [1, 2]}, TypeError, "max_iter must be"),
    ({"batch_ndim": 2}, ValueError, "batch_ndim=2"),
    ({"on_failure": "hide"}, ValueError, "on_failure must be"),
    ({"linear_solver": 3}, TypeError, "linear_solver must be"),
    ({"linear_solver": "no such"}, ValueError, "no such"),
    ({"linear_solver": {"history": True}}, TypeError, "no setting 'history'"),
    ({"tol": 1e-3}, TypeError, "here that is rtol"),
]


@pytest.mark.parametrize(
    ("given", "error", "words"), REFUSED, ids=lambda v: next(iter(v)) if isinstance(v, dict) else ""
)
def test_bad_input(given: dict[str, Any], error: Any, words: str) -> None:
    arguments = {"f": lambda x: x - 1.0, "x0": np.ones(3), **given}
    with pytest.raises(error, match=words):
        krylix.solve_nonlinear(**arguments)
