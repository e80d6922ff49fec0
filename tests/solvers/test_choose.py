"""The automatic choice: each row of its table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyamg
import pytest
import scipy.sparse as sp

from best_factors import BEST_FACTORS
from frameworks import jax, jnp, tf
from krylix import linear_solve, matrix_from_function, prepare
from krylix.solvers import PRECONDITIONERS
from krylix.solvers.choose import ROWS
from krylix.solvers.cost import band_cost, factor_cost
from krylix.solvers.factors import superlu
from krylix.sparse.analysis.spectrum import is_seen_indefinite
from matrices import in_random_order
from modes import array, compiled, to_numpy

rng = np.random.default_rng(0)
SHAPE = (20, 18)
K = 1 + rng.random(SHAPE)


def laplace(u: Any, library: Any = np) -> Any:
    padded = library.pad(u, [[1, 1], [1, 1]])
    return 4 * u - padded[2:, 1:-1] - padded[:-2, 1:-1] - padded[1:-1, 2:] - padded[1:-1, :-2]


def matrix(f: Callable[[Any], Any]) -> Any:
    return matrix_from_function(f, np.zeros(SHAPE))[0]


def exact(A: Any, b: np.ndarray) -> np.ndarray:
    return np.linalg.solve(A.toarray(), b.reshape(-1)).reshape(b.shape)


@pytest.mark.parametrize("form", ["matrix", "prepared function", "prepared matrix"])
def test_sums_along_axes_get_the_fast_solver(form: str) -> None:
    b = rng.standard_normal(SHAPE)
    if form == "matrix":
        b = b.reshape(-1)
        result = linear_solve(matrix(laplace), b)
    else:
        A = laplace if form == "prepared function" else matrix(laplace)
        b = b if form == "prepared function" else b.reshape(-1)
        result = prepare(A, b).solve(b)
    assert result.method == "fast-direct" and result.iterations == 1
    np.testing.assert_allclose(result.x, exact(matrix(laplace), b), rtol=1e-9)


def test_small_functions_are_not_traced() -> None:
    """One solve takes less time; `prepare` does, and so does a function that needs more than a few iterations."""
    b = rng.standard_normal(SHAPE)
    assert linear_solve(laplace, b).method == "CG"
    result = linear_solve(lambda u: laplace(u) + K * u, b)
    assert result.method == "CG" and result.preconditioner is None
    solver = prepare(lambda u: laplace(u) + K * u, b)
    assert solver.method.name == "scipy-direct"
    np.testing.assert_allclose(solver.solve(b).x, result.x, atol=1e-8)


LARGE = (80, 70)


def sample(name: str) -> tuple[Callable[[Any], Any], str, str | None]:
    """A function on the larger grid, its method and preconditioner."""
    k = np.random.default_rng(1).random(LARGE)
    jumps, hole = np.where(k > 0.5, 1e4, 1.0), np.ones(LARGE)
    hole[20:40, 10:30] = 0  # whose rows are zero

    def diffusion(c: np.ndarray) -> Callable[[Any], Any]:
        c = np.pad(c, 1, mode="edge")

        def apply(u: Any) -> Any:
            p = np.pad(u, 1)
            across = c[1:, 1:-1] * c[:-1, 1:-1] * np.diff(p[:, 1:-1], axis=0)
            along = c[1:-1, 1:] * c[1:-1, :-1] * np.diff(p[1:-1], axis=1)
            return -np.diff(across, axis=0) - np.diff(along, axis=1)

        return apply

    return {
        "sum": (laplace, "fast-direct", None),
        "jumps": (diffusion(jumps), BEST_FACTORS, None),
        "obstacle": (diffusion(hole), BEST_FACTORS, None),
        "easy": (lambda u: u + 0.1 * k * u + 0.01 * laplace(u), "CG", "jacobi"),
        "convection": (lambda u: laplace(u) + k * (u - np.pad(u, 1)[:-2, 1:-1]), BEST_FACTORS, None),
        "indefinite": (lambda u: laplace(u) - (1 + 0.1 * k) * u, BEST_FACTORS, None),
    }[name]


@pytest.mark.parametrize("name", ["sum", "jumps", "obstacle", "easy", "convection", "indefinite"])
def test_larger_functions_are_traced(name: str) -> None:
    f, method, kind = sample(name)
    b = f(rng.standard_normal(LARGE))
    result = linear_solve(f, b)
    assert (result.method, result.preconditioner) == (method, kind)
    assert np.linalg.norm(f(result.x) - b) <= 1e-10 * np.linalg.norm(b)


@pytest.mark.parametrize("name", ["jumps", "obstacle", "convection", "indefinite"])
def test_without_factors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for systems too large for them."""
    from krylix.solvers import choose as table

    for limit in ("ONE_SOLVE", "AFFORDED"):
        monkeypatch.setattr(table, limit, 0)
    f, *_ = sample(name)
    b = f(rng.standard_normal(LARGE))
    result = linear_solve(f, b)
    expected = {"jumps": "CG", "obstacle": "CG", "convection": "biCG-stab(2)", "indefinite": "MINRES"}[name]
    assert result.method.split(" (after ")[-1].split(" had ")[0] == expected
    assert np.linalg.norm(f(result.x) - b) <= 1e-10 * np.linalg.norm(b)


