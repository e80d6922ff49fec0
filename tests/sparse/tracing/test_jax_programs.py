"""Random linear programs of many kinds of operation: their matrices against the programs themselves."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from frameworks import lazy
from krylix.sparse.errors import NonlinearError
from krylix.sparse.tracing.matrix_from_function import matrix_from_function
from operands import padded_bcsr
from random_examples import random_examples

jax = lazy("jax")
jnp, lax = lazy("jax.numpy"), lazy("jax.lax")

MOST = 150  # elements of any array
Rng = np.random.Generator
Step = Callable[[Rng, Any], Any]
SHAPES = [(7,), (4, 5), (3, 4, 2), (1, 6), (12,), (2, 2, 3)]


def numbers(rng: Rng, u: Any, shape: Any = None) -> Any:
    """Random constants in the dtype of u, some of them zero."""
    shape = u.shape if shape is None else shape
    values = np.where(rng.random(shape) < 0.25, 0, rng.standard_normal(shape))
    return values.astype(u.dtype)


def axis_of(rng: Rng, u: Any) -> int:
    return int(rng.integers(u.ndim))


def cut(u: Any, axis: int, start: Any, stop: Any = None) -> Any:
    index = start if stop is None else slice(start, stop)
    return u[(slice(None),) * axis + (index,)]


def padded(rng: Rng, u: Any) -> Any:
    modes = ["constant", "edge", "wrap", "reflect", "symmetric"] if min(u.shape) > 2 else ["constant"]
    return jnp.pad(u, [(int(rng.integers(3)), int(rng.integers(3))) for _ in u.shape], mode=str(rng.choice(modes)))


def spread(rng: Rng, u: Any) -> Any:
    config = [
        (int(rng.integers(-1, 3)) if n > 2 else 0, int(rng.integers(0, 2)), int(rng.integers(2))) for n in u.shape
    ]
    return lax.pad(u, numbers(rng, u, ()), config)


def sliced(rng: Rng, u: Any) -> Any:
    axis = axis_of(rng, u)
    return lax.slice_in_dim(u, int(rng.integers(u.shape[axis])), u.shape[axis], int(rng.integers(1, 3)), axis)


def factored(rng: Rng, u: Any) -> Any:
    factors = [q for q in range(2, u.size) if u.size % q == 0]
    return u.reshape(int(rng.choice(factors)), -1) if factors else u.reshape(-1)


def taken(rng: Rng, u: Any) -> Any:
    axis = axis_of(rng, u)
    index = rng.integers(-1, u.shape[axis] + 1, int(rng.integers(1, 6)))
    return jnp.take(u, index, axis=axis, mode=str(rng.choice(["clip", "wrap"])))


def points(rng: Rng, u: Any) -> Any:
    return u[tuple(jnp.asarray(rng.integers(0, n, (2, 3))) for n in u.shape)]


def set_points(rng: Rng, u: Any) -> Any:
    index = rng.integers(0, u.size, 4)
    return u.ravel().at[index].set(numbers(rng, u, (4,)) * u.ravel()[:1]).reshape(u.shape)


def add_points(rng: Rng, u: Any) -> Any:
    axis = axis_of(rng, u)
    index = rng.integers(0, u.shape[axis] + 1, u.shape[axis])
    return jnp.moveaxis(jnp.moveaxis(u, axis, 0).at[index].add(2 * jnp.moveaxis(u, axis, 0)), 0, axis)


def multiplied(rng: Rng, u: Any) -> Any:
    return u.at[rng.integers(0, u.shape[0], 2)].multiply(numbers(rng, u, (2, *u.shape[1:])))


def updated(rng: Rng, u: Any) -> Any:
    starts = [int(rng.integers(0, n + 1)) for n in u.shape]
    part = u[tuple(slice(0, max(1, n // 2)) for n in u.shape)]
    return lax.dynamic_update_slice(u, 3 * part, starts)


def segments(rng: Rng, u: Any) -> Any:
    return jax.ops.segment_sum(u, rng.integers(0, 4, u.shape[0]), 4)


def product(rng: Rng, u: Any) -> Any:
    axis = axis_of(rng, u)
    return jnp.tensordot(numbers(rng, u, (3, u.shape[axis])), u, axes=(1, axis))


def batched_product(rng: Rng, u: Any) -> Any:
    return jnp.einsum("a...,ab->ab...", u, numbers(rng, u, (u.shape[0], 2)))


def convolved(rng: Rng, u: Any) -> Any:
    x = u.reshape(1, 1, *u.shape) if u.ndim < 3 else u[None]
    kernel = numbers(rng, u, (2, x.shape[1], *(min(2, n) for n in x.shape[2:])))
    strides = [int(rng.integers(1, 3)) for _ in x.shape[2:]]
    return lax.conv_general_dilated(x, kernel, strides, str(rng.choice(["SAME", "VALID"])))[0]


def windowed(rng: Rng, u: Any) -> Any:
    sizes, strides = (tuple(int(rng.integers(1, 3)) for _ in u.shape) for _ in range(2))
    return lax.reduce_window(u, np.zeros((), u.dtype), lax.add, sizes, strides, "SAME")


def scanned(rng: Rng, u: Any) -> Any:
    c = numbers(rng, u, u.shape[1:])
    return lax.scan(lambda s, x: (c * s + x, s - x), jnp.zeros_like(u[0]), u, reverse=bool(rng.integers(2)))[1]


def looped(rng: Rng, u: Any) -> Any:
    return lax.fori_loop(0, 2, lambda i, x: x + (i + 1) * jnp.roll(x, 1, 0), u)


def mapped(rng: Rng, u: Any) -> Any:
    c = numbers(rng, u, u.shape[1:])
    return jax.vmap(lambda r, i: c * r + r.sum() * i)(u, jnp.arange(u.shape[0]).astype(u.dtype))


def chosen(rng: Rng, u: Any) -> Any:
    mask = rng.random(u.shape) > 0.4
    return jnp.where(mask, u, 0.5 * jnp.flip(u, axis_of(rng, u)))


def chosen_of_three(rng: Rng, u: Any) -> Any:
    return lax.select_n(rng.integers(0, 3, u.shape).astype(np.int32), u, 2 * u, jnp.asarray(numbers(rng, u)))


def strided_update(rng: Rng, u: Any) -> Any:
    return u.at[::2].set(cut(u, 0, slice(None, None, -2)) if u.shape[0] % 2 else u[1::2])


def sorted_by_known(rng: Rng, u: Any) -> Any:
    return lax.sort((jnp.asarray(rng.integers(0, 5, u.shape)), u), dimension=axis_of(rng, u), num_keys=1)[1]


def looped_each(rng: Rng, u: Any) -> Any:
    counts = jnp.asarray(rng.integers(0, 3, u.shape[0]))
    return jax.vmap(lambda x, n: lax.fori_loop(0, n, lambda i, y: 2 * y + i * x, x))(u, counts)


def sparse_product(rng: Rng, u: Any) -> Any:
    A = numbers(rng, u, (3, u.shape[0]))
    return padded_bcsr(A) @ u.reshape(u.shape[0], -1)


def triangular(rng: Rng, u: Any) -> Any:
    n = u.shape[0]
    A = numbers(rng, u, (n, n)) / 4 + 2 * np.eye(n, dtype=u.dtype)
    settings = {name: bool(rng.integers(2)) for name in ("lower", "transpose_a", "unit_diagonal")}
    return lax.linalg.triangular_solve(jnp.asarray(A), u.reshape(n, -1), left_side=True, **settings)


def solved(rng: Rng, u: Any) -> Any:
    n = u.shape[0]
    return jnp.linalg.solve(jnp.asarray(numbers(rng, u, (n, n)) / 4 + 3 * np.eye(n, dtype=u.dtype)), u.reshape(n, -1))


def largest_chosen(rng: Rng, u: Any) -> Any:
    """The derivative of pooling at known values, some of them equal."""
    if jnp.iscomplexobj(u):
        return u
    values = jnp.asarray(rng.integers(0, 4, u.shape), u.dtype)
    sizes, strides = (tuple(int(rng.integers(1, 3)) for _ in u.shape) for _ in range(2))

    def pool(v: Any) -> Any:
        return lax.reduce_window(v, -np.inf, lax.max, sizes, strides, "SAME")

    if rng.integers(2):
        return jax.jvp(pool, (values,), (u,))[1]
    image = pool(values)
    return jax.vjp(pool, values)[1](jnp.broadcast_to(u.ravel()[:1], image.shape))[0]


def windowed_from(rng: Rng, u: Any) -> Any:
    sizes, strides = (tuple(int(rng.integers(1, 3)) for _ in u.shape) for _ in range(2))
    return lax.reduce_window(u, np.asarray(1.5, u.dtype), lax.add, sizes, strides, "SAME")


def transformed(rng: Rng, u: Any) -> Any:
    axis = axis_of(rng, u)
    v = jnp.fft.ifft(jnp.fft.fft(u, axis=axis), axis=axis)
    return v if jnp.iscomplexobj(u) else v.real.astype(u.dtype)


def resized(rng: Rng, u: Any) -> Any:
    return jax.image.resize(u, tuple(n + 1 for n in u.shape), "linear")


STEPS: dict[str, Step] = {
    "pad": padded,
    "pad interior": spread,
    "roll": lambda rng, u: jnp.roll(u, int(rng.integers(-4, 5)), axis_of(rng, u)),
    "slice": sliced,
    "scale": lambda rng, u: u * numbers(rng, u),
    "scale by number": lambda rng, u: u * numbers(rng, u, ()),
    "scale along axis": lambda rng, u: numbers(rng, u, (u.shape[0], *[1] * (u.ndim - 1))) * u,
    "divide": lambda rng, u: u / (1.5 + rng.random(u.shape[-1])).astype(u.dtype) + 3,
    "where": chosen,
    "select of three": chosen_of_three,
    "transpose": lambda rng, u: u.transpose(rng.permutation(u.ndim)),
    "flip": lambda rng, u: jnp.flip(u, axis_of(rng, u)),
    "ravel": lambda rng, u: u.reshape(-1),
    "reshape": factored,
    "concatenate": lambda rng, u: jnp.concatenate([u, numbers(rng, u), 2 * u], axis_of(rng, u)),
    "stack": lambda rng, u: jnp.stack([u, u[::-1]], int(rng.integers(u.ndim + 1))),
    "split": lambda rng, u: jnp.concatenate(jnp.split(u, [1], 0)[::-1], 0),
    "tile": lambda rng, u: jnp.tile(u, (2, *[1] * (u.ndim - 1))),
    "repeat": lambda rng, u: jnp.repeat(u, 2, axis_of(rng, u)),
    "broadcast": lambda rng, u: jnp.broadcast_to(u, (2, *u.shape)) if u.ndim < 4 else u,
    "squeeze": lambda rng, u: u[None].squeeze(),
    "sum": lambda rng, u: u.sum(axis_of(rng, u)) if u.ndim > 1 else u - u.sum(),
    "mean": lambda rng, u: u - u.mean(axis_of(rng, u), keepdims=True),
    "cumsum": lambda rng, u: jnp.cumsum(u, axis_of(rng, u)),
    "prefix sums": lambda rng, u: lax.associative_scan(jnp.add, u, axis=axis_of(rng, u)),
    "difference": lambda rng, u: jnp.diff(u, axis=0, append=u[:1]),
    "gradient": lambda rng, u: jnp.gradient(u, axis=0) if u.shape[0] > 1 else u,
    "neighbours": lambda rng, u: jnp.roll(u, 1, 0) - 2 * u + jnp.roll(u, -1, 0),
    "set boundary": lambda rng, u: u.at[(slice(None),) * axis_of(rng, u) + (0,)].set(1.5),
    "add boundary": lambda rng, u: u.at[-1].add(2 * u[0]),
    "set points": set_points,
    "add points": add_points,
    "multiply rows": multiplied,
    "strided set": strided_update,
    "update block": updated,
    "take": taken,
    "points": points,
    "dynamic slice": lambda rng, u: lax.dynamic_slice_in_dim(
        u, int(rng.integers(u.shape[0] + 2)), max(1, u.shape[0] - 1)
    ),
    "segment sum": segments,
    "product": product,
    "batched product": batched_product,
    "convolution": convolved,
    "window sum": windowed,
    "scan": scanned,
    "loop": looped,
    "vmap": mapped,
    "jit": lambda rng, u: jax.jit(lambda x: x[::-1] + 2 * x)(u),
    "remat": lambda rng, u: jax.checkpoint(lambda x: 3 * x - x[:1])(u),
    "triangle": lambda rng, u: jnp.tril(u) if u.ndim > 1 else u,
    "resize": resized,
    "sort": sorted_by_known,
    "permutation": lambda rng, u: jax.random.permutation(jax.random.key(int(rng.integers(99))), u, axis_of(rng, u)),
    "loop of each": looped_each,
    "sparse product": sparse_product,
    "triangular solve": triangular,
    "solve": solved,
    "largest of a window": largest_chosen,
    "window sum from a start": windowed_from,
    "fourier": transformed,
    "element": lambda rng, u: u + u.ravel()[-1] * numbers(rng, u),
    "negate": lambda rng, u: 1 - u,
}
NONLINEAR: dict[str, Callable[[Any], Any]] = {
    "square": lambda u: u * u,
    "exp": lambda u: jnp.exp(u),
    "abs": lambda u: jnp.abs(u),
    "divide": lambda u: 1 / u,
    "sort": lambda u: jnp.sort(u.real, 0),
    "max": lambda u: u.real.max(),
    "compare": lambda u: jnp.where(u.real > 0, u, 0),
}


def program(names: list[str], numbers_from: int) -> Callable[[Any], Any]:
    def f(u: Any) -> Any:
        rng = np.random.default_rng(numbers_from)
        for name in names:
            v = STEPS[name](rng, u)
            u = v if 0 < v.size <= MOST and v.ndim <= 5 else u
            u = u[None] if not u.ndim else u
        return u

    return f


def points_of(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Zero and all unit vectors."""
    size = int(np.prod(shape))
    return np.eye(size + 1, size, -1).reshape(-1, *shape).astype(dtype)


