"""Operations of XLA in the place of functions of `jnp`: the same numbers, dtypes and shapes, for any of them."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from frameworks import lazy
from krylix.backends import get_backend

jax = lazy("jax")
jnp = lazy("jax.numpy")
direct = lazy("krylix.backends.jax.direct")

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


@pytest.mark.parametrize("dtype", [*REAL, *COMPLEX])
def test_largest_sizes_and_scales(dtype: str) -> None:
    """NaN above all, whatever its sign; -0 is nothing; and the scale that NumPy finds."""
    v, bk, host = rows(dtype), get_backend("jax"), get_backend("numpy")
    with np.errstate(all="ignore"):
        sizes = np.abs(v)
        largest = np.where(np.isnan(sizes).any(1), np.nan, sizes.max(1))[:, None]
        scales = host.binary_scale(largest)
    for run in (lambda f: f, jax.jit):
        found = np.asarray(run(bk.max_abs)(jnp.asarray(v)))
        np.testing.assert_array_equal(found, largest)
        assert found.dtype == sizes.dtype and not np.signbit(found[~np.isnan(found)]).any()
        np.testing.assert_array_equal(run(bk.binary_scale)(jnp.asarray(v)), scales)


def test_no_entries_and_other_dtypes() -> None:
    bk = get_backend("jax")
    assert np.asarray(bk.max_abs(jnp.zeros((2, 0)))).tolist() == [[0], [0]]
    assert np.asarray(bk.max_abs(jnp.array([[3, -7]]))).tolist() == [[7]]
    for half in (jnp.float16, jnp.bfloat16):
        found = bk.max_abs(jnp.array([[1, -2.5], [jnp.nan, jnp.inf]], half))
        assert found.dtype == half and found[0, 0] == 2.5 and jnp.isnan(found[1, 0])


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


@pytest.mark.parametrize("condition", CONDITIONS)
def test_choices(condition: str) -> None:
    """Of any two operands, what `jnp.where` says, and its dtype also where Python's numbers take part."""

    def all_of(where: Any) -> Any:
        def choose(given: Any, arrays: Any) -> list[Any]:
            operands = [arrays.get(name, OPERANDS[name]) for name in OPERANDS]
            weak = jnp.sin(1.0) * given  # whose dtype gives way
            return [where(given, a, b) for a, b in product([*operands, weak], repeat=2)]

        arrays = {name: x for name, x in OPERANDS.items() if isinstance(x, np.ndarray)}
        return jax.jit(choose)(CONDITIONS[condition], arrays)

    for found, expected in zip(all_of(direct.select_elements), all_of(jnp.where), strict=True):
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype and found.aval.weak_type == expected.aval.weak_type


@pytest.mark.parametrize(("a", "b"), [*zip(REAL + COMPLEX, REAL + COMPLEX), ("float32", "complex128")])
def test_dot_of_one_row(a: str, b: str) -> None:
    rng = np.random.default_rng(0)
    u, v = ((rng.normal(size=(1, 7)) + (1j * rng.normal(size=(1, 7)) if d in COMPLEX else 0)).astype(d) for d in (a, b))
    found = jax.jit(direct.dot_of_one)(u, v)
    assert found.shape == (1, 1) and found.dtype == np.result_type(u, v)
    np.testing.assert_allclose(found[0, 0], np.vdot(u, v), rtol=20 * np.finfo(a).eps)
    same = jax.jit(lambda u: direct.dot_of_one(u, u))(u)
    np.testing.assert_allclose(same[0, 0], np.vdot(u, u), rtol=20 * np.finfo(a).eps)
