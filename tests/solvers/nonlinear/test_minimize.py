"""`minimize`: minima, batches, bounds, failures and refusals, in every library."""

import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize

import krylix
from krylix import Status
from krylix.solvers.nonlinear.scipy_search import SCIPY_METHODS
from modes import array, compiled, library, to_numpy

A = np.array([1.0, 0.8, 1.3])
START = np.array([[-1.2, 1.0], [0.5, 0.5], [2.0, -1.0]])


def valley(x: Any, a: Any) -> Any:
    """Rosenbrock's function, for each system; written so that its rounding does not depend on the batch."""
    u, v = x[..., 1] - x[..., 0] * x[..., 0], a - x[..., 0]  # no powers: NumPy rounds those of one number otherwise
    return 100.0 * u * u + v * v


def minimised(mode: str, f: Callable[..., Any], x0: np.ndarray, *args: np.ndarray, **settings: Any) -> Any:
    def run(x0: Any, *args: Any) -> Any:
        return krylix.minimize(f, x0, args=args, **settings)

    return compiled(mode, run)(array(mode, x0), *(array(mode, a) for a in args))


@pytest.mark.parametrize("search", [*SCIPY_METHODS, "GD"])
@pytest.mark.parametrize("mode", ["numpy", "torch"])
def test_a_batch_equals_its_single_searches(mode: str, search: str) -> None:
    settings = {"method": search, "max_iter": 20000, "rtol": 1e-6}
    both = minimised(mode, valley, START, A, batch_ndim=1, history=True, **settings)
    np.testing.assert_allclose(to_numpy(both.x), np.stack([A, A**2], 1), rtol=2e-2)
    assert to_numpy(both.converged).all() and both.method == search and f"{search} converged in" in both.message
    steps, values = to_numpy(both.iterations), to_numpy(both.history)
    path = to_numpy(both.trajectory)
    for i in range(3):
        alone = minimised(mode, valley, START[i], A[i], **settings)
        for name in ("x", "value", "gradient", "iterations", "function_evaluations", "status", "gradient_norm"):
            np.testing.assert_array_equal(to_numpy(getattr(alone, name)), to_numpy(getattr(both, name))[i], name)
        assert np.isfinite(values[: steps[i] + 1, i]).all() and np.isnan(values[steps[i] + 1 :, i]).all()
        np.testing.assert_array_equal(path[0, i], START[i])
        np.testing.assert_array_equal(path[steps[i], i], to_numpy(both.x)[i])
        assert values[0, i] > values[steps[i], i] == to_numpy(both.value)[i]


def test_scipy_takes_the_same_steps() -> None:
    def with_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
        r = x[1] - x[0] ** 2
        return 100 * r**2 + (1 - x[0]) ** 2, np.array([-400 * x[0] * r - 2 * (1 - x[0]), 200 * r])

    theirs = scipy.optimize.minimize(
        with_gradient, START[0], jac=True, method="BFGS", options={"gtol": 1e-9, "norm": 2}
    )
    ours = minimised("torch", valley, START[0], A[0], method="BFGS", rtol=0.0, atol=1e-9)
    assert int(ours.iterations) == theirs.nit
    np.testing.assert_allclose(to_numpy(ours.x), theirs.x, rtol=1e-9)


@pytest.mark.parametrize("mode", ["jax", "tf"])
def test_libraries_that_trace(mode: str) -> None:
    found = minimised(mode, valley, START, A, batch_ndim=1)
    np.testing.assert_allclose(to_numpy(found.x), np.stack([A, A**2], 1), rtol=1e-5)
    assert to_numpy(found.x).dtype == np.float64 and library(mode) == krylix.choose_backend(found.x).name


@pytest.mark.parametrize(
    "mode", ["jax-jit", *(pytest.param(mode, marks=pytest.mark.merge) for mode in ("tf-function", "torch-compile"))]
)
def test_descent_in_programs(mode: str) -> None:
    """The same steps as NumPy's, but for its differences."""
    center = np.array([[1.0, -2.0], [3.0, 0.5]])
    found = minimised(mode, bowl, np.zeros((2, 2)), center, batch_ndim=1, method="GD", history=True, max_iter=100)
    np.testing.assert_allclose(to_numpy(found.x), center, rtol=1e-5)
    eager = minimised("numpy", bowl, np.zeros((2, 2)), center, batch_ndim=1, method="GD", max_iter=100)
    np.testing.assert_array_equal(to_numpy(found.iterations), eager.iterations)
    assert to_numpy(found.trajectory).shape == (101, 2, 2)


