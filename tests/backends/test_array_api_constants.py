"""Arrays of NumPy beside those of a library of the standard: constants of it, in the dtype of both together."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import arrays_on_a_device
import krylix
from krylix import choose_backend

LIBRARIES = ("array_api_strict", "arrays_on_a_device")
DTYPES = (np.int32, np.int64, np.float32, np.float64, np.complex64, np.complex128)
OWN = np.array([1.0, 2.0, np.nan, 4.0])
BESIDE = np.array([4.0, 1.5, 1.0, 0.25])
MASK = np.array([True, False, True, False])


def namespace(library: str) -> Any:
    return arrays_on_a_device.library if library == "arrays_on_a_device" else pytest.importorskip(library)


def same(bk: Any, found: Any, expected: np.ndarray) -> None:
    assert bk.is_array(found) and bk.dtype(found) == expected.dtype
    np.testing.assert_allclose(bk.to_numpy(found), expected)


def together(own: np.ndarray, other: Any) -> Any:
    """The dtype of both, by the rule of `xp`."""
    return choose_backend("numpy").xp.result_type(own, other)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_where_and_maximum(library: str, dtype: Any) -> None:
    """Nothing of a wider or complex operand is lost."""
    xp = namespace(library)
    own = np.nan_to_num(OWN).astype(dtype)
    x, mask = xp.asarray(own), xp.asarray(MASK)
    bk = choose_backend(x)
    others = [np.asarray(BESIDE * (1 + 2j if np.dtype(other).kind == "c" else 1)).astype(other) for other in DTYPES]
    for other in (*others, *(other[1] for other in others), 2, 2.5, 1j):
        wide = together(own, other)
        for condition in (mask, MASK):
            same(bk, bk.where(condition, x, other), np.where(MASK, own, other).astype(wide))
            same(bk, bk.where(condition, other, x), np.where(MASK, other, own).astype(wide))
        if np.dtype(wide).kind != "c":
            same(bk, bk.maximum(x, other), np.maximum(own, other).astype(wide))
            same(bk, bk.maximum(other, x), np.maximum(other, own).astype(wide))
    with pytest.raises(TypeError, match="expected an array"):
        bk.where(mask, 1.0, 2.0)
    same(bk, bk.maximum(xp.asarray(OWN), BESIDE), np.maximum(OWN, BESIDE))


CALLS: dict[str, Callable[..., Any]] = {
    "add": lambda xp, x, y: xp.add(x, y),
    "matmul": lambda xp, x, y: xp.matmul(x, y),
    "divide": lambda xp, x, y: xp.divide(y, x),
    "pow": lambda xp, x, y: xp.pow(x, y),
    "searchsorted": lambda xp, x, y: xp.searchsorted(x, y),
    "tensordot": lambda xp, x, y: xp.tensordot(x, y, axes=1),
    "concat": lambda xp, x, y: xp.concat([y, x]),
    "stack": lambda xp, x, y: xp.stack((x, y), axis=1),
    "where": lambda xp, x, y: xp.where(MASK, x, y),
    "clip": lambda xp, x, y: xp.clip(x, y, None),
    "diff": lambda xp, x, y: xp.diff(x, append=y),
    "take": lambda xp, x, y: xp.take(x, np.array([[1, 0], [3, 3]])),
    "take_along_axis": lambda xp, x, y: xp.take_along_axis(x, np.array([3, 0])),
    "repeat": lambda xp, x, y: xp.repeat(x, np.array([1, 0, 2, 1])),
    "linalg.solve": lambda xp, x, y: xp.linalg.solve(xp.multiply(x, np.eye(4)), y),
    "linalg.outer": lambda xp, x, y: xp.linalg.outer(y, x),
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", CALLS)
def test_functions_of_several_arrays(name: str, library: str) -> None:
    own, y = np.arange(1.0, 5.0), BESIDE
    x = namespace(library).asarray(own)
    bk, numpy = choose_backend(x), choose_backend("numpy")
    expected = own[[[1, 0], [3, 3]]] if name == "take" else CALLS[name](numpy.xp, own, y)
    same(bk, CALLS[name](bk.xp, x, y), expected)
    if name in ("concat", "stack"):
        same(bk, CALLS[name](bk, x, y), expected)


@pytest.mark.parametrize("method", ["CG", "direct", "scipy-direct"])
def test_a_library_without_arrays_of_numpy_solves(method: str) -> None:
    A = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(4, 4)).tocsr()
    b = arrays_on_a_device.library.asarray(BESIDE)
    for matrix in (A, arrays_on_a_device.library.asarray(A.toarray()), lambda x: 2.5 * x):
        x = krylix.linear_solve(matrix, b, method=method, x0=np.ones(4)).x
        exact = BESIDE / 2.5 if callable(matrix) else np.linalg.solve(A.toarray(), BESIDE)
        np.testing.assert_allclose(x.get(), exact, atol=1e-6)
