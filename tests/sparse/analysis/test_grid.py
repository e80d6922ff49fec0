"""The grid that a matrix shows by its entries, where nobody says so."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import numpy as np
import pyamg
import pytest
import scipy.sparse as sp

import krylix
from cells import in_turn
from grid_problems import diffusion, entries
from krylix import as_operator, linear_solve, preconditioner, prepare
from krylix.solvers import choose as table
from krylix.solvers.preconditioners.multigrid import couplings
from krylix.sparse import UnsupportedOperation
from krylix.sparse.analysis.analysis import on_its_grid
from krylix.sparse.operators.concrete import with_numbers
from matrices import FORMATS, in_krylix, in_random_order
from modes import EAGER, array, compiled, to_numpy

STENCILS: dict[str, tuple[int, Any]] = {
    "5 points": (2, lambda s: sum(map(abs, s)) <= 1),
    "7 points, triangles": (2, lambda s: s[0] * s[1] >= 0),
    "7 points, other triangles": (2, lambda s: s[0] * s[1] <= 0),
    "9 points": (2, lambda s: True),
    "upwind": (2, lambda s: s in ((0, 0), (-1, 0), (0, -1), (0, 1))),
    "7 points in space": (3, lambda s: sum(map(abs, s)) <= 1),
    "19 points": (3, lambda s: sum(map(abs, s)) <= 2),
    "27 points": (3, lambda s: True),
}
SHAPES = {2: [(7, 9), (24, 25), (25, 24), (5, 64), (64, 5)], 3: [(5, 6, 7), (8, 8, 8), (9, 5, 12)]}
CASES = [(name, shape) for name, (axes, _) in STENCILS.items() for shape in SHAPES[axes]]


@cache
def stencil(name: str, shape: tuple[int, ...], rings: Any = None) -> sp.csr_array:
    axes, holds = STENCILS[name]
    shifts = [s for s in itertools.product((-1, 0, 1), repeat=axes) if holds(s)]
    values = np.random.default_rng(1).uniform(0.5, 1, (len(shifts), *shape))
    return entries(shape, dict(zip(shifts, values)), rings or (False,) * axes)


def found(A: Any) -> tuple[int, ...]:
    return on_its_grid(as_operator(A)).in_shape


@pytest.mark.parametrize(("name", "shape"), CASES, ids=[f"{name} {shape}" for name, shape in CASES])
def test_found(name: str, shape: tuple[int, ...]) -> None:
    assert found(stencil(name, shape)) == shape


@pytest.mark.parametrize("rings", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("name", ["5 points", "9 points"])
def test_found_with_rings(name: str, rings: tuple[bool, bool]) -> None:
    assert found(stencil(name, (24, 25), rings)) == (24, 25)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("mode", ["numpy", "jax", "torch", "tensorflow"])
def test_found_in_each_format(mode: str, format: str, known: bool) -> None:
    own = in_krylix(mode, stencil("5 points", (12, 13)), format, known)
    placed = on_its_grid(own)
    assert placed.in_shape == placed.out_shape == (12, 13)
    values = zip(placed.known_or_arrays(), own.known_or_arrays(), strict=True)  # type: ignore[attr-defined]
    assert all(a is b for a, b in values)


def test_large_ones() -> None:
    for shape in ((1000, 700), (70, 80, 90)):
        assert found(pyamg.gallery.poisson(shape, format="csr")) == shape


def far() -> sp.csr_array:
    """One of all entries leads far away."""
    A = sp.lil_array(stencil("5 points", (30, 30)))
    A[10, 700] = A[700, 10] = 1
    return sp.csr_array(A)


PLANE = sp.csr_array(pyamg.gallery.poisson((20, 20), format="csr"))
OTHERS: dict[str, Any] = {
    "one axis": lambda: pyamg.gallery.poisson((400,), format="csr"),
    "no order": lambda: in_random_order(PLANE),
    "random": lambda: sp.random_array((400, 400), density=0.02, rng=np.random.default_rng(0)),
    "five diagonals": lambda: sp.diags_array([1.0] * 5, offsets=[-2, -1, 0, 1, 2], shape=(400, 400)),
    "two fields in turn": lambda: sp.kron(PLANE, np.ones((2, 2)), format="csr"),
    "two fields, one after the other": lambda: sp.kron(np.ones((2, 2)), PLANE, format="csr"),
    "at a distance of two": lambda: PLANE @ PLANE,
    "no neighbours in the list": lambda: sp.kron(pyamg.gallery.poisson((20,), format="csr"), sp.eye_array(20)),
    "two layers": lambda: pyamg.gallery.poisson((20, 20, 2), format="csr"),
    "rectangular": lambda: PLANE[:380],
    "diagonal": lambda: sp.eye_array(400, format="csr"),
    "empty": lambda: sp.csr_array((400, 400)),
    "small": lambda: pyamg.gallery.poisson((4, 5), format="csr"),
    "batch": lambda: [PLANE, 2 * PLANE],
    "dense": lambda: PLANE.toarray(),
    "full rows": lambda: sp.csr_array(np.ones((200, 200))),
}


@pytest.mark.parametrize("name", OTHERS)
def test_not_found(name: str) -> None:
    A = as_operator(OTHERS[name]())
    assert on_its_grid(A) is A


def test_what_the_sample_did_not_see_is_refused() -> None:
    """By those that rely on it; the choice takes another way."""
    A, b = far(), np.ones(900)
    A = sp.csr_array(A + A.T + 20 * sp.eye_array(900))
    assert np.linalg.norm(A @ linear_solve(A, b).x - b) <= 1e-9 * np.linalg.norm(b)
    if found(A) != (900,):
        with pytest.raises(UnsupportedOperation, match="at a distance"):
            preconditioner(A, "multigrid")
    with pytest.raises(UnsupportedOperation):
        linear_solve(A, b, method="fast-direct")


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize(("name", "shape"), [("9 points", (12, 30)), ("7 points in space", (8, 7, 6))])
def test_diagonals(name: str, shape: tuple[int, ...], dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against SciPy's, over several blocks of rows, with stored zeros."""
    monkeypatch.setattr(couplings, "_ROWS", 100)
    A = stencil(name, shape).astype(dtype)
    A.data[::7] = 0
    result = couplings.neighbours_diagonals(A, shape)
    assert result is not None
    offsets, values = result
    assert values.dtype == A.dtype and list(offsets) == sorted(offsets)
    again = sp.csr_array(A.shape, dtype=dtype)
    for offset, diagonal in zip(offsets, values):
        inside = diagonal[max(0, -offset) : A.shape[0] - max(0, offset)]
        again = again + sp.diags_array(inside, offsets=offset, shape=A.shape)
    assert abs(again - A).max() == 0 and sum(map(np.count_nonzero, values)) == np.count_nonzero(A.data)


