"""Derivatives of solutions of non-linear equations and of minimisers, against differences of whole solves."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import krylix
from gradients import gradient
from modes import array, library, to_numpy

W = np.array([[0.5, 1.0, 1.5], [1.2, 0.6, 0.9]])
C = np.array([[0.3, -1.0, 0.7], [1.1, 0.4, -0.2]])
D = np.array([[0.8, 0.1, -0.5], [-0.3, 0.9, 0.6]])
START = np.ones((2, 3))


def coupled(xp: Any) -> Callable[..., Any]:
    return lambda x, w: x**3 + w * x - 1.0 + 0.2 * w**2 * xp.roll(x, 1, axis=-1)


def bowl(xp: Any) -> Callable[..., Any]:
    """A convex function whose gradient is no simple one: its minimiser depends on w as a root does."""
    return lambda x, w: xp.sum(0.25 * x**4 + 0.5 * w * x**2 - x + 0.1 * w**2 * x * xp.roll(x, 1, axis=-1), axis=-1)


def root(xp: Any, x0: Any, w: Any, closure: bool, **settings: Any) -> Any:
    f = coupled(xp)
    if closure:
        return krylix.solve_nonlinear(lambda x: f(x, w), x0, batch_ndim=1, **settings).x
    return krylix.solve_nonlinear(f, x0, args=(w,), batch_ndim=1, **settings).x


def minimiser(xp: Any, x0: Any, w: Any, closure: bool, **settings: Any) -> Any:
    f, given = bowl(xp), {"rtol": 1e-8, "batch_ndim": 1, **settings}
    if closure:
        return krylix.minimize(lambda x: f(x, w), x0, **given).x
    return krylix.minimize(f, x0, args=(w,), **given).x


PROBLEMS = {"root": root, "minimiser": minimiser}


def gradient_of_bowl(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return x**3 + w * x - 1 + 0.1 * w**2 * np.roll(x, 1, -1) + 0.1 * np.roll(w**2 * x, -1, -1)


def loss_of(problem: str, w: np.ndarray) -> float:
    """The loss by another way: NumPy's Newton for both."""
    f = coupled(np) if problem == "root" else gradient_of_bowl
    return float(np.sum(C * krylix.solve_nonlinear(f, START, args=(w,), batch_ndim=1, rtol=1e-14, atol=3e-15).x))


def differences(problem: str) -> tuple[float, float]:
    """First and second derivative in the direction D."""
    first = (loss_of(problem, W + 1e-5 * D) - loss_of(problem, W - 1e-5 * D)) / 2e-5
    h = 2e-3
    middle = loss_of(problem, W)
    by = [
        (loss_of(problem, W + k * h * D) + loss_of(problem, W - k * h * D) - 2 * middle) / (k * h) ** 2 for k in (1, 2)
    ]
    return first, (4 * by[0] - by[1]) / 3


def derivatives(mode: str, problem: str, closure: bool) -> tuple[float, float]:
    xp, solve = krylix.choose_backend(library(mode)).xp, PROBLEMS[problem]
    x0, w, c, d = (array(mode, a) for a in (START, W, C, D))

    def slope(w: Any) -> Any:
        return xp.sum(gradient(mode, lambda w: xp.sum(c * solve(xp, x0, w, closure)), w) * d)

    if mode == "jax":
        import jax

        both = lambda w: jax.jvp(slope, (w,), (d,))  # noqa: E731
        first, second = (jax.jit(both) if problem == "root" else both)(w)  # SciPy needs values
    else:
        first, second = slope(w), xp.sum(gradient(mode, slope, w) * d)
    return float(to_numpy(first)), float(to_numpy(second))


CELLS = [
    pytest.param("jax", "root", True, marks=pytest.mark.merge),
    pytest.param("jax", "minimiser", False, marks=pytest.mark.merge),
    ("torch", "root", True),
    ("torch", "minimiser", False),
    ("tf", "root", True),
    ("tf", "minimiser", False),
]


