"""Facts of a function that hold for random values of its arguments, found while a program is traced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import krylix
from frameworks import jax, jnp, tf
from krylix.sparse.operators.checks import facts_for_random_values
from modes import array, compiled

MODES = ("jax-jit", "tf-function")
SHAPE = (6, 5)
SYMMETRIC = {"asymmetry": 0.0, "is_hermitian_by_entries": True}
DEFINITE = {**SYMMETRIC, "one_sign": True, "maybe_definite": True}


def library(mode: str) -> Any:
    return jnp if mode == "jax-jit" else tf


def second_differences(u: Any, k: Any, xp: Any) -> Any:
    """Conservative diffusion with the coefficient k at points, zero around."""
    p, c = xp.pad(u, [[1, 1], [1, 1]]), xp.pad(k, [[1, 1], [1, 1]], constant_values=1)
    down = (c[1:, 1:-1] + c[:-1, 1:-1]) * (p[1:, 1:-1] - p[:-1, 1:-1])
    right = (c[1:-1, 1:] + c[1:-1, :-1]) * (p[1:-1, 1:] - p[1:-1, :-1])
    return down[:-1] - down[1:] + right[:, :-1] - right[:, 1:]


def upwind(u: Any, k: Any, xp: Any) -> Any:
    p = xp.pad(u, [[1, 1], [1, 1]])
    return second_differences(u, k, xp) + k * (u - p[:-2, 1:-1])


FUNCTIONS = {
    "diffusion": (second_differences, DEFINITE),
    "negative": (lambda u, k, xp: -second_differences(u, k, xp), DEFINITE),
    "diffusion and reaction": (lambda u, k, xp: second_differences(u, k, xp) + k * u, DEFINITE),
    "indefinite": (lambda u, k, xp: second_differences(u, k, xp) - 5 * k * u, SYMMETRIC),
    "signs that differ": (lambda u, k, xp: (k - 1) * u, SYMMETRIC),
    "convection": (upwind, {}),
    "scaled rows": (lambda u, k, xp: k * second_differences(u, k, xp), {}),
}


def facts_seen(mode: str, f: Any, *args: np.ndarray, dtype: Any = np.float64, closed: bool = False) -> dict[str, Any]:
    """Those found while `f(u, *args)` is traced with arguments of a compiled function."""
    seen: list[dict[str, Any]] = []

    def program(b: Any, *args: Any) -> Any:
        function = (lambda u: f(u, *args)) if closed else f
        A = krylix.as_operator(function, b, args=() if closed else args)
        seen.append(dict(facts_for_random_values(A)))
        return b

    compiled(mode, program)(array(mode, np.ones(SHAPE, dtype)), *(array(mode, a) for a in args))
    return seen[0]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("closed", [False, True], ids=["argument", "closed over"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_facts(mode: str, closed: bool, name: str) -> None:
    """Whatever the argument is now: zeros and NaN are not looked at."""
    f, expected = FUNCTIONS[name]
    k = np.zeros(SHAPE)
    k[0, 0] = np.nan
    assert facts_seen(mode, lambda u, k: f(u, k, library(mode)), k, closed=closed) == expected


@pytest.mark.parametrize("mode", MODES)
def test_kinds_of_arguments(mode: str) -> None:
    """Masks stay masks, numbers of masks 0 or 1; known arrays keep their values."""
    xp = library(mode)
    solid = np.zeros(SHAPE, bool)
    known = array(mode, np.full(SHAPE, -1.0))

    def masked(u: Any, solid: Any, count: Any) -> Any:
        open_, there = (xp.where(solid, xp.zeros_like(u), xp.ones_like(u)), xp.where(count > 0, u * 0 + 1, u * 0))
        k = open_ * there
        p, c = xp.pad(u, [[1, 1], [1, 1]]), xp.pad(k, [[1, 1], [1, 1]])
        down = c[1:, 1:-1] * c[:-1, 1:-1] * (p[1:, 1:-1] - p[:-1, 1:-1])
        return known * (down[1:] - down[:-1]) + xp.where((count == 0) | (count == 1), u * 0, -u)

    facts = facts_seen(mode, masked, solid, np.zeros(SHAPE, np.int32))
    assert facts == DEFINITE  # singular: definite as far as signs and circles tell


@pytest.mark.parametrize("mode", MODES)
def test_complex_arguments(mode: str) -> None:
    """Complex symmetric is not Hermitian, and the other way round."""
    xp = library(mode)
    k = np.ones(SHAPE, complex)
    symmetric = facts_seen(mode, lambda u, k: second_differences(u, k * 0 + 1, xp) + k * u, k, dtype=complex)
    assert symmetric == {"asymmetry_without_conjugation": 0.0}

    def turned(u: Any, k: Any) -> Any:
        conj = xp.conj if mode == "jax-jit" else tf.math.conj
        p, c = xp.pad(u, [[1, 1], [0, 0]]), xp.pad(k, [[1, 1], [0, 0]])
        return 9 * u + c[1:-1] * p[2:] + conj(c[:-2]) * p[:-2]

    assert facts_seen(mode, turned, k, dtype=complex) == DEFINITE


@pytest.mark.parametrize("mode", MODES)
def test_functions_that_cannot_be_followed(mode: str) -> None:
    xp = library(mode)
    inverse = xp.linalg.inv

    def f(u: Any, k: Any) -> Any:
        return xp.reshape(inverse(k) @ xp.reshape(xp.sort(u) if mode == "jax-jit" else tf.sort(u), (-1, 1)), SHAPE)

    assert facts_seen(mode, f, np.eye(30)) == {}


@pytest.mark.parametrize("inside", [False, True], ids=["loop", "in a branch"])
@pytest.mark.parametrize("mode", MODES)
def test_loops_that_end_for_small_arguments_only(mode: str, inside: bool) -> None:
    """They are not run with random numbers, for which this one would go on for ever."""
    xp = library(mode)

    def root(k: Any) -> Any:
        loop = jax.lax.while_loop if mode == "jax-jit" else tf.while_loop
        state = loop(lambda s: s > 1e-3, lambda s: s * s, k if mode == "jax-jit" else [k])
        return state if mode == "jax-jit" else state[0]

    def f(u: Any, k: Any) -> Any:
        choose = jax.lax.cond if mode == "jax-jit" else tf.cond
        c = choose(k[0, 0] > 0, lambda: root(k[0, 0] + 1), lambda: k[0, 0]) if inside else root(k[0, 0] + 1)
        return second_differences(u, k + c, xp)

    assert facts_seen(mode, f, np.full(SHAPE, -0.5)) == {}


def test_calls_of_the_host_are_not_made() -> None:
    seen: list[np.ndarray] = []

    def on_host(k: np.ndarray) -> np.ndarray:
        seen.append(k)
        raise RuntimeError("k is out of range")

    def f(u: Any, k: Any) -> Any:
        c = jax.pure_callback(on_host, jax.ShapeDtypeStruct(k.shape, k.dtype), k)
        return second_differences(u, c, jnp)

    assert facts_seen("jax-jit", f, np.ones(SHAPE)) == {}
    assert not seen
