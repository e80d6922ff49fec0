"""Derivatives through the values of a matrix: by what a TensorFlow function closes over, and by its arguments."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cells import in_turn
from frameworks import lazy
from krylix import matrix_from_function

tf = lazy("tensorflow")

N = 5
DOUBLE = "float64"
rng = np.random.default_rng(0)


@pytest.fixture(scope="module", autouse=True)
def constants() -> None:
    """Tensors that the functions close over: collecting tests imports no framework."""
    global X, MASK, INDEX, LARGE, inner, clipped
    X = tf.zeros((N, N), DOUBLE)
    MASK = tf.constant(rng.random((N, N)) > 0.4)
    INDEX = tf.constant(rng.integers(0, N, N))
    LARGE = tf.constant(rng.random((N, 40)))
    inner = tf.function(lambda x, k: (k * x, tf.sin(k)))
    clipped = tf.custom_gradient(lambda k: (tf.identity(k), lambda g: tf.clip_by_value(g, -0.5, 0.5) * 3))


def diffusion(x: Any, k: Any) -> Any:
    p, q = (tf.pad(a, [[1, 1], [1, 1]], "SYMMETRIC") for a in (x, k))
    return (q[2:, 1:-1] + k) * (p[2:, 1:-1] - x) - (k + q[1:-1, :-2]) * (x - p[1:-1, :-2])


def energy(z: Any, k: Any) -> Any:
    return tf.reduce_sum(k * z**2) + tf.reduce_sum(k[1:] * z[1:] * z[:-1])


def gradient(x: Any, k: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        e = energy(x, k)
    return tape.gradient(e, x)


def hessian(x: Any, k: Any) -> Any:
    z = tf.identity(X) + 0.5
    with tf.GradientTape() as outer:
        outer.watch(z)
        with tf.GradientTape() as inner:
            inner.watch(z)
            e = energy(tf.sin(z), k)
        g = tf.reduce_sum(inner.gradient(e, z) * x)
    return outer.gradient(g, z)


def loop(x: Any, k: Any) -> Any:
    return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y + k * tf.roll(y, 1, 0) * LARGE[0, 0]), (0, x))[1]


def loop_of_coefficients(x: Any, k: Any) -> Any:
    """Without x in it, and with more steps than are written out by hand."""
    c = tf.while_loop(lambda i, c: i < 20, lambda i, c: (i + 1, c * 0.9 + tf.sin(c)), (0, k))[1]
    return c * x


def branch(x: Any, k: Any) -> Any:
    big = tf.reduce_sum(k) > 0
    y = tf.cond(big, lambda: k * x, lambda: x)
    c = tf.cond(big, lambda: tf.exp(k), lambda: k)
    return y + c * tf.switch_case(tf.cast(big, tf.int32), [lambda: x, lambda: k[0] * x])


def calls(x: Any, k: Any) -> Any:
    y, c = inner(x, k)
    return y + c * inner(tf.reverse(x, [0]), c)[0]


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "diffusion": diffusion,
    "scalar": lambda x, k: k[0, 0] * x + tf.reduce_sum(k) * tf.reverse(x, [0]) + x / k[1, 1],
    "divided": lambda x, k: x / k + k + tf.math.divide_no_nan(x, k) + tf.math.xdivy(x, k),
    "where": lambda x, k: tf.where(k > 1, x, k * tf.transpose(x)) + tf.where(MASK, k, x),
    "stopped": lambda x, k: tf.stop_gradient(k) * x + k * tf.stop_gradient(k) * x,
    "products": lambda x, k: (
        k @ x + tf.matmul(x, k, transpose_b=True) + tf.einsum("ij,ij->i", k, x) + tf.linalg.matvec(x, k[0])
    ),
    "diagonal product": lambda x, k: tf.einsum("ii,jk->jk", k, x) + tf.einsum("ij,kj->ik", x, k) + k[None] @ x[None],
    "sparse": lambda x, k: tf.sparse.sparse_dense_matmul(
        tf.SparseTensor([[0, 1], [2, 2], [2, 4]], k[0, :3], (N, N)), x
    ),
    "gathered": lambda x, k: (
        tf.gather(k, INDEX) * tf.gather(x, INDEX) + tf.tensor_scatter_nd_add(k * x, INDEX[:, None], k * x)
    ),
    "assigned": lambda x, k: (
        tf.tensor_scatter_nd_update(x, [[2]], k[:1]) + tf.math.unsorted_segment_sum(k * x, INDEX, N)
    ),
    "masked": lambda x, k: tf.scatter_nd(tf.where(MASK), tf.boolean_mask(k, MASK) * tf.boolean_mask(x, MASK), (N, N)),
    "convolution": lambda x, k: tf.nn.bias_add(
        tf.nn.conv2d(x[None, ..., None], k[:3, :3, None, None], 1, "SAME"), k[0, :1]
    ),
    "transposed convolution": lambda x, k: tf.nn.conv2d_transpose(
        x[None, ..., None], k[:2, :3, None, None], (1, 10, 10, 1), 2
    ),
    "depthwise": lambda x, k: tf.nn.depthwise_conv2d(
        tf.stack([x, 2 * x], -1)[None], tf.reshape(k[:4, :2], (2, 2, 2, 1)), [1, 1, 1, 1], "SAME"
    ),
    "reshaped": lambda x, k: tf.reverse(tf.reshape(tf.reshape(k * x, [-1])[5:20], (5, 3)), [0]) * k[:, :3],
    "summed": lambda x, k: tf.reduce_sum(k * x) + tf.cumsum(k * x) + tf.cumsum(k, 1, exclusive=True),
    "stacked": lambda x, k: tf.stack([k * x, k, x], 1),
    "fft": lambda x, k: tf.signal.irfft(tf.cast(k[:, :3], tf.complex128) * tf.signal.rfft(x), [N]),
    "complex": lambda x, k: tf.math.imag(tf.math.conj(tf.complex(k, k**2) * tf.complex(x, x))),
    "solved": lambda x, k: tf.linalg.solve(k + 5 * tf.eye(N, dtype=DOUBLE), x),
    "gradient": gradient,
    "hessian": hessian,
    "loop": loop,
    "loop of coefficients": loop_of_coefficients,
    "branch": branch,
    "calls": calls,
    "map_fn": lambda x, k: tf.map_fn(lambda r: r[0] * tf.exp(r[1]), (x, k), fn_output_signature=DOUBLE),
    "vectorized_map": lambda x, k: tf.vectorized_map(lambda r: r[0] * tf.exp(r[1]), (x, k)),
    "custom gradient": lambda x, k: clipped(k) * x,
}


def flat(x: Any) -> Any:
    return tf.reshape(x, [-1])


def derivatives(product: Callable[[Any], Any], k: Any, direction: Any) -> list[Any]:
    """The value, the first derivative of a sum of its elements, and the second in a direction."""
    with tf.GradientTape() as outer:
        outer.watch(k)
        with tf.GradientTape() as tape:
            tape.watch(k)
            y = product(k)
            s = tf.reduce_sum(tf.linspace(tf.constant(1.0, DOUBLE), 2.0, y.shape[0]) * y)
        first = tape.gradient(s, k)
        g = tf.reduce_sum(first * direction)
    second = outer.gradient(g, k)
    return [y, first, tf.zeros_like(k) if second is None else second]


IN_GRAPHS = ("diffusion", "masked", "calls", "custom gradient")  # by default
WAYS = [(name, "closed") for name in FUNCTIONS] + [(name, "graph") for name in IN_GRAPHS] + [("stopped", "variable")]
OTHERS = [
    pytest.param(*case.values, marks=case.marks or pytest.mark.merge)  # in turn before a merge
    for case in in_turn(FUNCTIONS, ("argument", "variable", "graph"))
    if case.values not in WAYS
]


@pytest.mark.parametrize(("name", "way"), [*WAYS, *OTHERS])
def test_derivatives(name: str, way: str) -> None:
    """First and second, through the product with the matrix and through the function."""
    f = FUNCTIONS[name]
    start = tf.constant(rng.random((N, N)) + 0.6)
    u, direction = tf.constant(rng.standard_normal((N, N))), tf.constant(rng.standard_normal((N, N)))

    def by_matrix(k: Any) -> Any:
        made = matrix_from_function(f, X, k) if way == "argument" else matrix_from_function(lambda x: f(x, k), X)
        return flat(made[0] @ flat(u) + flat(made[1]))

    def by_function(k: Any) -> Any:
        return flat(f(u, k))

    expected = derivatives(by_function, start, direction)
    if way == "variable":
        found = derivatives(by_matrix, tf.Variable(start), direction)
    elif way == "graph":
        found = tf.function(lambda k: derivatives(by_matrix, k, direction), autograph=False)(start)
    else:
        found = derivatives(by_matrix, start, direction)
    for a, b in zip(found, expected):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


def inside_loop(product: Callable[[Any, Any], Any], k: Any, u: Any) -> Any:
    state = (0, u, k)
    return tf.while_loop(lambda i, v, c: i < 3, lambda i, v, c: (i + 1, product(v, 0.1 * c * k), 1.1 * c), state)[1]


AROUND: dict[str, Callable[..., Any]] = {
    "while_loop": inside_loop,
    "cond": lambda product, k, u: tf.cond(tf.reduce_sum(k) > 0, lambda: product(u, k), lambda: u),
    "map_fn": lambda product, k, u: tf.map_fn(lambda r: product(u, r), tf.stack([k, 2 * k])),
    "vectorized_map": lambda product, k, u: tf.vectorized_map(lambda r: product(u, r), tf.stack([k, 2 * k])),
}


@pytest.mark.merge
@pytest.mark.parametrize(("name", "xla"), [*((name, False) for name in AROUND), ("cond", True)])
def test_control_flow_around_the_trace(name: str, xla: bool) -> None:
    """Derivatives by tensors from outside of a loop or a branch, against finite differences."""
    k, u, direction = (tf.constant(rng.random((N, N)) + 0.5) for _ in range(3))

    def product(v: Any, k: Any) -> Any:
        matrix, bias = matrix_from_function(diffusion, v, k)
        return tf.reshape(matrix @ flat(v), v.shape) + bias

    @tf.function(autograph=False)
    def value(k: Any) -> Any:
        return tf.reduce_sum(tf.sin(AROUND[name](product, k, u)))

    @tf.function(autograph=False, jit_compile=xla)  # which has no derivatives of loops of any length
    def slope(k: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(k)
            s = value(k)
        return tf.reduce_sum(tape.gradient(s, k) * direction)

    h = 1e-6
    expected = (value(k + h * direction) - value(k - h * direction)) / (2 * h)
    np.testing.assert_allclose(slope(k), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.merge
def test_loops_that_only_coefficients_run_through() -> None:
    """Under a tape TensorFlow gives such a loop more results when it takes its derivative."""
    k = tf.constant([4.0, 5.0, 6.0], tf.float64)
    loops = {
        3: lambda: tf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, y * k), [0, k])[1],
        2: lambda: tf.while_loop(lambda y: tf.reduce_sum(y) < 30, lambda y: [y * k], [k])[0],
    }
    for power, loop in loops.items():
        with tf.GradientTape() as tape:
            tape.watch(k)
            values = matrix_from_function(lambda x, loop=loop: x * loop(), k)[0].values
            total = tf.reduce_sum(values)
        np.testing.assert_allclose(np.ravel(values), k.numpy() ** power, rtol=1e-14)
        np.testing.assert_allclose(tape.gradient(total, k), power * k.numpy() ** (power - 1), rtol=1e-14)
