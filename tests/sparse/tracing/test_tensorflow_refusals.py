"""What has no matrix is refused with the operation, the user's line and the way out; never a wrong matrix."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from frameworks import lazy
from krylix import NonlinearError, UnsupportedOperation, linear_solve, matrix_from_function
from krylix.sparse.tracing.engine import images

tf = lazy("tensorflow")

DOUBLE = "float64"


@pytest.fixture(scope="module", autouse=True)
def constants() -> None:
    """Tensors that the functions close over: collecting tests imports no framework."""
    global X, W, V
    X = tf.zeros((5, 5), DOUBLE)
    W = tf.constant(np.random.default_rng(0).standard_normal((5, 5)))
    V = tf.Variable(W)


def branch(x: Any) -> Any:
    if tf.reduce_sum(x) > 0:  # AutoGraph makes a condition of it
        return x
    return 2 * x


def loop_by_value(x: Any) -> Any:
    return tf.while_loop(lambda y: tf.reduce_sum(y) < 3, lambda y: (2 * y,), (x,))[0]


def iterated(x: Any) -> Any:
    return tf.stack([2 * row for row in x])


def written(x: Any) -> Any:
    V.assign(x)
    return 2 * V


NONLINEAR: dict[str, tuple[Callable[[Any], Any], str]] = {
    "relu": (lambda x: tf.nn.relu(x), "'Relu'"),
    "square": (lambda x: x * x, "'Mul'.*both factors"),
    "square function": (lambda x: tf.square(x), "'Square'"),
    "power": (lambda x: x**2, "'Pow'"),
    "abs": (lambda x: tf.abs(x), "'Abs'"),
    "max": (lambda x: tf.reduce_max(x) * W, "'Max'"),
    "product": (lambda x: tf.reduce_prod(x), "'Prod'"),
    "sort": (lambda x: tf.sort(x), "'TopKV2'"),
    "clip": (lambda x: tf.clip_by_value(x, 0.0, 1.0), "'Minimum'"),
    "comparison": (lambda x: tf.cast(x > 0, DOUBLE) * W, "'Greater'"),
    "where": (lambda x: tf.where(x > 0, x, 0.0), "'Greater'"),
    "divided by": (lambda x: W / x, "'RealDiv'.*the divisor"),
    "divided safely by": (lambda x: tf.math.divide_no_nan(W, x), "'DivNoNan'"),
    "rounded": (lambda x: tf.floor(x), "'Floor'"),
    "half": (lambda x: tf.cast(tf.cast(x, tf.float16), DOUBLE), "'Cast'.*float16"),
    "bfloat16": (lambda x: tf.cast(tf.cast(x, tf.bfloat16), DOUBLE), "'Cast'.*bfloat16"),
    "integers": (lambda x: tf.cast(tf.cast(x, tf.int32), DOUBLE), "'Cast'.*int32"),
    "matrix product": (lambda x: x @ x, "'MatMul'.*both factors"),
    "einsum": (lambda x: tf.einsum("ij,jk->ik", x, x), "'Einsum'.*both factors"),
    "convolution": (lambda x: tf.nn.conv2d(x[None, ..., None], x[:2, :2, None, None], 1, "SAME"), "'Conv2D'.*both"),
    "solve": (lambda x: tf.linalg.solve(x, W), "'MatrixSolve'"),
    "softmax": (lambda x: tf.nn.softmax(x), "'Softmax'"),
    "norm": (lambda x: x / tf.norm(x), "'Sqrt'|'Mul'.*both|'Square'"),
    "max pooling": (lambda x: tf.nn.max_pool2d(x[None, ..., None], 2, 2, "SAME"), "'MaxPool'"),
    "vectorized_map": (lambda x: tf.vectorized_map(tf.sin, x), "'Sin'"),
    "map_fn": (lambda x: tf.map_fn(tf.sin, x), "'Sin'|'TensorListStack'"),
    "cond": (lambda x: tf.cond(x[0, 0] > 0, lambda: x, lambda: 2 * x), "'Greater'"),
    "cond by value": (lambda x: tf.switch_case(tf.cast(x[0, 0], tf.int32), [lambda: x]), "'Cast'"),
    "while": (loop_by_value, "'Less'"),
    "converted": (lambda x: tf.function(branch)(x), "'Greater'"),
    "index": (lambda x: tf.gather(W, tf.argmax(x)), "'ArgMax'"),
    "mask": (lambda x: tf.boolean_mask(x, x > 0), "'Greater'"),
    "nonzero": (lambda x: tf.cast(tf.where(x), DOUBLE), "'Where'"),
    "shape": (lambda x: tf.reshape(W, tf.cast(x[0, :1], tf.int32)), "'Cast'"),
    "branch": (branch, "'bool'.*depends on the input"),
    "float": (lambda x: float(x[0, 0]) * x, "float.*may depend on the input"),
    "range": (lambda x: x * len(range(int(x[0, 0]))), "may depend on the input"),
    "iterated": (iterated, "'iteration'.*depends on the input"),
}


@pytest.mark.parametrize("name", NONLINEAR)
def test_not_linear(name: str) -> None:
    f, message = NONLINEAR[name]
    for prune in (True, False):
        with pytest.raises(NonlinearError, match=rf"{message}") as caught:
            matrix_from_function(f, X, prune=prune)
        assert "test_tensorflow_refusals.py:" in str(caught.value)


UNSUPPORTED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "random": (lambda x: tf.random.normal((5, 5), dtype=DOUBLE) * x, "'RandomStandardNormal'.*random"),
    "dropout": (lambda x: tf.nn.dropout(x, 0.5), "'RandomUniform'.*random"),
    "twice": (lambda x: tf.tensor_scatter_nd_update(x, [[0], [0]], x[:2]), "'TensorScatterUpdate'.*twice"),
    "written variable": (written, "'AssignVariableOp'.*write to no variable"),
    "Python": (lambda x: tf.py_function(lambda y: 2 * y, [x], DOUBLE), "'EagerPyFunc'.*no rule"),
    "NumPy": (lambda x: tf.numpy_function(lambda y: 2 * y, [x], DOUBLE), "'PyFunc'.*no rule"),
    "branch on a constant": (lambda x: x if W[0, 0] > 0 else 2 * x, "'bool'.*no value while the function is recorded"),
    "number of a constant": (lambda x: (W[0, 0] * 2).numpy() * x, "'numpy'.*no value while"),
    "numpy": (lambda x: tf.constant(x.numpy()), "'numpy'.*depends on the input"),
    "ufunc": (lambda x: tf.constant(np.sin(x)), "'numpy'.*depends on the input"),
    "other error": (lambda x: W + tf.zeros((3, 4), DOUBLE), "could not make a graph"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_without_a_rule(name: str) -> None:
    f, message = UNSUPPORTED[name]
    with pytest.raises(UnsupportedOperation, match=rf"{message}") as caught:
        matrix_from_function(f, X)
    assert "test_tensorflow_refusals.py:" in str(caught.value)


def test_too_many_entries_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MOST_UNITS", 40)
    big = tf.TensorSpec(1 << 18, DOUBLE)
    for f in (lambda x: tf.signal.fft(tf.cast(x, tf.complex128)), lambda x: tf.cumsum(x)):
        with pytest.raises(UnsupportedOperation, match="stored entries"):
            matrix_from_function(f, big)
    with pytest.raises(UnsupportedOperation, match="unit vectors"):
        matrix_from_function(lambda x: tf.linalg.solve(tf.eye(41, dtype=DOUBLE), x[:, None]), tf.TensorSpec(41, DOUBLE))


@pytest.mark.merge
def test_too_many_steps_are_refused() -> None:
    def f(x: Any) -> Any:
        return tf.while_loop(lambda i, y: i < 10**6, lambda i, y: (i + 1, 0.5 * y + x), (0, x))[1]

    with pytest.raises(UnsupportedOperation, match=r"'StatelessWhile' at .*refusals.*unrolled"):
        matrix_from_function(f, tf.TensorSpec(3, DOUBLE))


def test_complex_input_has_no_real_part() -> None:
    for f in (tf.math.real, lambda x: tf.math.conj(x) + x, tf.math.conj, tf.abs):
        with pytest.raises((UnsupportedOperation, NonlinearError), match=r"real|Abs"):
            matrix_from_function(f, tf.cast(X, tf.complex128))


@pytest.mark.parametrize("found", [None, 3.0, np.zeros(3)])
def test_results_that_are_no_tensors(found: Any) -> None:
    with pytest.raises(TypeError, match=rf"returned {type(found).__name__}; expected a tensor"):
        matrix_from_function(lambda x: found, X)
    with pytest.raises(TypeError, match=r"returned SparseTensor; expected a tensor"):
        matrix_from_function(lambda x: tf.sparse.from_dense(x), X)


def test_dtypes() -> None:
    for dtype in (tf.int64, tf.bool):
        with pytest.raises(TypeError, match="the input of the traced function has the dtype"):
            matrix_from_function(lambda x: x, tf.cast(X, dtype))
    with pytest.raises(TypeError, match="an output of the traced function has the dtype bool"):
        matrix_from_function(lambda x: W > 0, X)
    with pytest.raises(TypeError, match="bfloat16"):
        matrix_from_function(lambda x: x, tf.cast(X, tf.bfloat16))


@pytest.mark.parametrize("size", [5, 300])
def test_what_escapes_the_record_is_found_by_the_test(size: int) -> None:
    state = {"calls": 0}

    def changing(x: Any) -> Any:
        state["calls"] += 1
        return state["calls"] * x

    for f, words in (
        (changing, "returns other numbers when it is called again"),
        (lambda x: 2 * x if tf.executing_eagerly() else x, "does not reproduce the function"),
    ):
        with pytest.raises(UnsupportedOperation, match=words):
            matrix_from_function(f, tf.TensorSpec((size, size), DOUBLE))
        matrix_from_function(f, tf.TensorSpec((size, size), DOUBLE), verify=False)


def test_forward_derivatives_are_refused() -> None:
    with tf.autodiff.ForwardAccumulator(W, W), pytest.raises(UnsupportedOperation, match="ForwardAccumulator"):
        matrix_from_function(lambda x: W * x, X)


def test_own_gradients_in_loops_are_refused_where_they_are_asked_for() -> None:
    @tf.custom_gradient
    def own(k: Any) -> Any:
        return 2 * k, lambda g: 7 * g

    def f(x: Any) -> Any:
        return tf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, own(W) * y), (0, x))[1]

    matrix, _ = matrix_from_function(f, X)
    np.testing.assert_allclose(matrix.diagonal(), tf.reshape(4 * W * W, [-1]))
    with tf.GradientTape() as tape:
        tape.watch(W)
        s = tf.reduce_sum(matrix_from_function(f, X)[0] @ tf.ones(25, DOUBLE))
    with pytest.raises(RuntimeError, match="custom gradient in a loop"):
        tape.gradient(s, W)


def test_conjugates_in_lists_have_no_matrix() -> None:
    def f(x: Any) -> Any:
        return tf.map_fn(lambda row: 2 * row, tf.math.conj(x))

    with pytest.raises(UnsupportedOperation, match="conjugate of a complex input"):
        matrix_from_function(f, tf.cast(X, tf.complex128))


def test_functions_that_cannot_be_recorded_are_solved_by_their_products() -> None:
    def f(x: Any) -> Any:
        return 3 * x if float(W[0, 0] * 0) < 1 else x

    b = tf.ones((5, 5), DOUBLE)
    for method in ("CG", "direct", "scipy-CG"):
        np.testing.assert_allclose(linear_solve(f, b, method=method, rtol=1e-10).x, b / 3)


def test_nothing_of_a_failed_trace_is_left() -> None:
    for f in (tf.nn.relu, branch):
        with pytest.raises(NonlinearError):
            matrix_from_function(f, X)
    assert matrix_from_function(lambda x: 2 * x, X)[0].nnz == 25
    assert tf.executing_eagerly() and float(tf.reduce_sum(V)) != 0
