"""What `preconditioner(A)` chooses, whatever kinds there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyamg
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from krylix import as_operator, linear_solve, preconditioner
from krylix.solvers import PRECONDITIONERS
from krylix.solvers.preconditioners.choose import AUTOMATIC, choose_kind
from krylix.sparse import Stencil
from matrices import in_random_order
from modes import array, compiled, to_numpy

ALL = ("jacobi", "block-jacobi", "chebyshev", "cluster", "ilu", "ic", "ssor", "amg", "multigrid", "fast",
       "shifted-laplacian", "schwarz")  # fmt: skip
PLANE = sp.csr_array(pyamg.gallery.poisson((80, 80), format="csr"))
LARGE = in_random_order(PLANE)
EYE = sp.eye_array(6400)
SMALL = sp.csr_array(pyamg.gallery.poisson((8, 8), format="csr"))


SHIFTS = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)]
GRID = Stencil([4.0, -1.0, -1.0, -1.0, -1.0], SHIFTS, (80, 80))
FAR = Stencil([4.0, -1.0, -1.0, -1.0, -1.0], [(2 * a, 2 * b) for a, b in SHIFTS], (80, 80))


def wind(n: int, size: float, upwind: bool = True, mass: float = 0.0) -> sp.csr_array:
    """Diffusion, and convection around the middle of a square, on n x n cells."""
    x = (np.arange(n) + 0.5) / n
    turn = np.outer(np.sin(np.pi * x), np.cos(np.pi * x))
    A = sp.csr_array(pyamg.gallery.poisson((n, n), format="csr")) + mass * sp.eye_array(n * n)
    step = sp.diags_array([1.0, -1.0], offsets=[0, -1], shape=(n, n))
    for along, v in ((sp.kron(step, sp.eye_array(n)), turn), (sp.kron(sp.eye_array(n), step), -turn.T)):
        back, v = sp.csr_array(along), size * v.reshape(-1)
        if upwind:
            A = A + sp.diags_array(np.maximum(v, 0)) @ back + sp.diags_array(np.maximum(-v, 0)) @ back.T
        else:
            A = A + sp.diags_array(v / 2) @ (back - back.T)
    return sp.csr_array(A)


def saddle() -> sp.csr_array:
    B = sp.eye_array(10, 64)
    return sp.csr_array(sp.block_array([[SMALL, B.T], [B, None]]))


@pytest.mark.parametrize(
    ("A", "kind"),
    [
        (LARGE, "amg"), (-LARGE, "amg"), (SMALL, "jacobi"), (SMALL + sp.eye_array(64, k=1), "ilu"),
        (LARGE + sp.eye_array(6400, k=1), "ilu"), (SMALL.toarray(), "jacobi"), (saddle(), "jacobi"),
        (saddle() + sp.eye_array(74, k=1), "ilu"), (spl.aslinearoperator(SMALL), "chebyshev"),
        ([LARGE, 2 * LARGE], "jacobi"), (LARGE + 0.1 * sp.eye_array(6400), "jacobi"), (GRID, "multigrid"),
        (-1 * GRID, "multigrid"), (GRID.to("dia"), "multigrid"), (GRID.to("csr"), "multigrid"), (FAR, "amg"),
        (FAR.to("csr"), "amg"), (PLANE, "multigrid"), (-PLANE.tocsc(), "multigrid"),
        (wind(72, 10), "amg"), (-wind(72, 1e3), "amg"), (wind(72, 10).T, "amg"),
        (wind(8, 10), "ilu"), (wind(72, 10, upwind=False), "ilu"),
        (wind(72, 10, mass=10.0), "ilu"), (wind(72, 10) * (1 + 0.1j), "ilu"),
        (PLANE - (0.1 - 0.01j) * EYE, "shifted-laplacian"),
        (LARGE - (0.1 - 0.01j) * EYE, "ilu"), (SMALL - (0.1 - 0.01j) * sp.eye_array(64), "ilu"),
    ],
    ids=["large", "negative", "small", "not symmetric", "large and not symmetric", "dense", "indefinite",
         "zeros on the diagonal", "products", "batch", "dominant", "grid", "negative grid", "diagonals", "rows",
         "far on a grid", "far in rows", "grid in rows", "grid in columns",
         "wind", "negative wind", "by columns", "small wind", "central differences", "short time steps", "complex",
         "waves", "waves in any order", "few waves"],
)  # fmt: skip
def test_table(A: Any, kind: str) -> None:
    operator = as_operator(A)
    assert choose_kind(operator, ALL) == kind
    assert choose_kind(operator, ("jacobi",)) == "jacobi"
    smooth = {"multigrid": "fast"}  # which these grids are, see test_fast.py
    assert preconditioner(operator).kind == smooth.get(kind, kind)
    assert choose_kind(operator, PRECONDITIONERS) == kind


@pytest.mark.parametrize("mode", ["numpy", "jax-jit", "tf-function", "torch"])
def test_values_that_are_not_known(mode: str) -> None:
    pattern, b = as_operator(SMALL, array(mode, np.ones(64))), array(mode, np.ones(64))
    kinds = []

    def solve(v: Any) -> Any:
        result = linear_solve(pattern.with_values(v), b, method="CG", preconditioner="auto")
        kinds.append(result.preconditioner)
        return result.x

    x = compiled(mode, solve)(pattern.values)
    assert kinds[-1] == "jacobi"
    np.testing.assert_allclose(SMALL @ to_numpy(x), 1, rtol=1e-4)


def test_functions() -> None:
    assert preconditioner(lambda x: SMALL @ x, like=np.ones(64)).kind == "jacobi"


@pytest.mark.parametrize("size", [0.1, 10.0, 1e3])
def test_iterations_in_the_wind(size: float) -> None:
    """Where other kinds take hundreds; of the transpose, too."""
    A, b = wind(80, size), np.random.default_rng(0).standard_normal(6400)
    M = preconditioner(A)
    for one, P in ((A, M), (sp.csr_array(A.T), M.T)):
        result = linear_solve(one, b, method="biCG-stab(2)", preconditioner=P, rtol=1e-8)
        assert result.iterations <= 40 and np.linalg.norm(one @ result.x - b) <= 1e-8 * np.linalg.norm(b)


@pytest.mark.parametrize("leak", [1e-3, 1e-6])
def test_markov_chains(leak: float) -> None:
    """Whose columns sum to (nearly) zero, and not their rows: few iterations, where factors take more than 50."""
    cells, rng = np.arange(80 * 80).reshape(80, 80), np.random.default_rng(0)
    here, there = np.r_[cells[1:].ravel(), cells[:, 1:].ravel()], np.r_[cells[:-1].ravel(), cells[:, :-1].ravel()]
    to, of = np.r_[here, there], np.r_[there, here]
    rates = sp.coo_array((np.exp(rng.standard_normal(len(to))), (to, of)), (6400, 6400))
    A = sp.csr_array(sp.diags_array(rates.sum(axis=0) * (1 + leak)) - rates)
    result = linear_solve(A, rng.random(6400), method="biCG-stab(2)", preconditioner="auto", rtol=1e-8)
    assert result.preconditioner == "amg" and result.iterations <= 25


def test_the_next_one_where_a_kind_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(A: Any) -> Any:
        raise ValueError("no")

    monkeypatch.setitem(PRECONDITIONERS, "amg", fails)
    assert preconditioner(wind(72, 10)).kind == "ilu"
    monkeypatch.setitem(AUTOMATIC, "ilu", fails)
    assert preconditioner(wind(72, 10)).kind == "jacobi"
    with pytest.raises(ValueError, match="no"):
        preconditioner(wind(72, 10), "amg")
