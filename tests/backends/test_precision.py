"""In which precision krylix computes: contexts, threads, and what a solve returns."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from contract import CELLS, COMPILES
from krylix import get_precision, precision, set_global_precision
from krylix.backends import working_dtype
from modes import array, solve

BITS = (32, 64)


@pytest.fixture(autouse=True)
def restored() -> object:
    before = get_precision()
    yield
    set_global_precision(before)


def test_contexts_nest() -> None:
    assert get_precision() is None
    with precision(32):
        assert get_precision() == 32
        with precision(64), precision(None):
            assert get_precision() is None
        with pytest.raises(KeyError), precision(16):
            assert get_precision() == 16
            raise KeyError
        assert get_precision() == 32
    assert get_precision() is None


def test_global_precision_is_overridden_locally() -> None:
    set_global_precision(64)
    assert get_precision() == 64
    with precision(32):
        set_global_precision(None)
        assert get_precision() == 32
    assert get_precision() is None


def test_threads() -> None:
    """A context belongs to its thread, the global precision to all."""
    barrier = threading.Barrier(3)

    def work(bits: int | None) -> tuple[int | None, int | None]:
        with precision(bits):
            barrier.wait(10)
            inside = get_precision()
            barrier.wait(10)
        return inside, get_precision()

    set_global_precision(64)
    with precision(32), ThreadPoolExecutor(3) as pool:
        assert list(pool.map(work, [16, None, 32])) == [(16, 64), (None, 64), (32, 64)]


@pytest.mark.parametrize("bits", [8, 128, "32", 0, 32.5, True])
def test_other_numbers_are_refused(bits: object) -> None:
    with pytest.raises(ValueError, match=r"16, 32, 64 .* or None"):
        set_global_precision(bits)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="got"), precision(bits):  # type: ignore[arg-type]
        pass
    assert get_precision() is None


FOLLOWED = {
    "float32": "float32",
    "float64": "float64",
    "complex64": "complex64",
    "complex128": "complex128",
    "int8": "float64",
    "int32": "float64",
    "int64": "float64",
    "uint8": "float64",
    "bool": "float64",
}


@pytest.mark.parametrize("dtype", FOLLOWED)
def test_working_dtype(dtype: str) -> None:
    found = np.dtype(dtype)
    assert working_dtype(found) == np.dtype(FOLLOWED[dtype])
    with precision(32):
        assert working_dtype(found) == np.dtype("complex64" if found.kind == "c" else "float32")
        assert working_dtype(found, complex_=True) == np.complex64
    with precision(64):
        assert working_dtype(found) == np.dtype("complex128" if found.kind == "c" else "float64")
    if found.kind in "biu":
        assert working_dtype(found, integer=np.dtype("float32")) == np.float32
        assert working_dtype(found, integer=np.dtype("complex64"), complex_=True) == np.complex64
    else:
        assert working_dtype(found, complex_=True).itemsize == 2 * np.empty(0, found).real.itemsize


@pytest.mark.parametrize("dtype", ["float16", "longdouble", "clongdouble", "U3", "O", "datetime64[s]"])
def test_dtypes_that_are_refused(dtype: str) -> None:
    with pytest.raises(TypeError, match=r"krylix (computes|solves) .*(float32 or float64|got an array of dtype)"):
        working_dtype(np.dtype(dtype))


def system(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    A = np.array([[4.0, 1, 0], [1, 3, -1], [0, -1, 5]]).astype(dtype)
    return (
        (A + np.diag([0, 1j, 0]).astype(dtype), np.array([1, 2j, 3], dtype)) if "c" in dtype else (A, np.ones(3, dtype))
    )


def wait(mode: str, dtype: str, bits: int) -> bool:
    """Programs are to change the width: of a narrow dtype in double precision, and of a wide one in single."""
    return mode in ("jax", "jax-jit", "tf-function") and bits == (32 if dtype in ("float32", "complex64") else 64)


@pytest.mark.compiled_by_default(modes=("jax-jit", "tf-function"))
@pytest.mark.parametrize(
    ("mode", "dtype", "bits"),
    [
        pytest.param(mode, dtype, bits, marks=pytest.mark.slow if wait(mode, dtype, bits) else ())
        for mode, dtype in CELLS
        if mode != "jax-jit" or dtype == "float32"
        for bits in BITS
    ],
)
def test_solve_in_a_precision(mode: str, bits: int, dtype: str) -> None:
    A, b = system(dtype)
    exact = np.linalg.solve(A.astype(np.complex128), b)
    expected = np.dtype(f"complex{2 * bits}" if "c" in dtype else f"float{bits}")
    matrices = array(mode, A), sp.csr_array(A)
    with precision(bits):
        for matrix in matrices[bits == 64 :][:1] if mode in COMPILES else matrices:  # each is a program
            result = solve(mode, matrix, b, method="direct")
            assert result.x.dtype == expected
            np.testing.assert_allclose(result.x, exact, rtol=1e-4 if bits == 32 else 1e-10, atol=1e-10)
    assert solve(mode, array(mode, A), b, method="direct").x.dtype == np.dtype(dtype)


@pytest.mark.parametrize("mode", ("numpy", "jax", "torch", "tf"))
def test_half_precision_is_refused(mode: str) -> None:
    b = array(mode, np.ones(2, np.float32))
    A = np.eye(2, dtype=np.float32)
    with precision(16), pytest.raises(TypeError, match=r"16-bit numbers .* Cast the inputs to float32 or float64"):
        krylix.linear_solve(A, b)
    half = array(mode, np.ones(2, np.float16))
    with pytest.raises(TypeError, match=r"precision\(32\)"):
        krylix.linear_solve(A, half)
    with precision(32):
        assert krylix.linear_solve(A, half, method="CG").converged


@pytest.mark.parametrize("mode", ("numpy", "jax", "torch", "tf"))
def test_global_precision_in_a_solve(mode: str) -> None:
    set_global_precision(32)
    result = solve(mode, np.diag([1.0, 2.0]), np.ones(2))
    assert result.x.dtype == np.float32
    assert krylix.as_operator(np.eye(2)).dtype == np.float32


@pytest.mark.parametrize("mode", ("numpy", "jax", "torch", "tf"))
def test_integers(mode: str) -> None:
    """Integer right-hand sides take the precision of a matrix, else the library's own."""
    b = np.array([1, 2])
    assert solve(mode, array(mode, np.eye(2, dtype=np.float32)), b, method="CG").x.dtype == np.float32
    assert solve(mode, np.eye(2), b, method="CG").x.dtype == np.float64
    own = {"numpy": "float64", "jax": "float64", "torch": "float32", "tf": "float32"}[mode]
    result = solve(mode, array(mode, np.diag([1, 2])), b, method="CG")
    assert result.x.dtype == np.dtype(own)
    np.testing.assert_allclose(result.x, [1, 1])