@cache
def images_of_each_step(number: int) -> dict[str, Any]:
    """What each step alone makes of the points, in one program."""
    steps = {name: program([name], number) for name in STEPS}
    one = jax.jit(lambda u: {name: f(u) for name, f in steps.items()})
    found = [one(point) for point in points_of(SHAPES[number], "float64")]
    return {name: np.stack([images[name] for images in found]) for name in STEPS}


def check(
    names: list[str], numbers_from: int, shape: tuple[int, ...], dtype: str, traced: bool, images: Any = None
) -> None:
    f = program(names, numbers_from)
    size, like = int(np.prod(shape)), jax.ShapeDtypeStruct(shape, np.dtype(dtype))
    if images is None:
        one = jax.jit(f)
        images = np.stack([one(point) for point in points_of(shape, dtype)])
    expected = (images[1:] - images[:1]).reshape(size, -1).T
    unit = 100 * np.finfo(dtype).eps * max(1.0, np.abs(images).max())
    if traced:
        found: list[Any] = []

        def values(scale: Any) -> Any:
            matrix, bias = matrix_from_function(lambda u: f(u * scale), like)
            found.append(bias)
            return matrix @ jnp.eye(size, dtype=dtype), bias

        dense, bias = jax.jit(values)(jnp.asarray(1, dtype))
        dense = np.asarray(dense)
    else:
        matrix, bias = matrix_from_function(f, like)
        dense = matrix.toarray()
        assert matrix.nnz == np.count_nonzero(dense)
    assert dense.shape == expected.shape and bias.shape == images.shape[1:] and bias.dtype == images.dtype
    np.testing.assert_allclose(dense, expected, atol=unit)
    np.testing.assert_allclose(bias, images[0], atol=unit)


