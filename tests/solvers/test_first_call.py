"""What JAX does before a compiled function runs for the first time, counted: nothing here is timed, or compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from frameworks import lazy
from krylix import NonlinearError, linear_solve, prepare
from krylix.solvers import cost as fill

jax = lazy("jax")
jnp = lazy("jax.numpy")
GRID = (18, 20)
K = 1 + 0.5 * np.cos(np.arange(GRID[0]))[:, None] * np.ones(GRID)
B = np.random.default_rng(3).standard_normal(GRID)
METHODS: dict[str, dict[str, Any]] = {
    "CG": {"method": "CG"},
    "GMRES": {"method": "GMRES"},
    "fast-direct": {"method": "fast-direct"},
    "multigrid": {"method": "CG", "preconditioner": "multigrid"},
    "auto": {},
}


class Heat:
    """`u -> (1 + k) u - Laplace u`, minus a constant; it counts how often its Python runs."""

    def __init__(self, k: Any = 0.5, constant: float = 0.0) -> None:
        self.k, self.constant, self.calls = k, constant, 0

    def __call__(self, u: Any, *k: Any) -> Any:
        self.calls += 1
        p = jnp.pad(u, [(0, 0)] * (u.ndim - 2) + [(1, 1)] * 2)
        near = p[..., 2:, 1:-1] + p[..., :-2, 1:-1] + p[..., 1:-1, 2:] + p[..., 1:-1, :-2]
        return (5 + (k[0] if k else self.k)) * u - near - self.constant


def solved(f: Callable[..., Any], b: Any, name: str, **settings: Any) -> Any:
    return linear_solve(f, b, **METHODS[name], **settings).x


def known(f: Heat, name: str) -> tuple[Callable[..., Any], Any]:
    return lambda b: solved(f, b, name), (B,)


def by_args(f: Heat, name: str) -> tuple[Callable[..., Any], Any]:
    return lambda b, k: solved(f, b, name, args=(k,)), (B, K)


def closed_over(f: Heat, name: str) -> tuple[Callable[..., Any], Any]:
    return lambda b, k: solved(lambda u: f(u, k), b, name), (B, K)


def gradient(f: Heat, name: str) -> tuple[Callable[..., Any], Any]:
    return jax.grad(lambda k, b: jnp.sum(solved(lambda u: f(u, k), b, name) ** 2)), (K, B)


def lanes(f: Heat, name: str) -> tuple[Callable[..., Any], Any]:
    return jax.vmap(lambda b: solved(f, b, name)), (np.stack([B, 2 * B]),)


MODES = {mode.__name__: mode for mode in (known, by_args, closed_over, gradient, lanes)}
CASES = [
    *((name, "known") for name in METHODS),
    *(("CG", mode) for mode in MODES if mode != "known"),
    ("auto", "closed_over"),
    ("auto", "gradient"),
]


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_the_python_of_a_function_runs_once(name: str, mode: str) -> None:
    f = Heat()
    g, operands = MODES[mode](f, name)
    jax.make_jaxpr(g)(*map(jnp.asarray, operands))
    assert f.calls == 1


def test_each_solve_of_a_program_sees_the_function_as_it_is_then() -> None:
    """Arrays, attributes and variables that change between two solves of one trace; also in a solver that was kept."""
    f = Heat(0.0)

    def both(b: Any, k: Any) -> Any:
        first = solved(f, b, "CG")
        f.k = k
        second = solved(f, b, "CG")
        f.constant = 2.0
        return first, second, prepare(f, b, method="CG").solve(b).x

    found = jax.jit(both)(jnp.asarray(B), jnp.asarray(K))
    expected = [(0.0, 0.0), (K, 0.0), (K, 2.0)]
    for x, (k, constant) in zip(found, expected, strict=True):
        p = np.pad(x, 1)
        near = p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2]
        image = (5 + k) * np.asarray(x) - near - constant
        assert np.linalg.norm(image - B) <= 1e-8 * np.linalg.norm(B)


def test_containers_and_constants_of_known_functions() -> None:
    """f(0), by NumPy, of a container of arrays, of which one is a vector."""

    def f(x: dict[str, Any]) -> dict[str, Any]:
        u, v = x["u"], x["v"]
        return {"u": 4 * u + jnp.sum(v) - 1.5, "v": 3 * v + jnp.tanh(0.5) * jnp.mean(u)}

    b = {"u": jnp.arange(6.0).reshape(2, 3), "v": jnp.ones(2)}
    x = jax.jit(lambda b: linear_solve(f, b, method="biCG-stab(2)").x)(b)
    for name, image in f(x).items():
        np.testing.assert_allclose(image, b[name], rtol=1e-5 if image.dtype == np.float32 else 1e-8, atol=1e-6)


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "no return": (lambda u: None, TypeError, "returned None"),
    "not linear": (lambda u: u**3 + u, NonlinearError, "not linear"),
    "another shape": (lambda u: u[1:], ValueError, "shape"),
    "by NumPy": (lambda u: jnp.asarray(np.asarray(u) * 2), TypeError, "NumPy"),
    "an error": (lambda u: u.no_such_name, AttributeError, "no_such_name"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_said_as_ever(name: str) -> None:
    f, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        jax.make_jaxpr(lambda b: linear_solve(f, b, method="CG").x)(jnp.asarray(B))


def equations(jaxpr: Any) -> Iterator[Any]:
    """All of them, inner ones included."""
    for equation in jaxpr.eqns:
        yield equation
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda v: hasattr(v, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def test_large_constants_of_a_solve_are_hidden_from_the_compiler() -> None:
    """And small ones are not: what is made of them is folded."""
    hiding = pytest.importorskip("krylix.backends.jax.program.function").hiding_constants
    large, small = jnp.arange(2.0**18 + 1), jnp.arange(3.0)
    program = jax.make_jaxpr(hiding(lambda x: (x + large, small)))(0.0)
    barriers = [e for e in equations(program.jaxpr) if e.primitive.name == "optimization_barrier"]
    assert [[v.aval.shape for v in e.invars] for e in barriers] == [[large.shape]]
    x, y = jax.jit(hiding(lambda x: (x + large, small)))(1.0)
    np.testing.assert_array_equal(x, 1 + large)
    np.testing.assert_array_equal(y, small)


def test_no_order_is_looked_for_where_the_band_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise AssertionError("it was looked for")

    monkeypatch.setattr(fill, "factor_cost", fail)
    jax.make_jaxpr(lambda b: linear_solve(Heat(), b).x)(jnp.asarray(B))


def test_null_vectors_of_banded_matrices_are_no_part_of_the_program() -> None:
    """A search in the program has four loops, and half of all kernels."""

    def f(u: Any, k: Any) -> Any:
        return (4 + k) * u - jnp.pad(u[1:], (0, 1)) * k - jnp.pad(u[:-1], (1, 0))

    def loops(on_failure: str) -> int:
        def solve(k: Any) -> Any:
            return linear_solve(f, k, method="banded-direct", args=(k,), on_failure=on_failure).x

        program = jax.make_jaxpr(solve)(jnp.ones(24))
        return sum(equation.primitive.name in ("while", "scan") for equation in equations(program.jaxpr))

    assert loops("nan") - loops("raise") >= 4
