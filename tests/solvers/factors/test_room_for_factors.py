"""Where an iteration fails in a compiled function, factors that have no room in memory are not tried."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from krylix import as_operator, linear_solve
from krylix.solvers import cost as fill
from krylix.solvers.cost import FactorCost, fits, matrix_cost
from krylix.solvers.factors import sparse as sparse_factors

N = 40
MATRIX = sp.csr_array(np.eye(N) + np.eye(N, k=1) + 0.01 * np.eye(N, k=-9))


def test_cost_by_rows_and_pattern() -> None:
    known = matrix_cost(as_operator(MATRIX))
    assert 0 < known.numbers <= N * 20
    batch = as_operator([MATRIX, 2 * MATRIX])
    assert matrix_cost(batch).numbers == 2 * known.numbers
    assert fits(known, np.dtype(float)) and not fits(FactorCost(1, 1e14), np.dtype(float))


@pytest.mark.needs("jax")
def test_pattern_of_a_traced_matrix() -> None:
    """None is known where indices are arguments: a grid of three axes stands for it."""
    import jax
    from jax.experimental import sparse

    costs = []

    def look(matrix: Any) -> Any:
        costs.append(matrix_cost(as_operator(matrix)))
        return matrix.data

    for n in (1000, 8_000_000):
        values, indices = jax.ShapeDtypeStruct((3 * n,), np.float32), jax.ShapeDtypeStruct((3 * n, 2), np.int32)
        jax.eval_shape(lambda v, i, n=n: look(sparse.BCOO((v, i), shape=(n, n))), values, indices)
    assert not fits(costs[1], np.dtype(np.float64)) and fits(costs[0], np.dtype(np.float64))


@pytest.mark.needs("jax")
@pytest.mark.parametrize("why", ["no room", "MemoryError"])
def test_the_first_failure_stands(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import jax

    solve = jax.jit(lambda A, b: linear_solve(A, b, max_iter=2, on_failure="status"))
    from jax.experimental import sparse

    A = sparse.BCOO.from_scipy_sparse(sp.coo_array(MATRIX))

    def fail(*_: Any) -> Any:
        raise MemoryError

    if why == "MemoryError":
        monkeypatch.setattr(sparse_factors, "_solver_of", fail)
    else:
        seen: list[Any] = []
        monkeypatch.setattr(fill, "_memory", lambda: 1e-3 if seen else seen.append(1) or 1e12)
    result = solve(A, jax.numpy.ones(N))
    assert not result.converged and result.iterations <= 2
