"""Classical AMG again for new numbers on a known pattern: by NumPy, in programs, for batches and with derivatives."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from cells import in_turn
from krylix.backends import get_backend
from krylix.solvers.preconditioners import UPDATES
from krylix.solvers.preconditioners.amg.build_cycle import sparse_form
from krylix.solvers.preconditioners.amg.classical import classical_levels
from krylix.solvers.preconditioners.amg.hierarchy import galerkin_levels, order_of, tentative_matrices, traced_cycle
from krylix.solvers.preconditioners.amg.interpolation import ClassicalRule
from krylix.solvers.preconditioners.amg.levels import HostLevel, permuted_matrix
from krylix.solvers.preconditioners.amg.settings import AmgSettings
from krylix.sparse.formats.compressed import CsrStructure
from modes import array, compiled, to_numpy

GRID = (30, 25)
N = GRID[0] * GRID[1]
TRACED = ("jax-jit", "tf-function")
EVERY_MODE = ("numpy", "torch", *TRACED)


def edges(*grid: int) -> sp.csr_array:
    """Differences of neighbours, and of the first unknowns and zero."""
    number = np.arange(np.prod(grid)).reshape(grid)
    pairs = [(np.moveaxis(number, i, 0)[1:].ravel(), np.moveaxis(number, i, 0)[:-1].ravel()) for i in range(len(grid))]
    heads, tails = (np.concatenate(side) for side in zip(*pairs))
    rows, fixed = np.arange(len(heads)), np.arange(len(heads), len(heads) + grid[-1])
    entries = np.repeat([1.0, -1.0, 1.0], [len(heads), len(heads), grid[-1]])
    at = np.concatenate([rows, rows, fixed]), np.concatenate([heads, tails, np.arange(grid[-1])])
    return sp.csr_array((entries, at), (fixed[-1] + 1, number.size))


def medium(sigma: float, seed: int = 0, grid: tuple[int, ...] = GRID) -> sp.csr_array:
    """Conductances exp(sigma N(0, 1)) between neighbours."""
    D = edges(*grid)
    return sp.csr_array(
        D.T @ sp.diags_array(np.exp(sigma * np.random.default_rng(seed).standard_normal(len(D.indptr) - 1))) @ D
    )


def ring(n: int) -> sp.csr_array:
    """Constants are mapped to zero, up to rounding."""
    one = np.eye(n)
    return sp.csr_array((2 * one - np.roll(one, 1, 0) - np.roll(one, -1, 0)) * np.pi / 3)


def turned(A: sp.csr_array) -> sp.csr_array:
    phases = sp.diags_array(np.exp(1j * np.arange(A.shape[0])))
    return sp.csr_array(phases @ A @ phases.conj())


def convected(A: sp.csr_array) -> sp.csr_array:
    lines = sp.diags_array([-1.0, 1.0], offsets=[-1, 0], shape=A.shape)
    return sp.csr_array(A + 0.5 * lines)


MATRICES = {
    "medium": medium(3.0),
    "three axes": medium(2.0, grid=(9, 10, 8)),
    "negative": sp.csr_array(-medium(1.0)),
    "closed": sp.csr_array(edges(*GRID)[: -GRID[1]].T @ edges(*GRID)[: -GRID[1]]),
    "complex Hermitian": turned(medium(1.0)),
    "not symmetric": convected(medium(1.0)),
    "dominated rows": sp.csr_array(medium(1.0) + sp.diags_array(np.where(np.arange(N) % 7, 0.0, 1e3))),
    "tiny numbers": sp.csr_array(1e-200 * medium(3.0)),
    "closed regions": sp.csr_array(sp.block_diag([medium(1.0), *(ring(k) * (1e5 / 3) for k in range(1, 60))])),
    "two parts": sp.csr_array(sp.block_diag([medium(1.0), medium(2.0, 1)])),
}


def made(A: Any, **settings: Any) -> Any:
    return krylix.preconditioner(A, "amg", coarsening="classical", **{"max_coarse": 20, **settings})


def again(M: Any, A: Any) -> Any:
    found = UPDATES["amg"](M, krylix.as_operator(A))
    assert found is not None
    return found


def right_hand_side(A: Any) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(A.shape[0]).astype(A.dtype)


def iterations(A: sp.csr_array, M: Any) -> int:
    b = right_hand_side(A)
    result = krylix.linear_solve(A, b, method="CG", preconditioner=M, rtol=1e-8)
    assert np.linalg.norm(b - A @ result.x) <= 1e-8 * np.linalg.norm(b)
    return int(result.iterations)


def assert_close(found: Any, expected: Any, tolerance: float = 1e-12) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("name", MATRICES)
def test_the_same_numbers_give_the_same_cycle(name: str) -> None:
    A = MATRICES[name]
    M = made(A)
    assert_close(again(M, A) @ right_hand_side(A), M @ right_hand_side(A))


def test_closed_regions_stay_bounded() -> None:
    """What rounding leaves of them on coarse levels is not inverted, in renewed numbers either, nor in programs."""
    A = MATRICES["closed regions"]
    b = A @ right_hand_side(A)
    batch = krylix.as_operator(A).with_values(np.asarray(krylix.as_operator(A).values)[None])
    M = made(A)
    traced = krylix.preconditioner(batch, "amg", pattern=M)
    for one in (M, again(M, A), lambda r: traced(r[None])[0]):
        found = krylix.linear_solve(A, b, method="CG", preconditioner=one, rtol=1e-8)
        assert np.linalg.norm(b - A @ found.x) <= 1e-8 * np.linalg.norm(b) and found.iterations <= 20


def by_loops(A: np.ndarray, strong: np.ndarray, coarse: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Extended+i interpolation as in (4.10) of the paper, weak couplings and the wrong signs in the diagonal."""
    n, number = len(A), np.cumsum(coarse) - 1
    P = np.zeros((n, coarse.sum()))
    sign = np.sign(A.diagonal())
    strong = strong & (A * sign[:, None] < 0)
    for i in range(n):
        if coarse[i]:
            P[i, number[i]] = 1
            continue
        weights, diagonal = np.zeros(n), A[i, i]
        for k in range(n):
            if k == i or not A[i, k]:
                continue
            if strong[i, k] and coarse[k]:
                weights[k] += A[i, k]
                continue
            back = min(A[k, i] * sign[k], 0) * sign[k]
            below = sum(A[k, j] for j in range(n) if strong[k, j] and coarse[j]) + back
            if not strong[i, k] or not below:
                diagonal += A[i, k]
                continue
            diagonal += A[i, k] * back / below
            for j in range(n):
                if strong[k, j] and coarse[j]:
                    weights[j] += A[i, k] * A[k, j] / below
        total, places = weights.sum(), [j for j in range(n) if coarse[j] and kept[i, number[j]]]
        for j in places:
            P[i, number[j]] = -weights[j] / diagonal * total / weights[places].sum() if weights[j] else 0
    return P