def bowl(x: Any, center: Any) -> Any:
    d = x - center
    return d[..., 0] ** 2 + 4.0 * d[..., 1] ** 2 + d[..., 0] * d[..., 1]


@pytest.mark.parametrize("search", ["L-BFGS-B", "GD"])
@pytest.mark.parametrize("mode", ["numpy", "torch"])
def test_bounds(mode: str, search: str) -> None:
    center = np.array([[2.0, -2.0], [3.0, 0.5]])
    high = np.array([[0.5, 5.0], [5.0, 5.0]])
    found = minimised(mode, bowl, np.full((2, 2), 9.0), center, batch_ndim=1, method=search, bounds=(-1, high))
    x, norm = to_numpy(found.x), to_numpy(found.gradient_norm)
    assert (x >= -1).all() and (x <= high).all() and to_numpy(found.converged).all()
    np.testing.assert_allclose(x, [[0.5, -1.0], [3.0, 0.5]], rtol=1e-5)
    assert norm[0] < 1e-9 and np.abs(to_numpy(found.gradient)[0]).min() > 0.1


@pytest.mark.parametrize("search", ["L-BFGS-B", "GD"])
@pytest.mark.parametrize("mode", ["numpy", "torch"])
def test_failures(mode: str, search: str) -> None:
    """Without a minimum, and NaN, beside a good system, which is as if alone."""
    slope, start = np.array([[0.0, 0.0], [np.nan, 1.0], [5.0, 5.0]]), np.zeros((3, 2))

    def f(x: Any, w: Any) -> Any:
        falls = w[..., 0] > 4
        return (x[..., 0] - 1) ** 2 * ~falls + (x[..., 1] - w[..., 1]) ** 2 * ~falls - w[..., 0] * x[..., 0]

    settings = {"batch_ndim": 1, "method": search, "max_iter": 30}
    found = minimised(mode, f, start, slope, on_failure="status", **settings)
    status = to_numpy(found.status)
    assert status[0] == Status.CONVERGED and status[1] == Status.DIVERGED
    assert status[2] in (Status.MAX_ITER, Status.STAGNATED, Status.DIVERGED)
    alone = minimised(mode, f, start[0], slope[0], method=search, max_iter=30)
    np.testing.assert_array_equal(to_numpy(alone.x), to_numpy(found.x)[0])
    assert "2 of 3 systems" in found.message
    marked = minimised(mode, f, start, slope, on_failure="nan", **settings)
    np.testing.assert_array_equal(np.isnan(to_numpy(marked.x)), [[False] * 2, [True] * 2, [True] * 2])
    with pytest.raises(krylix.Diverged, match="To do: check x0 and f") as caught:
        minimised(mode, f, start, slope, **settings)
    assert isinstance(caught.value.result, krylix.MinimizeResult)
    with pytest.warns(RuntimeWarning, match="limit of iterations|no step makes"):
        minimised(mode, f, start[2], slope[2], method=search, max_iter=5, on_failure="warn")


@pytest.mark.parametrize("search", [*SCIPY_METHODS, "GD"])
def test_limits_by_name(search: str) -> None:
    """Only SciPy's methods have a limit of evaluations."""

    def f(x: np.ndarray) -> Any:
        return valley(x, 1.0)

    message = krylix.minimize(f, START[0], method=search, max_iter=1, on_failure="status").message
    limit = " after" if search == "GD" else r", or of evaluations \(100, and 10 for each iteration\), after"
    assert re.search(f"{search} reached the limit of iterations{limit} 1 iteration", message)


@pytest.mark.parametrize("mode", ["numpy", "torch"])
def test_trivial_and_single_precision(mode: str) -> None:
    exact = minimised(mode, bowl, np.ones(2), np.ones(2))
    assert int(exact.iterations) == 0 and to_numpy(exact.x).tolist() == [1, 1]
    single = minimised(mode, bowl, np.zeros((2, 2), np.float32), np.ones((2, 2), np.float32), batch_ndim=1)
    assert to_numpy(single.x).dtype == to_numpy(single.value).dtype == np.float32
    np.testing.assert_allclose(to_numpy(single.x), 1, rtol=2e-3)
    offset = minimised(mode, lambda x, w: bowl(x, w) + 1e8, np.zeros(2), np.ones(2), rtol=None)
    assert bool(offset.converged)  # to what rounding of f lets see
    np.testing.assert_allclose(to_numpy(offset.x), 1, rtol=1e-3)