def test_complex_symmetric_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too large for factors; those that are not symmetric, and preconditioners of the user, are for other methods."""
    from krylix.solvers import choose as table

    A = pyamg.gallery.poisson((40, 40), format="csr") - (0.1 + 0.05j) * sp.diags_array(1 + rng.random(1600))
    b = rng.standard_normal(1600) + 0j
    assert linear_solve(A, b).method == BEST_FACTORS
    for limit in ("ONE_SOLVE", "AFFORDED"):
        monkeypatch.setattr(table, limit, 0)
    result = linear_solve(A, b)
    assert (result.method, result.preconditioner) == ("COCR", "ilu")
    assert np.linalg.norm(A @ result.x - b) <= 1e-9 * np.linalg.norm(b)
    assert "biCG-stab(2)" in linear_solve(A, b, preconditioner="jacobi").method
    assert "biCG-stab(2)" in linear_solve(A + sp.eye_array(1600, k=1), b).method
    assert "symmetric without conjugation" in str(table.ROWS[11].known)


@pytest.mark.compiled_by_default
@pytest.mark.parametrize("mode", ["jax-jit", "tf-function"])
def test_in_compiled_functions(mode: str) -> None:
    """Recognised while the function is compiled; with traced coefficients CG."""
    b = rng.standard_normal(SHAPE)
    names: list[str] = []

    def solve(b: Any, k: Any) -> Any:
        library = jnp if mode == "jax-jit" else tf
        fast = linear_solve(lambda u: laplace(u, library), b)
        other = linear_solve(lambda u: laplace(u, library) + k * u, b)
        names[:] = [fast.method, other.method]
        return fast.x, other.x

    fast, other = compiled(mode, solve)(array(mode, b), array(mode, K))
    assert names[0] == "fast-direct" and names[1] != "fast-direct"
    np.testing.assert_allclose(to_numpy(fast), exact(matrix(laplace), b), atol=1e-9)
    np.testing.assert_allclose(to_numpy(other), exact(matrix(lambda u: laplace(u) + K * u), b), atol=1e-8)


def test_prepared_matrices_get_factors_where_these_are_cheap() -> None:
    """As many solves come. Factors of a random graph are nearly dense."""
    plane = in_random_order(pyamg.gallery.poisson((60, 60), format="csr"))
    assert prepare(plane, np.ones(3600)).method.name == BEST_FACTORS
    cube = in_random_order(pyamg.gallery.poisson((18, 18, 18), format="csr"))
    assert prepare(cube, np.ones(5832)).method.name == BEST_FACTORS
    assert linear_solve(cube, np.ones(5832)).method == "CG"
    edges = sp.random_array((6000, 6000), density=1e-3, rng=rng)
    graph = sp.csr_array(edges + edges.T + 20 * sp.eye_array(6000))
    assert prepare(graph, np.ones(6000)).method.name == "CG"


def test_equations_in_another_order_than_their_unknowns() -> None:
    """Their factors are as cheap as those in the right order: the iterations of before took a hundred times as long."""
    n = 6000
    chain = sp.diags_array([0.3, 1.0, -0.7, 0.1], offsets=[-2, 0, 1, 40], shape=(n, n))
    A = sp.csr_array(chain)[rng.permutation(n)]
    assert factor_cost(A).work < 3 * factor_cost(sp.csr_array(chain)).work
    result = linear_solve(A, A @ np.ones(n))
    assert result.method == "scipy-direct"  # other libraries order A + Aᵀ, which fills in
    np.testing.assert_allclose(result.x, 1, atol=1e-8)


def test_rows_and_columns_of_one_pattern_are_matched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In time steps, where a matching takes several times as long as the factors; twice, as SuperLU orders it anew."""
    n, calls = 2000, []
    A = sp.csr_array(sp.diags_array([0.3, 1.0, -0.7], offsets=[-2, 0, 1], shape=(n, n)))[rng.permutation(n)]
    matching = superlu.maximum_matching
    monkeypatch.setattr(superlu, "maximum_matching", lambda *given: calls.append(1) or matching(*given))
    for step in range(5):
        values = sp.csr_array((A.data * (1 + 0.1 * step), A.indices, A.indptr), A.shape)
        np.testing.assert_allclose(values @ linear_solve(values, np.ones(n)).x, 1, atol=1e-8)
    assert 1 <= len(calls) <= 2


