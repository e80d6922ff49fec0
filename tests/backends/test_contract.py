"""Every primitive of a backend, in every mode and dtype, against plain NumPy in double precision."""

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from contract import (
    CELLS,
    DTYPES,
    EAGER_FLAGS,
    LONG,
    MODES,
    backend,
    check,
    covers,
    public_methods,
    real_of,
    rows,
    run,
    run_each,
    vectors,
    wide,
)
from frameworks import tf
from krylix.backends import Backend, choose_backend, nan_of
from modes import EAGER, array, compiled, to_numpy

cells = pytest.mark.parametrize(("mode", "dtype"), CELLS)
modes = pytest.mark.parametrize("mode", MODES)


class Primitive(NamedTuple):
    """A function of arrays: how to call it, what it should give (and of which size the rounding is), on what."""

    call: Callable[..., Any]
    want: Callable[..., Any]
    inputs: Callable[[str], list[tuple[np.ndarray, ...]]]
    size: Callable[..., Any] | None = None


def exactly(*_: np.ndarray) -> float:
    """Nothing is rounded."""
    return 0.0


def single(dtype: str) -> list[tuple[np.ndarray, ...]]:
    return [(v,) for v in vectors(dtype)]


def finite(dtype: str) -> list[tuple[np.ndarray, ...]]:
    return [(v,) for v in vectors(dtype, broken=False)]


def any_size(dtype: str) -> list[tuple[np.ndarray, ...]]:
    return [(v,) for v in vectors(dtype, magnitudes=True)]


def pairs(dtype: str) -> list[tuple[np.ndarray, ...]]:
    return [(v, rows(dtype, v.shape, 7)) for v in vectors(dtype)]


def real_pairs(dtype: str) -> list[tuple[np.ndarray, ...]]:
    return [(a.real, b.real) for a, b in pairs(dtype)]


def scaled(dtype: str) -> list[tuple[np.ndarray, ...]]:
    return [(rows(str(real_of(dtype)), (len(v), 1), 8), v) for v in vectors(dtype, broken=False)]


def quotients(dtype: str) -> list[tuple[np.ndarray, ...]]:
    a, b = rows(dtype, (6, 1)), rows(dtype, (6, 1), 9)
    a[0], a[1], a[2], b[:4] = 0, np.nan, np.inf, 0
    return [(a, b), (a, np.zeros_like(b))]


def quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(b == 0, 0, a / np.where(b == 0, 1, b))


def halved_power(v: np.ndarray) -> np.ndarray:
    """Binary scale by `frexp`."""
    largest = np.abs(v).max(axis=1, keepdims=True)
    return np.where(np.isfinite(largest) & (largest > 0), np.exp2(np.frexp(largest)[1] - 1.0), 1)


def euclidean(v: np.ndarray) -> np.ndarray:
    """In NumPy's longest format, whose squares do not overflow."""
    parts = np.concatenate([v.real, v.imag], axis=1).astype(np.longdouble)
    return np.sqrt(np.sum(parts**2, 1, keepdims=True)).astype(np.float64)


def with_empty(dtype: str) -> list[tuple[np.ndarray, ...]]:
    return [(rows(dtype, shape),) for shape in ((3, 4), (0, 4), (2, 0))]


def matrices(dtype: str) -> list[tuple[np.ndarray, ...]]:
    return [(rows(dtype, (4, 4)),), (rows(dtype, (3, 4, 4)),)]


def products(dtype: str) -> list[tuple[np.ndarray, ...]]:
    shapes = [((4, 3), (1, 3)), ((4, 3), (5, 3)), ((2, 4, 3), (2, 3)), ((1, 4, 3), (1, 3))]
    return [(rows(dtype, a), rows(dtype, b)) for a, b in [*shapes, ((3, 0), (2, 0)), ((0, 3), (2, 3))]]


