"""Rows kept as grids compute what rows compute, compared with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frameworks import lazy
from krylix.backends import get_backend

jax = lazy("jax")
jnp = lazy("jax.numpy")


def made(batch: int, dtype: str, seed: int = 0) -> tuple[np.ndarray, Any]:
    """Rows `(batch, 6)`, and the same as grids 2 x 3."""
    from krylix.backends.jax.sharding.grid_rows import GridRows

    random = np.random.default_rng(seed)
    rows = random.normal(size=(batch, 6)) + (1j * random.normal(size=(batch, 6)) if dtype[0] == "c" else 0)
    rows = rows.astype(dtype)
    return rows, GridRows(jnp.asarray(rows.reshape(batch, 2, 3)))


def same(found: Any, expected: np.ndarray) -> None:
    assert tuple(found.shape) == expected.shape and np.dtype(found.dtype) == expected.dtype
    tolerance = 1e-6 if expected.dtype in (np.float32, np.complex64) else 1e-14
    np.testing.assert_allclose(np.asarray(found), expected, rtol=tolerance, atol=tolerance)


def check(function: Any, arrays: list[Any], expected: list[np.ndarray]) -> None:
    """All results of one program."""
    for found, want in zip(jax.jit(function)(*arrays), expected, strict=True):
        same(found, want)


@pytest.mark.parametrize(("batch", "dtype"), [(1, "complex64"), (3, "float64")])
def test_operations(batch: int, dtype: str) -> None:
    bk = get_backend("jax")
    (a, x), (b, y) = made(batch, dtype, 0), made(batch, dtype, 1)
    scalar = np.arange(2, batch + 2).astype(dtype)[:, None]
    one = scalar[:1]

    def all_of(x: Any, y: Any, rows: Any, numbers: Any, number: Any) -> list[Any]:
        found = []
        for other in (y, rows, b):  # rows of any kind, on both sides
            found += [x + other, other - x, x * other, x / other]
        for factor in (numbers, scalar, number, 2):
            found += [factor * x, x - factor, x / factor]
        found += [x * rows[:1], bk.where(numbers.real > 2, x, rows), bk.where(x == 0, 1, x), bk.abs(x), bk.conj(x)]
        found += [bk.zeros_like(x), bk.astype(x, np.dtype("complex128")), bk.reshape(x, (batch * 2, 3)), bk.flat(x)]
        return [*found, bk.flat(x == y), bk.flat(x != x)]

    expected = [v for _ in range(3) for v in (a + b, b - a, a * b, a / b)]
    expected += [v for factor in (scalar, scalar, one, 2) for v in (factor * a, a - factor, a / factor)]
    expected += [a * b[:1], np.where(scalar.real > 2, a, b), a, np.abs(a), np.conj(a)]
    expected += [np.zeros_like(a), a.astype("complex128"), a.reshape(-1, 3), a]
    check(all_of, [x, y, b, scalar, one], [*expected, a == b, a != a])


@pytest.mark.parametrize(("batch", "dtype"), [(1, "complex128"), (3, "float64")])
def test_reductions(batch: int, dtype: str) -> None:
    bk = get_backend("jax")
    (a, x), (b, y) = made(batch, dtype, 0), made(batch, dtype, 1)

    def all_of(x: Any, y: Any, rows: Any, others: Any, bad: Any) -> list[Any]:
        dots = [bk.dot(x, y), bk.dot(x, others), bk.dot(rows, y)]
        sizes = [bk.norm(x), bk.norm(1e200 * x) / 1e200, bk.sum(x, 1, keepdims=True)]
        return [*dots, *sizes, bk.max_abs(x), bk.max_abs(x * bad)]

    dot, norm = np.sum(np.conj(a) * b, 1, keepdims=True), np.linalg.norm(a, axis=1, keepdims=True)
    largest = np.abs(a).max(1, keepdims=True)
    expected = [dot, dot, dot, norm, norm, a.sum(1, keepdims=True), largest, np.nan * largest]
    check(all_of, [x, y, a, b, np.array([[1.0, 1, 1, np.nan, 1, 1]])], expected)


@pytest.mark.parametrize(("batch", "dtype"), [(1, "float64"), (3, "complex64")])
def test_stacks(batch: int, dtype: str) -> None:
    bk = get_backend("jax")
    numbers = (1, 0, 1, 3)  # the last one beyond the end for some systems
    several = [made(batch, dtype, k) for k in range(4)]
    host, a = np.zeros((batch, 4, 6), dtype), made(batch, dtype, 8)[0]
    for number, (rows, _) in zip(numbers, several, strict=True):
        for i in range(batch):
            host[i, number + i : number + i + 1] = rows[i]
    c = (np.arange(batch * 4).reshape(batch, 4) / 5).astype(dtype)

    def all_of(several: Any, x: Any, rows: Any, c: Any) -> list[Any]:
        stack = bk.room_for(several[0][1], 4)
        for k, number in enumerate(numbers):
            places = np.arange(number, number + batch)[:, None]
            stack = bk.put_row(stack, jnp.asarray(places), several[k][1 if k % 2 else 0])
        assert tuple(stack.shape) == host.shape and tuple(bk.matrix_transpose(stack).shape) == (batch, 6, 4)
        with pytest.raises(TypeError, match="slices"):
            stack[:, 0]
        flat = bk.fold(stack)
        products = [bk.product(stack, x), bk.product(stack[:, 1:3], rows), bk.product(bk.matrix_transpose(stack), c)]
        folded = [bk.where(jnp.ones((batch, 1), bool), flat, 0 * flat), bk.flat(bk.fold(bk.unfold(flat, 4)))]
        return products + folded

    products = [np.einsum("bkn,bn->bk", host, a), np.einsum("bkn,bn->bk", host[:, 1:3], a)]
    expected = [*products, np.einsum("bkn,bk->bn", host, c), *[host.reshape(batch, -1)] * 2]
    check(all_of, [several, made(batch, dtype, 8)[1], a, c], expected)


def test_eagerly_and_under_transformations() -> None:
    bk = get_backend("jax")
    (a, x), (b, y) = made(1, "float64", 0), made(1, "float64", 1)
    same(bk.axpy(bk.dot(x, y), x, y), b + np.sum(a * b) * a)
    many = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), x)
    assert np.allclose(jax.vmap(lambda x: bk.dot(x, x))(many)[:, 0, 0], np.array([1, 4]) * np.sum(a * a))
    assert np.allclose(jax.grad(lambda x: bk.dot(x, x)[0, 0])(x), 2 * a)


def test_what_does_not_fit_is_refused() -> None:
    from krylix.backends.jax.sharding.grid_rows import GridRows

    _, x = made(3, "float64")
    for other in (jnp.ones((3, 5)), jnp.ones((3, 2, 3)), jnp.ones(3), GridRows(jnp.ones((3, 3, 2)))):
        with pytest.raises(ValueError, match="were combined"):
            x + other
    with pytest.raises(TypeError):  # JAX's own functions would mix up axes
        jnp.sum(x)