@pytest.mark.parametrize("grid", [(40, 40), (12, 12, 12)])
def test_operations_of_factors(grid: tuple[int, ...]) -> None:
    """A bound of those in a natural order, by the widths of dense Cholesky factors, and no wild one."""
    A = sp.csr_array(pyamg.gallery.poisson(grid, format="csr"))
    L = np.linalg.cholesky(A.toarray())
    operations = float(np.sum(np.count_nonzero(L, axis=0).astype(float) ** 2))
    assert 0.1 * operations < factor_cost(A).operations < 3 * operations


def test_operations_of_a_band() -> None:
    """Of many unknowns, by their diagonals, as by the widths of the rows in the same order."""
    A = sp.csr_array(sp.diags_array([1.0, 4.0, 1.0], offsets=[-3, 0, 2], shape=(100_001, 100_001)))
    expected = factor_cost(A)
    found = band_cost(100_001, (-3, 0, 2))
    assert found == pytest.approx(expected, rel=1e-3)


def test_large_symmetric_matrices_get_multigrid() -> None:
    """But those whose diagonal dominates, as in short time steps; and where it cannot be made, scaling."""
    A = in_random_order(pyamg.gallery.poisson((18, 19, 20), format="csr"))  # whose factors fill up
    b = rng.standard_normal(A.shape[0])
    result = linear_solve(A, b)
    assert result.method == "CG" and result.preconditioner == "amg" and result.iterations < 30
    assert np.linalg.norm(A @ result.x - b) <= 1e-10 * np.linalg.norm(b)
    assert linear_solve(sp.eye_array(A.shape[0]) + 0.01 * A, b).preconditioner == "jacobi"


def test_what_cannot_be_made_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(A: Any) -> Any:
        raise ValueError("no")

    A = in_random_order(pyamg.gallery.poisson((18, 19, 20), format="csr"))
    monkeypatch.setitem(PRECONDITIONERS, "amg", fails)
    assert linear_solve(A, np.ones(A.shape[0])).preconditioner == "jacobi"
    with pytest.raises(ValueError, match="no"):
        linear_solve(A, np.ones(A.shape[0]), preconditioner="amg")


@pytest.mark.parametrize("again", ["another sum", "no sum"])
def test_update_chooses_again(again: str) -> None:
    """What was recognised in the first matrix need not be so in the next one."""
    b = rng.standard_normal(SHAPE)
    solver = prepare(laplace, b)
    assert solver.method.name == "fast-direct"
    A = (lambda u: laplace(u) + 2 * u) if again == "another sum" else (lambda u: laplace(u) + K * u)
    other = solver.update(A)
    assert (other.method.name == "fast-direct") == (again == "another sum")
    np.testing.assert_allclose(other.solve(b).x, exact(matrix(A), b), atol=1e-8)


def test_prepared_systems_without_unknowns() -> None:
    assert prepare(sp.csr_array((0, 0)), np.ones(0)).solve(np.ones(0)).converged


# --- what it says about itself ---

PAGE = Path(__file__).resolve().parents[2] / "docs" / "choosing.md"


def test_the_page_shows_the_table() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    expected = [
        f"| {row.known} | `{row.method}` | {f'`{row.preconditioner}`' if row.preconditioner else ''} | {row.why} |"
        for row in ROWS
    ]
    assert lines[1:] == expected


def test_explanations_name_the_rows() -> None:
    """Those that do not hold, in order, and the one that does."""
    plane = in_random_order(pyamg.gallery.poisson((60, 60), format="csr"))
    lines = prepare(plane, np.ones(3600)).explain().splitlines()
    decided = next(i for i, row in enumerate(ROWS) if row.known.startswith("`prepare`"))
    assert [line.split(maxsplit=1)[1] for line in lines[1 : decided + 2]] == [r.known for r in ROWS[: decided + 1]]
    assert lines[1].split()[0] == "no" and lines[decided + 1].split()[0] == "yes"
    assert lines[decided + 2].startswith(f"-> {BEST_FACTORS}")
    cube = in_random_order(pyamg.gallery.poisson((32, 32, 32), format="csr"))
    text = prepare(cube, np.ones(32**3)).explain()
    assert "-> CG, preconditioned" in text and f"if it fails: {BEST_FACTORS}" in text and "amg preconditioner" in text
    assert "the method was given" in prepare(plane, np.ones(3600), method="CG").explain()