def times_row(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.einsum("ij,bj->bi" if a.ndim == 2 else "bij,bj->bi", a, x)


PRIMITIVES = {
    "sqrt": Primitive(lambda bk, v: bk.sqrt(v), np.sqrt, lambda d: [(np.abs(v.real),) for v in vectors(d)]),
    "abs": Primitive(lambda bk, v: bk.abs(v), np.abs, single),
    "real": Primitive(lambda bk, v: bk.real(v), np.real, single),
    "conj": Primitive(lambda bk, v: bk.conj(v), np.conj, single),
    "isfinite": Primitive(lambda bk, v: bk.isfinite(v), np.isfinite, single),
    "where": Primitive(lambda bk, a, b: bk.where(bk.real(b) > 0, a, b), lambda a, b: np.where(b.real > 0, a, b), pairs),
    "maximum": Primitive(lambda bk, a, b: bk.maximum(a, b), np.maximum, real_pairs),
    "max_abs": Primitive(lambda bk, v: bk.max_abs(v), lambda v: np.abs(v).max(1, keepdims=True), any_size),
    "sum": Primitive(
        lambda bk, v: bk.sum(v, 1, keepdims=True),
        lambda v: v.sum(1, keepdims=True),
        single,
        lambda v: np.abs(v).sum(1, keepdims=True),
    ),
    "dot": Primitive(
        lambda bk, a, b: bk.dot(a, b),
        lambda a, b: np.sum(a.conj() * b, 1, keepdims=True),
        pairs,
        lambda a, b: np.sum(np.abs(a * b), 1, keepdims=True),
    ),
    "dots": Primitive(
        lambda bk, a, b: bk.dots((a, b), (b, b), (a, a)),
        lambda a, b: tuple(np.sum(u.conj() * v, 1, keepdims=True) for u, v in ((a, b), (b, b), (a, a))),
        lambda d: [(v, rows(d, v.shape, 7)) for (v,) in finite(d)],
        lambda a, b: np.sum((np.abs(a) + np.abs(b)) ** 2, 1, keepdims=True),
    ),
    "square_norm": Primitive(
        lambda bk, v: bk.square_norm(v), lambda v: np.sum(np.abs(v) ** 2, 1, keepdims=True), single
    ),
    "norm": Primitive(lambda bk, v: bk.norm(v), euclidean, any_size),
    "times": Primitive(lambda bk, a, v: bk.times(a, v), lambda a, v: a * v, scaled),
    "safe_divide": Primitive(lambda bk, a, b: bk.safe_divide(a, b), quotient, quotients),
    "reshape": Primitive(lambda bk, v: bk.reshape(v, (v.shape[1], -1)), lambda v: v.reshape(v.shape[1], -1), single),
    "concat": Primitive(
        lambda bk, a, b: (bk.concat([a, b, a], 0), bk.concat((a, b), 1)),
        lambda a, b: (np.concatenate([a, b, a]), np.concatenate([a, b], 1)),
        pairs,
    ),
    "stack": Primitive(lambda bk, a, b: bk.stack([a, b]), lambda a, b: np.stack([a, b]), pairs),
    "broadcast_to": Primitive(
        lambda bk, v: bk.broadcast_to(v[:, None], (v.shape[0], 3, v.shape[1])),
        lambda v: np.broadcast_to(v[:, None], (len(v), 3, v.shape[1])),
        single,
    ),
    "materialize": Primitive(lambda bk, v: bk.materialize(v), lambda v: v, with_empty, exactly),
    "pad_materialized": Primitive(
        lambda bk, v: tuple(bk.pad_materialized(v, *w) for w in ((2, 1), (0, 3), (0, 0))),
        lambda v: tuple(np.pad(v, [(0, 0), w]) for w in ((2, 1), (0, 3), (0, 0))),
        with_empty,
        exactly,
    ),
    "stack_materialized": Primitive(
        lambda bk, v: (bk.stack_materialized([v, 2 * v, v]), bk.stack_materialized([v])),
        lambda v: (np.stack([v, 2 * v, v]), v[None]),
        with_empty,
        exactly,
    ),
    "copy": Primitive(lambda bk, v: bk.copy(v), lambda v: v, single),
    "read_only": Primitive(lambda bk, v: bk.read_only(v), lambda v: v, single),
    "zeros_like": Primitive(lambda bk, v: bk.zeros_like(v), np.zeros_like, single),
    "full_like": Primitive(lambda bk, v: bk.full_like(v, 3), lambda v: np.full_like(v, 3), single),
    "matrix_transpose": Primitive(lambda bk, m: bk.matrix_transpose(m), lambda m: np.swapaxes(m, -1, -2), matrices),
    "diagonal": Primitive(lambda bk, m: bk.diagonal(m), lambda m: np.einsum("...ii->...i", m), matrices),
    "product": Primitive(
        lambda bk, a, x: bk.product(a, x), times_row, products, lambda a, x: times_row(np.abs(a), np.abs(x)) + 1e-300
    ),
}  # fmt: skip


@cells
def test_primitives(mode: str, dtype: str) -> None:
    """All of them in one program; no argument is written to."""
    every = [(name, case) for name, primitive in PRIMITIVES.items() for case in primitive.inputs(dtype)]
    before = [[a.copy() for a in case] for _, case in every]
    counts = np.cumsum([0, *(len(case) for _, case in every)])

    def all_cases(bk: Backend, *arrays: Any) -> tuple[Any, ...]:
        with bk.errstate():
            given = [arrays[start:end] for start, end in pairwise(counts)]
            return tuple(PRIMITIVES[name].call(bk, *own) for (name, _), own in zip(every, given, strict=True))

    found = run(mode, all_cases, *(a for _, case in every for a in case))
    for (name, case), old, got in zip(every, before, found, strict=True):
        _, want, _, size = PRIMITIVES[name]
        with np.errstate(all="ignore"):
            exact = want(*(wide(a) for a in case))
            bound = None if size is None else size(*(wide(a) for a in case))
        several = exact if isinstance(exact, tuple) else (exact,)
        for one, exact_one in zip(got if isinstance(got, tuple) else (got,), several, strict=True):
            check(one, exact_one.astype(np.complex128), dtype, bound, f"{name} of shapes {[a.shape for a in case]}")
            if exact_one.dtype.kind != "b":
                complex_ = exact_one.dtype.kind == "c"
                assert one.dtype == (np.dtype(dtype) if complex_ else real_of(dtype)), name
        for a, b in zip(case, old, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=name)


@covers("enable_double_precision")
@pytest.mark.parametrize("mode", EAGER)
def test_double_precision_is_there_when_asked_for(mode: str) -> None:
    backend(mode).enable_double_precision()
    assert str(backend(mode).dtype(backend(mode).asarray(np.ones(2)))) == "float64"


def test_every_primitive_has_a_test() -> None:
    """Here in the table, or in a test marked with `covers`."""
    tested = [path.read_text() for path in Path(__file__).parent.glob("test_co*.py")]
    marked = {
        name
        for text in tested
        for line in re.findall(r"^@covers\((.*?)\)", text, re.M)
        for name in re.findall(r'"([\w.]+)"', line)
    }
    assert public_methods() == marked | set(PRIMITIVES)


@cells
def test_nan_in_both_parts(mode: str, dtype: str) -> None:
    """Of complex numbers."""
    found = run(mode, lambda bk, x: bk.full_like(x, nan_of(bk.dtype(x))), rows(dtype, (2, 3)))
    assert found.shape == (2, 3) and found.dtype == dtype and np.isnan(found.real).all()
    assert found.dtype.kind != "c" or np.isnan(found.imag).all()


@covers("at_once")
@pytest.mark.parametrize("mode", ["numpy", "torch", "jax-jit", "tf-function"])
def test_at_once(mode: str) -> None:
    """What is computed of known numbers has values, while a function is compiled."""
    found: list[np.ndarray] = []

    def function(x: Any) -> Any:
        bk = choose_backend(x)
        with bk.at_once():
            found.append(np.array(bk.to_numpy(bk.sqrt(bk.asarray(np.array([4.0, 9.0]))))))
        return x

    compiled(mode, function)(array(mode, np.ones(1)))
    np.testing.assert_array_equal(found[0], [2, 3])


# ---- numbers of any magnitude


def scale_and_divide(bk: Backend, v: Any) -> tuple[Any, Any]:
    with bk.errstate():
        scale = bk.binary_scale(v)
        return scale, bk.times(1 / scale, v)


@covers("binary_scale")
@cells
def test_binary_scale(mode: str, dtype: str) -> None:
    """A power of two within a factor of four of the largest entry; dividing by it is exact; 1 where there is none."""
    cases = vectors(dtype, magnitudes=True)
    found = run(mode, lambda bk, *cases: tuple(scale_and_divide(bk, v) for v in cases), *cases)
    for v, (scale, divided) in zip(cases, found, strict=True):
        assert scale.dtype == real_of(dtype)
        assert np.all(np.frexp(scale)[0] == 0.5), "not a power of two"
        with np.errstate(all="ignore"):
            exact = halved_power(wide(v))
        assert np.all((scale == exact) | (scale == exact / 2)), f"{scale} for {v}"
        good = np.isfinite(v).all(axis=1)
        np.testing.assert_array_equal(divided[good] * scale[good], v[good])


@cells
def test_denormals(mode: str, dtype: str) -> None:
    """A compiler may flush them to zero, but nothing becomes infinite or NaN."""
    unit = np.finfo(dtype).smallest_subnormal * 1024
    v = (np.array([[3, 4], [0, 1]]) * float(unit)).astype(dtype)
    norm, scale = run(mode, lambda bk, v: (bk.norm(v), bk.binary_scale(v)), v)
    exact = np.array([[5], [1]]) * float(unit)
    assert np.all((norm == 0) | (np.abs(norm / exact - 1) < 1e-2))
    assert np.all(np.isfinite(scale) & (scale > 0))
    if mode in ("numpy", "torch"):
        assert np.all(norm > 0)


@pytest.mark.needs("tensorflow")
def test_largest_entries_in_programs_of_tensorflow() -> None:
    """XLA takes the largest number beside NaN, and TensorFlow an infinity of rows that turn out to be empty."""
    bk, x = backend("tf"), np.array([[1, np.nan, -3], [2, -np.inf, 0]])
    reductions = lambda v: (bk.max_abs(v), bk.xp.max(v, axis=1), bk.xp.min(v))  # noqa: E731
    expected = [[np.nan], [np.inf]], [np.nan, 2], np.nan
    for found, want in zip(tf.function(reductions, autograph=False, jit_compile=True)(x), expected, strict=True):
        np.testing.assert_array_equal(found, want)
    of_any_length = tf.function(bk.max_abs, autograph=False, input_signature=[tf.TensorSpec([None, None], tf.float64)])
    np.testing.assert_array_equal(of_any_length(x), expected[0])
    np.testing.assert_array_equal(of_any_length(x[:, :0]), np.zeros((2, 1)))


@pytest.mark.needs("tensorflow")
def test_shapes_that_are_tensors() -> None:
    """As `tf.shape` gives them where only a run of the program knows them."""
    bk, matrix = backend("tf"), tf.TensorSpec([None, None], tf.float64)

    @tf.function(autograph=False, input_signature=[matrix, matrix])
    def shaped(x: Any, like: Any) -> Any:
        shape, dtype = tf.shape(like), np.dtype(np.float64)
        made = (bk.full(shape, 2, dtype, like), bk.zeros((shape[0], 2), dtype, like), bk.zeros(shape, dtype, like))
        return bk.reshape(x, shape), bk.broadcast_to(x[:1, :4], shape), *made

    x = np.arange(12.0).reshape(2, 6)
    expected = x.reshape(3, 4), np.tile(x[0, :4], (3, 1)), np.full((3, 4), 2), np.zeros((3, 2)), np.zeros((3, 4))
    for found, want in zip(shaped(x, np.ones((3, 4))), expected, strict=True):
        np.testing.assert_array_equal(found, want)


@covers("any")
@modes
def test_any(mode: str) -> None:
    flags = [np.array([[True], [False]]), np.zeros((3, 1), bool), np.zeros((0, 1), bool)]
    found = run(mode, lambda bk, *f: tuple(bk.asarray(bk.any(c)) for c in f), *flags)
    assert [bool(f) for f in found] == [True, False, False]
    if mode in ("numpy", "torch", "tf"):
        assert backend(mode).any(array(mode, flags[0])).shape == ()


# ---- arrays: making, looking, casting


@covers("is_array", "asarray", "to_numpy", "dtype", "device", "compiled", "zeros", "full", "astype")
@cells
def test_arrays(mode: str, dtype: str) -> None:
    bk, x = backend(mode), rows(dtype, (2, 3))

    def look(bk: Backend, v: Any) -> tuple[Any, ...]:
        assert bk.is_array(v) and not bk.is_array([1.0]) and not bk.is_array(None)
        assert bk.dtype(v) == np.dtype(dtype) and bk.dtype(bk.real(v)) == real_of(dtype)
        assert bk.compiled(v) is EAGER_FLAGS[mode]
        assert bk.device(v) == bk.device(v)
        wider = np.dtype("complex128")
        made = bk.zeros((2, 0, 3), np.dtype(dtype), v), bk.full((3,), 2.5, np.dtype(dtype), v)
        return bk.astype(v, wider), bk.astype(v, np.dtype(dtype)), *made, bk.asarray(x.tolist(), np.dtype(dtype), v)

    wider, same, zeros, full, listed = run(mode, look, x)
    assert wider.dtype == np.complex128
    assert {a.dtype for a in (same, zeros, full, listed)} == {np.dtype(dtype)}
    for got in (wider, same, listed):
        np.testing.assert_array_equal(got, x)
    assert zeros.shape == (2, 0, 3)
    np.testing.assert_array_equal(full, np.full(3, 2.5))
    native = array(mode, x)
    assert bk.asarray(native) is native
    np.testing.assert_array_equal(bk.to_numpy(native), x)


@covers("stored_dtype", "default_float")
@pytest.mark.parametrize("mode", EAGER)
def test_dtypes_of_arrays(mode: str) -> None:
    bk = backend(mode)
    for dtype in (*DTYPES, "int32"):
        assert bk.stored_dtype(np.dtype(dtype)) == bk.dtype(bk.asarray(np.zeros(2, dtype)))
    assert bk.default_float == np.dtype("float64" if mode in ("numpy", "jax") else "float32")


@pytest.mark.parametrize("mode", ("numpy", "torch"))
def test_copy_is_owned_and_read_only_is_not_written(mode: str) -> None:
    bk, x = backend(mode), array(mode, rows("float64", (2, 3)).copy())
    before = to_numpy(x).copy()
    owned = bk.copy(x)
    owned += 1
    np.testing.assert_array_equal(to_numpy(x), before)
    if mode == "numpy":
        with pytest.raises(ValueError, match="read-only"):
            bk.read_only(x)[0] = 1


@covers("leaves", "unleaves", "call_user")
@modes
def test_containers_and_calls(mode: str) -> None:
    a, b = rows("float64", (2, 3)), rows("float64", (2, 3), 1)

    def through(bk: Backend, a: Any, b: Any) -> tuple[Any, ...]:
        leaves, structure = bk.leaves(a)
        assert len(leaves) == 1 and structure is None
        (c,) = bk.call_user(lambda x, factor, other: (factor * x + other,), bk.unleaves(structure, leaves), (3.0, b))
        if bk.name != "jax":
            return a, c
        leaves, structure = bk.leaves({"b": b, "a": (a,)})
        tree = bk.unleaves(structure, leaves)
        return tree["a"][0], c + 0 * tree["b"]

    same, image = run(mode, through, a, b)
    np.testing.assert_array_equal(same, a)
    np.testing.assert_allclose(image, 3 * a + b)


@covers("scatter_numbers")
@cells
def test_scatter_numbers(mode: str, dtype: str) -> None:
    """The same on every library up to rounding (of large arguments, in single precision), and without a pattern."""
    like = rows(dtype, (1, 3))
    found = run(mode, lambda bk, v: bk.scatter_numbers(4000, np.dtype(dtype), v), like)
    assert found.dtype == np.dtype(dtype) and found.shape == (4000,)
    assert np.all(np.abs(found) <= 0.5) and np.all(found.imag == 0)
    assert abs(found.mean()) < 0.05 and abs(found.real.std() - 12**-0.5) < 0.02
    assert abs(np.mean(found[1:] * found[:-1])) < 0.02
    if real_of(dtype) == np.float64:
        waves = np.sin(12.9898 * np.arange(1, 4001.0)) * 43758.5453
        np.testing.assert_allclose(found, waves - np.floor(waves) - 0.5, atol=1e-6)


# ---- updates


def strided(mode: str, v: np.ndarray) -> list[Any]:
    """As it is; where memory has strides, in column order, as products of several columns have it, and spread out."""
    own = array(mode, v.copy())
    if mode not in ("numpy", "torch"):
        return [own]
    return [own, array(mode, v.T.copy()).T, array(mode, np.repeat(v, 2, axis=1))[:, ::2]]


@covers("axpy", "xpay")
@cells
def test_updates(mode: str, dtype: str) -> None:
    """y may be overwritten, x and the scalars never are."""
    bk = backend(mode)
    update = compiled(mode, lambda a, x, y, z: (bk.axpy(a, x, y), bk.xpay(x, a, z)))
    for shape in ((1, 5), (3, 5), (1, LONG), (3, LONG), (2, 0), (1, 0), (2, 40_000)):
        a, x, y = rows(dtype, (shape[0], 1), 3), rows(dtype, shape, 4), rows(dtype, shape, 5)
        if shape[0] > 1 and shape[1]:
            y[1, 0] = np.nan
        size = np.abs(y) + np.abs(a * y) + np.abs(x) + np.abs(a * x)
        for source in strided(mode, x):
            for one, other in zip(strided(mode, y), strided(mode, y), strict=True):
                scalar = array(mode, a.copy())
                for got, exact in zip(
                    update(scalar, source, one, other), (y + wide(a) * x, x + wide(a) * y), strict=True
                ):
                    assert to_numpy(got).dtype == np.dtype(dtype)
                    check(to_numpy(got), exact, dtype, np.abs(exact) + size, f"{shape}")
                np.testing.assert_array_equal(to_numpy(scalar), a)
                np.testing.assert_array_equal(to_numpy(source), x)


@covers("axpy_norm", "axpy_xpay")
@cells
def test_fused_updates(mode: str, dtype: str) -> None:
    """As the two single updates, also for strided memory and rows of many blocks."""
    for shape in ((1, 5), (3, LONG), (1, 40_000)):
        a, b = rows(dtype, (shape[0], 1), 3), rows(dtype, (shape[0], 1), 6)
        p, x, z = (rows(dtype, shape, seed) for seed in (4, 5, 7))
        for stride in (1, 2) if mode in ("numpy", "torch") else (1,):
            own = [array(mode, np.repeat(v, stride, axis=1))[:, ::stride] for v in (p, x, z)]

            def both(a: Any, b: Any, p: Any, x: Any, z: Any) -> Any:
                bk = backend(mode)
                y, norm = bk.axpy_norm(a, p, bk.copy(x))
                return y, norm, *bk.axpy_xpay(a, p, x, z, b)

            y, norm, moved, direction = (
                to_numpy(v) for v in compiled(mode, both)(array(mode, a), array(mode, b), *own)
            )
            exact = wide(x) + wide(a) * p
            size = np.abs(wide(x)) + np.abs(wide(a) * p)
            check(y, exact, dtype, size, f"{shape}")
            check(moved, exact, dtype, size, f"{shape}")
            check(direction, z + wide(b) * p, dtype, np.abs(wide(z)) + np.abs(wide(b) * p), f"{shape}")
            np.testing.assert_allclose(norm[:, 0], np.sum(np.abs(exact) ** 2, axis=1), rtol=1e-4)
            assert norm.dtype == real_of(dtype) and norm.shape == (shape[0], 1)


# ---- dense linear algebra


def definite(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    m = rows(dtype, shape)
    return (m @ np.swapaxes(m.conj(), -1, -2) + 3 * np.eye(shape[-1])).astype(dtype)


@covers("linalg.lu_factor", "linalg.lu_solve")
@cells
@pytest.mark.parametrize("shape", [(5, 5), (3, 5, 5)])
def test_lu(mode: str, dtype: str, shape: tuple[int, ...]) -> None:
    m = rows(dtype, shape)
    m[..., 0, 0] = 0 if shape[-1] > 1 else 2  # needs its pivots
    for systems in (3,) if len(shape) == 3 else (1, 4):
        b = rows(dtype, (systems, shape[-1]), 2)

        def solutions(bk: Backend, m: Any, b: Any) -> tuple[Any, ...]:
            factors = bk.linalg.lu_factor(m)
            return bk.diagonal(factors[0]), *(bk.linalg.lu_solve(factors, b, transposed=t) for t in (False, True))

        diagonal, *found = run(mode, solutions, m, b)
        for x, matrix in zip(found, (wide(m), np.swapaxes(wide(m), -1, -2)), strict=True):
            exact = np.linalg.solve(matrix, b[..., None])[..., 0]
            assert x.dtype == np.dtype(dtype)
            np.testing.assert_allclose(x, exact, rtol=2000 * np.finfo(dtype).eps, atol=2000 * np.finfo(dtype).eps)
        np.testing.assert_allclose(np.abs(np.prod(diagonal, -1)), np.abs(np.linalg.det(wide(m))), rtol=1e-4)


@covers("linalg.inverse")
@pytest.mark.parametrize("n", [5, 40])
@cells
def test_inverse(mode: str, dtype: str, n: int) -> None:
    """Of a batch, in which one matrix is singular and needs its pivots."""
    m = rows(dtype, (4, n, n))
    m[0, 0, 0], m[2] = 0, 1
    found = run(mode, lambda bk, m: bk.linalg.inverse(m), m)
    good = [0, 1, 3]
    assert found.dtype == np.dtype(dtype) and found.shape == m.shape
    exact = np.linalg.inv(wide(m)[good])
    np.testing.assert_allclose(found[good], exact, rtol=1e-3, atol=5e3 * np.finfo(dtype).eps * np.abs(exact).max())


@modes
def test_singular_matrices_pass_lu(mode: str) -> None:
    good = rows("float64", (3, 3))
    batch = np.stack([good, np.ones((3, 3)), np.zeros((3, 3))])

    def solution(bk: Backend, m: Any, b: Any) -> tuple[Any, Any]:
        factors = bk.linalg.lu_factor(m)
        return bk.diagonal(factors[0]), bk.linalg.lu_solve(factors, b)

    diagonal, x = run(mode, solution, batch, np.ones((3, 3)))
    np.testing.assert_allclose(x[0], np.linalg.solve(good, np.ones(3)))
    # zero pivots up to rounding, as TensorFlow's graphs have QR factors in place of LU
    assert (np.isnan(x[1:]) | (np.abs(x[1:]) > 1e12)).any(axis=1).all()
    assert np.count_nonzero(np.abs(diagonal[1]) > 1e-12) == 1 and not diagonal[2].any()


@covers("linalg.solve_triangular")
@cells
@pytest.mark.parametrize("lower", [False, True])
def test_solve_triangular(mode: str, dtype: str, lower: bool) -> None:
    """The other triangle is not looked at."""
    shapes = ((1, 5, 5), (3, 4, 4), (2, 1, 1), (4, 4))
    given = [((rows(dtype, s) + 3 * np.eye(s[-1])).astype(dtype), rows(dtype, s[:2], 2)) for s in shapes]
    solve = lambda bk, m, b: bk.linalg.solve_triangular(m, b, lower=lower)  # noqa: E731
    for (m, b), x in zip(given, run_each(mode, [(solve, pair) for pair in given]), strict=True):
        exact = np.linalg.solve((np.tril if lower else np.triu)(wide(m)), b[..., None])[..., 0]
        assert x.dtype == np.dtype(dtype)
        np.testing.assert_allclose(x, exact, rtol=500 * np.finfo(dtype).eps, atol=500 * np.finfo(dtype).eps)


@covers("linalg.cholesky", "linalg.cholesky_solve")
@cells
def test_cholesky(mode: str, dtype: str) -> None:
    for shape in ((4, 4), (3, 4, 4), (1, 1)):
        m, b = definite(dtype, shape), rows(dtype, (3, shape[-1]), 2)
        factor = np.linalg.cholesky(wide(m)).astype(dtype)
        exact = np.linalg.solve(wide(m), b[..., None])[..., 0]
        solution = run(mode, lambda bk, f, b: bk.linalg.cholesky_solve(f, b), factor, b)
        assert solution.dtype == np.dtype(dtype)
        np.testing.assert_allclose(solution, exact, rtol=2000 * np.finfo(dtype).eps, atol=100 * np.finfo(dtype).eps)
        if EAGER_FLAGS[mode]:
            unknown = run(mode, lambda bk, m: bk.asarray(bk.linalg.cholesky(m) is None), m)
            assert bool(unknown)
            continue
        np.testing.assert_allclose(run(mode, lambda bk, m: bk.linalg.cholesky(m), m), factor, rtol=1e-4, atol=1e-5)
        one = m.copy()
        one[len(m) // 2] *= -1  # spoils a batch
        eye = np.eye(shape[-1])
        for bad in (one, m - 50 * eye.astype(dtype), 0 * m, np.nan * m, np.where(eye > 0, np.inf, m)):
            assert backend(mode).linalg.cholesky(array(mode, bad.astype(dtype))) is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", EAGER)
def test_factors_do_not_touch_the_matrix(mode: str, dtype: str) -> None:
    bk, m = backend(mode), definite(dtype, (4, 4))
    native, b = array(mode, m.copy()), array(mode, rows(dtype, (2, 4)))
    before = to_numpy(b).copy()
    bk.linalg.lu_solve(bk.linalg.lu_factor(native), b)
    bk.linalg.cholesky_solve(bk.linalg.cholesky(native), b)
    np.testing.assert_array_equal(to_numpy(native), m)
    np.testing.assert_array_equal(to_numpy(b), before)
