"""Classical AMG: interpolation as in the textbook, splittings, and iterations on media that jump from cell to cell."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial import Delaunay

import krylix
from krylix.solvers.preconditioners.amg.classical import (
    couplings,
    first_pass,
    pmis,
    strong_entries,
    with_positive_diagonal,
)
from krylix.solvers.preconditioners.amg.interpolation import prolongation, without_explosion
from krylix.solvers.preconditioners.amg.rows import largest_in_rows, product, reduced, selected
from krylix.solvers.preconditioners.amg.settings import ROWS

THETA = 0.25


def medium(k: np.ndarray, closed: bool = False) -> sp.csr_array:
    """Finite volumes on a grid of cells with conductivities k, harmonic means between them; fixed values around it
    unless `closed`."""
    n, numbers = k.size, np.arange(k.size).reshape(k.shape)
    diagonal, rows, cols, values = np.zeros(k.shape), [], [], []
    for axis in range(k.ndim):
        low, high = (
            tuple(slice(*part) if a == axis else slice(None) for a in range(k.ndim)) for part in ((0, -1), (1, None))
        )
        between = 2 * k[low] * k[high] / (k[low] + k[high])
        rows.append(numbers[low].ravel()), cols.append(numbers[high].ravel()), values.append(-between.ravel())
        diagonal[low] += between
        diagonal[high] += between
        if not closed:
            for end in (0, -1):
                edge = tuple(end if a == axis else slice(None) for a in range(k.ndim))
                diagonal[edge] += k[edge]
    upper = sp.coo_array((np.concatenate(values), (np.concatenate(rows), np.concatenate(cols))), (n, n))
    return sp.csr_array(upper + upper.T + sp.diags_array(diagonal.ravel()))


def lognormal(sigma: float, *shape: int) -> np.ndarray:
    return np.exp(sigma * np.random.default_rng(0).standard_normal(shape))


def channels(n: int, contrast: float = 1e6) -> np.ndarray:
    """Meandering lines, a cell to four wide, that conduct much better than the ground."""
    rng, x = np.random.default_rng(1), np.arange(n)
    k = np.exp(rng.standard_normal((n, n)))
    for _ in range(n // 12):
        line = (
            rng.uniform(0, n)
            + rng.uniform(2, 20) * np.sin(2 * np.pi * x / rng.uniform(20, 100))
            + rng.uniform(-0.5, 0.5) * x
        )
        for offset in range(rng.integers(1, 5)):
            k[x, (line.astype(int) + offset) % n] = contrast
    return k


def mesh(points: int, seed: int = 0) -> sp.csr_array:
    """Linear finite elements on a random triangulation, fixed near the edge; obtuse angles make positive couplings."""
    rng = np.random.default_rng(seed)
    at = rng.random((points, 2))
    triangles = Delaunay(at).simplices
    first, second = (at[triangles[:, k]] - at[triangles[:, 0]] for k in (1, 2))
    area = first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]
    turned = [np.stack([e[:, 1], -e[:, 0]], 1) for e in (second, first)]
    one, other = turned[0], -turned[1]
    gradients = np.stack([-one - other, one, other], 1) / area[:, None, None]
    k = np.exp(rng.standard_normal(len(triangles))) * np.abs(area) / 2
    local = np.einsum("eia,eja->eij", gradients, gradients) * k[:, None, None]
    where = triangles.repeat(3, 1).ravel(), np.tile(triangles, (1, 3)).ravel()
    A = sp.csr_array(sp.coo_array((local.ravel(), where), (points, points)))
    inner = np.flatnonzero((at.min(1) > 0.02) & (at.max(1) < 0.98))
    return sp.csr_array(A[inner][:, inner])


def convection(n: int) -> sp.csr_array:
    """Upwind differences with a wind along both axes: an M-matrix that is not symmetric."""
    second, one, first = (
        sp.diags_array(entries, offsets=offsets, shape=(n, n))
        for entries, offsets in (([-1.0, 2.0, -1.0], (-1, 0, 1)), ([1.0], (0,)), ([-1.0, 1.0], (-1, 0)))
    )
    wind = 500 / n
    return sp.csr_array(sp.kron(one, second + wind * first) + sp.kron(second + wind / 2 * first, one))


SMALL: dict[str, sp.csr_array] = {
    "lognormal": medium(lognormal(3, 9, 8)),
    "closed": medium(lognormal(2, 7, 7), closed=True),
    "channels": medium(channels(12) * lognormal(0.1, 12, 12)),
    "three dimensions": medium(lognormal(2, 4, 4, 5)),
    "mesh": mesh(100),
    "convection": sp.csr_array(sp.diags_array(lognormal(1, 81)) @ convection(9) @ sp.diags_array(lognormal(0.1, 81))),
}
"""Matrices small enough for loops, without ties of weights."""


def made(name: str) -> tuple[tuple[sp.csr_array, np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """A with its entries as couplings, their sums in rows and the mask of the strong ones; the coarse unknowns."""
    A = SMALL[name].copy()
    A.sum_duplicates()
    coupled = couplings(with_positive_diagonal(A, A.diagonal()))
    sums = reduced(np.add, coupled, A.indptr, 0.0)
    strong = strong_entries(A, coupled, sums, A.diagonal(), THETA)
    return (A, coupled, sums, strong), pmis(selected(A, strong))


def places(A: sp.csr_array, mask: np.ndarray) -> np.ndarray:
    """Dense mask of the entries of A."""
    return sp.csr_array((mask.astype(float), A.indices, A.indptr), A.shape).toarray() > 0


def strong_by_loops(a: np.ndarray) -> np.ndarray:
    found = np.zeros(a.shape, bool)
    for i, row in enumerate(a):
        couplings = -np.delete(row, i)
        if row.sum() <= 0.9 * row[i]:
            found[i] = (-row >= THETA * couplings.max()) & (row < 0)
    return found


def by_loops(a: np.ndarray, strong: np.ndarray, coarse: np.ndarray) -> np.ndarray:
    """Extended+i of De Sterck, Falgout, Nolting and Yang 2008, with all weak couplings on the diagonal."""
    n, number = len(a), np.cumsum(coarse) - 1
    P = np.zeros((n, coarse.sum()))
    for i in range(n):
        if coarse[i]:
            P[i, number[i]] = 1
            continue
        mine = [j for j in range(n) if strong[i, j] and coarse[j]]
        fine = [k for k in range(n) if strong[i, k] and not coarse[k]]
        theirs = {k: [l for l in range(n) if strong[k, l] and coarse[l]] for k in fine}
        near = sorted({*mine, *(l for some in theirs.values() for l in some)})
        diagonal = sum(a[i, j] for j in range(n) if not strong[i, j])
        weights = {j: a[i, j] if strong[i, j] else 0.0 for j in near}
        for k in fine:
            back = min(a[k, i], 0.0)
            below = sum(a[k, l] for l in theirs[k]) + back
            if below == 0:
                diagonal += a[i, k]
                continue
            diagonal += a[i, k] * back / below
            for l in theirs[k]:
                weights[l] += a[i, k] * a[k, l] / below
        for j in near:
            P[i, number[j]] = -weights[j] / diagonal
    return P


def truncated_by_loops(P: np.ndarray, coarse: np.ndarray, most: int) -> np.ndarray:
    found = P.copy()
    for i in np.flatnonzero(~coarse):
        left_out = np.argsort(-np.abs(P[i]))[most:]
        found[i, left_out] = 0
        if found[i].any():
            found[i] *= P[i].sum() / found[i].sum()
    return found


@pytest.mark.parametrize("name", SMALL)
def test_strong_couplings_as_by_loops(name: str) -> None:
    (A, _, _, strong), _ = made(name)
    found = places(A, strong)
    np.testing.assert_array_equal(found, strong_by_loops(A.toarray()))


@pytest.mark.parametrize("split", [first_pass, pmis])
def test_no_unknown_is_left_between_fine_ones(split: Any) -> None:
    """Also of graphs where each unknown depends on all others, on none, or on one."""
    n = 50
    for graph in (1 - np.eye(n), np.zeros((n, n)), np.eye(n, k=1), np.outer(np.ones(n), np.arange(n) == 0)):
        S = sp.csr_array(graph * (1 - np.eye(n)))
        coarse = split(S)
        strong = S.toarray() > 0
        near = (strong | strong.T)[:, coarse].any(axis=1)
        assert (coarse | near | ~strong.any(axis=0)).all()
        assert coarse.sum() <= 0.7 * n


@pytest.mark.parametrize("name", SMALL)
def test_the_splitting_is_a_maximal_independent_set(name: str) -> None:
    (A, _, _, strong_entry), coarse = made(name)
    strong = places(A, strong_entry)
    assert not (strong & strong.T)[np.ix_(coarse, coarse)].any()  # no two that depend on each other
    needed = strong.any(axis=0)  # others depend on them
    near = (strong | strong.T)[:, coarse].any(axis=1)
    assert (coarse | near | ~needed).all()
    assert not coarse[~needed].any()


@pytest.mark.parametrize("name", SMALL)
def test_interpolation_is_that_of_the_textbook(name: str) -> None:
    rows, coarse = made(name)
    a = rows[0].toarray()
    expected = by_loops(a, strong_by_loops(a), coarse)
    symmetric = bool(np.abs(a - a.T).max() == 0)
    for most in (100, 4, 2):
        found = prolongation(*rows, coarse, symmetric, most)
        np.testing.assert_allclose(found.toarray(), truncated_by_loops(expected, coarse, most), atol=1e-11)
        assert np.diff(found.indptr).max() <= most


def test_largest_entries_of_rows_of_all_lengths() -> None:
    rng = np.random.default_rng(0)
    lengths = np.concatenate([rng.permutation(np.arange(90)), [700, 0, 3]])
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    sizes = rng.random(starts[-1])
    found = largest_in_rows(sizes, starts, 4)
    for first, last in itertools.pairwise(starts):
        expected = np.zeros(last - first, bool)
        expected[np.argsort(-sizes[first:last])[:4]] = True
        np.testing.assert_array_equal(found[first:last], expected)


def rotated(n: int, ratio: float = 100.0, angle: float = np.pi / 6) -> sp.csr_array:
    """Bilinear finite elements for diffusion that is `ratio` times stronger in one direction."""
    c, s = np.cos(angle), np.sin(angle)
    stiff, mass, slope = (
        sp.diags_array(entries, offsets=[-1, 0, 1], shape=(n, n))
        for entries in ([-1.0, 2.0, -1.0], [1 / 6, 4 / 6, 1 / 6], [-0.5, 0.0, 0.5])
    )
    along, across, mixed = c * c + s * s / ratio, s * s + c * c / ratio, 2 * c * s * (1 - 1 / ratio)
    return sp.csr_array(along * sp.kron(stiff, mass) + across * sp.kron(mass, stiff) - mixed * sp.kron(slope, slope))


MEDIA: dict[str, Any] = {
    "lognormal 1": lambda: medium(lognormal(1, 100, 100)),
    "lognormal 3": lambda: medium(lognormal(3, 100, 100)),
    "lognormal 3 in three dimensions": lambda: medium(lognormal(3, 22, 22, 22)),
    "channels": lambda: medium(channels(120)),
    "random cells": lambda: medium(np.where(np.random.default_rng(0).random((100, 100)) < 0.5, 1.0, 1e5)),
    "mesh": lambda: mesh(10_000),
    "anisotropy across the grid": lambda: rotated(100),
}


@pytest.mark.parametrize("name", MEDIA)
def test_few_iterations_whatever_jumps(name: str) -> None:
    A = MEDIA[name]()
    M = krylix.preconditioner(A, "amg", coarsening="classical")
    x = np.random.default_rng(0).standard_normal(A.shape[0])
    solution = krylix.linear_solve(A, A @ x, method="CG", preconditioner=M, rtol=1e-8)
    assert solution.converged and solution.iterations <= 15
    assert M.memory is not None and M.memory < 7 * A.nnz


# --- the table of coarsenings ---

PHASES = sp.diags_array(np.exp(1j * np.arange(60)))
LINE = sp.csr_array(sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(60, 60)))


def traced(A: sp.csr_array) -> Any:
    """As a batch of one system, whose values are set up like those that are traced."""
    known = krylix.as_operator(A)
    return known.with_values(np.asarray(known.values)[None])


CASES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "several components, Hermitian (`block_size`, or found: elasticity); rigid motions of a compact body": (
        LINE,
        {"block_size": 2},
        "classical",
    ),
    "`near_nullspace` given": (LINE, {"near_nullspace": np.ones((1, 60))}, "smoothed-aggregation"),
    "several unknowns per point (`block_size`), not Hermitian": (
        convection(8),
        {"block_size": 2},
        "smoothed-aggregation",
    ),
    "values that are traced, or those of a batch, without a `pattern`": (traced(LINE), {}, "smoothed-aggregation"),
    "known values, Hermitian": (sp.csr_array(PHASES @ LINE @ PHASES.conj()), {}, "classical"),
    "known values, not Hermitian, an M-matrix by its rows": (convection(8), {}, "classical"),
    "known values, not Hermitian": (sp.csr_array(LINE + sp.triu(LINE, 1)), {}, "smoothed-aggregation"),
}


def test_every_row_of_the_table_has_a_case() -> None:
    assert list(CASES) == [row.known for row in ROWS]


def test_the_table_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "preconditioners.md").read_text(encoding="utf-8")
    lines = "\n".join(f"| {row.known} | {row.coarsening} | {row.why} |" for row in ROWS)
    assert lines in page


@pytest.mark.parametrize("name", CASES)
def test_which_coarsening_is_taken(name: str) -> None:
    A, settings, expected = CASES[name]
    row = next(row for row in ROWS if row.known == name)
    assert row.coarsening == expected
    M = krylix.preconditioner(A, "amg", max_coarse=10, **settings)
    assert dict(M.settings)["coarsening"] == expected


def test_a_pattern_decides_for_traced_values() -> None:
    M = krylix.preconditioner(traced(LINE), "amg", max_coarse=10, pattern=LINE)
    assert dict(M.settings)["coarsening"] == "classical"


def test_smoothed_aggregation_where_no_coupling_is_negative() -> None:
    rng = np.random.default_rng(0)
    couplings = sp.random_array((4000, 4000), density=1e-3, rng=rng)
    couplings = sp.csr_array(couplings + couplings.T)
    A = sp.csr_array(couplings + sp.diags_array(couplings.sum(axis=1) + 0.1))
    with pytest.raises(ValueError, match="coarsest level has 4000 unknowns"):
        krylix.preconditioner(A, "amg", coarsening="classical")
    M = krylix.preconditioner(A, "amg")
    assert dict(M.settings)["coarsening"] == "smoothed-aggregation"
    assert M.reason == "smoothed-aggregation, as classical coarsening failed"


def test_a_result_says_which_coarsening_was_chosen() -> None:
    A = mesh(3000)
    result = krylix.linear_solve(A, np.ones(A.shape[0]), method="CG", preconditioner="amg")
    assert "amg: classical, as iterations do not depend" in result.to_dict()["why"]


# --- matrices of other kinds, each solved, with the residual looked at ---

ROUGH = medium(lognormal(3, 40, 40))
ROUGH.sum_duplicates()
N = ROUGH.shape[0]
TURN = sp.diags_array(np.exp(1j * np.random.default_rng(3).uniform(0, 6, N)))


def shuffled() -> sp.csr_array:
    """Rows whose entries are in another order, and some places twice."""
    rng, C = np.random.default_rng(0), ROUGH.tocoo()
    rows, cols = (np.concatenate([index, index]) for index in C.coords)
    order = rng.permutation(len(rows))
    order = order[np.argsort(rows[order], kind="stable")]
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=N))])
    return sp.csr_array((np.concatenate([0.3 * C.data, 0.7 * C.data])[order], cols[order], starts), (N, N))


def hubs(n: int = 4000) -> sp.csr_array:
    """A ring with unknowns that are coupled to hundreds of others."""
    rng = np.random.default_rng(0)
    ends = np.concatenate([np.arange(n), np.repeat(rng.integers(0, n, 8), 300)])
    others = np.concatenate([np.roll(np.arange(n), 1), rng.integers(0, n, 2400)])
    W = sp.csr_array(sp.coo_array((rng.uniform(0.5, 1, len(ends)), (ends, others)), (n, n)))
    W = sp.csr_array(W + W.T)
    W.setdiag(0)
    return sp.csr_array(sp.diags_array(W.sum(axis=1) + 1e-3) - W)


KINDS: dict[str, tuple[Any, str]] = {
    "singular": (lambda: medium(lognormal(2, 40, 40), closed=True), "CG"),
    "apart, singular and zero": (
        lambda: sp.block_diag([ROUGH, medium(lognormal(2, 30, 30), closed=True), sp.csr_array((20, 20))], format="csr"),
        "CG",
    ),
    "negative": (lambda: -ROUGH, "CG"),
    "Hermitian": (lambda: sp.csr_array(TURN @ ROUGH @ TURN.conj()), "CG"),
    "complex numbers that are real": (lambda: ROUGH.astype(complex), "CG"),
    "1e30": (lambda: 1e30 * ROUGH, "CG"),
    "1e-100": (lambda: 1e-100 * ROUGH, "CG"),
    "contrast of 1e40": (lambda: medium(lognormal(8, 40, 40)), "CG"),
    "dominant diagonal": (lambda: sp.csr_array(ROUGH + 100 * sp.diags_array(ROUGH.diagonal())), "CG"),
    "partly dominant": (lambda: sp.csr_array(ROUGH + sp.diags_array(np.where(np.arange(N) < N // 2, 1e6, 0))), "CG"),
    "shuffled entries": (shuffled, "CG"),
    "indices of 64 bits": (
        lambda: sp.csr_array((ROUGH.data, ROUGH.indices.astype(np.int64), ROUGH.indptr.astype(np.int64)), ROUGH.shape),
        "CG",
    ),
    "hubs": (hubs, "CG"),
    "convection": (lambda: convection(40), "biCG-stab"),
    "not symmetric, with jumps": (lambda: sp.csr_array(ROUGH + convection(40)), "biCG-stab"),
    "one-sided couplings": (lambda: sp.csr_array(sp.triu(ROUGH) + 1e-3 * ROUGH), "biCG-stab"),
}


@pytest.mark.parametrize("precision", [None, "single"])
@pytest.mark.parametrize("name", KINDS)
def test_few_iterations_for_every_kind(name: str, precision: str | None) -> None:
    A, method = KINDS[name][0](), KINDS[name][1]
    M = krylix.preconditioner(A, "amg", coarsening="classical", precision=precision)
    assert M.hermitian == (method == "CG")
    x = np.random.default_rng(1).standard_normal(A.shape[0]).astype(A.dtype)
    b = A @ x
    solution = krylix.linear_solve(A, b, method=method, preconditioner=M, rtol=1e-8)
    assert solution.converged and solution.iterations <= 15
    assert np.linalg.norm(A @ solution.x - b) <= 1.1e-8 * np.linalg.norm(b)


def test_matrices_in_single_precision() -> None:
    for scale in (1, 1e25, 1e-25):
        A = (scale * ROUGH).astype(np.float32)
        M = krylix.preconditioner(A, "amg", coarsening="classical")
        x = M @ np.ones(N, np.float32)
        expected = krylix.preconditioner(ROUGH, "amg", coarsening="classical") @ np.ones(N) / scale
        np.testing.assert_allclose(x, expected, rtol=0, atol=1e-3 * np.abs(expected).max())


def test_a_matrix_is_made_alike_every_time_and_left_as_it_is() -> None:
    A = shuffled()
    before = A.copy()
    M, other = (krylix.preconditioner(A, "amg", coarsening="classical") for _ in range(2))
    np.testing.assert_array_equal(M @ np.ones(N), other @ np.ones(N))
    for kept, given in zip((A.data, A.indices, A.indptr), (before.data, before.indices, before.indptr)):
        np.testing.assert_array_equal(kept, given)


def test_products_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    A, B = ROUGH, sp.csr_array(ROUGH[:, ::3])
    expected = (A @ B).toarray()
    np.testing.assert_allclose(product(A, B).toarray(), expected, rtol=1e-13)
    monkeypatch.setattr("krylix.solvers.preconditioners.amg.rows.csr_matmat", None)
    np.testing.assert_allclose(product(A, B).toarray(), expected, rtol=1e-13)


def test_couplings_between_fine_unknowns_are_capped_where_there_are_too_many() -> None:
    n = 300
    A = sp.csr_array((n + 1) * np.eye(n) - 1)
    strong, coarse = A.indices != np.repeat(np.arange(n), np.diff(A.indptr)), np.arange(n) < n // 2
    kept = without_explosion(A, strong, coarse, A.data)
    counts = places(A, kept)[~coarse]
    assert (counts[:, coarse].sum(axis=1) == n // 2).all() and (counts[:, ~coarse].sum(axis=1) == 10).all()


def test_graphs_without_geometry_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("krylix.solvers.preconditioners.amg.classical._MOST_ENTRIES", 1.2)
    with pytest.raises(ValueError, match="unknowns are all near each other"):
        krylix.preconditioner(ROUGH, "amg", coarsening="classical")
    assert dict(krylix.preconditioner(ROUGH, "amg").settings)["coarsening"] == "smoothed-aggregation"
