"""What TensorFlow functions may take, return and close over; Jacobians; and who asks for matrices of functions."""

from collections import namedtuple
from typing import Any

import numpy as np
import pytest

from cells import DTYPES
from frameworks import lazy
from krylix import NonlinearError, jacobian_matrix, linear_solve, matrix_from_function

tf = lazy("tensorflow")

DOUBLE = "float64"
rng = np.random.default_rng(0)
Pair = namedtuple("Pair", ["a", "b"])


def laplace(x: Any) -> Any:
    p = tf.pad(x, [[1, 1], [1, 1]])
    return 4 * x - p[2:, 1:-1] - p[:-2, 1:-1] - p[1:-1, 2:] - p[1:-1, :-2]


def stencil(n: int) -> np.ndarray:
    one = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    return np.kron(one, np.eye(n)) + np.kron(np.eye(n), one)


def numbers(*shape: int) -> Any:
    return tf.constant(rng.standard_normal(shape))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["zeros", "TensorSpec", "Variable"])
def test_dtypes(dtype: str, kind: str) -> None:
    like = tf.Variable(tf.zeros((4, 4), dtype)) if kind == "Variable" else getattr(tf, kind)((4, 4), dtype)
    matrix, bias = matrix_from_function(lambda x: laplace(x) + 1, like)
    np.testing.assert_array_equal(matrix.toarray(), stencil(4))
    assert matrix.format == "stencil" and matrix.dtype == dtype
    assert bias.dtype == dtype and bool(tf.reduce_all(bias == 1))
    assert (matrix @ tf.ones(16, dtype)).dtype == dtype


def test_other_dtypes_inside_and_outside() -> None:
    x = tf.zeros((4, 4), DOUBLE)
    for f in (lambda x: tf.cast(laplace(tf.cast(x, tf.float32)), DOUBLE), lambda x: tf.cast(laplace(x), tf.float32)):
        np.testing.assert_array_equal(matrix_from_function(f, x)[0].toarray(), stencil(4))
    third = tf.constant(1 / 3, tf.float32)
    assert matrix_from_function(lambda x: third * x, tf.zeros(3))[0].dtype == np.float32
    matrix, _ = matrix_from_function(lambda x: x * 3, tf.TensorSpec(4, tf.float16))
    np.testing.assert_array_equal(matrix.toarray(), 3 * np.eye(4))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0), (2, 1, 3)])
def test_shapes(shape: tuple[int, ...]) -> None:
    size = int(np.prod(shape))
    like = tf.zeros(shape, DOUBLE)
    matrix, bias = matrix_from_function(lambda x: 2 * tf.reshape(x, [-1]) + tf.reduce_sum(x), like)
    np.testing.assert_array_equal(matrix.toarray(), 2 * np.eye(size) + 1)
    assert bias.shape == (size,)
    assert matrix_from_function(lambda x: x, tf.zeros(shape))[0].in_shape == shape


def test_shapes_that_are_not_known() -> None:
    with pytest.raises(TypeError, match=r"like has the shape \(None, 4\)"):
        matrix_from_function(laplace, tf.TensorSpec((None, 4), DOUBLE))

    @tf.function(input_signature=[tf.TensorSpec((None, None), DOUBLE)])
    def inner(x: Any) -> Any:
        return laplace(x) + tf.cast(tf.shape(x)[0], DOUBLE) * tf.reshape(x, [-1, tf.shape(x)[1]])

    np.testing.assert_array_equal(matrix_from_function(inner, numbers(4, 4))[0].toarray(), stencil(4) + 4 * np.eye(16))


def test_containers() -> None:
    def f(state: Any, factor: float, *, shift: Any) -> Any:
        return Pair([state["u"] * factor + state["v"][0], None], (tf.transpose(state["v"][1]) @ state["u"] + shift,))

    like = {"u": tf.zeros((3, 2), DOUBLE), "v": (tf.zeros(2, DOUBLE), tf.TensorSpec((3, 4), DOUBLE))}
    with pytest.raises(NonlinearError, match=r"both factors"):
        matrix_from_function(f, like, 2.0, shift=1.0)

    def g(state: Any, factor: float, *, shift: Any) -> Any:
        return Pair([state["u"] * factor + state["v"][0], None], (tf.transpose(state["v"][1]) + shift,))

    matrix, bias = matrix_from_function(g, like, 2.0, shift=tf.ones(3, DOUBLE))
    assert matrix.shape == (6 + 12, 6 + 2 + 12) and isinstance(bias, Pair) and bias.a[1] is None
    np.testing.assert_array_equal(bias.b[0], np.ones((4, 3)))
    z = numbers(20)
    parts = g({"u": tf.reshape(z[:6], (3, 2)), "v": (z[6:8], tf.reshape(z[8:], (3, 4)))}, 2.0, shift=0.0)
    expected = tf.concat([tf.reshape(parts.a[0], [-1]), tf.reshape(parts.b[0], [-1])], 0)
    np.testing.assert_allclose(matrix @ z, expected)


