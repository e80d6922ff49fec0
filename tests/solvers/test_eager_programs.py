"""Eager solves of JAX: one program for all that A may be made of anew, and no more memory for each."""

import gc
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frameworks import lazy
from krylix import linear_solve, prepare

jax = lazy("jax")
jnp, lax = lazy("jax.numpy"), lazy("jax.lax")

N = 6
B = np.linspace(1.0, 2.0, N)
Build = Callable[[Any, float], Callable[[Any], Any]]


@cache
def scaled() -> Callable[..., Any]:
    function = jax.custom_vjp(lambda x, k: x * k)
    function.defvjp(lambda x, k: (x * k, (x, k)), lambda kept, g: (g * kept[1], g * kept[0]))
    return function


@cache
def doubled() -> Callable[[Any], Any]:
    function = jax.custom_jvp(lambda k: 2 * k)
    function.defjvp(lambda p, t: (function(p[0]), 2 * t[0]))
    return function


# All of k are diagonal, and their entries are a known multiple of k; s is a Python number.
CONSTRUCTS: dict[str, tuple[Build, Callable[[Any], Any]]] = {
    "number": (lambda k, s: lambda u: k * u, lambda k: k),
    "relu": (lambda k, s: lambda u: jax.nn.relu(k) * u, lambda k: k),
    "softplus": (lambda k, s: lambda u: jax.nn.softplus(k) * u, lambda k: np.log1p(np.exp(k))),
    "custom_jvp": (lambda k, s: lambda u: doubled()(k) * u, lambda k: 2 * k),
    "custom_vjp": (lambda k, s: lambda u: scaled()(u, k), lambda k: k),
    "jit": (lambda k, s: lambda u: jax.jit(lambda v: v * k)(u), lambda k: k),
    "vmap": (lambda k, s: lambda u: jax.vmap(lambda a, c: a * c)(u, k), lambda k: k),
    "scan": (lambda k, s: lambda u: lax.scan(lambda c, a: (c, a[0] * a[1]), 0.0, (u, k))[1], lambda k: k),
    "fori_loop": (lambda k, s: lambda u: lax.fori_loop(0, 2, lambda i, v: v * k, u), lambda k: k * k),
    "cond": (lambda k, s: lambda u: lax.cond(jnp.sum(k) > 0, lambda v: v * k, lambda v: v, u), lambda k: k),
    "switch": (lambda k, s: lambda u: lax.switch(1, [lambda v: v, lambda v: v * k], u), lambda k: k),
    "checkpoint": (lambda k, s: lambda u: jax.checkpoint(lambda v: v * k)(u), lambda k: k),
    "grad": (lambda k, s: jax.grad(lambda v: 0.5 * jnp.sum(k * v * v)), lambda k: k),
    "jvp": (lambda k, s: lambda u: jax.jvp(lambda v: v * k, (k,), (u,))[1], lambda k: k),
    "random": (lambda k, s: lambda u: k * u + 0 * jax.random.permutation(jax.random.PRNGKey(0), u), lambda k: k),
}  # fmt: skip
OFF_DIAGONAL = ("number", "relu", "custom_vjp", "jit", "scan", "cond")  # of these, derivatives by k


def build(name: str, k: Any, s: float) -> Callable[[Any], Any]:
    """A function made anew, with other numbers and arrays."""
    own = CONSTRUCTS[name][0](k, s)
    return lambda u: own(u) + s * jnp.roll(u, 1)


def dense(name: str, k: Any, s: float) -> np.ndarray:
    return np.diag(CONSTRUCTS[name][1](np.asarray(k))) + s * np.roll(np.eye(N), 1, 0)


def system(i: int) -> tuple[Any, float]:
    return jnp.asarray(2 + np.sin(np.arange(N) + i)), 0.1 + 0.01 * i


def solve_each(name: str, k: Any, s: float) -> list[Any]:
    """In each way in which a function and its numbers can be handed over; of most by a closure only."""
    b = jnp.asarray(B)
    found = [linear_solve(build(name, k, s), b, method="biCG-stab").x]
    if name in ("number", "scan"):
        found += [
            linear_solve(lambda u, k, s: build(name, k, s)(u), b, method="biCG-stab", args=(k, s)).x,
            prepare(build(name, k, s), b, method="biCG-stab", preconditioner=None).solve(b).x,
        ]
    return found


def some(names: Iterable[str], by_default: Sequence[str]) -> list[Any]:
    """The others before a merge."""
    return [name if name in by_default else pytest.param(name, marks=pytest.mark.merge) for name in names]


@pytest.mark.parametrize("name", some(CONSTRUCTS, ("number", "relu", "jit", "scan", "switch")))
def test_second_solve_compiles_nothing(name: str, compilations: list[str]) -> None:
    linear_solve(build(name, *system(3)), jnp.asarray(B), method="biCG-stab")  # by NumPy
    for i in range(3):
        found = solve_each(name, *system(i))
        if i:
            assert compilations == []
        compilations.clear()
        want = np.linalg.solve(dense(name, *system(i)), B)
        for x in found:
            np.testing.assert_allclose(x, want, rtol=1e-8)
        compilations.clear()


@pytest.mark.parametrize("name", some(OFF_DIAGONAL, ("custom_vjp",)))
def test_nor_do_its_derivatives(name: str, compilations: list[str]) -> None:
    """Reverse, and forward where JAX has it."""

    b = jnp.asarray(B)

    def loss(k: Any, s: Any) -> Any:
        return jnp.sum(linear_solve(build(name, k, s), b, method="biCG-stab", rtol=1e-12).x ** 2)

    for i in range(3):
        k, s = system(i)
        compilations.clear()
        found = [*jax.grad(loss, (0, 1))(k, s)]
        if name != "custom_vjp":
            found.append(jax.jvp(loss, (k, s), (k, s))[1])
        assert i == 0 or compilations == []
        matrix = dense(name, k, s)
        x = np.linalg.solve(matrix, B)
        y = np.linalg.solve(matrix.T, -2 * x)
        want = [y * x, y @ np.roll(x, 1)]  # the entries of the diagonal are k
        want.append(want[0] @ np.asarray(k) + want[1] * s)
        for got, expected in zip(found, want, strict=False):
            np.testing.assert_allclose(got, expected, rtol=1e-7)


def memory() -> float:
    """MB of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4 / 1024


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell the memory of a process")
@pytest.mark.merge
def test_memory_stays_flat() -> None:
    """Over 200 solves, where a program for each would take more than a GB."""

    def run(count: int) -> None:
        for i in range(count):
            k, s = system(i)
            linear_solve(build("relu", k, s), jnp.asarray(B), method="biCG-stab")

    run(20)
    before = memory()
    run(200)
    assert memory() - before < 40


def test_programs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions that differ in their structure have programs of their own, of which only so many are kept."""
    from krylix.backends.jax.program import function as programs

    monkeypatch.setattr(programs, "MOST_PROGRAMS", 3)
    function = programs.compiled(lambda x, known: x * known, ("known",))
    found = [float(function(np.ones(()), known=i)) for i in range(5)]
    assert found == list(range(5))
    assert 1 <= function.programs() <= 3
