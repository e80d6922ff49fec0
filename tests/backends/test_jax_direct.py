"""Operations of XLA in the place of functions of `jnp`: the same numbers, dtypes and shapes, for any of them."""

from itertools import cycle, product
from typing import Any

import numpy as np
import pytest

from frameworks import lazy
from krylix.backends import get_backend

jax = lazy("jax")
jnp = lazy("jax.numpy")
direct = lazy("krylix.backends.jax.vectors")

REAL = ("float32", "float64")
COMPLEX = ("complex64", "complex128")


def rows(dtype: str) -> np.ndarray:
    """Of two entries, of all that there is besides ordinary numbers."""
    limits = np.finfo(dtype)
    negative_nan = np.copysign(np.nan, -1)
    values = [0.0, -0.0, 1.5, -3.0, limits.tiny, -limits.max, np.inf, -np.inf, np.nan, negative_nan]
    if dtype in REAL:
        values += [limits.smallest_subnormal, -limits.tiny / 8]
    v = np.array(list(product(values, values)), dtype)
    if dtype in COMPLEX:
        v.imag[::2] = v.real[::2]
        v.real[::2] = 0
    return v


@pytest.mark.parametrize(("dtype", "eagerly"), [*((dtype, False) for dtype in REAL + COMPLEX), ("float32", True)])
def test_largest_sizes_and_scales(dtype: str, eagerly: bool) -> None:
    """NaN above all, whatever its sign; -0 is nothing; and the scale that NumPy finds."""
    v, bk, host = rows(dtype), get_backend("jax"), get_backend("numpy")
    with np.errstate(all="ignore"):
        sizes = np.abs(v)
        largest = np.where(np.isnan(sizes).any(1), np.nan, sizes.max(1))[:, None]
        scales = host.binary_scale(largest)
    run = (lambda f: f) if eagerly else jax.jit
    found, scale = run(lambda v: (bk.max_abs(v), bk.binary_scale(v)))(jnp.asarray(v))
    np.testing.assert_array_equal(found, largest)
    found = np.asarray(found)
    assert found.dtype == sizes.dtype and not np.signbit(found[~np.isnan(found)]).any()
    np.testing.assert_array_equal(scale, scales)


def test_no_entries_and_other_dtypes() -> None:
    rows = np.array([[1, -2.5], [np.nan, np.inf]])
    given = [np.zeros((2, 0)), np.array([[3, -7]]), *(rows.astype(half) for half in (jnp.float16, jnp.bfloat16))]
    none, integer, *halves = jax.jit(lambda given: [get_backend("jax").max_abs(v) for v in given])(given)
    assert none.tolist() == [[0], [0]] and integer.tolist() == [[7]]
    for found, half in zip(halves, (jnp.float16, jnp.bfloat16), strict=True):
        found = np.asarray(found)
        assert found.dtype == half and found[0, 0] == 2.5 and np.isnan(found[1, 0])


OPERANDS: dict[str, Any] = {
    "row": np.array([[1.0, np.nan, -0.0]]),
    "rows": np.arange(6.0).reshape(2, 3),
    "single": np.ones((2, 3), np.float32),
    "integers": np.arange(6).reshape(2, 3).astype(np.int32),
    "bool": np.array([[True, False, True]]),
    "complex": np.full((2, 3), 1j),
    "column": np.array([[2.0], [3.0]]),
    "float": 0.5,
    "int": -2,
    "True": True,
}
CONDITIONS = {
    "rows": np.array([[True, False, True], [False, True, False]]),
    "column": np.array([[True], [False]]),
    "one": np.array([[True]]),
    "number": np.array(True),
    "vector": np.array([True, False, True]),
}


def test_choices() -> None:
    """Of any two operands, what `jnp.where` says, and its dtype also where Python's numbers take part.

    The forms of conditions take turns.
    """
    arrays = {name: x for name, x in OPERANDS.items() if isinstance(x, np.ndarray)}

    def chosen(where: Any, conditions: Any, arrays: Any) -> list[Any]:
        weak = jnp.sin(1.0) * conditions["number"]  # whose dtype gives way
        pairs = product([*(arrays.get(name, OPERANDS[name]) for name in OPERANDS), weak], repeat=2)
        return [where(given, a, b) for given, (a, b) in zip(cycle(conditions.values()), pairs)]

    found, expected = jax.jit(lambda *given: [chosen(f, *given) for f in (direct.select_elements, jnp.where)])(
        CONDITIONS, arrays
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype and one.aval.weak_type == other.aval.weak_type


@pytest.mark.parametrize(("a", "b"), [*zip(REAL + COMPLEX, REAL + COMPLEX), ("float32", "complex128")])
def test_dot_of_one_row(a: str, b: str) -> None:
    rng = np.random.default_rng(0)
    u, v = ((rng.normal(size=(1, 7)) + (1j * rng.normal(size=(1, 7)) if d in COMPLEX else 0)).astype(d) for d in (a, b))
    found, same = jax.jit(lambda u, v: (direct.dot_of_one(u, v), direct.dot_of_one(u, u)))(u, v)
    assert found.shape == (1, 1) and found.dtype == np.result_type(u, v)
    for one, w in ((found, v), (same, u)):
        np.testing.assert_allclose(one[0, 0], np.vdot(u, w), rtol=20 * np.finfo(a).eps)
