"""Two colours of a graph, found where there are two and only there."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from krylix.solvers.preconditioners.amg.classical.red_black import red_black_splitting


def graph(n: int, pairs: list[tuple[int, int]]) -> sp.csr_array:
    """Laplacian of a path of n points with more edges."""
    rows, cols = np.array([*((i, i + 1) for i in range(n - 1)), *pairs]).T
    A = sp.coo_array((np.full(len(rows), -1.0), (rows, cols)), (n, n)).tocsr()
    A = sp.csr_array(A + A.T)
    return sp.csr_array(A + sp.diags_array(1.0 - A.sum(axis=1)))


@pytest.mark.parametrize("n", [12, 1000])
@pytest.mark.parametrize("extra", [(0, 2), (0, 4), (5, 7)])  # a triangle, a cycle of 5 points, a triangle elsewhere
def test_odd_cycles_have_no_two_colours(n: int, extra: tuple[int, int]) -> None:
    assert red_black_splitting(graph(n, [extra])) is None


@pytest.mark.parametrize("n", [2, 12, 1000])
@pytest.mark.parametrize("extra", [[], [(0, 3)], [(0, 3), (2, 5), (0, 5)]])
def test_even_cycles_have(n: int, extra: list[tuple[int, int]]) -> None:
    A = graph(n, extra if n > 5 else [])
    stays = red_black_splitting(A)
    assert stays is not None
    rows, cols = A.nonzero()
    assert np.all((stays[rows] != stays[cols]) | (rows == cols))


def test_one_coupled_direction_is_enough() -> None:
    A = sp.csr_array(np.eye(3) + np.array([[0, 1.0, 1], [0, 0, 1], [0, 0, 0]]))
    assert red_black_splitting(A) is None