def test_arguments_tell_the_library() -> None:
    w = tf.range(12, dtype=DOUBLE)
    np.testing.assert_array_equal(
        matrix_from_function(lambda x, w: x * w, np.zeros(12), w)[0].toarray(), np.diag(w.numpy())
    )
    parts = matrix_from_function(lambda x, w: x * w["a"][0], np.zeros(12), {"a": [w]})[0]
    np.testing.assert_array_equal(parts.toarray(), np.diag(w.numpy()))


def test_variables_are_read_when_the_function_is_traced() -> None:
    """Also those whose handles a function took that was compiled before."""
    v, t = tf.Variable(numbers(4)), tf.Variable(numbers(5, 2))

    @tf.function
    def compiled(x: Any) -> Any:
        return v * x + tf.reduce_sum(tf.gather(t, [1, 3]))

    compiled(numbers(4))
    for f in (
        compiled,
        lambda x: v * x + tf.gather(t, [2, 2])[0, 1],
        lambda x: tf.cond(v[0] > 9, lambda: x, lambda: v * x),
    ):
        with tf.GradientTape() as tape:
            matrix, _ = matrix_from_function(f, tf.zeros(4, DOUBLE))
            s = tf.reduce_sum(matrix @ tf.ones(4, DOUBLE))
        np.testing.assert_allclose(tape.gradient(s, v), np.ones(4))
        old = v.numpy()
        v.assign_add(tf.ones(4, DOUBLE))
        np.testing.assert_array_equal(matrix.toarray(), np.diag(old))


def test_values_are_known_without_derivatives() -> None:
    k = numbers(4, 4)
    assert matrix_from_function(lambda x: k * laplace(x), k)[0].constant is not None
    with tf.GradientTape() as tape:
        assert matrix_from_function(lambda x: k * laplace(x), k)[0].constant is not None
        tape.watch(k)
        assert matrix_from_function(lambda x: k * laplace(x), k)[0].constant is None
        assert matrix_from_function(laplace, k)[0].constant is not None


@pytest.mark.merge
def test_inside_a_compiled_function() -> None:
    """What is constant there is known, masks and indices too; what depends on arguments has derivatives."""
    outside, found = numbers(4, 4), []

    @tf.function(autograph=False)
    def f(w: Any) -> Any:
        line = tf.range(4)
        mask = tf.cast(line, DOUBLE)[:, None] * 2 > tf.reshape(tf.range(4, dtype=DOUBLE), (1, 4))
        grid = tf.linspace(tf.constant(1.0, DOUBLE), 2.0, 4)
        found.append(matrix_from_function(lambda x: grid * tf.where(mask, laplace(x), tf.gather(x, line[::-1])), w)[0])
        found.append(matrix_from_function(lambda x: tf.boolean_mask(w * x, outside > 0), w)[0])
        found.append(matrix_from_function(lambda x: tf.cond(w[0, 0] > 0, lambda: w * x, lambda: laplace(x)), w)[0])
        found.append(matrix_from_function(lambda x: outside * x, w)[0])
        v = tf.reshape(w, [-1])
        return [tf.reduce_sum(A @ v) for A in found[:]]

    w = numbers(4, 4)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([w, outside])
        sums = f(w)
    assert found[0].constant is not None and all(A.constant is None for A in found[1:])
    np.testing.assert_allclose(sums[1], tf.reduce_sum(tf.boolean_mask(w * w, outside > 0)))
    np.testing.assert_allclose(tape.gradient(sums[1], w), np.where(outside > 0, 2 * w, 0))
    assert found[1].nnz == int(tf.reduce_sum(tf.cast(outside > 0, tf.int32)))
    for sign in (1.0, -1.0):
        z = w * sign
        expected = tf.reduce_sum(z * z if z[0, 0] > 0 else laplace(z))
        np.testing.assert_allclose(f(z)[2], expected)
    np.testing.assert_allclose(tape.gradient(sums[3], outside), w)


def test_structures_that_depend_on_arguments_are_refused() -> None:
    @tf.function(autograph=False)  # which makes errors of its own of others
    def f(w: Any, i: Any) -> Any:
        return matrix_from_function(lambda x: tf.gather(x, i), w)[0] @ w

    with pytest.raises(TypeError, match=r"'GatherV2' at .*test_tensorflow_inputs.*the index is not known while"):
        f(numbers(4), tf.constant([1, 2]))


# --- Jacobians ------------------------------------------------------------------------------------------------------


def square(x: Any) -> Any:
    """Its forward derivative is none, without a word."""
    return tf.custom_gradient(lambda x: (x**2, lambda g: 2 * tf.math.conj(x) * g))(x)


