"""Entries of factors, counted from a pattern, against symbolic elimination of a dense one and SuperLU."""

from __future__ import annotations

import numpy as np
import pyamg
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from krylix.sparse.analysis.graph import RangeMinimum, column_counts, level_widths, minimum_degree

rng = np.random.default_rng(0)


def eliminated(pattern: np.ndarray) -> np.ndarray:
    """Entries below the diagonal of each column of the factor, one elimination after the other."""
    left, counts = pattern | pattern.T, []
    for j in range(len(left)):
        below = np.flatnonzero(left[j + 1 :, j]) + j + 1
        left[np.ix_(below, below)] = True
        counts.append(len(below))
    return np.array(counts, int)


PATTERNS = {
    "none": sp.csr_array((7, 7)),
    "no unknowns": sp.csr_array((0, 0)),
    "one": sp.csr_array([[1.0]]),
    "full": sp.csr_array(np.ones((6, 6))),
    "plane": pyamg.gallery.poisson((7, 6), format="csr"),
    "cube": pyamg.gallery.poisson((4, 5, 3), format="csr"),
    "upper triangle only": sp.triu(pyamg.gallery.poisson((7, 6), format="csr"), 1),
    "not symmetric": sp.random_array((60, 60), density=0.03, rng=rng),
    "parts": sp.block_diag([pyamg.gallery.poisson((4, 4)), np.ones((1, 1)), pyamg.gallery.poisson((9,))]),
    "star": sp.csr_array(np.eye(30) + np.outer(np.arange(30) == 3, np.ones(30))),
}


@pytest.mark.parametrize("order", ["given", "random", "minimum degree"])
@pytest.mark.parametrize("name", PATTERNS)
def test_column_counts(name: str, order: str) -> None:
    A = sp.coo_array(PATTERNS[name])
    n = A.shape[0]
    places = {
        "given": np.arange(n),
        "random": np.random.default_rng(1).permutation(n),
        "minimum degree": minimum_degree(sp.csr_array(A)),
    }[order]
    np.testing.assert_array_equal(np.sort(places), np.arange(n))
    rows, cols = (places[where] for where in A.coords)
    dense = np.zeros((n, n), bool)
    dense[rows, cols] = True
    np.testing.assert_array_equal(column_counts(rows, cols, n), eliminated(dense))


@pytest.mark.parametrize("grid", [(23, 17), (8, 7, 6)])
def test_the_factors_of_superlu(grid: tuple[int, ...]) -> None:
    """In the order that it finds for itself, without exchanges of rows."""
    A = sp.csc_array(pyamg.gallery.poisson(grid, format="csc"))
    lu = splu(A, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    places = minimum_degree(sp.csr_array(A))
    rows, cols = sp.coo_array(A).coords
    counts = column_counts(places[rows], places[cols], A.shape[0])
    np.testing.assert_array_equal(counts, np.diff(lu.L.indptr) - 1)


def test_full_rows_are_eliminated_last() -> None:
    """Which keeps the factors of an arrow as sparse as it is, and the search for an order short."""
    n = 3000
    A = sp.lil_array((n, n))
    A[0, :] = A[:, [0]] = 1
    A.setdiag(2)
    A.setdiag(1, 1)
    places = minimum_degree(sp.csr_array(A))
    assert places[0] == n - 1
    rows, cols = sp.coo_array(A).coords
    assert column_counts(places[rows], places[cols], n).sum() < 3 * n


@pytest.mark.parametrize("length", [1, 2, 7, 64, 100])
def test_range_minimum(length: int) -> None:
    values = rng.integers(0, 20, length)
    ends = np.sort(rng.integers(0, length, (200, 2)), axis=1)
    expected = [values[a : b + 1].min() for a, b in ends]
    np.testing.assert_array_equal(RangeMinimum(values).between(*ends.T), expected)


@pytest.mark.parametrize("grid", [(9, 9), (6, 40)])
def test_levels_of_a_grid(grid: tuple[int, int]) -> None:
    """From a corner: its diagonals."""
    widths, within, hubs = level_widths(sp.csr_array(pyamg.gallery.poisson(grid, format="csr")))
    sums = np.add.outer(np.arange(grid[0]), np.arange(grid[1])).reshape(-1)
    np.testing.assert_array_equal(widths, np.bincount(sums))
    assert within == 0 and hubs == 0


def test_levels_of_the_largest_part() -> None:
    plane = pyamg.gallery.poisson((12, 12), format="csr")
    parts = sp.csr_array(sp.block_diag([np.eye(50), plane, pyamg.gallery.poisson((5,))]))
    assert level_widths(parts).widths.sum() == 144
    assert level_widths(sp.csr_array((0, 0))).widths.sum() == 0


def test_long_lines_are_not_followed_to_their_end() -> None:
    line = sp.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(5000, 5000), format="csr")
    widths = level_widths(line).widths
    assert widths.sum() == 5000 and widths.max() <= 2