def test_explanations_say_why_a_function_has_no_matrix() -> None:
    def opaque(u: np.ndarray) -> np.ndarray:
        return np.array([2 * float(v) for v in u])

    assert "cannot be traced" in prepare(opaque, np.ones(300)).explain()


def test_large_factors_are_no_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they would not fit into memory the failure stands."""
    from krylix.solvers import cost as fill

    A = in_random_order(pyamg.gallery.poisson((18, 19, 20), format="csr"))
    b = rng.standard_normal(A.shape[0])
    assert linear_solve(A, b, max_iter=1, on_failure="status").method == f"{BEST_FACTORS} (after CG had failed)"
    monkeypatch.setattr(fill, "_memory", lambda: 1e6)
    result = linear_solve(A, b, max_iter=1, on_failure="status")
    assert result.method == "CG" and not result.converged


@pytest.mark.parametrize("shift", [0.1, 1.0, 3.0])
def test_definite_is_tested(shift: float) -> None:
    A = sp.csr_array(pyamg.gallery.poisson((40, 40), format="csr"))
    assert not is_seen_indefinite(A)
    assert is_seen_indefinite(sp.csr_array(A - shift * sp.eye_array(1600)))
    assert not is_seen_indefinite(sp.csr_array(sp.diags_array(10.0 ** rng.uniform(-8, 8, 50))))


def ill_conditioned(n: int) -> tuple[sp.csr_array, np.ndarray]:
    """A sparse matrix that iterations solve badly, and a solution."""
    own = np.random.default_rng(n)
    A = sp.random_array((n, n), density=3 / n, rng=own) + sp.diags_array(own.uniform(1e-4, 1, n))
    return sp.csr_array(A), own.standard_normal(n)


@pytest.mark.needs("jax")
@pytest.mark.parametrize(
    ("n", "on_failure", "method"),
    [
        pytest.param(300, "status", "direct", marks=pytest.mark.merge),
        (300, "raise", "direct"),
        (1500, "raise", BEST_FACTORS),
    ],
)
def test_known_sparse_matrices_are_factorised_while_compiling(n: int, on_failure: str, method: str) -> None:
    """As they are eagerly: a small residual of an iteration would not tell that x is right. Derivatives, too."""
    A, x = ill_conditioned(n)
    names = []

    def solve(b: Any) -> Any:
        result = linear_solve(A, b, on_failure=on_failure)
        names.append(result.method)
        return result.x @ x, result.x

    b = array("jax", A @ x)
    assert linear_solve(A, b).method == (BEST_FACTORS if n > 500 else "scipy-direct")
    gradient, found = jax.jit(jax.grad(solve, has_aux=True))(b)
    assert set(names) == {method}
    np.testing.assert_allclose(found, x, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(gradient, sp.linalg.spsolve(A.T.tocsc(), x), rtol=1e-6, atol=1e-6)


@pytest.mark.needs("jax")
def test_small_grids_get_multigrid_while_compiling() -> None:
    """With obstacles, of a few thousand unknowns: given as a function, and as a matrix."""
    shape = (32, 32)
    free = np.pad(np.ones(shape), 1)
    free[10:20, 5:15] = 0

    def pressure(u: Any) -> Any:
        inside, near = free[1:-1, 1:-1], ((2, 1), (0, 1), (1, 2), (1, 0))
        v, n = jnp.pad(u, 1), shape[0]
        flux = sum(inside * free[i : i + n, j : j + n] * (u - v[i : i + n, j : j + n]) for i, j in near)
        return flux + (1.01 - inside) * u

    b = array("jax", np.random.default_rng(0).standard_normal(shape))
    matrix = matrix_from_function(pressure, b)[0].native("numpy")
    for A, right in ((pressure, b), (matrix, b.reshape(-1))):
        kinds = []

        def solve(b: Any, A: Any = A, kinds: list[Any] = kinds) -> Any:
            result = linear_solve(A, b)
            kinds.append((result.method, result.preconditioner))
            return result.x, result.iterations

        x, iterations = jax.jit(solve)(right)
        assert kinds[0] == ("CG", "multigrid") and iterations <= 20
        np.testing.assert_allclose(matrix @ np.asarray(x).reshape(-1), b.reshape(-1), atol=1e-8)