NONLINEAR = {
    "reaction": lambda x: laplace(x) + x**3,
    "rectangular": lambda x: tf.sin(x[1:] * x[:-1]),
    "own gradient": lambda x: square(x) + laplace(x),
    "of elements": lambda x: tf.nn.relu(x) * tf.tanh(tf.transpose(x)),
    "loop": lambda x: tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y + tf.sin(tf.roll(y, 1, 0))), (0, x))[1],
    "gathered": lambda x: tf.gather(x, [2, 0, 0, 1]) ** 2 + tf.linalg.diag_part(x),
    "complex": lambda x: tf.complex(x, tf.ones_like(x)) ** 2,
}


@pytest.mark.parametrize("name", NONLINEAR)
def test_jacobian(name: str) -> None:
    f, x = NONLINEAR[name], numbers(4, 4)
    if name == "complex":
        with pytest.raises(TypeError):
            jacobian_matrix(f, x)
        return
    found = jacobian_matrix(f, x)
    h = 1e-6
    columns = []
    for k in range(16):
        e = tf.constant(h * np.eye(16)[k].reshape(4, 4))
        columns.append(((f(x + e) - f(x - e)) / (2 * h)).numpy().reshape(-1))
    np.testing.assert_allclose(found.toarray(), np.stack(columns, 1), atol=1e-7)
    assert found.nnz < 16 * 8


def test_jacobian_of_a_complex_argument() -> None:
    x = tf.constant(rng.standard_normal(4) + 1j)
    np.testing.assert_allclose(jacobian_matrix(lambda x: x**3, x).toarray(), np.diag(3 * x.numpy() ** 2))
    np.testing.assert_allclose(jacobian_matrix(lambda x: square(x) * 1j, x).toarray(), np.diag(2j * x.numpy()))


def test_jacobian_in_a_compiled_function() -> None:
    @tf.function(autograph=False)
    def step(x: Any) -> Any:
        A = jacobian_matrix(lambda x: x**3 + laplace(x), x)
        return A @ tf.reshape(x, [-1])

    x = numbers(4, 4)
    expected = stencil(4) @ x.numpy().reshape(-1) + 3 * x.numpy().reshape(-1) ** 3
    np.testing.assert_allclose(step(x), expected, atol=1e-12)


# --- who asks for matrices of functions -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "compiled"),
    [
        *((method, False) for method in ("scipy-direct", "direct", "matrix")),
        pytest.param("scipy-direct", True, marks=pytest.mark.merge),
        *(pytest.param(method, True, marks=pytest.mark.slow) for method in ("direct", "matrix")),
    ],
)
def test_derivatives_of_solves_through_the_matrix(method: str, compiled: bool) -> None:
    b, k = numbers(4, 4), tf.constant(rng.random((4, 4)))

    def solved(k: Any) -> Any:
        def f(u: Any) -> Any:
            return laplace(u) + k * u

        if method != "matrix":
            return linear_solve(f, b, method=method).x
        A, _ = matrix_from_function(f, b)
        return tf.reshape(linear_solve(A, tf.reshape(b, [-1]), method="CG", rtol=1e-14).x, (4, 4))

    def inverted(k: Any) -> Any:
        A = tf.constant(stencil(4)) + tf.linalg.diag(tf.reshape(k, [-1]))
        return tf.reshape(tf.linalg.inv(A) @ tf.reshape(b, (-1, 1)), (4, 4))

    def derivatives(solve: Any, k: Any) -> list[Any]:
        with tf.GradientTape() as outer:
            outer.watch(k)
            with tf.GradientTape() as tape:
                tape.watch(k)
                s = tf.reduce_sum(solve(k) ** 3)
            g = tape.gradient(s, k)
            t = tf.reduce_sum(g**2)
        return [g, outer.gradient(t, k)]

    run = tf.function(derivatives) if compiled else derivatives
    for a, e in zip(run(solved, k), derivatives(inverted, k)):
        np.testing.assert_allclose(a, e, rtol=1e-8)


def test_conjugates_of_a_complex_input() -> None:
    """Twice, on all ways, they have a matrix; once they have none."""
    c = tf.constant(rng.standard_normal((3, 3)) + 1j * rng.standard_normal((3, 3)))

    def parts(x: Any) -> Any:
        y = tf.math.conj(x) * c + tf.linalg.adjoint(x) @ c
        return tf.math.conj(tf.concat([y, tf.roll(y, 1, 0)], 0)) + tf.tile(
            tf.linalg.adjoint(tf.linalg.adjoint(x)), [2, 1]
        )

    x = tf.reverse(c, [0])
    matrix, bias = matrix_from_function(parts, tf.zeros((3, 3), c.dtype))
    np.testing.assert_allclose(tf.reshape(matrix @ tf.reshape(x, [-1]), (6, 3)) + bias, parts(x), atol=1e-13)