PROGRAMS = {
    "names": st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=6),
    "numbers_from": st.integers(0, 10**6),
    "shape": st.sampled_from(SHAPES),
    "dtype": st.sampled_from(["float64", "float64", "float32", "complex128", "complex64"]),
}


@random_examples(default=12, merge=20, slow=1200, **PROGRAMS)
def test_programs(names: list[str], numbers_from: int, shape: tuple[int, ...], dtype: str) -> None:
    check(names, numbers_from, shape, dtype, traced=False)


@random_examples(default=3, merge=6, slow=200, **PROGRAMS)
def test_programs_with_traced_coefficients(names: list[str], numbers_from: int, shape: Any, dtype: str) -> None:
    check(names, numbers_from, shape, dtype, traced=True)


@pytest.mark.parametrize("number", [1, *(pytest.param(n, marks=pytest.mark.merge) for n in (0, 2))])
@pytest.mark.parametrize("name", STEPS)
def test_each_step_alone(name: str, number: int) -> None:
    images = images_of_each_step(number)[name]
    check([name], number, SHAPES[number], "float64", traced=False, images=images)


@random_examples(
    default=20,
    merge=40,
    slow=1000,
    names=st.lists(st.sampled_from(sorted(STEPS)), max_size=4),
    last=st.sampled_from(sorted(NONLINEAR)),
    numbers_from=st.integers(0, 99),
)
def test_nonlinear_programs(names: list[str], last: str, numbers_from: int) -> None:
    """Whatever comes before, a non-linear operation is found, unless nothing depends on the input any more."""
    f = program([n for n in names if n not in ("scale", "scale by number", "multiply rows")], numbers_from)
    with pytest.raises(NonlinearError, match=r"at .*test_jax_programs\.py:\d+ \("):
        matrix_from_function(lambda u: NONLINEAR[last](f(u)[..., :1] + 2 * u.sum()), jnp.zeros((4, 5)))
