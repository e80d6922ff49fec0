"""`custom_gradient`: functions with a derivative of the user's own, also of second order, vectorised and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from frameworks import tf, torch
from krylix.backends import Backend, get_backend
from modes import COMPILED, EAGER, array, compiled, library, to_numpy

each = pytest.mark.parametrize("mode", (*EAGER[1:], *COMPILED))
eagerly = pytest.mark.parametrize("mode", EAGER[1:])
X = np.array([0.3, -1.2, 0.8])
W = np.array([0.7, 0.4, -0.5])


def twice_as_steep(bk: Backend) -> Callable[[Any], Any]:
    """x^3 with the rule that its derivative is 6 x^2, which no library could find by itself."""
    return bk.custom_gradient(lambda x: x * x * x, lambda inputs, outputs, c: 6 * inputs[0] * inputs[0] * c)


@each
def test_first_and_second_derivative(mode: str) -> None:
    bk = get_backend(library(mode))
    cube = twice_as_steep(bk)
    first = bk.jacobian(lambda x: bk.sum(cube(x), 0))
    second = bk.jacobian(lambda x: bk.sum(first(x)[1], 0))
    value, gradient, _, again = compiled(mode, lambda x: (*first(x), *second(x)))(array(mode, X))
    np.testing.assert_allclose(to_numpy(value), (X**3).sum(), rtol=1e-13)
    np.testing.assert_allclose(to_numpy(gradient), 6 * X**2, rtol=1e-13)
    np.testing.assert_allclose(to_numpy(again), 12 * X, rtol=1e-13)


@each
def test_second_derivative_through_outputs(mode: str) -> None:
    """A rule of what the function has returned: d exp = 2 exp, so the second derivative is 4 exp."""
    bk = get_backend(library(mode))
    exp = bk.custom_gradient(bk.exp, lambda inputs, outputs, c: (2 * outputs * c,))

    def both(x: Any) -> Any:
        linear = bk.hessian(lambda x: bk.sum(exp(x), 1), 0, False, False)(x)
        return *linear, *bk.hessian(lambda x: bk.sum(exp(x) ** 2, 1), 0, False, False)(x)

    linear, square = compiled(mode, both)(array(mode, X[:, None]))
    np.testing.assert_allclose(to_numpy(linear)[:, 0, 0], 4 * np.exp(X), rtol=1e-13)
    np.testing.assert_allclose(to_numpy(square)[:, 0, 0], 16 * np.exp(2 * X), rtol=1e-13)  # of 4 exp(x)^2


@each
def test_several_arguments_and_results(mode: str) -> None:
    """Containers, constants among them, a result without derivatives, and an argument whose derivative is 0."""
    bk = get_backend(library(mode))

    def f(pair: dict[str, Any], k: Any, z: Any) -> Any:
        return pair["a"] * pair["b"], {"sum": bk.sum(pair["a"], 0), "count": k + 1}, bk.multiply(z, pair["b"])

    def gradient(inputs: Any, outputs: Any, by_product: Any, by_parts: Any, by_z: Any) -> Any:
        _, k, _ = inputs
        assert by_parts["count"] is None and outputs[1]["count"] is not None
        scale = bk.astype(k, bk.dtype(by_product))
        return {"a": 10 * by_product + by_parts["sum"], "b": scale * by_product}, None, by_z * 0 + 2j

    special = bk.custom_gradient(f, gradient)

    def loss(a: Any, b: Any, z: Any, k: Any) -> Any:
        product, parts, moved = special({"a": a, "b": b}, k, z)
        return bk.sum(product, 0) + 3 * parts["sum"] + bk.sum(bk.real(moved), 0), parts["count"]

    k = array(mode, np.array([2, 2, 2]))
    by = compiled(mode, bk.jacobian(loss, (0, 1, 2)))
    _, count, a, b, z = by(array(mode, X), array(mode, W), array(mode, X + 1j * W), k)
    np.testing.assert_array_equal(to_numpy(count), [3, 3, 3])
    np.testing.assert_allclose(to_numpy(a), [13, 13, 13])
    np.testing.assert_allclose(to_numpy(b), [2, 2, 2])
    np.testing.assert_allclose(to_numpy(z), [2j, 2j, 2j])


@each
def test_complex(mode: str) -> None:
    """The rule that is the truth gives what the library finds: cotangents are of one kind in all of them."""
    bk = get_backend(library(mode))
    factor = 0.3 - 1.1j
    square = bk.custom_gradient(lambda z: z * z * factor, lambda i, o, c: 2 * bk.conj(i[0] * factor) * c)
    x, z = array(mode, X), array(mode, X + 1j * W)

    def loss(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda z: bk.sum(bk.real(f(z)) * x + bk.abs(f(z)), 0)

    found = compiled(mode, bk.jacobian(loss(square)))(z)
    expected = bk.jacobian(loss(lambda z: z * z * factor))(z)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(to_numpy(a), to_numpy(b), rtol=1e-12)


@each
def test_closed_over(mode: str) -> None:
    """What the function closes over has the derivative that it has; the rule is about the arguments."""
    bk = get_backend(library(mode))

    def loss(x: Any, w: Any) -> Any:
        times = bk.custom_gradient(lambda x: x * x * w, lambda inputs, outputs, c: 5 * c)
        return bk.sum(times(x), 0)

    by_x, by_w = compiled(mode, bk.jacobian(loss, (0, 1), False))(array(mode, X), array(mode, W))
    np.testing.assert_allclose(to_numpy(by_x), [5, 5, 5])
    np.testing.assert_allclose(to_numpy(by_w), X * X, rtol=1e-13)


@eagerly
def test_under_vmap(mode: str) -> None:
    bk = get_backend(library(mode))
    rows = array(mode, np.stack([X, W]))
    gradient = bk.jacobian(lambda x: bk.sum(twice_as_steep(bk)(x), 0), get_output=False)
    found = bk.vmap(gradient, (0,))(rows)
    np.testing.assert_allclose(to_numpy(found), 6 * np.stack([X, W]) ** 2, rtol=1e-13)

    def times(rows: Any, k: Any) -> Any:
        """Integers are mapped, too; and so is a result of integers."""
        product = bk.custom_gradient(lambda x, k: (x * x, k + 1), lambda i, o, c, _: (c * i[1] * (o[1] + 1), None))
        return bk.sum(bk.vmap(lambda x, k: product(x, k)[0])(rows, k), (0, 1))

    k = array(mode, np.array([2, 3]))
    by_rows = bk.jacobian(times, get_output=False)(rows, bk.astype(k, np.float64) if mode == "tf" else k)
    np.testing.assert_allclose(to_numpy(by_rows), np.broadcast_to([[8], [15]], (2, 3)))
    outside = bk.jacobian(lambda rows: bk.sum(bk.vmap(twice_as_steep(bk), (0,))(rows), (0, 1)), get_output=False)
    np.testing.assert_allclose(to_numpy(outside(rows)), 6 * np.stack([X, W]) ** 2, rtol=1e-13)


@eagerly
def test_refusals(mode: str) -> None:
    bk = get_backend(library(mode))
    x = array(mode, X)
    for gradient, message in (
        (lambda i, o, c: (c, c), "returned 2 cotangents; expected a tuple of 1"),
        (lambda i, o, c: bk.sum(c, 0), r"cotangent of shape \(\) for an argument of shape \(3,\)"),
        (lambda i, o, c: ({"a": c, "b": c},), "returned 2 arrays for an argument that holds 1"),
    ):
        with pytest.raises(ValueError, match=message):
            bk.jacobian(bk.custom_gradient(lambda x: 2 * x, gradient))(x)


def test_numpy_keeps_the_function() -> None:
    bk = get_backend("numpy")
    np.testing.assert_array_equal(twice_as_steep(bk)(X), X * X * X)


@pytest.mark.needs("torch")
def test_torch_transformations() -> None:
    """Of torch.func, and autograd by `backward`; forward mode says that it cannot."""
    bk = get_backend("torch")
    cube = twice_as_steep(bk)
    x = torch.as_tensor(X)
    np.testing.assert_allclose(torch.func.grad(lambda x: cube(x).sum())(x), 6 * X**2)
    hessian = torch.func.jacrev(torch.func.jacrev(lambda x: cube(x).sum()))(x)
    np.testing.assert_allclose(hessian, np.diag(12 * X))
    leaf = x.clone().requires_grad_()
    cube(leaf).sum().backward()
    np.testing.assert_allclose(leaf.grad, 6 * X**2)
    with pytest.raises((RuntimeError, NotImplementedError), match="jvp"):
        torch.func.jvp(cube, (x,), (x,))


@pytest.mark.merge
@pytest.mark.needs("tensorflow")
def test_tensorflow_vectorised_and_in_loops() -> None:
    """In `tf.while_loop`; and `tf.vectorized_map` with the tape inside: outside, TensorFlow would drop the rule."""
    bk = get_backend("tensorflow")
    cube, rows = twice_as_steep(bk), tf.constant(np.stack([X, W]))
    gradient = bk.jacobian(lambda x: bk.sum(cube(x), 0), get_output=False)
    np.testing.assert_allclose(tf.vectorized_map(gradient, rows), 6 * rows.numpy() ** 2)
    with tf.GradientTape() as tape, pytest.raises(RuntimeError, match=r"inside of tf\.vectorized_map"):
        tape.watch(rows)
        tape.gradient(tf.vectorized_map(cube, rows), rows)

    @tf.function
    def twice(x: Any) -> Any:
        return bk.jacobian(lambda x: bk.sum(bk.for_loop(2, cube, x), 0), get_output=False)(x)

    np.testing.assert_allclose(twice(rows[0]), 36 * X**8, rtol=1e-12)