@pytest.mark.parametrize("place", [(0, 899), (450, 20), (899, 0), (31, 33)])
def test_diagonals_of_others(place: tuple[int, int]) -> None:
    """One entry that is no neighbour, wherever it is; in the sample or not."""
    A = sp.lil_array(stencil("5 points", (30, 30)))
    A[place] = 1
    assert couplings.neighbours_diagonals(sp.csr_array(A), (30, 30)) is None


# --- what it is for ---

SHAPE = (72, 74)
JUMPS = np.where(np.random.default_rng(3).random((9, 37)) < 0.5, 1.0, 1e4).repeat(8, 0).repeat(2, 1)
SMOOTH = np.exp(np.add.outer(np.sin(np.linspace(0, 3, 72)), np.cos(np.linspace(0, 4, 74))) ** 2)
PROBLEMS = {"constant": np.ones(SHAPE), "jumps": JUMPS, "smooth": SMOOTH}


@pytest.mark.parametrize("sides", ["D", "DP", "PD"])
@pytest.mark.parametrize("kind", ["multigrid", "fast"])
def test_kinds_on_grids(kind: str, sides: str) -> None:
    """The same as where the grid is given, for vectors."""
    A = diffusion(SMOOTH, sides)
    r = np.random.default_rng(0).standard_normal(A.shape[0])
    M = preconditioner(A, kind)
    assert M.in_shape == (A.shape[0],)
    np.testing.assert_array_equal(M @ r, preconditioner(A, kind, grid=SHAPE) @ r)


@pytest.mark.parametrize(("sides", "mode"), in_turn(("D", "N", "DN", "P", "DP"), EAGER, always=("numpy",)))
def test_fast_direct(sides: str, mode: str) -> None:
    """Eagerly `auto` takes it; singular matrices included."""
    A = diffusion(np.ones((32, 33)), sides)
    x = np.random.default_rng(0).standard_normal(A.shape[0])
    x -= 0 if "D" in sides else x.mean()  # as the shortest solution has none
    b = A @ x
    own = in_krylix(mode, A, "csr", known=False)
    result = linear_solve(own, array(mode, b))
    assert result.method == "fast-direct"
    np.testing.assert_allclose(to_numpy(result.x), x, atol=1e-9 * np.max(np.abs(x)))
    assert linear_solve(own, array(mode, b), method="fast-direct").iterations <= 2