@pytest.mark.parametrize("name", ["medium", "other signs", "not symmetric", "negative"])
def test_interpolation_is_that_of_the_textbook(name: str) -> None:
    """Of new numbers, some of them of a sign that no strong coupling had, on the places of others."""
    first, rng = medium(2.0, grid=(7, 6)), np.random.default_rng(3)
    level = classical_levels([HostLevel.finest(first)], AmgSettings(coarsening="classical", max_coarse=5), True)[0]
    A = first.copy()
    A.data *= np.exp(rng.standard_normal(A.nnz))
    A = A if name == "not symmetric" else sp.csr_array(A + A.T)
    if name == "other signs":
        A.data[(A.data < 0) & (A.data > np.quantile(A.data, 0.3))] *= -0.1
        A = sp.csr_array(A + A.T)
    A = sp.csr_array(A + sp.diags_array(1.0 + abs(A).sum(axis=1)))
    A = -A if name == "negative" else A
    A.sort_indices()
    rule = level.tentative
    strong = rule.strong.to_scipy((np.ones(rule.strong.nnz),)).toarray() != 0
    found = rule.prolongation(A).toarray()
    np.testing.assert_allclose(
        found, by_loops(A.toarray(), strong, level.splitting, level.P.toarray() != 0), atol=1e-13
    )
    if name == "other signs":
        assert (A.data > 0).sum() > len(A.indptr)


def test_components_are_interpolated_apart() -> None:
    """The same hierarchy again for two unknowns a point that are coupled."""
    A = sp.csr_array(
        sp.kron(medium(1.0, grid=(12, 12)), np.eye(2)) + sp.kron(sp.eye_array(144), [[0.1, -0.1], [-0.1, 0.1]])
    )
    A.sort_indices()
    settings = AmgSettings(coarsening="classical", max_coarse=20)
    levels = classical_levels([HostLevel.finest(A)], settings, True, np.arange(288) % 2)
    found = galerkin_levels(A, [level.tentative for level in levels[:-1]], settings, True)
    for one, other in zip(found, levels, strict=True):
        assert_close(one.A.toarray(), other.A.toarray())


