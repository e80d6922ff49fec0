"""What factors will cost, against what SuperLU's have; and that nobody counts what nobody asks for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyamg
import pytest
import scipy.sparse as sp

from krylix import as_operator, linear_solve, prepare
from krylix.solvers import choose as facts
from krylix.solvers import cost as fill
from krylix.solvers.cost import DOUBT, PLACING, FactorCost, estimated_cost, factor_cost, grid_cost
from krylix.solvers.factors.superlu import factors_of
from matrices import in_random_order

rng = np.random.default_rng(0)


def plane(*shape: int) -> sp.csr_array:
    return sp.csr_array(pyamg.gallery.poisson(shape, format="csr"))


def mesh(n: int) -> sp.csr_array:
    from scipy.spatial import Delaunay

    cells = Delaunay(np.random.default_rng(1).random((n, 2))).simplices
    pairs = np.concatenate([cells[:, [0, 1]], cells[:, [1, 2]], cells[:, [2, 0]]])
    edges = sp.coo_array((np.ones(len(pairs)), tuple(pairs.T)), (n, n))
    return sp.csr_array(20 * sp.eye_array(n) - edges - edges.T)


def scattered(n: int) -> sp.csr_array:
    A = sp.random_array((n, n), density=3 / n, rng=np.random.default_rng(2))
    return sp.csr_array(A + 0.1 * sp.eye_array(n))


def shuffled(A: sp.csr_array) -> sp.csr_array:
    """Equations in another order than their unknowns."""
    return sp.csr_array(A[np.random.default_rng(4).permutation(A.shape[0])])


def process(units: int) -> sp.csr_array:
    """Balances of a chain of units, each a small system that depends on the unit before and feeds one back."""
    rng, size = np.random.default_rng(5), 12
    within = sp.block_diag([sp.random_array((size, size), density=0.3, rng=rng) for _ in range(units)])
    feed, back = (sp.random_array((units, units), density=0.0, rng=rng) + sp.eye_array(units, k=k) for k in (-1, 3))
    pipes = sp.kron(feed, sp.random_array((size, size), density=0.1, rng=rng))
    pipes = pipes + sp.kron(back, sp.random_array((size, size), density=0.01, rng=rng))
    return shuffled(sp.csr_array(within + pipes + sp.eye_array(units * size)))


MATRICES = {
    "plane": lambda: plane(50, 40),
    "cube": lambda: plane(13, 12, 11),
    "long": lambda: plane(200, 8),
    "in a random order": lambda: in_random_order(plane(40, 40)),
    "mesh": lambda: mesh(2500),
    "band": lambda: sp.csr_array(sp.diags_array([1.0, 4, 1, 1], offsets=[-3, 0, 1, 2], shape=(3000, 3000))),
    "random": lambda: scattered(600),
    "convection": lambda: sp.csr_array(plane(40, 40) + 0.9 * sp.eye_array(1600, k=1) - 0.9 * sp.eye_array(1600, k=-1)),
    "parts": lambda: sp.csr_array(sp.block_diag([plane(30, 30), plane(20, 20)])),
    "shuffled plane": lambda: shuffled(plane(40, 40)),
    "shuffled cube": lambda: shuffled(plane(11, 10, 9)),
    "shuffled process": lambda: process(200),
    "indefinite": lambda: sp.csr_array(plane(40, 40) - 2 * sp.eye_array(1600)),
}


def true_cost(A: sp.csr_array) -> FactorCost:
    lu = factors_of(sp.csc_array(A))
    below, right = np.diff(lu.L.indptr) - 1.0, np.diff(sp.csr_array(lu.U).indptr) - 1.0
    return FactorCost(float(below @ right), lu.L.nnz + lu.U.nnz - A.shape[0])


@pytest.mark.parametrize("name", MATRICES)
def test_counted(name: str) -> None:
    """Of the factors themselves, within a factor of three, which exchanges of rows cost."""
    A = MATRICES[name]()
    expected, found = true_cost(A), factor_cost(A)
    assert expected.operations / 3 < found.operations < 3 * expected.operations + 10
    assert expected.numbers / 2 < found.numbers < 2 * expected.numbers


@pytest.mark.parametrize("name", MATRICES)
def test_estimated(name: str) -> None:
    """A random graph has no width, so that the estimate is too large."""
    A = MATRICES[name]()
    expected, found = factor_cost(A), estimated_cost(A)
    assert expected.work / DOUBT < found.work < (DOUBT if name != "random" else 5 * DOUBT) * expected.work


@pytest.mark.parametrize("grid", [(30, 30), (90, 30), (100, 3), (10, 10, 10), (20, 7, 6), (16, 15, 2)])
def test_of_a_grid(grid: tuple[int, ...]) -> None:
    expected, found = factor_cost(plane(*grid)), grid_cost(grid)
    assert expected.work / 3 < found.work < 3 * expected.work


def test_work_counts_operations_and_numbers() -> None:
    assert FactorCost(10.0, 2.0).work == 10 + 2 * PLACING
    assert FactorCost(10.0, 2.0, indexed=False).work == 10
    assert FactorCost(10.0, 2.0).times(3) == FactorCost(30.0, 6.0)


def test_what_holds_for_one_system_holds_for_each_of_a_batch() -> None:
    A = plane(9, 8)
    one, three = (fill.matrix_cost(as_operator(given)) for given in (A, [A, 2 * A, 3 * A]))
    assert three == one.times(3)


@pytest.mark.parametrize("shape", [(40, 40), (70, 60), (14, 14, 14)])
@pytest.mark.parametrize("many", [False, True])
def test_grids_are_neither_counted_nor_searched(
    shape: tuple[int, ...], many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor anything that is solved by transforms."""

    def refuse(A: Any) -> FactorCost:
        raise RuntimeError("counted")

    for module, name in ((facts, "factor_cost"), (facts, "estimated_cost"), (fill, "factor_cost")):
        monkeypatch.setattr(module, name, refuse)
    A, b = plane(*shape), rng.standard_normal(int(np.prod(shape)))
    varying = sp.csr_array(sp.diags_array(1 + rng.random(len(b))) + A)
    for matrix in (A, varying):
        found = prepare(matrix, b).solve(b) if many else linear_solve(matrix, b)
        np.testing.assert_allclose(matrix @ found.x, b, atol=1e-8)


def test_small_matrices_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(A: Any) -> FactorCost:
        raise RuntimeError("estimated")

    monkeypatch.setattr(facts, "estimated_cost", refuse)
    A = in_random_order(plane(12, 12))
    assert linear_solve(A, np.ones(144)).method == "scipy-direct"
