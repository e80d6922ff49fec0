"""Random linear TensorFlow programs, with loops and branches: their matrices against the programs themselves."""

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from frameworks import lazy
from krylix import matrix_from_function
from random_examples import random_examples
from unit_vectors import check_program

tf = lazy("tensorflow")

MOST = 120  # elements of any array
Rng = np.random.Generator
Step = Callable[[Rng, Any], Any]
SHAPES = [(7,), (4, 5), (3, 4, 2), (1, 6), (12,), (2, 2, 3), (3, 1, 4), (), (2, 0)]
DTYPES = ["float64", "float64", "complex128", "float32"]


def numbers(rng: Rng, x: Any, shape: Any = None) -> Any:
    """Random constants in the dtype of x, some of them zero."""
    shape = tuple(x.shape) if shape is None else shape
    return tf.cast(tf.constant(np.where(rng.random(shape) < 0.25, 0, rng.standard_normal(shape))), x.dtype)


def axis_of(rng: Rng, x: Any) -> int:
    return int(rng.integers(-x.shape.rank, x.shape.rank))


def order(rng: Rng, x: Any) -> list[int]:
    return [int(a) for a in rng.permutation(x.shape.rank)]


def sliced(rng: Rng, x: Any) -> Any:
    """All that may stand in brackets."""
    index: list[Any] = []
    for n in x.shape:
        kind = rng.integers(6)
        a, b = sorted(int(k) for k in rng.integers(-n, n + 2, 2))
        step = int(rng.choice([-2, -1, 1, 2]))
        index += [slice(None, None, step) if kind < 3 else slice(a, b) if kind == 3 and 0 <= a < b else slice(None)]
        if kind == 4:
            index[-1] = int(rng.integers(-n, n))
        if kind == 5:
            index.insert(len(index) - 1, None)
    if rng.integers(3) == 0:
        return x[..., index[-1]] if index[-1] is not None else x[..., :1]
    return x[tuple(index)]


def padded(rng: Rng, x: Any) -> Any:
    mode = str(rng.choice(["CONSTANT", "REFLECT", "SYMMETRIC"]))
    most = [min(n, 3) - (mode == "REFLECT") if mode != "CONSTANT" else 2 for n in x.shape]
    widths = [[int(k) for k in rng.integers(0, m + 1, 2)] for m in most]
    return tf.pad(x, widths, mode) if mode != "CONSTANT" else tf.pad(x, widths, constant_values=int(rng.integers(2)))


def factored(rng: Rng, x: Any) -> Any:
    size = int(np.prod(x.shape))
    factors = [q for q in range(2, size) if size % q == 0]
    return tf.reshape(x, (int(rng.choice(factors)), -1)) if factors else tf.reshape(x, [-1])


def gathered(rng: Rng, x: Any) -> Any:
    axis = axis_of(rng, x)
    index = rng.integers(0, x.shape[axis], (2, 2) if rng.integers(2) else 3)
    if rng.integers(2):
        return tf.gather(x, index, axis=axis)
    return tf.gather_nd(x, [[int(rng.integers(n)) for n in x.shape] for _ in range(3)])


def scattered(rng: Rng, x: Any) -> Any:
    n = x.shape[0]
    index = rng.integers(0, n, (n, 1))
    kind = rng.integers(4)
    if kind == 0:
        return tf.tensor_scatter_nd_add(numbers(rng, x), index, x)
    if kind == 1:
        return tf.tensor_scatter_nd_update(x, index[:1], 3 * x[-1:] + 1)
    if kind == 2:
        return tf.math.unsorted_segment_sum(x, rng.integers(-1, 3, n), 4)
    return tf.scatter_nd(index, x, x.shape) + tf.ensure_shape(tf.math.segment_sum(x, np.arange(n)), x.shape)


def masked(rng: Rng, x: Any) -> Any:
    mask = rng.random(tuple(x.shape)) > 0.3
    if rng.integers(2):
        return tf.ensure_shape(tf.boolean_mask(x, mask), [np.count_nonzero(mask)])  # which graphs do not know
    return tf.where(mask, x, tf.reverse(x, [0]) * 2 + 1)


