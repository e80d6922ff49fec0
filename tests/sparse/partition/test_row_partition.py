"""Partitions of rows: balanced, with few ghost values, for every kind of graph."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from irregular_matrices import triangulated, with_hubs
from krylix import UnsupportedOperation
from krylix.sparse import GhostCounts, ghost_counts, row_partition
from krylix.sparse.partition.row_partition import has_metis

A, POINTS = triangulated(4000)
# Ghost values by METIS (pymetis 2025.2.2) of the same meshes, so that a comparison needs no METIS: by axes and parts.
BY_METIS = {(2, 2): 128, (2, 4): 274, (2, 8): 501, (3, 4): 1446, (3, 8): 2292}


def ghosts(A: sp.csr_array, labels: np.ndarray) -> int:
    """Counted one by one."""
    away = {(labels[i], j) for i, j in zip(*A.nonzero(), strict=True) if labels[i] != labels[j]}
    return len(away)


@pytest.mark.parametrize(("axes", "parts"), BY_METIS)
@pytest.mark.parametrize("way", ["coordinates", "graph"])
def test_ghosts_are_few(way: str, axes: int, parts: int) -> None:
    matrix, points = triangulated(4000, axes)
    labels = row_partition(matrix, parts, points if way == "coordinates" else None, method=way)
    assert labels.dtype == np.int32 and np.bincount(labels).tolist() == [4000 // parts] * parts
    counts = ghost_counts(matrix, labels)
    assert counts.total == ghosts(matrix, labels) <= 1.15 * BY_METIS[axes, parts]
    assert counts.most <= 2.5 * counts.total / parts and 1 <= counts.neighbours < parts


@pytest.mark.skipif(not has_metis(), reason="pymetis is not installed")
def test_metis() -> None:
    labels = row_partition(A, 4, method="metis")
    assert np.bincount(labels).max() <= 1.05 * 1000
    assert ghost_counts(A, labels).total <= 1.05 * BY_METIS[2, 4]


@pytest.mark.skipif(has_metis(), reason="pymetis is installed")
def test_metis_is_missing() -> None:
    with pytest.raises(UnsupportedOperation, match="pip install pymetis"):
        row_partition(A, 4, method="metis")


def matrices() -> dict[str, sp.csr_array]:
    path = sp.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(40, 40))
    star = sp.csr_array((np.ones(39), (np.zeros(39, int), np.arange(1, 40))), (40, 40))
    return {
        "diagonal": sp.eye_array(40),
        "path": path,
        "star": star,
        "one-sided": sp.triu(path),
        "two components": sp.block_diag([path, path]),
        "many components": sp.block_diag([np.ones((k, k)) for k in (1, 2, 3, 5, 8, 13, 21)]),
        "full": sp.csr_array(np.ones((40, 40))),
        "hubs": with_hubs(300, 2),
        "long": sp.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(3001, 3001)),
    }


@pytest.mark.parametrize("name", matrices())
@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_any_graph(name: str, parts: int) -> None:
    matrix = sp.csr_array(matrices()[name])
    n = matrix.shape[0]
    sizes = np.bincount(row_partition(matrix, parts, method="graph"), minlength=parts)
    assert sizes.min() >= n // parts and sizes.max() <= -(-n // parts)


def test_a_path_is_cut_once() -> None:
    matrix = matrices()["long"]
    labels = row_partition(matrix, 3, method="graph")
    assert ghost_counts(matrix, labels) == GhostCounts(4, 2, 2)


def test_components_stay_whole() -> None:
    labels = row_partition(matrices()["two components"], 2, method="graph")
    assert ghost_counts(matrices()["two components"], labels).total == 0


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_random_graphs(n: int, parts: int, seed: int) -> None:
    parts = min(parts, n)
    matrix = sp.random_array((n, n), density=0.2, rng=np.random.default_rng(seed), format="csr")
    labels = row_partition(matrix, parts, method="graph")
    assert set(np.bincount(labels, minlength=parts)) <= {n // parts, -(-n // parts)}
    assert ghost_counts(matrix, labels).total == ghosts(matrix, labels)


def test_what_is_refused() -> None:
    square = sp.eye_array(6, format="csr")
    with pytest.raises(ValueError, match="expected a square matrix"):
        row_partition(sp.csr_array((3, 4)), 2)
    for parts in (0, 7, 2.0, True):
        with pytest.raises(ValueError, match="expected an integer from 1 to 6"):
            row_partition(square, parts)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"expected \(6, d\)"):
        row_partition(square, 2, np.zeros((5, 2)))
    with pytest.raises(ValueError, match="NaN"):
        row_partition(square, 2, np.full((6, 2), np.nan))
    with pytest.raises(ValueError, match="without coordinates"):
        row_partition(square, 2, method="coordinates")
    with pytest.raises(ValueError, match="expected one of auto"):
        row_partition(square, 2, method="spectral")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedOperation, match="shows no pattern"):
        row_partition(np.eye(6), 2)
    with pytest.raises(ValueError, match="one for each row"):
        ghost_counts(square, np.zeros(5, int))