@pytest.mark.parametrize("name", ["medium", "not symmetric", "complex Hermitian"])
def test_saved_and_pickled(name: str, tmp_path: Path) -> None:
    A = MATRICES[name]
    M = made(A)
    M.save(tmp_path / "M.npz")
    for other in (krylix.load_preconditioner(tmp_path / "M.npz"), pickle.loads(pickle.dumps(M))):
        assert_close(again(other, 2 * A) @ right_hand_side(A), M @ right_hand_side(A) / 2)


@pytest.mark.compiled_by_default
@pytest.mark.parametrize(
    ("name", "mode"), in_turn(["medium", "complex Hermitian"], EVERY_MODE, always=["numpy", "torch"])
)
def test_numbers_in_programs(name: str, mode: str) -> None:
    """On the places of other numbers, given as a preconditioner, and of one cycle and its transpose."""
    A = MATRICES[name]
    pattern, M0, r = krylix.as_operator(A), made(A), right_hand_side(A)
    factors = np.exp(np.random.default_rng(4).uniform(-0.1, 0.1, N))[np.stack([A.nonzero()[0], A.indices])].prod(axis=0)
    B = pattern.with_values(np.asarray(pattern.values) * factors)
    expected = again(M0, B)

    def image(values: Any, r: Any) -> Any:
        M = krylix.preconditioner(pattern.with_values(values), "amg", pattern=M0)
        return M @ r, M.T @ r

    found = compiled(mode, image)(array(mode, np.asarray(B.values)), array(mode, r))
    for one, other in zip(found, (expected @ r, expected.T @ r), strict=True):
        assert_close(to_numpy(one), other, 1e-9)


@pytest.mark.compiled_by_default(modes=())
@pytest.mark.parametrize("mode", EVERY_MODE)
def test_unknown_numbers(mode: str) -> None:
    """The splitting of unit coefficients, and all numbers of the run; each system of a batch as it is alone."""
    matrices = [medium(sigma, seed) for seed, sigma in enumerate((0.0, 1.0, 1.5))]
    values, pattern = np.stack([A.data for A in matrices]), krylix.as_operator(matrices[0])
    b = np.stack([right_hand_side(A) for A in matrices])

    def solve(values: Any, b: Any) -> tuple[Any, Any]:
        A = pattern.with_values(values)
        result = krylix.linear_solve(A, b, method="CG", preconditioner=made(A), rtol=1e-8, batch_ndim=1)
        return result.x, result.iterations

    x, counts = map(to_numpy, compiled(mode, solve)(array(mode, values), array(mode, b)))
    for i, A in enumerate(matrices):
        assert np.linalg.norm(b[i] - A @ x[i]) <= 2e-8 * np.linalg.norm(b[i])
        alone = solve(values[i : i + 1], b[i : i + 1])
        assert counts[i] == int(alone[1][0]) <= 16


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_single_precision_and_scales(dtype: str, scale: float) -> None:
    A = (medium(1.0) * scale).astype(dtype)
    pattern = krylix.as_operator(A)
    M = made(pattern.with_values(np.asarray(pattern.values)[None]))
    b = right_hand_side(A)
    found = krylix.linear_solve(A, b, method="CG", preconditioner=lambda r: M(r[None])[0], rtol=1e-4)
    assert found.iterations <= 20


def test_coefficients_that_drift() -> None:
    """As many iterations as a fresh hierarchy takes, while unit coefficients take several times as many."""
    A, rng = medium(3.0, grid=(64, 64)), np.random.default_rng(5)
    M = made(A)
    fresh, D = iterations(A, M), edges(64, 64)
    k = np.exp(3.0 * np.random.default_rng(0).standard_normal(len(D.indptr) - 1))
    for _ in range(3):
        k = k * np.exp(0.1 * rng.standard_normal(len(k)))
        B = sp.csr_array(D.T @ sp.diags_array(k) @ D)
        M = again(M, B)
        assert iterations(B, M) <= fresh + 2
    unit = made(medium(0.0, grid=(64, 64)))
    assert iterations(A, krylix.preconditioner(A, "amg", pattern=unit)) > 2 * fresh