def convolved(rng: Rng, x: Any) -> Any:
    if x.dtype.is_complex or x.shape.rank != 2 or min(x.shape) < 3:
        return x
    image = x[None, ..., None] if rng.integers(2) else tf.stack([x, 2 * x], -1)[None]
    kernel = numbers(rng, x, (2, 3, image.shape[-1], 2))
    stride, padding = int(rng.integers(1, 3)), str(rng.choice(["SAME", "VALID"]))
    kind = rng.integers(4)
    if kind == 0:
        return tf.nn.depthwise_conv2d(image, kernel, [1, stride, stride, 1], padding)[0]
    if kind == 1:
        rest = max(1 if padding == "SAME" else 2, stride)  # of the larger image, by which the size is not known
        shape = [1, *((n - 1) * stride + (1 if padding == "SAME" else k) for n, k in zip(x.shape, (2, 3))), 4]
        return tf.nn.conv2d_transpose(image[..., :1] * rest, numbers(rng, x, (2, 3, 4, 1)), shape, stride, padding)[0]
    if kind == 2:
        return tf.nn.avg_pool2d(image, (2, 3), stride, padding)[0]
    return tf.nn.conv2d(image, kernel, stride, padding)[0]


def product(rng: Rng, x: Any) -> Any:
    if x.shape.rank > 1 and rng.integers(2):
        a, b = numbers(rng, x, (3, x.shape[-2])), numbers(rng, x, (2, x.shape[-1]))
        return tf.matmul(a @ x, b, transpose_b=not x.dtype.is_complex, adjoint_b=x.dtype.is_complex)
    axis = axis_of(rng, x)
    return tf.tensordot(numbers(rng, x, (3, x.shape[axis])), x, [[1], [axis]])


def loop(rng: Rng, x: Any) -> Any:
    c, shift = numbers(rng, x), int(rng.integers(-2, 3))
    body = lambda i, y: (i + 1, c * tf.roll(y, shift, 0) + x)  # noqa: E731
    return tf.while_loop(lambda i, y: i < 3, body, (0, x))[1]


def rows(rng: Rng, x: Any) -> Any:
    c = numbers(rng, x)
    if x.shape.rank < 2:
        return x
    kind = rng.integers(3)
    if kind == 0:
        return tf.map_fn(lambda r: tf.reverse(r[0], [0]) * r[1] + 1, (x, c), fn_output_signature=x.dtype)
    if kind == 1:
        return tf.vectorized_map(lambda r: tf.reduce_sum(r[0] * r[1]) * r[1] + tf.cumsum(r[0]), (x, c))
    return tf.scan(lambda a, r: a * c[0] + r, x)


def branched(rng: Rng, x: Any) -> Any:
    c = numbers(rng, x)
    chosen = tf.constant(int(rng.integers(4)))
    y = tf.switch_case(chosen, [lambda: x, lambda: c * x, lambda: tf.reverse(x, [0]) + 1])
    return tf.cond(chosen > 1, lambda: y + x, lambda: 2 * y)


def derivative(rng: Rng, x: Any) -> Any:
    c, at = numbers(rng, x), numbers(rng, x)
    with tf.GradientTape() as tape:
        tape.watch(at)
        y = tf.roll(at * at * c + tf.concat([at[:1] * at[-1:], at[1:] ** 3], 0), 1, 0)
    return tape.gradient(y, at, x)


def called(rng: Rng, x: Any) -> Any:
    c = numbers(rng, x)

    @tf.function
    def inner(y: Any, n: int) -> Any:
        for i in tf.range(n):
            y = y * c if i > 0 else tf.reverse(y, [0])
        return y, tf.reduce_sum(y * y)

    return inner(x, tf.constant(2))[0]


def transformed(rng: Rng, x: Any) -> Any:
    z = tf.cast(x, tf.complex64 if x.dtype == tf.float32 else tf.complex128)
    y = tf.signal.ifft(tf.signal.fft(z) * 2)
    return y if x.dtype.is_complex else tf.math.real(y)


