"""Coefficients that have no value yet: structure is static, entries follow them, derivatives too."""

import numpy as np
import pytest

import tracing_engine as t
from frameworks import lazy
from krylix.backends import get_backend
from krylix.sparse.tracing.engine.terms import Box, to_entries, to_gathered
from krylix.sparse.tracing.engine.to_matrix import blocks_of, entries_of

jax = lazy("jax")


@pytest.fixture
def bk():
    return get_backend("jax")


def gathered(x):
    terms = [to_gathered(x.bk, term, x.base) if isinstance(term, Box) else term for term in x.terms]
    return x.changed(terms, x.bias)


def as_entries(x):
    return x.changed([to_entries(x.bk, term, x.base) for term in x.terms], x.bias)


def diffusion(bk, k, change=lambda x: x):
    """-div(k grad u) in one dimension with zero values outside, and what is added to it."""
    n = k.shape[0]
    u = change(t.identity(bk, (n,), np.float64))
    wide = t.pad(u, [(1, 1, 0)])
    difference = t.subtract(t.slice_(wide, [1], [n + 2]), t.slice_(wide, [0], [n + 1]))
    faces = bk.concat([k[:1], 0.5 * (k[1:] + k[:-1]), k[-1:]], 0)
    flux = t.scale(difference, faces)
    return t.add(t.subtract(t.slice_(flux, [0], [n]), t.slice_(flux, [1], [n + 1])), k * k)


def dense_diffusion(k):
    faces = np.concatenate([k[:1], 0.5 * (k[1:] + k[:-1]), k[-1:]])
    return np.diag(faces[:-1] + faces[1:]) - np.diag(faces[1:-1], 1) - np.diag(faces[1:-1], -1)


@pytest.mark.parametrize("change", [lambda x: x, gathered, as_entries], ids=["boxes", "gathered", "entries"])
@pytest.mark.parametrize("format", [None, pytest.param("csr", marks=pytest.mark.merge)])
def test_values_in_a_compiled_function(bk, change, format):
    def product(k, z):
        A, (bias,) = t.to_matrix([diffusion(bk, k, change)], 6, bk, np.dtype(np.float64), format=format)
        return A @ z + bias

    @jax.jit
    def with_gradient(k, z):
        return product(k, z), jax.grad(lambda k: (product(k, z) ** 2).sum())(k)

    k, z = np.linspace(1, 3, 6), np.arange(6.0) ** 2
    expected = dense_diffusion(k) @ z + k * k
    found, gradient = with_gradient(k, z)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    if change is as_entries:  # eagerly, too
        np.testing.assert_allclose(product(jax.numpy.asarray(k), z), expected, rtol=1e-12)
    for i, step in enumerate(np.eye(6) * 1e-6):
        up, down = ((dense_diffusion(p) @ z + p * p) for p in (k + step, k - step))
        np.testing.assert_allclose(gradient[i], ((up**2).sum() - (down**2).sum()) / 2e-6, rtol=1e-6)


def test_vmap_over_coefficients(bk):
    def values(k):
        A, _ = t.to_matrix([diffusion(bk, k)], 6, bk, np.dtype(np.float64))
        return A @ np.ones(6)

    ks = np.random.default_rng(0).random((3, 6)) + 1
    np.testing.assert_allclose(jax.vmap(values)(ks), [dense_diffusion(k) @ np.ones(6) for k in ks], atol=1e-12)


def entries(x, columns):
    found = entries_of(x.bk, blocks_of([x]), x.dtype)
    dense = np.zeros((x.size, columns))
    np.add.at(dense, (found.rows, found.columns), x.bk.to_numpy(found.values))
    return dense, found.size


@pytest.mark.parametrize("change", [lambda x: x, gathered, as_entries], ids=["boxes", "gathered", "entries"])
@pytest.mark.parametrize("first", ["known", "traced"])
def test_known_zeros_leave_no_entries(bk, change, first):
    """An obstacle: the mask is known, the coefficient is not."""
    mask = np.array([[1.0, 0, 1], [0, 0, 1]])
    k = bk.asarray(np.arange(6.0).reshape(2, 3) + 1)
    x = change(t.identity(bk, (2, 3), np.float64))
    factors = (mask, k) if first == "known" else (k, mask)
    dense, count = entries(t.scale(t.scale(x, factors[0]), factors[1]), 6)
    np.testing.assert_array_equal(dense, np.diag([1.0, 0, 3, 0, 0, 6]))
    assert count == (3 if change is not as_entries else 6)


@pytest.mark.parametrize("change", [lambda x: x, gathered, as_entries], ids=["boxes", "gathered", "entries"])
def test_traced_choice_hides_nan(bk, change):
    x = change(t.identity(bk, (4,), np.float64))
    which = bk.asarray(np.array([True, False, True, False]))
    c = bk.asarray(np.array([np.nan, 2, np.nan, 3]))
    dense, _ = entries(t.select(which, [t.scale(x, c), x]), 4)
    np.testing.assert_array_equal(dense, np.diag([1.0, 2, 1, 3]))
    y = t.select(which, [t.add(x, c), np.zeros(4)])
    np.testing.assert_array_equal(y.bias, [0, 2, 0, 3])


def test_gradient_of_a_traced_choice_is_finite(bk):
    def value(c):
        x = t.identity(bk, (3,), np.float64)
        y = t.select(bk.asarray(np.array([True, False, True])), [t.divide(x, c), x])
        return entries_of(bk, blocks_of([y]), y.dtype).values.sum()

    gradient = jax.grad(value)(np.array([0.0, 2.0, 0.0]))
    assert gradient[1] == -0.25


def test_numbers_without_axes_stay_symbolic(bk):
    def count(c):
        u = t.identity(bk, (10_000, 10_000), np.float64)
        x = t.scale(t.add(t.scale(u, c), t.slice_(t.pad(u, [(1, 0, 0), (0, 0, 0)]), (0, 0), u.shape)), 2.0)
        assert all(isinstance(term, Box) and (term.values is None or term.values.shape == ()) for term in x.terms)
        return c

    jax.make_jaxpr(count)(3.0)


@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums_of_a_traced_bias(bk, reverse):
    b = np.arange(12.0).reshape(3, 4)
    x = t.cumulative_sum(t.add(t.identity(bk, (3, 4), np.float64), bk.asarray(b)), 1, reverse)
    expected = np.cumsum(b[:, ::-1], 1)[:, ::-1] if reverse else np.cumsum(b, 1)
    np.testing.assert_allclose(x.bias, expected)


def test_merged_boxes_with_known_and_traced_parts(bk):
    """More terms than are carried along, on overlapping parts of one diagonal."""
    rng = np.random.default_rng(0)
    u, total, expected = t.identity(bk, (7, 8), np.float64), None, np.zeros((7, 8))
    for i in range(60):
        c = rng.standard_normal((7, 8))
        a, b = i % 3, 5 + i % 4
        part = t.slice_(t.scale(u, bk.asarray(c) if i % 2 else c), (a, 0), (7, b))
        part = t.pad(part, [(a, 0, 0), (0, 8 - b, 0)])
        total = part if total is None else t.add(total, part)
        expected[a:, :b] += c[a:, :b]
    assert len(total.terms) < 40
    dense, _ = entries(total, 56)
    np.testing.assert_allclose(dense, np.diag(expected.reshape(-1)), atol=1e-12)
