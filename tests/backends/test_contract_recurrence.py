"""Linear recurrences of every library, by steps and by passes, against a loop in double precision."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from contract import CELLS, MODES, backend, check, covers, real_of, rows, run, wide
from frameworks import lazy
from krylix.backends.interface.kernels import Kernels

jax = lazy("jax")
torch = lazy("torch")

cells = pytest.mark.parametrize(("mode", "dtype"), CELLS)


def expected(factors: np.ndarray, x: np.ndarray, backward: bool) -> np.ndarray:
    found = wide(x).copy()
    order = range(x.shape[1])
    for i, before in zip(order[-2::-1] if backward else order[1:], order[:0:-1] if backward else order):
        found[:, i] += wide(factors)[i] * found[:, before]
    return found


def parts(dtype: str, batch: int, n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Factors up to one, real ones for complex numbers too."""
    factors = np.random.default_rng(n).uniform(-1, 1, (n, m)).astype(real_of(dtype))
    return factors, rows(dtype, (batch, n, m), n)


def own(bk: Any, factors: Any, x: Any, backward: bool) -> Any:
    return bk.recurrence(factors, x, backward)


def passes(bk: Any, factors: Any, x: Any, backward: bool) -> Any:
    """The way of all libraries, which those with steps take on accelerators and under transformations."""
    return Kernels.recurrence(bk, factors, x, backward)


@covers("recurrence")
@cells
@pytest.mark.parametrize("way", [own, passes])
def test_recurrence(mode: str, dtype: str, way: Any) -> None:
    """Lengths that are powers of two and others, one row, rows of one number."""
    shapes = ((1, 7, 5), (3, 8, 1), (2, 1, 4), (1, 2, 2), (1, 33, 20))
    given = [parts(dtype, *shape) for shape in shapes]

    def both_ways(bk: Any, *arrays: Any) -> tuple[Any, ...]:
        return tuple(way(bk, *pair, back) for pair in zip(arrays[::2], arrays[1::2]) for back in (False, True))

    found = iter(run(mode, both_ways, *sum(given, ())))
    for factors, x in given:
        for backward in (False, True):
            size = expected(np.abs(factors), np.abs(wide(x)), backward)
            check(next(found), expected(factors, x, backward), dtype, size)


@covers("cost_of_step")
@pytest.mark.parametrize("mode", MODES)
def test_steps_have_a_cost(mode: str) -> None:
    """Only where they are taken."""
    cost = backend(mode).cost_of_step
    assert 1e3 < cost < 1e7 if mode not in ("tf", "tf-function") else cost == math.inf


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_written_to(mode: str) -> None:
    factors, x = parts("float64", 2, 6, 4)

    def used(bk: Any, f: Any, x: Any) -> Any:
        bk.recurrence(f, x)
        return f, x

    for found, given in zip(run(mode, used, factors, x), (factors, x)):
        np.testing.assert_array_equal(found, given)


@pytest.mark.parametrize("m", [3, 20000])
def test_rows_of_any_length(m: int) -> None:
    """Long ones are taken block by block."""
    factors, x = parts("float64", 1, 4, m)
    for backward in (False, True):
        found = backend("numpy").recurrence(factors, x, backward)
        np.testing.assert_allclose(found, expected(factors, x, backward), rtol=1e-13, atol=1e-13)


def test_derivatives() -> None:
    """It is linear in x: tangents are images, cotangents those of the transpose; in lanes, too."""
    factors, x = parts("float64", 2, 6, 4)
    given = rows("float64", x.shape, 9)
    transposed = np.zeros_like(x)
    for index in np.ndindex(*x.shape):
        unit = np.zeros_like(x)
        unit[index] = 1
        transposed[index] = np.sum(given * expected(factors, unit, False))
    jx, tc = backend("jax"), backend("torch")
    with jax.enable_x64(True):

        @jax.jit
        def all_of(x: Any) -> Any:
            image, pullback = jax.vjp(lambda x: jx.recurrence(factors, x), x)
            return image, pullback(given)[0], jax.vmap(lambda row: jx.recurrence(factors, row[None])[0])(x)

        image, pulled, lanes = all_of(x)
        np.testing.assert_allclose(image, expected(factors, x, False), rtol=1e-12)
        np.testing.assert_allclose(pulled, transposed, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(lanes, image, rtol=1e-12)
    at = torch.from_numpy(x).requires_grad_()
    found = tc.recurrence(torch.from_numpy(factors), at)
    (pulled,) = torch.autograd.grad(found, at, torch.from_numpy(given))
    np.testing.assert_allclose(pulled.numpy(), transposed, rtol=1e-12, atol=1e-12)
    lanes = torch.func.vmap(lambda row: tc.recurrence(torch.from_numpy(factors), row[None])[0])(torch.from_numpy(x))
    np.testing.assert_allclose(lanes.numpy(), image, rtol=1e-12)
