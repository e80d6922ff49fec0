"""Rows kept as grids compute what rows compute, compared with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from krylix.backends import get_backend

pytestmark = pytest.mark.needs("jax")


def made(batch: int, dtype: str, seed: int = 0) -> tuple[np.ndarray, Any]:
    """Rows `(batch, 6)`, and the same as grids 2 x 3."""
    import jax.numpy as jnp

    from krylix.backends.jax.sharding.grid_rows import GridRows

    random = np.random.default_rng(seed)
    rows = random.normal(size=(batch, 6)) + (1j * random.normal(size=(batch, 6)) if dtype[0] == "c" else 0)
    rows = rows.astype(dtype)
    return rows, GridRows(jnp.asarray(rows.reshape(batch, 2, 3)))


def same(found: Any, expected: np.ndarray) -> None:
    assert tuple(found.shape) == expected.shape and np.dtype(found.dtype) == expected.dtype
    tolerance = 1e-6 if expected.dtype in (np.float32, np.complex64) else 1e-14
    np.testing.assert_allclose(np.asarray(found), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@pytest.mark.parametrize("batch", [1, 3])
def test_operations(batch: int, dtype: str) -> None:
    import jax.numpy as jnp

    bk = get_backend("jax")
    (a, x), (b, y) = made(batch, dtype, 0), made(batch, dtype, 1)
    scalar = np.arange(2, batch + 2).astype(dtype)[:, None]
    one = scalar[:1]
    for other in (y, jnp.asarray(b), b):  # rows of any kind, on both sides
        for found, expected in ((x + other, a + b), (other - x, b - a), (x * other, a * b), (x / other, a / b)):
            same(found, expected)
    for number, host in ((jnp.asarray(scalar), scalar), (scalar, scalar), (jnp.asarray(one), one), (2, 2)):
        for found, expected in ((number * x, host * a), (x - number, a - host), (x / number, a / host)):
            same(found, expected)
    same(x * jnp.asarray(b[:1]), a * b[:1])  # the same for all systems
    assert np.array_equal(x == y, a == b) and np.array_equal(x != x, a != a)
    same(bk.where(jnp.asarray(scalar.real > 2), x, jnp.asarray(b)), np.where(scalar.real > 2, a, b))
    same(bk.where(x == 0, 1, x), a)
    same(bk.abs(x), np.abs(a))
    same(bk.conj(x), np.conj(a))
    same(bk.zeros_like(x), np.zeros_like(a))
    same(bk.astype(x, np.dtype("complex128")), a.astype("complex128"))
    same(bk.reshape(x, (batch * 2, 3)), a.reshape(-1, 3))
    same(bk.flat(x), a)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("batch", [1, 3])
def test_reductions(batch: int, dtype: str) -> None:
    import jax.numpy as jnp

    bk = get_backend("jax")
    (a, x), (b, y) = made(batch, dtype, 0), made(batch, dtype, 1)
    dot = np.sum(np.conj(a) * b, 1, keepdims=True)
    for found in (bk.dot(x, y), bk.dot(x, jnp.asarray(b)), bk.dot(jnp.asarray(a), y)):
        same(found, dot)
    same(bk.norm(x), np.linalg.norm(a, axis=1, keepdims=True))
    same(bk.norm(1e200 * x) / 1e200, np.linalg.norm(a, axis=1, keepdims=True))
    same(bk.sum(x, 1, keepdims=True), a.sum(1, keepdims=True))
    bad = x * jnp.asarray([[1.0, 1, 1, np.nan, 1, 1]])
    assert np.isnan(np.asarray(bk.max_abs(bad))).all()
    same(bk.max_abs(x), np.abs(a).max(1, keepdims=True))


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@pytest.mark.parametrize("batch", [1, 3])
def test_stacks(batch: int, dtype: str) -> None:
    import jax.numpy as jnp

    bk = get_backend("jax")
    host, stack = np.zeros((batch, 4, 6), dtype), bk.room_for(made(batch, dtype)[1], 4)
    for k, number in enumerate((1, 0, 1, 3)):  # the last one beyond the end for some systems
        rows, x = made(batch, dtype, k)
        places = np.arange(number, number + batch)
        for i in range(batch):
            host[i, places[i] : places[i] + 1] = rows[i]
        stack = bk.put_row(stack, jnp.asarray(places[:, None]), x if k % 2 else jnp.asarray(rows))
    a, x = made(batch, dtype, 8)
    c = (np.arange(batch * 4).reshape(batch, 4) / 5).astype(dtype)
    same(bk.product(stack, x), np.einsum("bkn,bn->bk", host, a))
    same(bk.product(stack[:, 1:3], jnp.asarray(a)), np.einsum("bkn,bn->bk", host[:, 1:3], a))
    same(bk.product(bk.matrix_transpose(stack), jnp.asarray(c)), np.einsum("bkn,bk->bn", host, c))
    flat = bk.fold(stack)
    same(bk.where(jnp.ones((batch, 1), bool), flat, 0 * flat), host.reshape(batch, -1))
    same(bk.flat(bk.fold(bk.unfold(flat, 4))), host.reshape(batch, -1))
    assert tuple(stack.shape) == host.shape and tuple(bk.matrix_transpose(stack).shape) == (batch, 6, 4)
    with pytest.raises(TypeError, match="slices"):
        stack[:, 0]


def test_transformations() -> None:
    import jax

    bk = get_backend("jax")
    (a, x), (b, y) = made(1, "float64", 0), made(1, "float64", 1)
    same(jax.jit(lambda x, y: bk.axpy(bk.dot(x, y), x, y))(x, y), b + np.sum(a * b) * a)
    many = jax.tree.map(lambda leaf: jax.numpy.stack([leaf, 2 * leaf]), x)
    assert np.allclose(jax.vmap(lambda x: bk.dot(x, x))(many)[:, 0, 0], np.array([1, 4]) * np.sum(a * a))
    assert np.allclose(jax.grad(lambda x: bk.dot(x, x)[0, 0])(x), 2 * a)


def test_what_does_not_fit_is_refused() -> None:
    import jax.numpy as jnp

    from krylix.backends.jax.sharding.grid_rows import GridRows

    _, x = made(3, "float64")
    for other in (jnp.ones((3, 5)), jnp.ones((3, 2, 3)), jnp.ones(3), GridRows(jnp.ones((3, 3, 2)))):
        with pytest.raises(ValueError, match="were combined"):
            x + other
    with pytest.raises(TypeError):  # JAX's own functions would mix up axes
        jnp.sum(x)