def conjugated(rng: Rng, x: Any) -> Any:
    if x.dtype.is_complex:
        return tf.math.conj(sliced(rng, tf.math.conj(x) * numbers(rng, x)))
    return tf.math.imag(tf.math.conj(tf.complex(x, 2 * x)))


def diagonal(rng: Rng, x: Any) -> Any:
    if x.shape.rank < 2:
        return tf.linalg.diag(x, k=int(rng.integers(-1, 2)))
    return tf.linalg.band_part(x, 1, 0) + tf.linalg.set_diag(x, numbers(rng, x, tuple(tf.linalg.diag_part(x).shape)))


STEPS: dict[str, Step] = {
    "slice": sliced,
    "reshape": factored,
    "flatten": lambda rng, x: tf.reshape(x, [-1]),
    "transpose": lambda rng, x: tf.transpose(x, order(rng, x)),
    "expand": lambda rng, x: tf.broadcast_to(tf.expand_dims(x, 0), (2, *x.shape)),
    "squeeze": lambda rng, x: tf.squeeze(x) if int(np.prod(x.shape)) > 1 else x,
    "reverse": lambda rng, x: tf.reverse(x, [axis_of(rng, x)]),
    "roll": lambda rng, x: tf.roll(x, int(rng.integers(-4, 5)), axis_of(rng, x)),
    "pad": padded,
    "concat": lambda rng, x: tf.concat([x, numbers(rng, x), 2 * x], axis_of(rng, x)),
    "stack": lambda rng, x: tf.stack([x, tf.reverse(x, [0])], int(rng.integers(x.shape.rank + 1))),
    "unstack": lambda rng, x: tf.unstack(x, axis=axis_of(rng, x))[-1],
    "tile": lambda rng, x: tf.tile(x, [int(n) for n in rng.integers(1, 3, x.shape.rank)]),
    "scale": lambda rng, x: x * numbers(rng, x) - 1,
    "scale along an axis": lambda rng, x: numbers(rng, x, (x.shape[0], *[1] * (x.shape.rank - 1))) * x + 3,
    "divide": lambda rng, x: x / (numbers(rng, x) + 4),
    "mask": masked,
    "gather": gathered,
    "scatter": scattered,
    "sum": lambda rng, x: tf.reduce_sum(x, axis_of(rng, x), keepdims=bool(rng.integers(2))),
    "mean": lambda rng, x: tf.reduce_mean(x, axis_of(rng, x)),
    "cumsum": lambda rng, x: tf.cumsum(x, axis_of(rng, x), bool(rng.integers(2)), bool(rng.integers(2))),
    "diagonal": diagonal,
    "product": product,
    "convolve": convolved,
    "loop": loop,
    "rows": rows,
    "branch": branched,
    "call": called,
    "fft": transformed,
    "derivative": derivative,
    "conjugate": conjugated,
}


def run(seed: int, names: list[str], x: Any) -> Any:
    rng = np.random.default_rng(seed)
    for name in names:
        size = int(np.prod(x.shape))
        if 0 < x.shape.rank <= 4 and size and size <= MOST:  # for more axes some kernels are missing
            x = STEPS[name](rng, x)
    return x


@random_examples(
    12,
    60,
    2000,
    shape=st.sampled_from(SHAPES),
    dtype=st.sampled_from(DTYPES),
    names=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5),
    seed=st.integers(0, 10**6),
    prune=st.booleans(),
)
def test_random_programs(shape: tuple[int, ...], dtype: str, names: list[str], seed: int, prune: bool) -> None:
    def f(x: Any) -> Any:
        return run(seed, names, x)

    matrix, bias = matrix_from_function(f, tf.TensorSpec(shape, dtype), prune=prune)
    program = tf.function(f, autograph=False)
    check_program(matrix, bias.numpy(), lambda x: program(tf.constant(x)).numpy(), shape, dtype)
    assert bias.dtype == dtype
