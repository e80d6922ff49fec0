"""Linear JAX functions as matrices: against the functions themselves, eager and inside jit."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from cells import in_turn
from frameworks import lazy
from krylix.sparse.tracing.matrix_from_function import matrix_from_function
from operands import padded_bcoo, padded_bcsr

jax = lazy("jax")
jnp, lax = lazy("jax.numpy"), lazy("jax.lax")


N = 7
rng = np.random.default_rng(0)
C = rng.random((N, N))
PREDICATE = rng.random((N, N)) > 0.4
DIFFERENCE = np.diff(np.eye(N), axis=0)
EDGES = rng.integers(0, N * N, (60, 2))
WEIGHTS = rng.random(60)
KERNEL = rng.random((3, 1, 3, 3))
SPARSE = np.where(C > 0.5, C, 0)
DOMINANT = C + 4 * np.eye(N)
TIES = np.round(3 * C)  # equal elements, of which the first counts


def laplace(mode: str) -> Callable[[Any], Any]:
    def f(u: Any) -> Any:
        p = jnp.pad(u, 1, mode=mode)
        return p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u

    return f


def varying(u: Any) -> Any:
    fx = 0.5 * (C[1:] + C[:-1]) * (u[1:] - u[:-1])
    fy = 0.5 * (C[:, 1:] + C[:, :-1]) * (u[:, 1:] - u[:, :-1])
    return jnp.diff(jnp.pad(fx, ((1, 1), (0, 0))), axis=0) + jnp.diff(jnp.pad(fy, ((0, 0), (1, 1))), axis=1)


def obstacle(u: Any) -> Any:
    m = jnp.asarray(PREDICATE)
    gx = jnp.where(m[1:] & m[:-1], u[1:] - u[:-1], 0.0)
    gy = jnp.where(m[:, 1:] & m[:, :-1], u[:, 1:] - u[:, :-1], 0.0)
    r = jnp.zeros_like(u).at[:-1].add(gx).at[1:].add(-gx).at[:, :-1].add(gy).at[:, 1:].add(-gy)
    return jnp.where(m, r, u)


def graph(u: Any) -> Any:
    u = u.ravel()
    flow = WEIGHTS * (u[EDGES[:, 0]] - u[EDGES[:, 1]])
    return jax.ops.segment_sum(flow, EDGES[:, 0], N * N) - jax.ops.segment_sum(flow, EDGES[:, 1], N * N)


def with_own_derivatives(u: Any) -> Any:
    with_jvp, with_vjp = jax.custom_jvp(lambda u: 2 * u), jax.custom_vjp(lambda u: 3 * u)
    with_jvp.defjvp(lambda primals, tangents: (2 * primals[0], 2 * tangents[0]))
    with_vjp.defvjp(lambda u: (3 * u, None), lambda _, g: (3 * g,))
    return with_jvp(u) + with_vjp(u[::-1])


def upsample(u: Any) -> Any:
    coarse = u[:6, :6].reshape(3, 2, 3, 2).mean((1, 3))
    return jnp.repeat(jnp.repeat(coarse, 2, 0), 2, 1)


def image(u: Any, kernel: Any = KERNEL, **settings: Any) -> Any:
    settings = {"window_strides": (1, 1), "padding": "SAME", **settings}
    return lax.conv_general_dilated(u[None, None], jnp.asarray(kernel), **settings)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    **{f"laplace-{mode}": laplace(mode) for mode in ("constant", "edge", "wrap", "reflect", "symmetric")},
    "twice": lambda u: laplace("constant")(laplace("edge")(u)) + 1.5,
    "varying": varying,
    "obstacle": obstacle,
    "fourth-order": lambda u: sum(w * jnp.roll(u, s, a) for a in (0, 1) for s, w in zip((-1, 0, 1), (0.3, -1.2, 0.9))),
    "graph": graph,
    "convolve2d": lambda u: jax.scipy.signal.convolve2d(
        u, jnp.array([[0, 1, 0], [1, -4, 1], [0, 1, 0.0]]), mode="same"
    ),
    "convolve-strides": lambda u: image(u, window_strides=(2, 2)),
    "convolve-dilated": lambda u: image(u, lhs_dilation=(2, 1), rhs_dilation=(1, 2), padding=[(2, 1), (0, 3)]),
    "convolve-groups": lambda u: lax.conv_general_dilated(
        jnp.stack([u, 2 * u, u.T, u])[None], rng_kernel(6, 2), (1, 2), "SAME", feature_group_count=2
    ),
    "convolve-batch-groups": lambda u: lax.conv_general_dilated(
        jnp.stack([u, 2 * u])[:, None], rng_kernel(2, 1), (1, 1), "VALID", batch_group_count=2
    ),
    "convolve-kernel": lambda u: image(jnp.asarray(C), u[None, None, :3, :2]),
    "convolve-nhwc": lambda u: lax.conv_general_dilated(
        u[None, :, :, None],
        jnp.asarray(KERNEL.transpose(2, 3, 1, 0)),
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    ),
    "scan": lambda u: lax.scan(lambda c, x: (0.5 * c + x, 2 * c), jnp.zeros(N), u),
    "scan-reverse": lambda u: lax.scan(lambda c, x: (0.5 * c + x, (c, x[0])), jnp.ones(N), u, reverse=True),
    "map": lambda u: lax.map(lambda r: jnp.cumsum(r), u),
    "vmap": lambda u: jax.vmap(lambda r: jnp.convolve(r, jnp.array([1.0, 2, 3]), mode="same"))(u),
    "vmap-index": lambda u: jax.vmap(lambda r, i: r[i])(u, jnp.arange(N) % 4),
    "vmap-update": lambda u: jax.vmap(lambda r, i: r.at[i].set(0.0))(u, jnp.arange(N) % 4),
    "fori": lambda u: lax.fori_loop(0, 3, lambda i, x: laplace("constant")(x) * 0.1 * i + x, u),
    "while": lambda u: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2 + u), (0, u))[1],
    "cond": lambda u: lax.cond(C[0, 0] > 2, lambda x: x, lambda x: 3 * x[::-1], u),
    "switch": lambda u: lax.switch(jnp.argmax(C[0]), [lambda x, k=k: k * x for k in range(N)], u),
    "custom": with_own_derivatives,
    "remat": lambda u: jax.checkpoint(lambda v: jnp.einsum("ij,jk->ik", DIFFERENCE, v) @ C)(u),
    "jit": lambda u: jax.jit(laplace("edge"))(u) + jax.jit(lambda x: x.sum(0))(u),
    "associative-scan": lambda u: (
        lax.associative_scan(jnp.add, u) + lax.associative_scan(jnp.add, u, reverse=True, axis=1)
    ),
    "cumsum-mean": lambda u: jnp.cumsum(u, 1) - u.mean(),
    "chain": lambda u: (u.T[::-1] * C).reshape(-1)[3:40:2],
    "take": lambda u: jnp.take(u, np.array([3, 1, 1]), axis=1).sum(0),
    "take-fill": lambda u: u.at[np.array([1, 9])].get(mode="fill", fill_value=4.0),
    "take-clip": lambda u: u.at[np.array([1, 9, -9])].get(mode="clip"),
    "points": lambda u: u[jnp.array([1, 2, 9]), jnp.array([0, 1, 1])],
    "slices": lambda u: u[::-2, 1::3] + u[np.array([6, 4, 2, 0])][:, ::3][:, 1:],
    "triangles": lambda u: jnp.tril(u) + 3 * jnp.triu(u, 1) + jnp.diag(jnp.diag(u)),
    "gradient": lambda u: jnp.gradient(u, axis=0) + jnp.stack(jnp.gradient(u)).sum(0),
    "diff": lambda u: jnp.diff(u, 2, axis=1),
    "dynamic-slice": lambda u: lax.dynamic_slice(u, (2, 9), (3, 3)),
    "dynamic-update": lambda u: lax.dynamic_update_slice(u, u[:3, :2] * 2, (1, 3)),
    "update-constant": lambda u: lax.dynamic_update_slice(jnp.asarray(C), u[:3, :2], (5, 9)),
    "boundary": lambda u: (2 * u).at[0].set(0.0).at[-1].set(u[1]).at[:, 0].set(1.0),
    "set-many": lambda u: u.at[np.array([1, 3, 3]), np.array([0, 2, 2])].set(u[0, :3]),
    "set-drop": lambda u: u.at[np.array([1, 9])].set(u[:2]).at[np.array([0, 12])].add(2.0),
    "add-many": lambda u: u.at[np.array([1, 3, 3])].add(u[:3]).at[2].subtract(u[0]),
    "add-to-constant": lambda u: jnp.asarray(C).at[np.array([0, 0, 1])].add(u[:3]),
    "multiply": lambda u: u.at[np.array([1, 1, 4])].multiply(3.0).at[0].divide(2.0).at[:, 2].mul(C[0]),
    "put-strided": lambda u: jnp.zeros((13, 13)).at[::2, ::2].set(u),
    "outer": lambda u: jnp.outer(C[0], u[0]) + jnp.kron(u, np.ones((1, 1))),
    "repeat-tile": lambda u: jnp.repeat(u, 2, axis=0) + jnp.tile(u, (2, 1)),
    "tile-many": lambda u: jnp.tile(u[:2], (5, 3)),
    "where": lambda u: jnp.where(PREDICATE, u, laplace("wrap")(u)),
    "choose": lambda u: lax.select_n(np.asarray(PREDICATE, np.int32) + 1, u, 2 * u, jnp.asarray(C)),
    "einsum": lambda u: jnp.einsum("ij,ij->i", C, u) + jnp.einsum("ik,jk->ij", u, C).sum(1),
    "einsum-batch": lambda u: jnp.einsum("bi,bij->bj", u, C[:, None] * np.ones((N, N, 1))),
    "matmul": lambda u: DIFFERENCE @ u @ C,
    "pool": lambda u: lax.reduce_window(u, 0.0, lax.add, (2, 2), (2, 1), "SAME"),
    "pool-dilated": lambda u: lax.reduce_window(u, 0.0, lax.add, (2, 2), (1, 1), [(1, 0), (0, 2)], (2, 1), (1, 3)),
    "upsample": upsample,
    "resize": lambda u: jax.image.resize(u, (10, 14), "linear"),
    "fft": lambda u: jnp.fft.fft(u, axis=0),
    "fft2": lambda u: jnp.fft.ifft2(jnp.fft.fft2(u) * C).real,
    "rfft": lambda u: jnp.fft.irfft(jnp.fft.rfft(u) * np.arange(4.0), N) + jnp.fft.rfft(u).imag.sum(),
    "complex": lambda u: lax.complex(u, 2 * u[::-1]) * (1 + 2j),
    "parts": lambda u: (u * (1 + 2j)).imag + jnp.conj(u * 2j).imag + jnp.real(u),
    "join": lambda u: jnp.concatenate([u.ravel(), u[0], C[0]]).reshape(9, 7)[1:],
    "stack": lambda u: jnp.stack([u, u[::-1], jnp.asarray(C)], 1),
    "split": lambda u: jnp.concatenate(jnp.split(u, [2, 5], 1)[::-1], 1),
    "unstack": lambda u: sum(k * r for k, r in enumerate(jnp.unstack(u, axis=1))),
    "pad-interior": lambda u: lax.pad(u, 2.0, [(1, -1, 1), (-2, 3, 2)]),
    "pad-by-input": lambda u: lax.pad(u[1:3, 2:], u[0, 0], [(1, -1, 1), (-2, 3, 2)]),
    "pad-constant-by-input": lambda u: lax.pad(jnp.asarray(C), u[0, 0], [(1, 2, 0), (0, 0, 1)]),
    "pad-ramp": lambda u: jnp.pad(u, 2, mode="linear_ramp") + jnp.pad(u, 2, mode="mean"),
    "scalars": lambda u: u[1, 2] * C + u.sum() * 2 - u[0, 0],
    "to-scalar": lambda u: u.sum() - 3 * u[0, 0],
    "divide": lambda u: u / (1 + C) / 3 + C,
    "dtypes": lambda u: (u.astype(jnp.complex128) * 2).real.astype(jnp.float64),
    "stop": lambda u: lax.stop_gradient(u) * 0 + lax.optimization_barrier(u) + 2 * u,
    "no-longer-dependent": lambda u: jnp.where(u * 0 > 1, 1.0, u) + jnp.exp(0 * u),
    "constant": lambda u: jnp.asarray(C),
    "empty": lambda u: jnp.concatenate([u[:0], u[:, :0].reshape(0, N)]),
    "printing": lambda u: (jax.debug.print("{}", u), 2 * u)[1],
    "interpolate": lambda u: jnp.interp(C[0], np.linspace(0, 1, 4), C[1, :4]) * u,
    "trace": lambda u: jnp.trace(u) + jnp.tensordot(u, C, 2),
    "apply-along": lambda u: jnp.apply_along_axis(lambda r: jnp.convolve(r, np.array([1.0, -1])), 0, u),
    "swap": lambda u: jnp.moveaxis(jnp.rot90(u), 0, 1) + jnp.flip(u) + jnp.swapaxes(u, 0, 1),
    "blocks": lambda u: jnp.block([[u, 2 * u], [C, u.T]]),
    "named-axis": lambda u: jax.vmap(lambda r: r - lax.pmean(r, "i"), axis_name="i")(u),
    "masks": lambda u: jnp.concatenate(
        [u[C > 0.5], u[jnp.nonzero(C > 0.9, size=3)], u[np.ix_([0, 2], [1, 3])].ravel()]
    ),
    "select": lambda u: jnp.select([C > 0.7, C > 0.3], [u, 2 * u], u.T),
    "dct": lambda u: jax.scipy.fft.dct(u, norm="ortho"),
    "derivatives": lambda u: (
        jax.linearize(lambda x: x**3, jnp.asarray(C))[1](u) + jax.vjp(lambda x: jnp.sin(x) @ C, jnp.asarray(C))[1](u)[0]
    ),
    "hessian": lambda u: jax.jvp(jax.grad(lambda x: (x**4).sum() + jnp.prod(x[0, :3])), (jnp.asarray(C),), (u,))[1],
    "transposed": lambda u: jax.linear_transpose(lambda x: C @ x + jnp.roll(x, 1), u)(u)[0],
    "random": lambda u: jnp.where(jax.random.bernoulli(jax.random.key(0), 0.5, u.shape), 2 * u, 0),
    "patches": lambda u: lax.conv_general_dilated_patches(u[None, None], (2, 2), (1, 1), "VALID"),
    "conv-transpose": lambda u: lax.conv_transpose(u[None, :, :, None], C[:3, :3, None, None], (2, 2), "SAME"),
    "rows-rolled": lambda u: jax.vmap(jnp.roll, (0, 0))(u, jnp.arange(N)),
    "interpolated": lambda u: jax.scipy.ndimage.map_coordinates(u, [C * 4, C.T * 3], order=1, mode="nearest"),
    "platform": lambda u: lax.platform_dependent(u, cpu=lambda x: 2 * x, default=lambda x: 2.0 * x),
    "energy": lambda u: jax.grad(
        lambda v: 0.5 * jnp.sum(C[1:] * jnp.diff(v, axis=0) ** 2) + jnp.vdot(v, jax.jit(lambda w: C @ w)(v))
    )(u),
    "many branches": lambda u: jax.vmap(lambda i, row: lax.switch(i, [lambda x, k=k: k * x for k in range(70)], row))(
        jnp.arange(N) * 11 - 1, u
    ),
    "sort": lambda u: lax.sort((jnp.asarray(C), u, 2 * u, jnp.asarray(C.T)), dimension=0, num_keys=1)[1:],
    "sort-by-two-keys": lambda u: lax.sort((jnp.asarray(C > 0.5), jnp.asarray(C), u), dimension=1, num_keys=2)[2],
    "permutation": lambda u: (
        jax.random.permutation(jax.random.key(0), u) + jax.random.permutation(jax.random.key(1), u, 1, independent=True)
    ),
    "fori-each": lambda u: jax.vmap(lambda x, n: lax.fori_loop(0, n, lambda i, y: 2 * y + x[::-1] * i, x))(
        u, jnp.arange(N) % 4
    ),
    "while-each": lambda u: jax.vmap(
        lambda x, n: lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 2 + x.sum(), c[2] + 1), (0, x, 1))
    )(u, jnp.arange(N) % 3)[1:2],
    "bcsr": lambda u: padded_bcsr(SPARSE, more=9) @ u,
    "bcoo": lambda u: padded_bcoo(SPARSE, more=9) @ u,
    "triangular": lambda u: jax.scipy.linalg.solve_triangular(jnp.asarray(DOMINANT), u, lower=True),
    "triangular-transposed": lambda u: lax.linalg.triangular_solve(
        jnp.asarray(DOMINANT), u, left_side=False, lower=False, transpose_a=True, unit_diagonal=True
    ),
    "triangular-batch": lambda u: lax.linalg.triangular_solve(
        jnp.asarray(DOMINANT) * np.array([1.0, 2.0])[:, None, None], jnp.stack([u, u.T]), left_side=True, lower=True
    ),
    "dense-solve": lambda u: jnp.linalg.solve(jnp.asarray(DOMINANT), u),
    "cholesky-solve": lambda u: jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(DOMINANT @ DOMINANT.T), u[0]),
    "tridiagonal-solve": lambda u: lax.linalg.tridiagonal_solve(C[0], 3 + C[1], C[2], u),
    "max-pool-vjp": lambda u: jax.vjp(lambda v: pool(v, lax.max, -np.inf), jnp.asarray(TIES))[1](u[:4])[0],
    "max-pool-jvp": lambda u: jax.jvp(lambda v: pool(v, lax.max, -np.inf), (jnp.asarray(TIES),), (u,))[1],
    "min-pool-jvp": lambda u: jax.jvp(lambda v: pool(v, lax.min, np.inf), (jnp.asarray(TIES),), (u,))[1],
    "window-with-a-start": lambda u: pool(u, lax.add, 1.5) + pool(jnp.asarray(C), lax.add, 1.5),
    "average": lambda u: jnp.average(u, axis=0, weights=C[0]),
}


def pool(u: Any, function: Any, start: float) -> Any:
    return lax.reduce_window(u, start, function, (2, 3), (2, 1), ((0, 1), (1, 1)))


def rng_kernel(outputs: int, inputs: int) -> Any:
    return jnp.asarray(np.random.default_rng(5).random((outputs, inputs, 3, 3)))


@cache
def images() -> list[dict[str, Any]]:
    """What the functions are of zero and of all unit vectors by JAX, in one program."""
    program = jax.jit(lambda u: {name: f(u) for name, f in FUNCTIONS.items()})
    return [program(point.reshape(N, N)) for point in np.eye(N * N + 1, N * N, -1)]


def dense(name: str) -> tuple[np.ndarray, Any]:
    """Matrix and constant of an affine function."""
    zero, *units = (jax.tree.leaves(image[name]) for image in images())
    columns = [np.concatenate([np.ravel(a - b) for a, b in zip(unit, zero)]) for unit in units]
    return np.stack(columns, 1), zero


@pytest.mark.parametrize("name", FUNCTIONS)
def test_matrix(name: str, capfd: pytest.CaptureFixture) -> None:
    f, x = FUNCTIONS[name], jnp.zeros((N, N))
    expected, constant = dense(name)
    compiled = []

    def traced() -> Any:
        compiled.append(matrix_from_function(f, jax.ShapeDtypeStruct((N, N), x.dtype)))
        return 0

    jax.eval_shape(traced)  # as in `jit`, without compiling what is left
    for matrix, bias in (matrix_from_function(f, x), *compiled):
        scale = max(1.0, np.abs(expected).max(initial=0))
        found = matrix.toarray()
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, atol=1e-12 * scale)
        for part, value in zip(jax.tree.leaves(bias), constant, strict=True):
            assert part.shape == value.shape and part.dtype == value.dtype
            np.testing.assert_allclose(part, value, atol=1e-12 * scale)
        assert matrix.constant is not None  # also inside jit
        if not name.startswith(("fft", "rfft")):
            assert matrix.nnz == np.count_nonzero(np.abs(found) > 0)


@pytest.mark.parametrize(
    ("name", "dtype"),
    in_turn(
        ("laplace-wrap", "varying", "graph", "boundary", "fori", "chain", "matmul"),
        ("float32", "complex64", "complex128"),
    ),
)
def test_dtypes(name: str, dtype: str) -> None:
    f = FUNCTIONS[name]
    cast = np.dtype(dtype).type

    def g(u: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf * cast(2 if cast(0).dtype.kind == "f" else 2j), f(u))

    x = jnp.asarray(rng.standard_normal((N, N)), dtype)
    matrix, bias = matrix_from_function(g, x)
    image, found = jax.jit(g)(x), matrix.toarray() @ np.asarray(x).ravel()
    expected = np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(image)])
    found = found + np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(bias)])
    assert matrix.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-4 if "32" in dtype or dtype[-2:] == "64" else 1e-10, atol=1e-5)


def test_rounding_leaves_no_entries() -> None:
    """A transform and its inverse leave the entries of the identity, however different the coefficients are."""
    c = 10.0 ** np.arange(-150, 151, 50)

    def spectral(u: Any) -> Any:
        return jnp.fft.ifft(jnp.fft.fft(u, axis=1), axis=1).real * c + 1e-200 * u[::-1]

    matrix, _ = matrix_from_function(spectral, jnp.zeros((N, N)))
    expected = (np.tile(c, N) * np.eye(N * N)).reshape(N, N, N, N)
    expected = expected + 1e-200 * np.eye(N * N).reshape(N, N, N, N)[::-1]
    np.testing.assert_allclose(matrix.toarray(), expected.reshape(N * N, N * N), rtol=1e-13)
    assert matrix.nnz == N * N + (N - 1) * N  # the middle row is its own mirror

    kernel = np.fft.rfft([2.0, -1, 0, 0, 0, 0, 0, -1])
    laplace, _ = matrix_from_function(lambda u: jnp.fft.irfft(jnp.fft.rfft(u) * kernel, 8), jnp.zeros(8))
    assert laplace.nnz == 24
    blocks = np.kron(np.eye(3), np.array([[2.0, 1], [1, 3]])) * np.repeat([1, 1e-20, 1e20], 2)
    inverse, _ = matrix_from_function(lambda u: jnp.linalg.solve(jnp.asarray(blocks), u), jnp.zeros(6))
    assert inverse.nnz == 12
    np.testing.assert_allclose(inverse.toarray(), np.linalg.inv(blocks), rtol=1e-12, atol=0)
