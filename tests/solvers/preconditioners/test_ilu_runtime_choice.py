"""Incomplete factors chosen before the values are known: each run decides, and every answer is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spl

import krylix
from krylix.solvers.preconditioners import choose
from matrices import in_random_order
from modes import array, compiled, to_numpy

GRID = (40, 36)
N = GRID[0] * GRID[1]
X, Y = np.meshgrid(*(np.linspace(0, 1, n) for n in GRID), indexing="ij")
B = np.random.default_rng(0).standard_normal(N)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is large enough is small here."""
    monkeypatch.setattr(choose, "_LEAST_ILU", 400)
    yield


def flow(u: Any, v: Any, *, upwind: bool = True, here: Any = 0.0) -> sp.csr_array:
    """Diffusion of one, and convection by cell Peclet numbers u, v; `here` is added to the diagonal."""
    u, v, here = (np.broadcast_to(a, GRID) for a in (u, v, here))
    more = [(np.abs(a) if upwind else 0 * a) / 2 for a in (u, v)]
    at, width = np.arange(N).reshape(GRID), GRID[1]
    A = sp.lil_array((N, N))
    A.setdiag((4 + here + 2 * sum(more)).ravel())
    for a, wider, places, step in ((u, more[0], at[1:], width), (v, more[1], at[:, 1:], 1)):
        i = places.ravel()
        a, wider = a.ravel(), wider.ravel()
        A[i, i - step] = -1 - wider[i] - a[i] / 2
        A[i - step, i] = -1 - wider[i - step] + a[i - step] / 2
    return sp.csr_array(A)


ROUND = 4 * X * (X - 1) * (1 - 2 * Y), -4 * Y * (Y - 1) * (1 - 2 * X)
SUITED = {
    "weak": flow(0.5, 0.2),
    "strong": flow(30.0, 10.0),
    "around": flow(*(10 * a for a in ROUND)),
    "strongly around": flow(*(100 * a for a in ROUND)),
    "central differences": flow(1.8, -0.9, upwind=False),
    "negative": -flow(10.0, 3.0),
    "huge": 1e30 * flow(3.0, 3.0),
    "scaled rows": sp.csr_array(sp.diags_array(10.0 ** (4 * X.ravel())) @ flow(5 * ROUND[0], 5 * ROUND[1])),
}
SCALE = sp.diags_array(np.exp(Y.ravel()))
OTHERS = {
    "symmetric": flow(0, 0),
    "scaled, symmetric": sp.csr_array(SCALE @ flow(0, 0) @ SCALE),
    "short steps": flow(10.0, 3.0, here=40.0),
    "a zero on the diagonal": flow(3.0, 1.0, here=np.where((X < 0.01) & (Y < 0.01), -8.0, 0.0)),
    "long central differences": flow(10.0, 9.0, upwind=False),
}
PATTERNS: dict[str, Callable[[sp.csr_array], sp.csr_array]] = {"grid": lambda A: A, "scattered": in_random_order}


def stored(A: sp.csr_array, like: Any) -> Any:
    """A whose values are those of its format, as the patterns of SciPy differ where an entry is zero."""
    matrix: Any = krylix.as_operator(A, like)
    return matrix.to(matrix.format)


@cache
def solver(mode: str, pattern: str) -> Any:
    """One program for all values: x, iterations, and whether the factors were chosen."""
    own: Any = stored(PATTERNS[pattern](flow(1.0, 0.5)), array(mode, B))

    def solve(values: Any, b: Any) -> Any:
        result = krylix.linear_solve(
            own.with_values(values), b, method="biCG-stab(2)", preconditioner="auto", rtol=1e-9
        )
        assert result.preconditioner == "ilu"
        return result.x, result.iterations

    program = compiled(mode, solve)
    return lambda A, b: map(to_numpy, program(stored(A, array(mode, B)).values, array(mode, b)))