@pytest.mark.parametrize("search", ["L-BFGS-B", "GD"])
@pytest.mark.parametrize("mode", ["numpy", "torch"])
def test_no_systems(mode: str, search: str) -> None:
    found = minimised(mode, bowl, np.zeros((0, 2)), np.zeros((0, 2)), batch_ndim=1, method=search, history=True)
    assert to_numpy(found.x).shape == (0, 2) and "no systems" in found.message
    assert to_numpy(minimised(mode, bowl, np.zeros((0, 2)), np.zeros((0, 2)), batch_ndim=1).status).shape == (0,)


@pytest.mark.parametrize("systems", [1, 4])
def test_errors_of_f_end_all_threads(systems: int) -> None:
    calls = []

    def f(x: np.ndarray) -> np.ndarray:
        calls.append(threading.current_thread())
        if len(calls) > 30:
            raise RuntimeError("from f")
        return np.sum((x - 1) ** 4, axis=-1)

    before = threading.active_count()
    with pytest.raises(RuntimeError, match="from f"):
        krylix.minimize(f, np.zeros((systems, 3)), batch_ndim=1)
    assert threading.active_count() == before
    assert set(calls) == {threading.main_thread()}


@pytest.mark.parametrize("search", ["L-BFGS-B", "GD"])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_a_function_that_returns_its_buffer(batch: tuple[int, ...], search: str) -> None:
    buffer = np.empty(batch)
    found = krylix.minimize(
        lambda x: np.sum((x - 1) ** 2, axis=-1, out=buffer), np.zeros((*batch, 3)), batch_ndim=len(batch), method=search
    )
    np.testing.assert_allclose(found.x, 1, rtol=1e-5)
    np.testing.assert_allclose(found.value, np.sum((found.x - 1) ** 2, axis=-1), atol=1e-20)


@pytest.mark.parametrize("search", ["L-BFGS-B", "GD"])
def test_a_function_that_writes_into_one_tensor(search: str) -> None:
    torch = pytest.importorskip("torch")
    memory = torch.empty((), dtype=torch.float64)

    def f(x: Any) -> Any:
        return memory.detach_().copy_(((x - 1) ** 2).sum())

    found = krylix.minimize(f, torch.zeros(3, dtype=torch.float64), method=search)
    torch.testing.assert_close(found.x, torch.ones(3, dtype=torch.float64))
    assert float(found.value) < 1e-9


REFUSED: list[tuple[dict[str, Any], Any, str]] = [
    ({"f": lambda x: x}, ValueError, r"shape \(3,\); expected \(\), one number"),
    ({"f": lambda x: 1j * x.sum()}, TypeError, "complex numbers"),
    ({"x0": np.ones(201)}, krylix.UnsupportedOperation, "has no derivatives"),
    ({"method": "Nelder-Mead"}, ValueError, "there are L-BFGS-B, BFGS, CG, GD"),
    ({"method": "BFGS", "bounds": (0, 1)}, ValueError, "BFGS takes no bounds"),
    ({"bounds": [(0, 1), (0, 1)]}, TypeError, r"must be a tuple \(lower, upper\)"),
    ({"bounds": ((0, 1), (0, 1))}, TypeError, r"must be a tuple \(lower, upper\)"),
    ({"bounds": (1, 0)}, ValueError, "above the upper"),
    ({"bounds": (np.zeros(2), None)}, ValueError, r"shape \(2,\); expected a number"),
    ({"bounds": (np.nan, None)}, ValueError, "without NaN"),
    ({"maxiter": 3}, TypeError, "here that is max_iter"),
]


@pytest.mark.parametrize(("given", "error", "words"), REFUSED)
def test_bad_input(given: dict[str, Any], error: Any, words: str) -> None:
    arguments = {"f": lambda x: np.sum(x**2), "x0": np.ones(3), **given}
    with pytest.raises(error, match=words):
        krylix.minimize(**arguments)


@pytest.mark.parametrize("search", [*SCIPY_METHODS, "GD"])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_a_function_without_a_lower_bound(batch: tuple[int, ...], search: str) -> None:
    """A status after a bounded number of evaluations, which without derivatives are several for each gradient."""
    calls = []

    def f(x: Any) -> Any:
        calls.append(1)
        return -(np.array([1.0, 2.0]) * x).sum(-1)

    result = krylix.minimize(f, np.zeros((*batch, 2)), method=search, batch_ndim=len(batch), on_failure="status")
    assert not np.any(result.converged) and len(calls) <= 3000