def test_numbers_that_make_no_interpolation() -> None:
    """No coupling left, couplings of the other sign, a row of zeros: weights are finite, and solves right."""
    A = MATRICES["medium"]
    M = made(A)
    others = [A.copy() for _ in range(3)]
    others[0].data[A.data < 0] = 0
    others[1].data[:] = np.where(A.data < 0, -0.1 * A.data, A.data)
    others[2].data[A.indptr[7] : A.indptr[8]] = 0
    others[2].data[A.indices == 7] = 0
    for B in others:
        b = B @ np.ones(N)
        found = krylix.linear_solve(B, b, method="CG", preconditioner=again(M, B), rtol=1e-8)
        assert np.linalg.norm(b - B @ found.x) <= 1e-8 * np.linalg.norm(b)


def test_entries_that_are_missing_and_new_ones() -> None:
    """Of the former the rest of the pattern serves; with the latter there is no update, and `prepare` starts again."""
    A = MATRICES["medium"]
    M, fewer, more = made(A), A.tolil(), A.tolil()
    fewer[3, 4] = fewer[4, 3] = 0
    more[0, N - 1] = more[N - 1, 0] = -0.5
    assert iterations(sp.csr_array(fewer), again(M, sp.csr_array(fewer))) <= 2 * iterations(A, M)
    assert UPDATES["amg"](M, krylix.as_operator(sp.csr_array(more))) is None


@pytest.mark.parametrize(("share", "least"), [(0.1, 0.5), (0.5, 0.05)])
def test_fewer_entries_are_as_zeros_in_programs(share: float, least: float) -> None:
    """Where fine unknowns are eliminated, too."""
    A, N = medium(0.0), np.prod(GRID)
    M = made(A)
    tentative = tentative_matrices(M.inner)
    assert tentative[0].rule.eliminates
    rng = np.random.default_rng(2)
    upper = sp.coo_array(sp.triu(A, 1))
    there = rng.random(upper.nnz) >= share
    cut = sp.coo_array((upper.data[there], (upper.row[there], upper.col[there])), upper.shape)
    cut = sp.csr_array(cut + cut.T)
    own = 0.01 - np.asarray(cut.sum(1)).ravel()
    numbers = sp.csr_array(cut + sp.diags_array(own))
    order = order_of(M.inner)
    found = traced_cycle(permuted_matrix(sparse_form(krylix.as_operator(numbers)), order), tentative,
                    AmgSettings(**dict(M.settings)), True)  # fmt: skip
    place = np.arange(N) if order is None else order
    inside = numbers.toarray()[np.ix_(place, place)]
    values = np.linalg.eigvals(np.stack([found.apply(e[None])[0] for e in np.eye(N)], 1) @ inside)
    assert abs(values.imag).max() < 1e-8 and values.real.max() < 1 + 1e-8 and values.real.min() > least


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_derivatives_do_not_see_it() -> None:
    """First and second ones of a solve by the values, against NumPy's dense solves; under vmap, too."""
    import jax
    import jax.numpy as jnp

    A = medium(1.0, grid=(8, 7))
    pattern, b = krylix.as_operator(A), right_hand_side(A)
    weights, M0 = np.random.default_rng(2).standard_normal(len(b)), made(A)
    direction = jnp.asarray(np.asarray(pattern.values) * np.random.default_rng(3).uniform(-0.1, 0.1, A.nnz))

    def loss(t: Any) -> Any:
        matrix = pattern.with_values(jnp.asarray(pattern.values) + t * direction)
        M = krylix.preconditioner(matrix, "amg", pattern=M0)
        x = krylix.linear_solve(matrix, jnp.asarray(b), method="biCG-stab", preconditioner=M, rtol=1e-11).x
        return jnp.vdot(weights, x)

    first, second = jax.jit(jax.vmap(jax.value_and_grad(jax.grad(loss))))(jnp.zeros(1))
    change = sp.csr_array((np.asarray(direction), A.indices, A.indptr), A.shape).toarray()
    x = np.linalg.solve(A.toarray(), b)
    dx = -np.linalg.solve(A.toarray(), change @ x)
    assert float(first[0]) == pytest.approx(weights @ dx, rel=1e-6)
    assert float(second[0]) == pytest.approx(-2 * weights @ np.linalg.solve(A.toarray(), change @ dx), rel=1e-6)


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_one_that_is_an_argument() -> None:
    """A hierarchy made outside of a compiled function, and passed in; the numbers of several matrices by vmap."""
    import jax
    import jax.numpy as jnp

    A = MATRICES["medium"]
    pattern, r = krylix.as_operator(A, jnp.zeros(N)), jnp.asarray(right_hand_side(A))
    M0 = made(pattern)

    def image(M0: Any, values: Any) -> Any:
        return krylix.preconditioner(pattern.with_values(values), "amg", pattern=M0) @ r

    expected = made(A) @ np.asarray(r)
    found = jax.jit(jax.vmap(image, (None, 0)))(M0, jnp.stack([pattern.values, 2 * pattern.values]))
    assert_close(np.asarray(found), np.stack([expected, expected / 2]), 1e-9)