@pytest.mark.parametrize(("mode", "problem", "closure"), CELLS)
def test_first_and_second_derivatives(mode: str, problem: str, closure: bool) -> None:
    np.testing.assert_allclose(derivatives(mode, problem, closure), differences(problem), rtol=2e-6)


@pytest.mark.parametrize(("problem", "closure"), [("root", False), ("minimiser", True)])
def test_the_other_way_to_give_arrays(problem: str, closure: bool) -> None:
    pytest.importorskip("torch")
    np.testing.assert_allclose(derivatives("torch", problem, closure), differences(problem), rtol=2e-6)


@pytest.mark.merge
def test_compiled_and_mapped_in_jax() -> None:
    """One program: the gradient in `jit`, forward mode, and `vmap` beside the batch."""
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    x0, w = jnp.asarray(START), jnp.asarray(W)

    def solve(w: Any) -> Any:
        return krylix.solve_nonlinear(coupled(jnp), x0[0], args=(w,)).x

    both = jax.jit(lambda w: (jax.vmap(solve)(w), jax.vmap(jax.jacrev(solve))(w)))
    x, jacobians = both(w)
    np.testing.assert_allclose(x, root(np, START, W, True), rtol=1e-9)
    first = sum(float(C[i] @ np.asarray(jacobians[i]) @ D[i]) for i in range(2))
    assert first == pytest.approx(differences("root")[0], rel=1e-6)


@pytest.mark.merge
def test_descent_in_jit() -> None:
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    def loss(w: Any) -> Any:
        given = {"batch_ndim": 1, "method": "GD", "rtol": 1e-9}
        found = krylix.minimize(lambda x: bowl(jnp)(x, w), jnp.asarray(START), **given)
        return (C * found.x).sum() + found.value.sum(), found.x

    slope, x = map(np.asarray, jax.jit(jax.grad(loss, has_aux=True))(jnp.asarray(W)))
    of_values = np.sum((0.5 * x**2 + 0.2 * W * x * np.roll(x, 1, -1)) * D)  # f itself is stationary in x
    assert float((slope * D).sum()) == pytest.approx(differences("minimiser")[0] + of_values, rel=1e-6)
    with pytest.raises(TypeError, match=r"SciPy on the host.*Use method='GD'"):
        jax.jit(lambda w: minimiser(jnp, jnp.asarray(START), w, True))(jnp.asarray(W))


