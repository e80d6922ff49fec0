"""What PyTorch and TensorFlow can differentiate, `backend.xp` does not lose: derivatives beside finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frameworks import tf, torch
from krylix.backends import get_backend
from standard import environment

# Of x (3, 3), regular, and p (3,), positive. With equal elements: where a rule of its own has to hold.
EXPRESSIONS = (
    "xp.clip(x, -0.5, p)", "xp.where(x > 0, x * x, p)", "xp.concat([x, p[None]], axis=0)", "xp.stack([x, x], axis=1)",
    "xp.linalg.vector_norm(x, axis=0)", "xp.linalg.vector_norm(x, ord=3)", "xp.linalg.matrix_norm(x)",
    "xp.linalg.matrix_norm(x, ord='nuc')", "xp.linalg.pinv(x[:2])",
    "xp.linalg.pinv(xp.eye(3, dtype=x.dtype) + x - x0)",
    "xp.cumulative_sum(x, axis=1, include_initial=True)", "xp.cumulative_prod(p)", "xp.std(x, axis=0)", "xp.var(x)",
    "xp.sort(x, axis=0)", "xp.take(x, i, axis=1)", "xp.take_along_axis(x, i[None], axis=1)", "xp.max(x, axis=1)",
    "xp.hypot(x, p)", "xp.hypot(p, p)", "xp.logaddexp(x, p)", "xp.logaddexp(p, p)",
    "xp.linalg.solve(x, p)", "xp.linalg.inv(x)",
    "xp.linalg.det(x)", "xp.linalg.slogdet(x)[1]", "xp.linalg.eigvalsh(x + xp.matrix_transpose(x))",
    "xp.linalg.svdvals(x)", "xp.linalg.cholesky(x @ xp.matrix_transpose(x))", "xp.linalg.cross(x, p)",
    "xp.tensordot(x, x, axes=1)", "xp.real(xp.fft.fft(x, axis=0, n=4))",
    "xp.fft.irfft(xp.fft.rfft(x, axis=0), n=3, axis=0)",
    "xp.prod(x, axis=0)", "xp.diff(x, axis=0, prepend=p[None])", "xp.roll(x, 1)", "xp.tile(x, (1, 2))",
    "xp.cumulative_prod(xp.concat([p, x[0, :1] - x0[0, :1], p]))",  # with a 0
    "xp.repeat(x, 2)", "xp.linspace(p[0], x[0, 1], 5)",
    "xp.mean(x, axis=(0, 1))", "xp.sum(x, axis=())", "xp.expm1(xp.multiply(x, n))", "xp.pow(p, x)",
    "xp.copysign(x, -p)",
    "xp.linalg.matrix_power(x, 3)", "xp.linalg.trace(x)", "xp.astype(x, xp.complex128) * 1j", "xp.moveaxis(x, 0, 1)",
)  # fmt: skip
X = np.array([[2.0, 0.3, -1.0], [0.4, 1.5, 0.25], [-0.75, 0.6, 3.0]])
P = np.array([0.5, 1.25, 2.0])


def scalar(backend: str, expression: str) -> Any:
    """A function of arrays x and p: the sum of squares of the expression, each with a weight."""
    bk = get_backend(backend)
    arrays = {"i": bk.asarray(np.array([0, -1, 0])), "n": bk.asarray(np.array([1, 2, 0])), "x0": bk.asarray(X)}

    def function(x: Any, p: Any) -> Any:
        y = eval(expression, environment(bk.xp, "float64", {**arrays, "x": x, "p": p}))
        y = bk.xp.reshape(bk.xp.real(y) + bk.xp.imag(y), (-1,))
        return bk.xp.sum(bk.xp.multiply(bk.xp.square(y), bk.xp.arange(1, y.shape[0] + 1)))

    return function


def differences(function: Any, asarray: Any) -> list[np.ndarray]:
    """Derivatives by x and p by central differences."""
    found = []
    for which, start in enumerate((X, P)):
        gradient = np.zeros(start.size)
        for k in range(start.size):
            step = np.zeros(start.size)
            step[k] = 1e-6
            ends = []
            for sign in (1, -1):
                arrays = [X, P]
                arrays[which] = start + sign * step.reshape(start.shape)
                ends.append(float(function(*map(asarray, arrays))))
            gradient[k] = (ends[0] - ends[1]) / 2e-6
        found.append(gradient.reshape(start.shape))
    return found


def compare(found: list[Any], function: Any, asarray: Any) -> None:
    for own, expected in zip(found, differences(function, asarray), strict=True):
        own = np.zeros_like(expected) if own is None else np.asarray(own)
        np.testing.assert_allclose(own, expected, rtol=2e-5, atol=2e-5 * max(1, np.abs(expected).max()))


@pytest.mark.needs("torch")
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_torch(expression: str) -> None:
    function = scalar("torch", expression)
    x, p = torch.tensor(X, requires_grad=True), torch.tensor(P, requires_grad=True)
    value = function(x, p)
    compare(torch.autograd.grad(value, (x, p), allow_unused=True), function, torch.as_tensor)


@pytest.mark.needs("tensorflow")
@pytest.mark.parametrize(
    "expression", [pytest.param(e, marks=pytest.mark.merge if i % 2 else ()) for i, e in enumerate(EXPRESSIONS)]
)
def test_tensorflow(expression: str) -> None:
    function = scalar("tensorflow", expression)
    x, p = tf.constant(X), tf.constant(P)
    with tf.GradientTape() as tape:
        tape.watch((x, p))
        value = function(x, p)
    compare(tape.gradient(value, (x, p)), function, tf.constant)


@pytest.mark.needs("tensorflow")
def test_tensorflow_second_derivatives_of_the_pseudo_inverse() -> None:
    function, x, p = scalar("tensorflow", "xp.linalg.pinv(x[:2])"), tf.constant(X), tf.constant(P)

    def slope(x: Any, p: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = function(x, p)
        return tf.reduce_sum(tape.gradient(value, x) * X)

    with tf.GradientTape() as tape:
        tape.watch(x)
        value = slope(x, p)
    compare([tape.gradient(value, x), None], slope, tf.constant)


@pytest.mark.needs("torch")
def test_torch_transformations() -> None:
    xp = get_backend("torch").xp
    rows = torch.tensor(X)
    for expression in ("xp.linalg.vector_norm(xp.clip(x, 0, 1))", "xp.sum(xp.where(x > 0, x, 2))", "xp.take(x, i)"):
        function = lambda x: eval(expression, {"xp": xp, "x": x, "i": torch.tensor([-1, 0])})  # noqa: B023, E731
        assert torch.equal(torch.func.vmap(function)(rows), torch.stack([function(row) for row in rows]))
    assert torch.func.grad(xp.linalg.vector_norm)(torch.zeros(3)).tolist() == [0, 0, 0]


@pytest.mark.needs("tensorflow")
@pytest.mark.parametrize(
    "expression", ["xp.std(x, axis=1)", *(f"xp.linalg.vector_norm(x, ord={p}, axis=1)" for p in (2, 3))]
)
def test_roots_of_zero_have_no_nan_in_their_derivatives(expression: str) -> None:
    xp, x = get_backend("tensorflow").xp, tf.constant([[0.0, 0.0, 0.0], [1.0, 2.0, 4.0]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = eval(expression, {"xp": xp, "x": x})
    gradient = tape.gradient(y, x).numpy()
    assert np.array_equal(gradient[0], np.zeros(3)) and np.abs(gradient[1]).min() > 0
