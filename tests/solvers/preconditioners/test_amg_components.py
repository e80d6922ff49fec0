"""AMG of several components, of two colours, and of matrices that are not symmetric."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from krylix.solvers.preconditioners import UPDATES
from krylix.solvers.preconditioners.amg.classical import eliminated, first_pass, red_black_splitting
from krylix.solvers.preconditioners.amg.components import compact_rigid_motions, found_components
from krylix.solvers.preconditioners.amg.levels import HostLevel
from krylix.solvers.preconditioners.amg.settings import AmgSettings
from matrices import in_krylix
from modes import array, compiled, to_numpy

LINE = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(30, 30))
MASS = 2 * sp.eye_array(30)


def elasticity(cells: tuple[int, ...], lengths: tuple[float, ...]) -> tuple[sp.csr_array, np.ndarray]:
    """Linear elements on a box of simplices, held at one end: the matrix, point by point, and the free points."""
    dim, axes = len(cells), [np.linspace(0, b, k + 1) for k, b in zip(cells, lengths)]
    points = np.stack([x.ravel() for x in np.meshgrid(*axes, indexing="ij")], 1)
    number = np.arange(len(points)).reshape([k + 1 for k in cells])
    steps = np.array(number.strides) // number.itemsize
    first = number[tuple(slice(0, k) for k in cells)].ravel()
    paths = [np.concatenate([[0], np.cumsum(steps[list(p)])]) for p in itertools.permutations(range(dim))]
    simplices = np.concatenate([first[:, None] + path for path in paths])
    edges = points[simplices[:, 1:]] - points[simplices[:, :1]]
    inner = np.linalg.inv(edges).transpose(0, 2, 1)
    g = np.concatenate([-inner.sum(1, keepdims=True), inner], 1)
    crossed, same = np.einsum("eia,ejb->eiajb", g, g), np.einsum("eik,ejk,ab->eiajb", g, g, np.eye(dim))
    local = (1.5 * crossed + crossed.transpose(0, 1, 4, 3, 2) + same) * np.abs(np.linalg.det(edges))[
        :, None, None, None, None
    ]
    dofs = (simplices[:, :, None] * dim + np.arange(dim)).reshape(len(simplices), -1)
    where = np.repeat(dofs, dofs.shape[1], 1).ravel(), np.tile(dofs, (1, dofs.shape[1])).ravel()
    A = sp.csr_array(sp.coo_array((local.ravel(), where), (dim * len(points),) * 2))
    free = np.flatnonzero(points[:, 0] > 0)
    kept = (free[:, None] * dim + np.arange(dim)).ravel()
    A = sp.csr_array(A[kept][:, kept])
    A.data[np.abs(A.data) < 1e-12 * np.abs(A.data).max()] = 0
    A.eliminate_zeros()
    return A, points[free]


def grid(*shape: int, seed: int = 0) -> sp.csr_array:
    """Neighbours on a grid, conductances exp(2 N(0, 1)), fixed at one side."""
    rng, number = np.random.default_rng(seed), np.arange(np.prod(shape)).reshape(shape)
    n, half = number.size, sp.csr_array((number.size, number.size))
    for axis in range(len(shape)):
        a, b = (np.moveaxis(number, axis, 0)[part].ravel() for part in (slice(1, None), slice(0, -1)))
        half = half + sp.csr_array((np.exp(2 * rng.standard_normal(len(a))), (a, b)), (n, n))
    couplings = half + half.T
    side = np.zeros(n)
    side[number[0].ravel()] = 1
    return sp.csr_array(sp.diags_array(couplings.sum(axis=1) + side) - couplings)


def wind(n: int) -> sp.csr_array:
    """Upwind differences of a rotating wind with little diffusion: an M-matrix by its rows."""
    x = (np.arange(n) + 0.5) / n
    X, Y = np.meshgrid(x, x, indexing="ij")
    number, diagonal, entries = np.arange(n * n).reshape(n, n), np.full((n, n), 4e-3 * n), []
    for axis, speed in enumerate((4 * X * (X - 1) * (1 - 2 * Y), -4 * Y * (Y - 1) * (1 - 2 * X))):
        for towards in (-1, 1):
            inflow = np.maximum(-towards * speed, 0)
            diagonal += inflow
            late, early = range(1, n), range(n - 1)
            to, of = (late, early) if towards < 0 else (early, late)
            entries.append((-(inflow + 1e-3 * n).take(to, axis), number.take(to, axis), number.take(of, axis)))
    entries.append((diagonal, number, number))
    data, rows, cols = (np.concatenate([part.ravel() for part in parts]) for parts in zip(*entries))
    return sp.csr_array((data, (rows, cols)))


def iterations(A: Any, method: str = "CG", **settings: Any) -> int:
    b = np.random.default_rng(1).standard_normal(A.shape[0]).astype(A.dtype)
    M = krylix.preconditioner(A, "amg", **settings)
    result = krylix.linear_solve(A, b, method=method, preconditioner=M, rtol=1e-8)
    assert np.linalg.norm(b - A @ result.x) <= 1e-8 * np.linalg.norm(b)
    return int(result.iterations)


# --- components ---


@pytest.mark.parametrize("shape", [(24, 20), (7, 6, 7)])
def test_elasticity_is_found(shape: tuple[int, ...]) -> None:
    """Point by point, component by component, in any order of the points, with inertia, and with no rigid motions."""
    A, points = elasticity(shape, tuple(1.0 for _ in shape))
    (n, dim), count = points.shape, A.shape[0]
    labels = np.arange(count) % dim
    np.testing.assert_array_equal(found_components(A), labels)
    np.testing.assert_array_equal(found_components(sp.csr_array(A + 0.1 * sp.eye_array(count))), labels)
    by_component = np.argsort(labels, kind="stable")
    np.testing.assert_array_equal(found_components(A[by_component][:, by_component]), labels[by_component])
    shuffled = (np.random.default_rng(0).permutation(n)[:, None] * dim + np.arange(dim)).ravel()
    np.testing.assert_array_equal(found_components(A[shuffled][:, shuffled]), labels)
    M = krylix.preconditioner(A, "amg")
    assert dict(M.settings)["coarsening"] == "classical"
    assert "component" in (M.reason or "")
    assert iterations(A) <= 40
    assert iterations(A[by_component][:, by_component]) <= 40


SCALAR = {
    "line": sp.csr_array(LINE),
    "5 points": grid(20, 18),
    "7 points": grid(8, 9, 10),
    "9 points": sp.csr_array(sp.kron(LINE, abs(LINE) + MASS) + sp.kron(abs(LINE) + MASS, LINE)),
    "biharmonic": sp.csr_array(grid(20, 18) @ grid(20, 18)),
    "skew": sp.csr_array(sp.diags_array([1.0, 4.0, -1.0], offsets=[-1, 0, 1], shape=(600, 600))),
    "two equations that are not coupled": sp.csr_array(sp.kron(grid(12, 12), np.eye(2))),
    "diagonal": sp.csr_array(sp.eye_array(600)),
}


@pytest.mark.parametrize("name", SCALAR)
def test_no_components_are_found_in_scalar_equations(name: str) -> None:
    assert found_components(SCALAR[name]) is None


@pytest.mark.parametrize(
    ("lengths", "compact"), [((1.0, 1.0), True), ((3.0, 1.0), True), ((20.0, 1.0), False), ((10.0, 1.0, 1.0), False)]
)
def test_slender_bodies_are_told_by_their_rigid_motions(lengths: tuple[float, ...], compact: bool) -> None:
    cells = tuple(max(3, round(4 * x)) for x in lengths)
    A, points = elasticity(cells, lengths)
    dim = len(lengths)
    turned = points @ np.linalg.qr(np.random.default_rng(0).standard_normal((dim, dim)))[0]
    for X in (points, turned):
        motions = krylix.rigid_motions(X)
        columns = motions.reshape(len(motions), -1).T
        assert compact_rigid_motions(columns, dim) == compact
        mixed = columns @ np.random.default_rng(1).standard_normal((len(motions),) * 2)
        assert compact_rigid_motions(mixed, dim) == compact
    assert not compact_rigid_motions(columns[:, :dim], dim)  # no rotations
    assert not compact_rigid_motions(np.random.default_rng(0).standard_normal(columns.shape), dim)
    M = krylix.preconditioner(A, "amg", near_nullspace=krylix.rigid_motions(points), max_coarse=20)
    assert dict(M.settings)["coarsening"] == ("classical" if compact else "smoothed-aggregation")


def test_components_get_new_numbers() -> None:
    """By an update, and traced in a program, where the entries between components have no influence."""
    A, _ = elasticity((16, 14), (1.0, 1.0))
    M, r = krylix.preconditioner(A, "amg", max_coarse=60), np.random.default_rng(2).standard_normal(A.shape[0])
    again = UPDATES["amg"](M, krylix.as_operator(2 * A))
    assert again is not None
    np.testing.assert_allclose(again @ r, (M @ r) / 2, rtol=1e-9, atol=1e-9 * np.abs(M @ r).max())


def test_components_of_two_colours_get_new_numbers_again_and_again() -> None:
    """Whose hierarchy is of the entries within components, in each update."""
    pairs = sp.kron(sp.eye_array(900), [[0.1, -0.1], [-0.1, 0.1]])
    A = sp.csr_array(sp.kron(grid(30, 30), np.eye(2)) + pairs)
    M = krylix.preconditioner(A, "amg", block_size=2, max_coarse=30)
    r = np.random.default_rng(0).standard_normal(1800)
    for factor in (2.0, 3.0):
        renewed = UPDATES["amg"](M, krylix.as_operator(factor * A))
        assert renewed is not None
        np.testing.assert_allclose(renewed @ r, (M @ r) * (factor - 1) / factor, rtol=1e-9)
        M = renewed


# --- two colours ---

TWO = {
    "5 points": grid(13, 12),
    "7 points": grid(6, 5, 7),
    "line": sp.csr_array(LINE),
    "not symmetric": wind(12),
    "complex": sp.csr_array(
        sp.diags_array(np.exp(1j * np.arange(156))) @ grid(13, 12) @ sp.diags_array(np.exp(-1j * np.arange(156)))
    ),
    "contrast 1e12": sp.csr_array(
        sp.diags_array(np.where(np.arange(156) % 5, 1.0, 1e6))
        @ grid(13, 12)
        @ sp.diags_array(np.where(np.arange(156) % 5, 1.0, 1e6))
    ),
}


@pytest.mark.parametrize("name", TWO)
def test_elimination_is_exact(name: str) -> None:
    """`P S^-1 R + D_F^-1` is the inverse, beside that of NumPy."""
    A = TWO[name].copy()
    A.sum_duplicates()
    dense, coarse = A.toarray(), red_black_splitting(A)
    assert coarse is not None
    hermitian = bool(np.abs(dense - dense.conj().T).max() == 0)
    pair = eliminated(HostLevel.finest(A), coarse, hermitian)
    assert pair is not None
    level, S = pair[0], pair[1].A
    P, R = level.P.toarray(), level.R.toarray()
    scale = np.abs(np.diag(dense))
    np.testing.assert_allclose(S.toarray(), R @ dense @ P, atol=1e-12 * scale.max(), rtol=1e-9)
    whole = P @ np.linalg.inv(S.toarray()) @ R + np.diag(np.where(coarse, 0, 1 / np.diag(dense)))
    np.testing.assert_allclose(whole @ dense, np.eye(len(dense)), atol=1e-5 if name == "contrast 1e12" else 1e-9)


def test_no_two_colours() -> None:
    triangles = sp.csr_array(grid(9, 9) - sp.diags_array([0.1, 0.1], offsets=[10, -10], shape=(81, 81)))
    assert red_black_splitting(triangles) is None
    star = sp.csr_array(sp.diags_array(np.ones(400)) + 0)
    star = star.tolil()
    star[0, 1:], star[1:, 0] = -1e-3, -1e-3
    kept = red_black_splitting(sp.csr_array(star))  # the hub stays, or nothing is eliminated
    assert kept is None or kept[0]
    assert red_black_splitting(sp.csr_array(LINE - 2 * sp.eye_array(30))) is None  # zeros on the diagonal


def test_closed_regions_of_two_unknowns() -> None:
    pair = np.array([[1.0, -1.0], [-1.0, 1.0]])
    A = sp.csr_array(sp.block_diag([grid(20, 20), *[pair] * 3]))
    b = A @ np.random.default_rng(0).standard_normal(A.shape[0])
    M = krylix.preconditioner(A, "amg", coarsening="classical", max_coarse=20)
    result = krylix.linear_solve(A, b, method="CG", preconditioner=M, rtol=1e-8)
    assert np.linalg.norm(b - A @ result.x) <= 1e-8 * np.linalg.norm(b)


@pytest.mark.parametrize("size", [1e-200, 1e-30, 1.0, 1e30, 1e200])
def test_elimination_at_any_scale(size: float) -> None:
    A = grid(30, 30)
    assert iterations(sp.csr_array(size * A), max_coarse=20) == iterations(A, max_coarse=20)


def path(n: int, pairs: list[tuple[int, int]]) -> sp.csr_array:
    """Laplacian of a path of n points with more edges."""
    rows, cols = np.array([*((i, i + 1) for i in range(n - 1)), *pairs]).T
    A = sp.coo_array((np.full(len(rows), -1.0), (rows, cols)), (n, n)).tocsr()
    A = sp.csr_array(A + A.T)
    return sp.csr_array(A + sp.diags_array(1.0 - A.sum(axis=1)))


@pytest.mark.parametrize("n", [12, 1000])
@pytest.mark.parametrize("extra", [(0, 2), (0, 4), (5, 7)])  # a triangle, a cycle of 5 points, a triangle elsewhere
def test_odd_cycles_have_no_two_colours(n: int, extra: tuple[int, int]) -> None:
    assert red_black_splitting(path(n, [extra])) is None


@pytest.mark.parametrize("n", [2, 12, 1000])
@pytest.mark.parametrize("extra", [[], [(0, 3)], [(0, 3), (2, 5), (0, 5)]])
def test_even_cycles_have(n: int, extra: list[tuple[int, int]]) -> None:
    A = path(n, extra if n > 5 else [])
    stays = red_black_splitting(A)
    assert stays is not None
    rows, cols = A.nonzero()
    assert np.all((stays[rows] != stays[cols]) | (rows == cols))


def test_one_coupled_direction_is_enough() -> None:
    A = sp.csr_array(np.eye(3) + np.array([[0, 1.0, 1], [0, 0, 1], [0, 0, 0]]))
    assert red_black_splitting(A) is None


# --- not symmetric ---


def test_first_pass_is_regular_on_a_grid() -> None:
    A = grid(12, 14)
    S = sp.csr_array(A - sp.diags_array(A.diagonal()))
    S.eliminate_zeros()
    coarse = first_pass(S)
    dense = S.toarray() != 0
    assert not dense[np.ix_(coarse, coarse)].any()
    assert dense[:, coarse].any(axis=1)[~coarse].all()


def nine_points(n: int) -> sp.csr_array:
    """Wind and diffusion on 9 points: not of two colours."""
    return sp.csr_array(
        wind(n)
        + 1e-2
        * sp.kron(
            sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n)),
            sp.diags_array([1.0, 2.0, 1.0], offsets=[-1, 0, 1], shape=(n, n)),
        )
    )


@pytest.mark.parametrize("make", [wind, nine_points])
def test_winds_take_few_iterations(make: Any) -> None:
    A = make(60)
    assert iterations(A, "biCG-stab", coarsening="classical") <= 8
    assert iterations(A, "FGMRES", coarsening="classical") <= 14


@pytest.mark.parametrize("mode", ["numpy", "torch", pytest.param("jax-jit", marks=pytest.mark.merge)])
@pytest.mark.parametrize("make", [wind, nine_points])
def test_cycles_and_their_transposes(mode: str, make: Any) -> None:
    """The transpose of the cycle as a matrix, and the cycle in other libraries."""
    A = make(14)
    M, n = krylix.preconditioner(A, "amg", coarsening="classical", max_coarse=20), A.shape[0]
    dense = np.stack([M @ e for e in np.eye(n)], 1)
    np.testing.assert_allclose(np.stack([M.T @ e for e in np.eye(n)], 1), dense.T, atol=1e-12 * np.abs(dense).max())
    r = np.random.default_rng(0).standard_normal(n)
    own = krylix.preconditioner(in_krylix(mode, A, "csr"), "amg", coarsening="classical", max_coarse=20)
    found = compiled(mode, lambda r: (own @ r, own.T @ r))(array(mode, r))
    for one, expected in zip(found, (dense @ r, dense.T @ r)):
        np.testing.assert_allclose(to_numpy(one), expected, atol=1e-10 * np.abs(dense @ r).max())


@pytest.mark.parametrize("make", [wind, nine_points])
def test_new_numbers_of_winds(make: Any) -> None:
    A, r = make(14), np.random.default_rng(0).standard_normal(196)
    M = krylix.preconditioner(A, "amg", coarsening="classical", max_coarse=20)
    again = UPDATES["amg"](M, krylix.as_operator(3 * A))
    assert again is not None
    np.testing.assert_allclose(again @ r, (M @ r) / 3, atol=1e-10 * np.abs(M @ r).max())


def test_which_smoothers_are_in_turns() -> None:
    assert AmgSettings("classical").uses_cf_relaxation
    assert not AmgSettings("classical", smoother="jacobi").uses_cf_relaxation
    assert not AmgSettings("classical", cycle="W").uses_cf_relaxation
    A = nine_points(30)
    assert iterations(A, "biCG-stab", coarsening="classical", cycle="W") <= 20
    assert iterations(A, "biCG-stab", coarsening="classical", precision="single") <= 10


@pytest.mark.needs("jax")
@pytest.mark.parametrize("given", ["block_size", "near_nullspace"])
def test_components_of_a_pattern_decide_for_traced_values(given: str) -> None:
    """The coarsening of a matrix of unknown values is that of the known matrix with its pattern."""
    A, points = elasticity((12, 12), (1.0, 1.0))
    settings = {"block_size": 2} if given == "block_size" else {"near_nullspace": krylix.rigid_motions(points)}
    operator, b = krylix.as_operator(A), np.random.default_rng(0).standard_normal(A.shape[0])
    M = krylix.preconditioner(A, "amg", max_coarse=30, **settings)
    assert dict(M.settings)["coarsening"] == "classical"

    def solve(values: Any, b: Any) -> tuple[Any, Any]:
        matrix = operator.with_values(values)
        traced = krylix.preconditioner(matrix, "amg", pattern=A, max_coarse=30, **settings)
        assert traced.settings == M.settings
        result = krylix.linear_solve(matrix, b, method="CG", preconditioner=traced)
        return result.x, result.iterations

    x, count = compiled("jax-jit", solve)(array("jax-jit", np.asarray(operator.values)), array("jax-jit", b))
    np.testing.assert_allclose(to_numpy(x), np.linalg.solve(A.toarray(), b), rtol=1e-5, atol=1e-6 * np.abs(b).max())
    assert count <= 1 + krylix.linear_solve(A, b, method="CG", preconditioner=M).iterations