def test_torch_func() -> None:
    torch = pytest.importorskip("torch")
    x0, w, c, d = (torch.as_tensor(a) for a in (START, W, C, D))

    def loss(w: Any) -> Any:
        return (c * root(krylix.choose_backend("torch").xp, x0, w, True)).sum()

    expected = differences("root")[0]
    assert float((torch.func.grad(loss)(w) * d).sum()) == pytest.approx(expected, rel=1e-6)
    assert float(torch.func.jvp(loss, (w,), (d,))[1]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.merge
def test_in_a_tf_function() -> None:
    tf = pytest.importorskip("tensorflow")
    xp = krylix.choose_backend("tensorflow").xp

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def slope(w: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(w)
            loss = tf.reduce_sum(C * root(xp, tf.constant(START), w, False))
        return tf.reduce_sum(tape.gradient(loss, w) * D)

    assert float(slope(tf.constant(W))) == pytest.approx(differences("root")[0], rel=1e-6)


@pytest.mark.parametrize("mode", [pytest.param("jax", marks=pytest.mark.merge), "torch", "tf"])
def test_failed_systems_have_none(mode: str) -> None:
    """NaN for what depends on a system without a root, exact for the others."""
    xp = krylix.choose_backend(library(mode)).xp
    x0, w = array(mode, np.ones((2, 2))), array(mode, np.array([[4.0, 9.0], [-1.0, 1.0]]))

    def loss(w: Any) -> Any:
        return xp.sum(
            krylix.solve_nonlinear(lambda x, w: x * x - w, x0, args=(w,), batch_ndim=1, on_failure="status").x
        )

    gradient = to_numpy(krylix.choose_backend(library(mode)).jacobian(loss, get_output=False)(w))
    np.testing.assert_allclose(gradient[0], [0.25, 1 / 6], rtol=1e-9)
    assert np.isnan(gradient[1]).all()


def test_many_unknowns_and_failing_derivatives() -> None:
    torch = pytest.importorskip("torch")
    n = 240
    w = torch.linspace(1, 2, n, dtype=torch.float64, requires_grad=True)

    def f(x: Any) -> Any:
        return 3 * x + w * x**3 - torch.roll(x, 1) - 0.5 * torch.roll(x, -1) - 1

    x = krylix.solve_nonlinear(f, torch.ones(n, dtype=torch.float64)).x
    (g,) = torch.autograd.grad(x.sum(), w)
    with torch.no_grad():
        J = torch.func.jacrev(f)(x)
        expected = -torch.linalg.solve(J.T, torch.ones(n, dtype=torch.float64)) * x**3
    torch.testing.assert_close(g, expected, rtol=1e-7, atol=1e-9)
    limited = {"method": "GMRES", "max_iter": 1}
    with pytest.raises(krylix.NotConverged):
        stuck = krylix.solve_nonlinear(f, x.detach(), rtol=0.5, atol=1e-3, linear_solver=limited).x
        torch.autograd.grad(stuck.sum(), w)


@pytest.mark.parametrize("mode", ["torch", pytest.param("tf", marks=pytest.mark.merge)])
def test_many_unknowns_of_a_batch(mode: str) -> None:
    bk = krylix.choose_backend(library(mode))
    x0, w = array(mode, np.full((2, 240), 0.7)), np.linspace(1, 2, 480).reshape(2, 240)

    def loss(w: Any) -> Any:
        return bk.xp.sum(krylix.solve_nonlinear(lambda x: x**3 + x - w, x0, batch_ndim=1).x)

    x = 2 / np.sqrt(3) * np.sinh(np.arcsinh(1.5 * np.sqrt(3) * w) / 3)
    _, slope = bk.jacobian(loss)(array(mode, w))
    np.testing.assert_allclose(to_numpy(slope), 1 / (3 * x**2 + 1), rtol=1e-8)


def test_bounds_hold_derivatives() -> None:
    torch = pytest.importorskip("torch")
    w = torch.tensor([2.0, -1.0, 0.5], dtype=torch.float64, requires_grad=True)
    found = krylix.minimize(
        lambda x: ((x - w) ** 2).sum() + 0.1 * x.sum() ** 2, torch.zeros(3, dtype=torch.float64), bounds=(0, 1)
    )
    assert found.x.tolist()[:2] == [1, 0] and bool(found.converged)
    (g,) = torch.autograd.grad(found.x.sum(), w)
    torch.testing.assert_close(g, torch.tensor([0, 0, 1 / 1.1], dtype=torch.float64))
    with pytest.raises(TypeError, match="none with respect to bounds"):
        krylix.minimize(lambda x: (x**2).sum(), torch.ones(3, dtype=torch.float64), bounds=(w, None))


LIBRARIES = ["torch", *(pytest.param(mode, marks=pytest.mark.merge) for mode in ("tf", "jax"))]


@pytest.mark.parametrize("mode", LIBRARIES)
def test_third_order(mode: str) -> None:
    """Of x^3 + w x = 1: with f = 3 x^2 + w, x' = -x / f, and so on."""
    bk = krylix.choose_backend(library(mode))

    def derivative(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda w: bk.reshape(bk.jacobian(lambda w: function(w)[0], get_output=False)(w), (1,))

    def solve(w: Any) -> Any:
        return krylix.solve_nonlinear(lambda x: x**3 + w * x - 1.0, array(mode, np.ones(1))).x

    found, function = [], solve
    for _ in range(3):
        function = derivative(function)
        found.append(float(to_numpy(function(array(mode, np.array([1.3]))))[0]))
    np.testing.assert_allclose(found, [-0.25216497, 0.11515919, 0.02733763], rtol=1e-6)


@pytest.mark.parametrize("mode", LIBRARIES)
def test_the_least_value_and_its_gradient(mode: str) -> None:
    """The value is 3 (w - 1)^2 + w^2 where the bound holds x at 1, and w^2 without bounds."""
    bk = krylix.choose_backend(library(mode))
    x0, w = array(mode, np.zeros(3)), array(mode, np.array(3.0))

    def lowest(w: Any, bounds: Any = None) -> Any:
        return krylix.minimize(lambda x: bk.xp.sum((x - w) ** 2) + w * w, x0, bounds=bounds)

    def slope(name: str, bounds: Any = None) -> float:
        found = bk.jacobian(lambda w: bk.xp.sum(getattr(lowest(w, bounds), name)), get_output=False)(w)
        return float(to_numpy(found))

    assert slope("value") == pytest.approx(6)
    if mode == "torch":
        assert slope("value", (0, 1)) == pytest.approx(18)
        assert slope("gradient", (0, 1)) == pytest.approx(-6)


def test_small_and_mixed_unknowns_have_derivatives() -> None:
    """Their size is no reason to take the derivative of f for a wrong one, nor is a root at zero."""
    torch = pytest.importorskip("torch")

    def slope(f: Callable[..., Any], x0: Any) -> Any:
        w = torch.ones((), dtype=x0.dtype, requires_grad=True)
        x = krylix.solve_nonlinear(lambda x: f(x, w), x0).x
        return [float(torch.autograd.grad(entry, w, retain_graph=True)[0]) for entry in x]

    small = torch.tensor([2e-9], dtype=torch.float64)
    assert slope(lambda x, w: x**2 - 1e-18 * w, small) == pytest.approx([5e-10])
    assert slope(lambda x, w: x**3 - 1e-27 * w, small) == pytest.approx([1e-9 / 3])
    assert slope(lambda x, w: x**3 - 1e-9 * w, torch.tensor([2e-3])) == pytest.approx([1e-3 / 3], rel=1e-4)
    mixed = torch.tensor([1e8, 1.0], dtype=torch.float64)
    found = slope(lambda x, w: torch.stack([x[0] - 1e8 * w, torch.exp(x[1]) - 2 * w]), mixed)
    assert found == pytest.approx([1e8, 1])
    near_zero = torch.tensor([1e-17], dtype=torch.float64)
    assert slope(lambda x, w: torch.exp(x) - w, near_zero) == pytest.approx([1])


def test_cut_derivatives_are_refused() -> None:
    torch = pytest.importorskip("torch")
    w, start = torch.tensor(4.0, dtype=torch.float64, requires_grad=True), torch.ones(3, dtype=torch.float64)

    def half(x: Any) -> Any:
        return x * x.detach() - w

    for size in (1.0, 1e-9):
        with pytest.raises(ValueError, match=r"derivative of f with respect to x does not match.*detach"):
            krylix.solve_nonlinear(lambda x, size=size: half(x / size), size * start)
    with torch.no_grad():  # the root is found, and nothing is said about its derivatives
        torch.testing.assert_close(krylix.solve_nonlinear(half, start).x, 2 * start)
    with pytest.raises(ValueError, match="gradient of f is zero, but f changes"):
        krylix.minimize(lambda x: ((x.detach() - w.detach()) ** 2).sum(), start)
    with pytest.raises(ValueError, match="gradient of f is zero, but f changes"):
        krylix.minimize(lambda x: ((x.detach() - w.detach()) ** 2).sum(), start, method="GD")
    with pytest.raises(TypeError, match="has no derivatives"):
        krylix.minimize(lambda x: ((x - w) ** 2).sum().item(), start)
    inflection = krylix.minimize(lambda x: (x**3).sum(), torch.zeros(3, dtype=torch.float64))
    assert int(inflection.iterations) == 0  # a stationary point
