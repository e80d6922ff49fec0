"""Linear TensorFlow functions as matrices: against the functions themselves, applied to unit vectors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from frameworks import lazy
from krylix import matrix_from_function
from unit_vectors import matrix_of

tf = lazy("tensorflow")

N = 6
rng = np.random.default_rng(0)
DOUBLE = "float64"


@pytest.fixture(scope="module", autouse=True)
def constants() -> None:
    """Tensors that the functions close over: collecting tests imports no framework."""
    global X, W, LARGE, KERNEL, MANY, CUBE, INDEX, ORDER, TABLE, MASK, DOMINANT, SPARSE, VARIABLE
    global converted, pair, own
    X = tf.TensorSpec((N, N), DOUBLE)
    W = tf.constant(rng.standard_normal((N, N)))
    LARGE = tf.constant(rng.standard_normal((N, 40)))  # too large to look like a constant in a graph
    KERNEL = tf.constant(rng.standard_normal((3, 3, 1, 1)))
    MANY = tf.constant(rng.standard_normal((3, 2, 2, 4)))
    CUBE = tf.constant(rng.standard_normal((2, 3, 2, 1, 2)))
    INDEX = tf.constant(rng.integers(0, N, N))
    ORDER = tf.constant(rng.permutation(N))
    TABLE = tf.constant(rng.integers(0, N, (N, N)))
    MASK = W > 0
    DOMINANT = W + 5 * tf.eye(N, dtype=DOUBLE)
    SPARSE = tf.sparse.from_dense(tf.where(MASK, W, 0.0))
    VARIABLE = tf.Variable(W)
    converted, pair = tf.function(repeated), tf.function(several)
    own = tf.custom_gradient(lambda x: (3 * tf.reverse(x, [0]), lambda g: 7 * g))


def image(x: Any) -> Any:
    return x[None, :, :, None]


def laplace(x: Any) -> Any:
    p = tf.pad(x, [[1, 1], [1, 1]])
    return 4 * x - p[2:, 1:-1] - p[:-2, 1:-1] - p[1:-1, 2:] - p[1:-1, :-2]


def looped(x: Any) -> Any:
    rows = [x[0]]
    for i in range(1, N):
        rows.append(0.5 * rows[-1] + x[i])
    return tf.stack(rows, 1)


def while_loop(x: Any) -> Any:
    return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y + W * tf.roll(y, 1, 0)), (0, x))[1]


def while_with_numbers(x: Any) -> Any:
    """Its course depends on values that are known; an energy beside it is not linear."""

    def body(i: Any, s: Any, y: Any, e: Any) -> Any:
        return i + 2, s * tf.reduce_max(W), y + s * tf.roll(y, i, 1), e + tf.reduce_sum(y * y)

    state = (0, tf.constant(1.0, DOUBLE), x, tf.constant(0.0, DOUBLE))
    return tf.while_loop(lambda i, s, y, e: (i < 7) & (s < 10), body, state)[2]


def arrays_in_loops(x: Any) -> Any:
    found = tf.TensorArray(DOUBLE, N, clear_after_read=False).unstack(x)

    def body(i: Any, a: Any) -> Any:
        return i + 1, a.write(i, 0.5 * a.read(i - 1) + a.read(i) * LARGE[0, 0])

    return tf.while_loop(lambda i, a: i < N, body, (1, found))[1].stack()


def repeated(x: Any) -> Any:
    """AutoGraph makes a loop and a branch of it."""
    for i in tf.range(3):
        if i % 2 == 0:
            x = x + tf.roll(x, i, 0)
        else:
            x = 2 * x
    return x


def several(x: Any, w: Any) -> Any:
    return w * x, tf.reduce_sum(x * x), {"a": tf.reverse(x, [0])}


def of_pairs(x: Any) -> Any:
    a, _, b = pair(x, W)
    return a + b["a"] + pair(tf.transpose(x), LARGE[:, :N])[0]


def conditions(x: Any) -> Any:
    y = tf.cond(tf.reduce_sum(W) > 100, lambda: x, lambda: W * x)
    z = tf.switch_case(tf.constant(2), [lambda: x, lambda: 2 * x, lambda: tf.transpose(x)])
    return y + z + tf.switch_case(tf.constant(9), [lambda: x, lambda: 2 * x])


def scanned(x: Any) -> Any:
    return tf.scan(lambda a, r: 0.5 * a + W[0] * r, x)


def energy(z: Any) -> Any:
    return tf.reduce_sum(W * z**2) + tf.reduce_sum(z[1:] * z[:-1])


def gradient_of_energy(x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        e = energy(x)
    return tape.gradient(e, x)


def hessian_product(x: Any) -> Any:
    with tf.GradientTape() as outer:
        outer.watch(W)
        with tf.GradientTape() as inner:
            inner.watch(W)
            e = tf.reduce_sum(tf.sin(W) * tf.tanh(W) * tf.exp(W)) + energy(W * tf.roll(W, 1, 0))
        g = tf.reduce_sum(inner.gradient(e, W) * x)
    return outer.gradient(g, W)


def transposed(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The derivative of `f` in reverse, at W, of as many numbers of x as there are."""

    def g(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(W)
            y = f(W)
        size = int(np.prod(y.shape))
        given = tf.reshape(tf.tile(tf.reshape(x, [-1]), [size // (N * N) + 1])[:size], y.shape)
        return tape.gradient(y, W, tf.cast(given, y.dtype))

    return g


def forward(x: Any) -> Any:
    with tf.autodiff.ForwardAccumulator(W, x) as accumulator:
        y = W**3 + tf.roll(W, 1, 0) * W
    return accumulator.jvp(y)


def loop_of(z: Any) -> Any:
    return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * tf.sin(z) + tf.roll(y, 1, 0)), (0, z))[1]


def mapped(x: Any) -> Any:
    return tf.vectorized_map(lambda r: tf.roll(r[0], 1, 0) * r[1] - tf.reverse(r[0], [0]) + r[1][0] * r[0], (x, W))


def map_fn(x: Any) -> Any:
    return tf.map_fn(lambda r: tf.reverse(r[0], [0]) * r[1] + LARGE[0, :N], (x, W), fn_output_signature=DOUBLE)


def ragged_sums(x: Any) -> Any:
    return tf.RaggedTensor.from_row_lengths(tf.reshape(x, [-1]), [3, 0, 10, 23]).to_tensor()


def with_variable(x: Any) -> Any:
    return VARIABLE * x + VARIABLE[0] * x[1] + tf.matmul(VARIABLE, x) + tf.gather(tf.identity(VARIABLE), INDEX)


def masked(x: Any) -> Any:
    picked = tf.boolean_mask(x, MASK)
    return tf.reduce_sum(picked) * W[0] + tf.scatter_nd(tf.where(MASK), picked, [N, N]) + tf.boolean_mask(x, MASK[0])[0]


def scattered(x: Any) -> Any:
    index = INDEX[:, None]
    y = (
        tf.tensor_scatter_nd_add(W, index, x)
        + tf.tensor_scatter_nd_sub(x, index, 2 * x)
        + tf.scatter_nd(index, x, [N, N])
    )
    z = tf.tensor_scatter_nd_update(x, [[0], [3]], 3 * x[:2]) + tf.tensor_scatter_nd_update(W, ORDER[:2, None], x[:2])
    return y + z + tf.tensor_scatter_nd_update(x, [[0, 1]], [5.0]) + tf.tensor_scatter_nd_add(x, index, W)


def diagonals(x: Any) -> Any:
    parts = (
        tf.linalg.band_part(x, 1, 0) + tf.linalg.set_diag(x, x[0]) + tf.linalg.diag(x[1]) + tf.linalg.set_diag(W, x[2])
    )
    return parts + tf.linalg.diag_part(x) + tf.linalg.trace(x) + tf.linalg.diag(x[1, :4], k=2)


def segments(x: Any) -> Any:
    ids = [0, 0, 1, 3, 3, 3]
    y = tf.math.segment_sum(x, ids) + tf.math.segment_mean(x, ids)
    y += tf.math.unsorted_segment_sum(x, [3, -1, 0, 0, 1, 2], 4) + tf.math.unsorted_segment_mean(x, ids, 4)
    return y + tf.sparse.segment_sum(x, [0, 1, 5], [0, 2, 2], 4) + tf.sparse.segment_mean(x, [0, 1, 5], [0, 3, 3])


def strided(x: Any) -> Any:
    y = x[::2, ::-1] + x[4::-2, 0:9:1] + x[-1] + x[..., -2:-1][:3]
    return y + x[tf.newaxis, 1, ..., None][0, :, 0] + x[5:2:-1, :]


def converted_complex(x: Any) -> Any:
    z = tf.complex(x, 2 * x) * (1 + 2j)
    y = tf.math.imag(tf.math.conj(z)) + tf.math.real(tf.complex(W, x) * 1j) + tf.math.real(tf.cast(x, tf.complex128))
    return y + tf.math.real(tf.linalg.adjoint(z))


def fourier(x: Any) -> Any:
    y = tf.signal.irfft(tf.signal.rfft(x) * tf.cast(W[:, :4], tf.complex128), [N])
    z = tf.math.real(tf.signal.ifft2d(tf.signal.fft2d(tf.cast(x, tf.complex128)) * tf.cast(W, tf.complex128)))
    return y + z + tf.signal.irfft2d(tf.signal.rfft2d(x))[:, :N] + tf.math.imag(tf.signal.rfft(x, [2 * N - 1]))


def products(x: Any) -> Any:
    y = (
        W @ x
        + x @ tf.transpose(W)
        + tf.matmul(W, x, transpose_a=True)
        + tf.matmul(x, W, transpose_a=True, transpose_b=True)
    )
    return y + tf.linalg.matvec(W, x[0]) + tf.linalg.matvec(x, W[0]) + tf.tensordot(x, W, 1)


def batches(x: Any) -> Any:
    a = tf.reshape(W, (2, 3, N))
    y = tf.reshape(a @ x[None], (N, N)) + tf.reshape(a @ tf.stack([x, 2 * x]), (N, N))
    z = tf.reshape(x, (2, 1, 3, N)) @ tf.stack([W, tf.transpose(W)])
    return y, z, tf.reshape(x, (2, 3, N)) @ W


def einsum(x: Any) -> Any:
    y = (
        tf.einsum("ij,jk->ik", W, x)
        + tf.einsum("ij,ij->j", W, x)
        + tf.einsum("...i,ij->...j", x, W)
        + tf.einsum("ii->i", x)
    )
    z = tf.einsum("ij->ji", x) + tf.einsum("ii,jk->jk", W, x) + tf.einsum("ij->", x) + tf.einsum("i,j->ij", x[0], W[0])
    return y + z + tf.einsum("ii,jk->jk", x, W)


def convolutions(x: Any) -> Any:
    y = (
        tf.nn.conv2d(image(x), KERNEL, 1, "SAME")[0, :, :, 0]
        + tf.nn.convolution(image(x), KERNEL, padding="SAME")[0, ..., 0]
    )
    return y + tf.nn.conv1d(x[None], tf.reshape(LARGE[:3, : 6 * N], (3, N, N)), 1, "SAME")[0]


def explicit(x: Any) -> Any:
    return tf.nn.conv2d(image(x), KERNEL, 2, [[0, 0], [2, 1], [1, 3], [0, 0]])


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "laplace": laplace,
    "roll": lambda x: tf.roll(x, [1, -2], [0, 1]) - tf.roll(x, -7, 1) + tf.roll(x, 6, 0),
    "looped": looped,
    "while loop": while_loop,
    "while with numbers": while_with_numbers,
    "arrays in loops": arrays_in_loops,
    "converted": lambda x: converted(x),
    "function with several results": of_pairs,
    "conditions": conditions,
    "scan": scanned,
    "map_fn": map_fn,
    "vectorized_map": mapped,
    "gradient of an energy": gradient_of_energy,
    "Hessian product": hessian_product,
    "forward": forward,
    "gradient of a loop": transposed(loop_of),
    "gradient of a function": transposed(lambda z: tf.function(lambda y: tf.sin(y) * tf.roll(y, 1, 0))(z)),
    "custom gradient": lambda x: own(x) + transposed(own)(x),
    "affine": lambda x: 2 * x + W - 1,
    "numbers": lambda x: (3 - x) / 2 + tf.subtract(x, W) - tf.add_n([x, W, 2 * x]),
    "broadcast": lambda x: x[0] * W[:, :1] + x[:, 1:2] / (W[1] + 4) + tf.reduce_sum(x) + tf.broadcast_to(x[2], (N, N)),
    "identity": lambda x: x,
    "constant": lambda x: tf.ones(3, x.dtype),
    "zero of it": lambda x: 0 * x,
    "power": lambda x: x**1,
    "divided safely": lambda x: tf.math.divide_no_nan(x, tf.where(MASK, W, 0.0)) + tf.math.multiply_no_nan(x, W),
    "xdivy": lambda x: tf.math.xdivy(x, W) + tf.math.xlogy(x, W**2 + 1) + tf.math.scalar_mul(2, x),
    "pad": lambda x: tf.pad(x, [[2, 0], [0, 1]]) + tf.pad(x, [[1, 1], [1, 0]], constant_values=3.0),
    "pad by it": lambda x: (
        tf.pad(W, [[1, 1], [1, 0]], constant_values=x[0, 0]) + tf.pad(x, [[1, 1], [1, 0]], constant_values=x[0, 1])
    ),
    "reflect": lambda x: tf.pad(x, [[2, 1], [1, 3]], "REFLECT") + tf.pad(x, [[2, 1], [1, 3]], "SYMMETRIC"),
    "gradient of pads": transposed(
        lambda z: (
            tf.pad(z, [[2, 1], [1, 3]], "REFLECT")
            + tf.pad(z, [[2, 1], [1, 3]], "SYMMETRIC")
            + tf.pad(z, [[2, 1], [4, 0]])
        )
    ),
    "slices": strided,
    "gradient of slices": transposed(lambda z: z[::2, ::-1] + z[1:4] + z[tf.newaxis, 1, ..., None][0, :, 0] + z[-1]),
    "slice": lambda x: tf.slice(x, [1, 2], [3, -1]) + x[2:5, :4],
    "concat": lambda x: tf.concat([x[1:] - x[:-1], W, x[:1]], 0) + tf.concat([x, x], -2)[: 2 * N],
    "stack": lambda x: tf.reduce_mean(tf.stack([x, 2 * x, W], -1), -1),
    "unstack": lambda x: tf.unstack(x)[1] + tf.unstack(x, axis=1)[2] + tf.stack(tf.unstack(x, axis=-1)),
    "split": lambda x: (
        tf.concat(tf.split(x, [1, 2, -1], 1)[::-1], 1) + tf.concat(tf.split(x, 3), 0) + tf.split(x, N)[2]
    ),
    "tile": lambda x: tf.tile(x, [2, 1]) + tf.repeat(x, 2, 0) + tf.tile(x[:1], [12, 1]),
    "permuted": lambda x: tf.transpose(tf.reshape(x, (2, 3, N)), [1, 2, 0]) + tf.reshape(tf.transpose(x), (3, -1, 2)),
    "squeezed": lambda x: tf.squeeze(x[:, None, :, None]) + tf.squeeze(tf.expand_dims(x, -1), -1),
    "flips": lambda x: tf.reverse(x, [0]) + tf.reverse(x, [-1, 0]) + tf.image.rot90(x[..., None])[..., 0],
    "gather": lambda x: (
        tf.gather(x, INDEX) * W + tf.gather(x, INDEX, axis=1) + tf.gather(x, 2) + tf.gather(x, TABLE)[0]
    ),
    "gather in batches": lambda x: tf.gather(x, TABLE, batch_dims=1) + tf.gather(x, TABLE, axis=-1, batch_dims=1),
    "gather rows": lambda x: tf.gather(x, tf.range(1, 5)) + tf.gather(x, [4, 3, 2, 1]),
    "gather_nd": lambda x: tf.gather_nd(x, tf.stack([INDEX, ORDER], -1)) + tf.gather_nd(x, INDEX[:, None]),
    "gradient of gathers": transposed(
        lambda z: (
            tf.gather(z, INDEX)
            + tf.gather_nd(z, ORDER[:, None])
            + tf.gather(z, INDEX, axis=1)
            + tf.gather(z, TABLE, batch_dims=1)
        )
    ),
    "masks": masked,
    "where": lambda x: tf.where(MASK, x, 3.0) + tf.where(MASK[0], x[0], tf.transpose(x)) + tf.where(True, x, W),
    "where rows": lambda x: tf.compat.v1.where(MASK[0], x, 2 * W),
    "scatter": scattered,
    "segments": segments,
    "gradient of segments": transposed(
        lambda z: tf.math.segment_sum(z, [0, 0, 1, 3, 3, 3]) + tf.math.unsorted_segment_sum(z, [3, -1, 0, 0, 1, 2], 4)
    ),
    "diagonals": diagonals,
    "gradient of diagonals": transposed(
        lambda z: tf.linalg.diag_part(z) + tf.linalg.band_part(z, 0, 1) + tf.linalg.set_diag(z, z[0])
    ),
    "sums": lambda x: (
        tf.reduce_mean(x, 0) + tf.reduce_mean(x) + tf.reduce_sum(x, 1, keepdims=True) + tf.reduce_sum(x, [0, -1])
    ),
    "cumsum": lambda x: (
        tf.cumsum(x)
        - tf.cumsum(x, 1, exclusive=True)
        + tf.cumsum(x, 1, reverse=True)
        + tf.cumsum(x, -1, exclusive=True, reverse=True)
    ),
    "gradient of sums": transposed(
        lambda z: tf.cumsum(z, 1, exclusive=True) + tf.reduce_mean(z, 0) + tf.reduce_sum(z, 1, keepdims=True)
    ),
    "products": products,
    "batches": batches,
    "einsum": einsum,
    "gradient of products": transposed(lambda z: W @ z + tf.einsum("ij,kj->ik", z, W) + tf.linalg.matvec(z, W[0])),
    "cross": lambda x: tf.linalg.cross(x[:, :3], W[:, :3]) + tf.linalg.cross(W[:, :3], x[:, 3:]),
    "sparse": lambda x: (
        tf.sparse.sparse_dense_matmul(SPARSE, x)
        + tf.sparse.sparse_dense_matmul(SPARSE, x, adjoint_a=True, adjoint_b=True)
    ),
    "sparse values": lambda x: tf.sparse.sparse_dense_matmul(
        tf.SparseTensor([[0, 1], [2, 2], [2, 5]], x[0, :3], (4, N)), W
    ),
    "convolution": convolutions,
    "convolution strided": lambda x: (
        tf.nn.conv2d(image(x), KERNEL, (2, 1), "VALID") + tf.nn.conv2d(image(x), KERNEL, (2, 1), "VALID")
    ),
    "convolution dilated": lambda x: tf.nn.conv2d(image(x), KERNEL, 1, "SAME", dilations=(1, 2)),
    "convolution explicit": explicit,
    "convolution depthwise": lambda x: tf.nn.depthwise_conv2d(tf.reshape(x, (1, 6, 3, 2)), MANY, [1, 2, 2, 1], "SAME"),
    "convolution channels": lambda x: tf.nn.conv2d(tf.reshape(x, (3, 2, 3, 2)), MANY, 2, "SAME"),
    "convolution 1d": lambda x: tf.nn.conv1d(x[None], tf.reshape(LARGE[:4, :18], (2, N, 6)), 2, "VALID"),
    "convolution 3d": lambda x: tf.nn.conv3d(tf.reshape(x, (1, 4, 3, 3, 1)), CUBE, [1, 1, 2, 1, 1], "SAME"),
    "convolution transposed": lambda x: tf.nn.conv2d_transpose(image(x), KERNEL, [1, 12, 11, 1], 2, "SAME"),
    "convolution transposed valid": lambda x: tf.nn.conv2d_transpose(
        tf.reshape(x, (1, 3, 3, 4)), MANY, [1, 5, 4, 2], 1, "VALID"
    ),
    "convolution transposed 3d": lambda x: tf.nn.conv3d_transpose(
        tf.reshape(x, (1, 3, 3, 2, 2)), CUBE, [1, 6, 6, 4, 1], 2, "SAME"
    ),
    "convolution with the kernel": lambda x: tf.nn.conv2d(image(W), tf.reshape(x[:3, :3], (3, 3, 1, 1)), 1, "SAME"),
    "gradient of a convolution": transposed(lambda z: tf.nn.conv2d(tf.reshape(z, (1, 6, 3, 2)), MANY, 2, "SAME")),
    "gradient of a depthwise convolution": transposed(
        lambda z: tf.nn.depthwise_conv2d(tf.reshape(z, (1, 6, 3, 2)), MANY, [1, 1, 1, 1], "VALID")
    ),
    "gradient by a kernel": transposed(
        lambda z: tf.nn.conv2d(image(W), tf.reshape(z[:3, :2], (3, 2, 1, 1)), 2, "SAME")
    ),
    "gradient by a depthwise kernel": transposed(
        lambda z: tf.nn.depthwise_conv2d(
            tf.reshape(W, (1, 6, 3, 2)), tf.reshape(z[:2, :], (3, 2, 2, 1)), [1, 1, 1, 1], "SAME"
        )
    ),
    "bias": lambda x: tf.nn.bias_add(W, x[0]) + tf.nn.bias_add(x, W[0]),
    "pooling": lambda x: tf.nn.avg_pool2d(image(x), 3, 2, "SAME") + tf.nn.avg_pool2d(image(x), 2, 2, "VALID"),
    "pooling 3d": lambda x: tf.nn.avg_pool3d(tf.cast(tf.reshape(x, (1, 4, 3, 3, 1)), tf.float32), 2, 1, "SAME"),
    "gradient of pooling 3d": transposed(
        lambda z: tf.nn.avg_pool3d(tf.cast(tf.reshape(z, (1, 4, 3, 3, 1)), tf.float32), 2, (1, 2, 1), "SAME")
    ),
    "pooling 1d": lambda x: tf.nn.avg_pool1d(x[None], 3, 2, "SAME"),
    "gradient of pooling": transposed(
        lambda z: tf.nn.avg_pool2d(image(z), (3, 2), (2, 1), "SAME") + tf.nn.max_pool2d(image(z), 2, (2, 1), "SAME")
    ),
    "resize": lambda x: tf.image.resize(image(x), (9, 4)) + tf.image.resize(image(x), (9, 4), "bicubic"),
    "resize to neighbours": lambda x: tf.image.resize(image(x), (9, 4), "nearest") + 0,
    "resize with antialias": lambda x: tf.image.resize(image(x), (3, 4), antialias=True),
    "patches": lambda x: tf.image.extract_patches(image(x), [1, 3, 3, 1], [1, 2, 2, 1], [1, 1, 1, 1], "VALID"),
    "space to depth": lambda x: (
        tf.nn.space_to_depth(image(x), 2) + tf.nn.space_to_batch(image(x), [2, 2], [[0, 0], [0, 0]])[:1]
    ),
    "fft": fourier,
    "complex": converted_complex,
    "complex results": lambda x: tf.cast(x, tf.complex128) * tf.complex(W, tf.transpose(W)),
    "solve": lambda x: tf.linalg.solve(DOMINANT, x) + tf.linalg.triangular_solve(DOMINANT, x),
    "tridiagonal": lambda x: tf.linalg.tridiagonal_solve(tf.stack([W[0], W[1] + 5, W[2]]), x),
    "inverse": lambda x: tf.linalg.inv(DOMINANT) @ x,
    "gradients of functions of elements": transposed(
        lambda z: (
            tf.nn.relu(z)
            + tf.tanh(z)
            + tf.sigmoid(z)
            + tf.nn.softplus(z)
            + tf.nn.elu(z)
            + tf.abs(z)
            + tf.sqrt(z**2 + 1)
            + 1 / (z + 9)
        )
    ),
    "gradient of a softmax": transposed(
        lambda z: tf.nn.softmax(z) + tf.math.l2_normalize(z) + tf.reduce_logsumexp(z, 0)
    ),
    "batch normalisation": lambda x: tf.nn.batch_normalization(x, W[0], W[1] ** 2 + 1, W[2], W[3], 1e-3),
    "variable": with_variable,
    "ragged": ragged_sums,
    "sparse to dense": lambda x: tf.sparse.to_dense(tf.SparseTensor([[0, 1], [1, 2]], x[0, :2], (2, 3)), W[0, 0]),
    "words": lambda x: x * tf.strings.to_number("2.5", DOUBLE),
    "spectrum": lambda x: tf.signal.dct(tf.cast(x, tf.float32)),
    "frames": lambda x: tf.signal.overlap_and_add(tf.signal.frame(x, 3, 2)[:, :, :2], 1) + tf.signal.fftshift(x)[:, :3],
    "difference": lambda x: tf.experimental.numpy.diff(x, axis=0) + tf.image.image_gradients(image(x))[0][0, 1:, :, 0],
    "meshgrid": lambda x: tf.meshgrid(x[0], x[1])[0] * tf.meshgrid(W[0], W[1], indexing="ij")[1],
    "stop_gradient": lambda x: (
        tf.stop_gradient(x) + tf.debugging.check_numerics(x, "finite") + tf.ensure_shape(x, (N, None))
    ),
    "lower precision": lambda x: tf.cast(tf.cast(x, tf.float32) * 2, DOUBLE),
    "unused": lambda x: (x, tf.reduce_sum(x * x), tf.nn.relu(x))[0],
    "shapes": lambda x: (
        x * tf.cast(tf.size(x) + tf.shape(x)[0] + tf.rank(x), DOUBLE) + tf.zeros_like(x) + tf.ones_like(x[0])
    ),
}


def leaves(image: Any) -> np.ndarray:
    return np.concatenate([np.asarray(leaf).reshape(-1) for leaf in tf.nest.flatten(image)])


def dense(f: Callable[[Any], Any], shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The matrix by unit vectors, and the bias."""
    program = tf.function(f, autograph=False)
    return matrix_of(lambda x: leaves(program(tf.constant(x))), shape)


SINGLE = (
    *("lower precision", "resize", "resize to neighbours", "resize with antialias", "spectrum"),
    *("pooling 3d", "gradient of pooling 3d"),
)


@pytest.mark.parametrize("prune", [True, pytest.param(False, marks=pytest.mark.merge)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name: str, prune: bool) -> None:
    f = FUNCTIONS[name]
    A, b = dense(f, (N, N))
    bound = 1e-5 if name in SINGLE else 1e-12
    matrix, bias = matrix_from_function(f, X, prune=prune)
    assert matrix.shape == A.shape and matrix.constant is not None
    np.testing.assert_allclose(matrix.toarray(), A, atol=bound)
    np.testing.assert_allclose(leaves(bias), b, atol=bound)


def test_interpolation_inside_of_a_graph() -> None:
    like = tf.TensorSpec((1, 4, 5, 2), tf.float32)

    def resized(x: Any) -> Any:
        return tf.image.resize(x, [7, 3])

    inside = tf.function(lambda: matrix_from_function(resized, like)[0] @ tf.ones(40), autograph=False)
    np.testing.assert_array_equal(inside(), tf.reshape(resized(tf.ones(like.shape)), [-1]))


def test_gather_with_batch_axes_counted_from_the_end() -> None:
    def gathered(x: Any) -> Any:
        return tf.gather(x, [[0, 2], [1, 1]], batch_dims=-1, axis=1)

    found = matrix_from_function(gathered, tf.TensorSpec((2, 3, 4), tf.float64))[0].toarray()
    np.testing.assert_array_equal(found, matrix_of(lambda x: gathered(tf.constant(x)).numpy(), (2, 3, 4))[0])


@pytest.mark.parametrize("where", ["call", "branch", "loop", "time"])
@pytest.mark.parametrize("compiled", [False, True])
def test_what_differs_in_each_run_is_refused(where: str, compiled: bool) -> None:
    """In the functions that it calls, too: in a graph no product is compared with the function."""
    drawn = tf.function(lambda: tf.random.normal(()))
    functions: dict[str, Callable[[Any], Any]] = {
        "call": lambda u: u * drawn(),
        "branch": lambda u: tf.cond(tf.size(u) > 2, lambda: u * tf.random.normal(()), lambda: u),
        "loop": lambda u: tf.map_fn(lambda v: v * tf.random.uniform(()), u),
        "time": lambda u: u * tf.cast(tf.timestamp(), u.dtype),
    }

    def trace() -> Any:
        return matrix_from_function(functions[where], tf.ones(4))[0].values

    with pytest.raises(Exception, match="another result each time"):
        (tf.function(trace, autograph=False) if compiled else trace)()