@pytest.mark.parametrize("name", PROBLEMS)
def test_chosen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a function on the grid, where factors would cost too much."""
    for name_of_limit in ("ONE_SOLVE", "MANY_SOLVES"):
        monkeypatch.setattr(table, name_of_limit, 0)
    A = diffusion(PROBLEMS[name])
    b = np.random.default_rng(0).standard_normal(A.shape[0])
    result = linear_solve(A, b)
    expected = {"constant": ("fast-direct", None), "jumps": ("CG", "multigrid"), "smooth": ("CG", "fast")}[name]
    assert (result.method, result.preconditioner) == expected and result.iterations <= 15
    solver = prepare(A, b)
    assert solver.method.name == expected[0] and solver.preconditioner is not None
    assert solver.preconditioner.in_shape == (A.shape[0],)
    exact = sp.linalg.spsolve(A.tocsc(), b)
    for x in (result.x, solver.solve(b).x):
        np.testing.assert_allclose(x, exact, atol=1e-7 * np.max(np.abs(exact)))


@pytest.mark.parametrize("mode", ["jax-jit", "tf-function"])
def test_known_in_compiled_functions(mode: str) -> None:
    A = diffusion(np.ones((16, 17)))
    own = in_krylix(mode, A, "csr")
    b = np.random.default_rng(0).standard_normal(A.shape[0])
    x = compiled(mode, lambda b: linear_solve(own, b, method="fast-direct").x)(array(mode, b))
    np.testing.assert_allclose(to_numpy(x), np.linalg.solve(A.toarray(), b), atol=1e-9)


@pytest.mark.merge
@pytest.mark.parametrize("inside", [True, False])
def test_matrices_that_a_compiled_function_closes_over(inside: bool) -> None:
    """JAX's own are known there, and with numbers on their diagonals no arrays of the program."""
    import jax
    from jax.experimental.sparse import BCOO

    varying = sp.csr_array(diffusion(np.ones((20, 21)), "N") + 0.1 * sp.eye_array(420))
    b = np.random.default_rng(0).standard_normal(420)
    sizes = []
    for A in (varying, pyamg.gallery.poisson((20, 21), format="csr")):
        given = BCOO.from_scipy_sparse(A) if inside else as_operator(BCOO.from_scipy_sparse(A))
        f = jax.jit(lambda b, A=given: linear_solve(A, b, method="CG").x).lower(b)
        np.testing.assert_allclose(f.compile()(b), sp.linalg.spsolve(sp.csc_array(A), b), atol=1e-7)
        sizes.append(len(f.as_text()))
    assert sizes[0] - sizes[1] > 3 * 16 * 420  # digits of at least three of five diagonals
    large = BCOO.from_scipy_sparse(sp.csr_array(diffusion(np.ones((60, 61)), "N") + 0.1 * sp.eye_array(3660)))
    assert jax.eval_shape(lambda b: linear_solve(large, b), np.ones(3660)).method == "fast-direct"


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("points", [5, 27])
def test_numbers(points: int, dtype: str) -> None:
    shape, name = ((8, 9), "5 points") if points == 5 else ((6, 7, 8), "27 points")
    axes, holds = STENCILS[name]
    shifts = [s for s in itertools.product((-1, 0, 1), repeat=axes) if holds(s)]
    values = np.random.default_rng(0).standard_normal(len(shifts)) * (1 if dtype == "float32" else 1 + 2j)
    A = entries(shape, {s: np.full(shape, v) for s, v in zip(shifts, values)}, (False,) * axes).astype(dtype)
    own: Any = as_operator(A).to("dia")  # type: ignore[attr-defined]
    found: Any = with_numbers(own)
    assert found.format == "stencil" and found.in_shape == own.in_shape and found.dtype == own.dtype
    assert abs(found.to_scipy() - A).max() == 0
    for place in (0, 3, A.nnz // 2, A.nnz - 1):  # one other number
        B = A.copy()
        B.data[place] *= 2
        assert with_numbers(as_operator(B).to("dia")).format == "dia"  # type: ignore[attr-defined]


@pytest.mark.parametrize("place", [(8, 9), (9, 8), (0, 71), (17, 18)])
def test_numbers_stay_on_the_grid(place: tuple[int, int]) -> None:
    """An entry that goes on in the next line is no number of a stencil."""
    A = sp.lil_array(pyamg.gallery.poisson((8, 9), format="csr"))
    A[place] = -1
    assert with_numbers(as_operator(sp.csr_array(A)).to("dia")).format == "dia"  # type: ignore[attr-defined]


@pytest.mark.needs("jax")
def test_numbers_of_rectangular_matrices() -> None:
    """Differences along an axis, which leave the grid of their argument: the matrix stays one of diagonals."""
    import jax

    def differences(u: Any) -> Any:
        return u[1:] - u[:-1]

    own: Any = krylix.matrix_from_function(differences, np.ones((8, 9)), format="dia")[0]
    assert with_numbers(own) is own
    b = np.arange(63.0)
    x = jax.jit(lambda b: linear_solve(own, b, method="LSMR", rtol=1e-10).x)(jax.numpy.asarray(b))
    np.testing.assert_allclose(differences(np.asarray(x).reshape(8, 9)).reshape(-1), b, atol=1e-7)


@pytest.mark.merge
def test_traced_values() -> None:
    """An argument of a compiled function on a large grid: multigrid, if the values of the run suit it."""
    import jax
    import jax.numpy as jnp

    A = diffusion(np.where(np.random.default_rng(0).random((32, 40)) < 0.5, 1.0, 1e3).repeat(10, 0).repeat(8, 1))
    own = in_krylix("jax", A, "csr")
    b = np.random.default_rng(0).standard_normal(A.shape[0])
    kinds = []

    def solve(values: Any, b: Any) -> Any:
        result = linear_solve(own.with_values(values), b, rtol=1e-8)
        kinds.append(result.preconditioner)
        return result.x, result.iterations

    x, steps = jax.jit(solve)(jnp.asarray(own.values), jnp.asarray(b))
    assert kinds == ["multigrid"] and steps <= 20
    assert np.linalg.norm(A @ np.asarray(x) - b) <= 2e-8 * np.linalg.norm(b)
