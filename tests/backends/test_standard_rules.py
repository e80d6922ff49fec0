"""One promotion rule on all libraries, the dtypes of new arrays, and what is refused."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import krylix
from frameworks import jax, tf, torch
from krylix.backends import get_backend
from standard import DTYPES

BACKENDS = ("numpy", "jax", "torch", "tensorflow")
DEFAULT = {"numpy": "float64", "jax": "float64", "torch": "float32", "tensorflow": "float32"}
COMPLEX = {"float32": "complex64", "float64": "complex128"}


def dtype_of(backend: str, x: Any) -> str:
    return get_backend(backend).dtype(x).name


def dtypes(backend: str) -> list[str]:
    return [d for d in DTYPES if backend != "torch" or d != "uint16"]


def promoted(a: str, b: str) -> str:
    """The rule, once more."""
    kinds = np.dtype(a).kind, np.dtype(b).kind
    if kinds[0] in "iu" and kinds[1] in "fc":
        return b
    if kinds[1] in "iu" and kinds[0] in "fc":
        return a
    return np.promote_types(a, b).name


def with_number(dtype: str, number: Any, real: str) -> str:
    kind = np.dtype(dtype).kind
    if isinstance(number, complex):
        return dtype if kind == "c" else COMPLEX[dtype if kind == "f" else real]
    if isinstance(number, float):
        return dtype if kind in "fc" else real
    return "int64" if kind == "b" and not isinstance(number, bool) else dtype


@pytest.mark.parametrize("backend", ("numpy", "jax", "torch", pytest.param("tensorflow", marks=pytest.mark.merge)))
def test_two_arrays(backend: str) -> None:
    xp = get_backend(backend).xp
    own = [xp.asarray([1], dtype=getattr(xp, name)) for name in dtypes(backend)]
    wrong = []
    for a, x in zip(dtypes(backend), own, strict=True):
        for b, y in zip(dtypes(backend), own, strict=True):
            found = [np.dtype(xp.result_type(x, y).as_numpy_dtype) if backend == "tensorflow" else xp.result_type(x, y)]
            if backend != "jax":  # which would compile each of them
                found += [xp.where(True, x, y).dtype, xp.concat([x, y[0:0]]).dtype, xp.stack([x[0], y[0]]).dtype]
                found += [xp.add(x, y[0]).dtype] if {a, b} != {"bool"} else []
            wrong += [f"{a}, {b}: {d}, expected {promoted(a, b)}" for d in found if d != getattr(xp, promoted(a, b))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("bits", (None, 32))
@pytest.mark.parametrize("backend", BACKENDS)
def test_numbers_only_raise_the_kind(backend: str, bits: int | None) -> None:
    xp = get_backend(backend).xp
    with krylix.precision(bits):
        real = DEFAULT[backend] if bits is None else f"float{bits}"
        for dtype in dtypes(backend):
            x = xp.asarray([1, 0], dtype=getattr(xp, dtype))
            for number in (True, 1, 1.5, 1j):
                expected = getattr(xp, with_number(dtype, number, real))
                assert xp.result_type(x, number) == xp.result_type(number, x.dtype) == expected, (dtype, number)
    few = (xp.asarray([1, 2], dtype=np.int32), xp.asarray([1, 2], dtype=np.float32))
    with krylix.precision(bits):
        assert [dtype_of(backend, xp.multiply(x, 0.5)) for x in few] == [real, "float32"]
        assert [dtype_of(backend, xp.clip(x, 0, 1j.imag)) for x in few] == [real, "float32"]
        assert [dtype_of(backend, xp.where(xp.asarray([True, False]), 1j, x)) for x in few] == [
            COMPLEX[real],
            "complex64",
        ]


@pytest.mark.parametrize("bits", (None, 32, 64))
@pytest.mark.parametrize("backend", BACKENDS)
def test_new_real_numbers(backend: str, bits: int | None) -> None:
    """In JAX as a program has them, which is not compiled: what it runs eagerly would be, operation by operation."""
    xp = get_backend(backend).xp
    counts = xp.asarray([[1, 2], [3, 5]])

    def made(counts: Any) -> tuple[list[Any], list[Any], list[Any]]:
        real = [
            xp.zeros(2), xp.ones((1, 2)), xp.empty(1), xp.eye(2), xp.linspace(0, 1, 2), xp.asarray([1, 2.5]),
            xp.asarray(0.5), xp.arange(2.0), xp.arange(0, 1, 0.5), xp.full(2, 0.5), xp.fft.fftfreq(3),
            xp.sqrt(counts), xp.mean(counts), xp.divide(counts, counts), xp.atan2(counts, 1), xp.linalg.inv(counts),
            xp.linalg.solve(counts, xp.asarray([1, 2])), xp.linalg.vector_norm(counts),
            xp.std(xp.asarray([True, False])),
        ]  # fmt: skip
        complex_ = [xp.asarray([1j]), xp.full(1, 1j), xp.linspace(0, 1j, 2), xp.fft.fft(counts)]
        return real, complex_, [xp.asarray([1, 2]), xp.arange(3), xp.full(2, 1)]

    with krylix.precision(bits):
        real = DEFAULT[backend] if bits is None else f"float{bits}"
        found = shapes_in_jax(made, counts) if backend == "jax" else made(counts)
        for arrays, expected in zip(found, (real, COMPLEX[real], "int64"), strict=True):
            assert {np.dtype(x.dtype).name if backend == "jax" else dtype_of(backend, x) for x in arrays} == {expected}
        assert dtype_of(backend, xp.zeros(2, dtype=np.float64)) == "float64"
        assert dtype_of(backend, xp.asarray(np.ones(2))) == "float64"  # an array has a dtype already
        assert xp.__array_namespace_info__().default_dtypes()["real floating"] == getattr(xp, real)
    np.testing.assert_allclose(get_backend(backend).to_numpy(xp.divide(counts, 2)), [[0.5, 1], [1.5, 2.5]])


def shapes_in_jax(function: Any, *arrays: Any) -> Any:
    return jax.eval_shape(function, *arrays)


@pytest.mark.needs("jax")
def test_jax_in_single_precision() -> None:
    xp = get_backend("jax").xp
    with jax.enable_x64(False):
        counts = xp.asarray([1, 2])
        made = [xp.zeros(1), xp.sqrt(counts), xp.asarray([1.5]), xp.add(counts, 1.5), xp.asarray([1j]).real]
        assert {x.dtype.name for x in made} == {"float32"}
        small = xp.asarray([1], dtype=np.int8)
        sums = counts, xp.sum(counts), xp.searchsorted(counts, counts), xp.cumulative_sum(small)
        assert {x.dtype.name for x in sums} == {"int32"}
        assert xp.sum(xp.asarray([200, 100], dtype=np.uint8)) == 300


def test_default_backend() -> None:
    chosen = krylix.default_backend()
    try:
        krylix.use("torch")
        assert krylix.default_backend().xp is get_backend("torch").xp
        with get_backend("numpy"):
            assert isinstance(krylix.choose_backend().xp.zeros(2), np.ndarray)
    finally:
        krylix.use(chosen)


@pytest.mark.parametrize("backend", BACKENDS)
def test_small_integers_do_not_wrap(backend: str) -> None:
    xp, bk = get_backend(backend).xp, get_backend(backend)
    x = xp.asarray([100, 100, 100], dtype=np.int8)
    sums = xp.sum(x), xp.cumulative_sum(x)[-1], xp.linalg.trace(x[:, None] + 0 * x)
    found = [*sums, xp.prod(x), xp.cumulative_prod(x)[-1]]
    assert [int(bk.to_numpy(y)) for y in found] == [300, 300, 300, 10**6, 10**6]


@pytest.mark.parametrize("backend", BACKENDS)
def test_refusals_say_what_to_do(backend: str) -> None:
    xp = get_backend(backend).xp
    small, real = xp.asarray([1, 2], dtype=np.uint8), xp.asarray([[1.0, 2.0]])
    with pytest.raises(AttributeError, match=r"concatenate is none of them\. Did you mean concat"):
        xp.concatenate([small])
    with pytest.raises(AttributeError, match=r"linalg\.lstsq is none"):
        _ = xp.linalg.lstsq
    with pytest.raises(TypeError, match=r"expected an array.*xp\.asarray"):
        xp.add([1, 2], 1)
    with pytest.raises(TypeError, match=r"expected an array.*xp\.asarray"):
        xp.add(1, 2)
    for call in (lambda: xp.add(real, None), lambda: xp.where(real > 0, None, real), lambda: xp.result_type()):
        with pytest.raises(TypeError, match="got None; expected an array"):
            call()
    with pytest.raises(OverflowError, match=r"300 beside an array of uint8.*xp\.astype"):
        xp.add(small, 300)
    with pytest.raises(ValueError, match=r"exponent -1.*not negative"):
        xp.pow(small, -1)
    with pytest.raises(TypeError, match=r"complex.*xp\.real"):
        xp.astype(xp.asarray([1j]), np.float32)
    with pytest.raises(TypeError, match="has no dtype 'object'"):
        xp.zeros(1, dtype="object")
    with pytest.raises(ValueError, match="no arrays"):
        xp.concat([])
    with pytest.raises((ValueError, IndexError, TypeError)):
        xp.squeeze(real, axis=1)
    with pytest.raises((ValueError, IndexError)):
        xp.max(xp.zeros((0,)))
    with pytest.raises(ValueError):
        xp.vecdot(real, real[:, :1])
    other = get_backend("torch" if backend != "torch" else "jax").xp.ones(2)
    with pytest.raises(TypeError, match=r"krylix\.convert"):
        xp.add(small, other)


@pytest.mark.needs("torch")
def test_dtypes_that_torch_has_no_arithmetic_for() -> None:
    xp = get_backend("torch").xp
    for name in ("uint16", "uint32", "uint64"):
        with pytest.raises(AttributeError, match=f"{name}: .*wider signed"):
            getattr(xp, name)
        with pytest.raises(TypeError, match="wider signed"):
            xp.asarray([1], dtype=name)


@pytest.mark.needs("torch")
def test_torch_keeps_derivatives_of_what_it_is_given() -> None:
    xp = get_backend("torch").xp
    x = torch.ones(2, requires_grad=True)
    for y in (xp.asarray(x), xp.asarray(x, copy=True), xp.asarray([x[0], 3]), xp.astype(x, xp.float64)):
        assert y.requires_grad
    with pytest.raises(TypeError, match=r"uint16.*cast"):
        xp.asarray(np.ones(2, np.uint16))
    assert xp.asarray(np.ones(2, np.uint16), dtype=xp.int32).dtype == torch.int32


@pytest.mark.needs("tensorflow")
def test_tensorflow_cholesky_of_indefinite_matrices() -> None:
    """TensorFlow itself returns memory as it found it where they are complex."""
    xp = get_backend("tensorflow").xp
    for dtype in (np.complex64, np.complex128, np.float64):
        with pytest.raises(Exception, match=r"positive definite|Cholesky"):
            xp.linalg.cholesky(xp.asarray([[1, 2], [2, 1]], dtype=dtype))


@pytest.mark.parametrize("backend", BACKENDS)
def test_arrays_of_numpy_mix(backend: str) -> None:
    """They are constants to every library; what is made of them shares no memory that their owner writes to."""
    xp, bk = get_backend(backend).xp, get_backend(backend)
    host = np.arange(6.0).reshape(2, 3)[:, ::-1]
    host.flags.writeable = False
    x = xp.asarray(host, copy=True)
    np.testing.assert_array_equal(bk.to_numpy(x), host)
    assert bk.is_array(x) and bk.is_array(xp.add(host, x)) and bk.is_array(xp.where(host > 2, x, host.astype(np.int8)))
    assert dtype_of(backend, xp.concat([x, host.astype(np.int32)])) == "float64"


@pytest.mark.parametrize("backend", BACKENDS)
def test_search_among_nan(backend: str) -> None:
    xp = get_backend(backend).xp
    x1, x2 = np.array([1.0, 2.0, np.nan, np.nan]), np.array([np.nan, 1.0, 3.0, np.inf])
    for side in ("left", "right"):
        found = xp.searchsorted(xp.asarray(x1), xp.asarray(x2), side=side)
        np.testing.assert_array_equal(np.asarray(found), np.searchsorted(x1, x2, side))


@pytest.mark.parametrize("backend", BACKENDS)
def test_limits_by_classes_of_numpy(backend: str) -> None:
    xp = get_backend(backend).xp
    assert xp.finfo(np.float32).bits == 32 and xp.iinfo(np.int8).max == 127
    assert xp.can_cast(np.int8, np.int16) and xp.result_type(np.float32, np.int8) == xp.float32


@pytest.mark.parametrize("backend", ["jax", "torch", "tensorflow"])
def test_bfloat16(backend: str) -> None:
    xp = get_backend(backend).xp
    own = {"jax": "jax.numpy", "torch": "torch", "tensorflow": "tensorflow"}[backend]
    bfloat16 = importlib.import_module(own).bfloat16
    x = xp.astype(xp.asarray([1.5, 2.0]), bfloat16)
    assert (x + x).dtype == bfloat16
    assert xp.add(x, xp.ones(2, dtype=xp.float32)).dtype == xp.float32
    if backend != "jax":
        with pytest.raises(TypeError, match=r"bfloat16.*, which NumPy has not"):
            xp.finfo(bfloat16)


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_constant_places(backend: str) -> None:
    """Arrays of NumPy beside one of the library."""
    xp = get_backend(backend).xp
    x, i = xp.reshape(xp.arange(6.0), (2, 3)), np.array([[2, -1], [0, 1]])
    np.testing.assert_array_equal(np.asarray(xp.take(x, i[0], axis=1)), [[2, 2], [5, 5]])
    np.testing.assert_array_equal(np.asarray(xp.take_along_axis(x, i, axis=1)), [[2, 2], [3, 4]])
    shapes = [tuple(y.shape) for y in xp.broadcast_arrays(x, np.ones(3, np.float32))]
    assert shapes == [(2, 3), (2, 3)]
    np.testing.assert_array_equal(np.asarray(xp.repeat(x, np.array([1, 0, 2]), axis=1)), [[0, 2, 2], [3, 5, 5]])


@pytest.mark.needs("tensorflow")
def test_results_are_no_variables() -> None:
    """Which would change with them."""
    xp, v = get_backend("tensorflow").xp, tf.Variable([1.0, 2.0])
    found = [xp.real(v), xp.conj(v), xp.squeeze(v, ()), xp.flip(v, axis=()), xp.fft.fftshift(v, axes=())]
    v.assign([7.0, 7.0])
    assert all(np.array_equal(y.numpy(), [1, 2]) for y in found)


def test_rank_of_jax_in_the_pseudo_inverse() -> None:
    """The standard's bound, as in NumPy."""
    x = np.diag([1.0, 1e-15])
    for backend in ("numpy", "jax"):
        xp = get_backend(backend).xp
        np.testing.assert_allclose(np.asarray(xp.linalg.pinv(xp.asarray(x)))[1, 1], 1e15, rtol=1e-6)