def test_values_of_no_unknowns_are_empty() -> None:
    """A level on which every unknown is coarse, or has nobody to take from."""
    A = sp.csr_array(np.diag([1.0, 2.0, 3.0]))
    P = sp.csr_array(([1.0, 1.0], [0, 1], [0, 1, 2, 2]), shape=(3, 2))
    rule = ClassicalRule.of(A, P, np.array([True, True, False]), np.zeros(3, bool))
    assert rule.prolongation(A).toarray().tolist() == [[1, 0], [0, 1], [0, 0]]
    plan = rule.interpolation(CsrStructure.of(A))
    assert plan.weights(get_backend("numpy"), np.ones((2, 3))).tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize("first", [0.0, 3.0])
def test_splittings_that_no_longer_serve_are_made_anew(first: float) -> None:
    """By an update of known values; `pattern=M` keeps them, whatever they cost."""
    grid = (64, 64)
    A, other = medium(first, grid=grid), medium(3.0, 1, grid)
    M, fresh = made(A), made(other)
    assert iterations(other, again(M, other)) == iterations(other, fresh)
    assert iterations(other, krylix.preconditioner(other, "amg", pattern=M)) > 2 * iterations(other, fresh)
    solver = krylix.prepare(A, method="CG", preconditioner="amg", rtol=1e-8).update(other)
    assert dict(again(M, other).settings) == dict(M.settings)
    assert solver.solve(right_hand_side(A)).converged


@pytest.mark.parametrize("side", [60, 80])
@pytest.mark.parametrize("mode", ["numpy", "jax-jit"])
def test_coarsening_goes_on_where_the_diagonal_no_longer_dominates(mode: str, side: int) -> None:
    """A hierarchy that ended early is short for other values; a dense inverse of its last level would be huge."""
    A = medium(0.0, grid=(side, side))
    pattern = krylix.as_operator(A)
    shifted = sp.csr_array(A + 100 * sp.eye_array(side**2))
    M = krylix.preconditioner(shifted, "amg", coarsening="classical")
    assert M.memory < 12 * side**2
    if mode == "numpy":
        renewed_one = again(M, A)
        assert renewed_one.memory < 40 * side**2
        assert iterations(A, renewed_one) <= 10
        assert krylix.prepare(shifted, method="CG", preconditioner="amg").update(A).solve(right_hand_side(A)).converged

    def solve(values: Any, b: Any) -> tuple[Any, Any]:
        matrix = pattern.with_values(values)
        M1 = krylix.preconditioner(matrix, "amg", pattern=M)
        assert M1.memory is not None and M1.memory < 40 * side**2
        result = krylix.linear_solve(matrix, b, method="CG", preconditioner=M1, rtol=1e-8)
        return result.x, result.iterations

    b = right_hand_side(A)
    x, count = compiled(mode, solve)(array(mode, A.data), array(mode, b))
    assert np.linalg.norm(b - A @ to_numpy(x)) <= 1e-8 * np.linalg.norm(b) and count <= 16


def test_a_hierarchy_of_components_goes_on_by_components() -> None:
    """Two unknowns at each point, which are coupled: where the first values were dominated, and these are not."""
    A = sp.csr_array(
        sp.kron(medium(1.0, grid=(40, 40)), np.eye(2)) + sp.kron(sp.eye_array(1600), [[0.1, -0.1], [-0.1, 0.1]])
    )
    M = krylix.preconditioner(A + 1e3 * sp.eye_array(3200), "amg", block_size=2)
    assert dict(M.settings)["coarsening"] == "classical" and M.memory < 40_000
    renewed_one = again(M, A)
    assert renewed_one.memory < 40 * 3200
    assert iterations(A, renewed_one) <= 2 + iterations(A, krylix.preconditioner(A, "amg", block_size=2))