@pytest.mark.parametrize(
    ("mode", "pattern"),
    [
        pytest.param("jax-jit", "grid", marks=pytest.mark.merge),
        pytest.param("jax-jit", "scattered", marks=pytest.mark.merge),
        pytest.param("tf-function", "grid", marks=pytest.mark.merge),
        pytest.param("tf-function", "scattered", marks=pytest.mark.slow),
    ],
)
def test_solves_in_half_the_iterations(mode: str, pattern: str) -> None:
    for name, A in (SUITED | OTHERS).items():
        if pattern == "scattered" and A.diagonal().min() == 0:
            continue  # on the pattern of the others, which has all of the diagonal
        A = PATTERNS[pattern](A)
        x, found = solver(mode, pattern)(A, B)
        expected = spl.spsolve(A.tocsc(), B)
        np.testing.assert_allclose(x, expected, atol=1e-6 * np.abs(expected).max(), err_msg=name)
        if name in SUITED and mode == "jax-jit":
            scaled = krylix.linear_solve(A, B, method="biCG-stab(2)", preconditioner="jacobi", rtol=1e-9)
            assert found <= scaled.iterations / 2, name


@pytest.mark.needs("jax")
def test_which_is_applied() -> None:
    import jax

    own: Any = stored(flow(1.0, 0.5), array("jax", B))

    @jax.jit
    def applied(values: Any, r: Any) -> Any:
        M = krylix.preconditioner(own.with_values(values))
        assert M.kind == "ilu" and dict(M.settings)["sweeps"] == 4 and "jacobi" in (M.note or "")
        return M @ r, M.T @ r, M.inner.chosen[0] > 0  # type: ignore[attr-defined]

    nan = flow(1.0, 0.5)
    nan.data[7] = np.nan
    for name, A in (SUITED | OTHERS | {"NaN": nan}).items():
        image, transposed, chosen = map(np.asarray, applied(stored(A, array("jax", B)).values, B))
        assert chosen == (name in SUITED), name
        if chosen:
            assert np.linalg.norm(A @ image - B) < 0.9 * np.linalg.norm(B), name
        else:
            diagonal = A.diagonal()
            scaled = B / np.where(diagonal == 0, 1, diagonal)
            np.testing.assert_allclose(image, scaled, rtol=1e-12)
            np.testing.assert_allclose(transposed, scaled, rtol=1e-12)


@pytest.mark.needs("jax")
@pytest.mark.merge
def test_derivatives_and_lanes() -> None:
    """By the values and b, of two solves one after the other, in lanes of `vmap` some of which the factors suit."""
    import jax
    import jax.numpy as jnp

    own: Any = stored(flow(1.0, 0.5), array("jax", B))
    w = np.random.default_rng(1).standard_normal(N)

    def loss(values: Any, b: Any) -> Any:
        A = own.with_values(values)
        x = krylix.linear_solve(A, krylix.linear_solve(A, b, rtol=1e-12).x, rtol=1e-12).x
        return jnp.sum(x * w)

    names = ["around", "symmetric", "strong"]
    values = [stored((SUITED | OTHERS)[name], array("jax", B)).values for name in names]
    stack = jax.tree.map(lambda *each: jnp.stack(each), *values)
    found, by_b = jax.jit(jax.vmap(jax.grad(loss, argnums=(0, 1)), (0, None)))(stack, jnp.asarray(B))
    direction = jax.tree.map(lambda v: np.where(v == 0, 0.0, np.cos(np.arange(v.size).reshape(v.shape))), values)
    for k, name in enumerate(names):
        A = (SUITED | OTHERS)[name].tocsc()
        change = own.with_values(direction[k]).to_scipy()
        y, x = spl.spsolve(A, B), spl.spsolve(A, spl.spsolve(A, B))
        p = spl.spsolve(A.T.tocsc(), w)
        q = spl.spsolve(A.T.tocsc(), p)
        np.testing.assert_allclose(by_b[k], q, atol=1e-6 * np.abs(q).max())
        expected = -(p @ (change @ x)) - q @ (change @ y)
        actual = sum(float(np.sum(g[k] * d)) for g, d in zip(jax.tree.leaves(found), jax.tree.leaves(direction[k])))
        np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_small_matrices_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody compiles factors for these."""
    monkeypatch.setattr(choose, "_LEAST_ILU", 20_000)
    own: Any = stored(flow(1.0, 0.5), array("jax-jit", B))
    kinds = []

    def solve(values: Any) -> Any:
        kinds.append(krylix.preconditioner(own.with_values(values)).kind)
        return values

    compiled("jax-jit", solve)(own.values)
    assert kinds[-1] == "jacobi"
