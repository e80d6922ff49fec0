"""Multigrid on grids: its parts against dense matrices, and how many iterations it leaves."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from grid_couplings import GRIDS, couplings, dense, factors_of, interpolation, weights
from grid_problems import blocks, diffusion, obstacles
from krylix.backends import get_backend
from krylix.solvers.factors.planes import (
    BlockTridiagonalInverse,
    block_tridiagonal_inverse,
)
from krylix.solvers.preconditioners.multigrid.couplings import (
    MatrixOnGrid,
    couplings_matrix,
    couplings_of,
    couplings_stencil,
)
from krylix.solvers.preconditioners.multigrid.cycle import Level
from krylix.solvers.preconditioners.multigrid.grid_levels import (
    coarse_couplings,
    coarsening_factors,
    colours_of,
    probed_couplings,
)
from krylix.sparse import CSR, DIA, Stencil, UnsupportedOperation
from krylix.sparse.operators.couplings import Couplings
from matrices import in_krylix, in_random_order
from modes import COMPILED, EAGER, MODES, array, compiled, library, to_numpy

HOST = get_backend("numpy")
rng = np.random.default_rng(0)
every_grid = pytest.mark.parametrize("name", GRIDS)


# --- parts ---


@every_grid
@pytest.mark.parametrize("form", ["stencil", "csr", "dia", "batch"])
def test_couplings_of_a_matrix(name: str, form: str) -> None:
    """Read off a matrix in any format, and put together to one again."""
    A = couplings(name, 2 if form == "batch" else None)
    grid = A.grid
    given: Any = couplings_stencil(A)
    if form in ("csr", "dia"):
        given = given.to("csr").to(form)
    found = couplings_of(given, grid)
    assert found.periodic == tuple(r and n > 2 for r, n in zip(A.periodic, grid)) and found.systems == A.systems
    for i in range(A.systems or 1):
        np.testing.assert_array_equal(dense(found, i), dense(A, i))
    back = to_numpy(couplings_matrix(found).dense())
    np.testing.assert_array_equal(back if A.systems else back[None], [dense(A, i) for i in range(A.systems or 1)])


def test_numbers_of_a_stencil() -> None:
    A = Stencil([4.0, -1.0, -2.0], [(0, 0), (0, 1), (-1, 0)], (5, 6))
    np.testing.assert_array_equal(dense(couplings_of(A, (5, 6))), A.dense())


@pytest.mark.parametrize("name", [name for name in GRIDS if name != "short rings"])  # which are not coarsened
def test_coarse_matrix(name: str) -> None:
    """`P^T A P` by shifts is that of dense matrices, and so is the adjoint of the interpolation."""
    A = couplings(name)
    for factors in factors_of(A):
        W = weights(A, factors)
        P = interpolation(A, W, factors)
        up = P.dense()
        np.testing.assert_allclose(P.T.dense(), up.T, rtol=0, atol=0)
        coarse = coarse_couplings(A, W, factors, hermitian=False)
        assert coarse.grid == P.coarse
        np.testing.assert_allclose(dense(coarse), up.T @ dense(A) @ up, atol=1e-12)
        assert up.min() >= 0 and up.sum(1).max() <= 1 + 1e-12


@pytest.mark.parametrize("name", [name for name in GRIDS if name != "short rings"])
@pytest.mark.parametrize("systems, dtype", [(None, "float64"), (2, "complex128")])
def test_coarse_matrix_by_coloured_products(name: str, systems: int | None, dtype: str) -> None:
    """As compiled programs find it: `P^T A P` of dense matrices, but for points that no point takes from."""
    A = couplings(name, systems, dtype)
    real = couplings(name, systems)
    for factors in factors_of(A):
        W = {p: {c: w.astype(dtype) for c, w in own.items()} for p, own in weights(real, factors).items()}
        P = interpolation(A, W, factors)
        coarse = probed_couplings(MatrixOnGrid.of(A), P)
        for i in range(systems or 1):
            up = P.dense()[i] if systems else P.dense()
            np.testing.assert_allclose(dense(coarse, i), up.T @ dense(A, i) @ up, atol=1e-12)


def test_dead_points_by_coloured_products() -> None:
    """A row of zeros becomes one with a one on the diagonal, and no other entry."""
    A = couplings_of(krylix.as_operator(diffusion(obstacles(20)[:, :14], "N")), (20, 14))  # type: ignore[arg-type]
    P = interpolation(A, weights(A, (2, 2)), (2, 2))
    up, found = P.dense(), dense(probed_couplings(MatrixOnGrid.of(A), P))
    dead = up.sum(0) == 0
    assert dead.any()
    np.testing.assert_allclose(found, up.T @ dense(A) @ up + np.diag(dead), atol=1e-12)


@pytest.mark.parametrize("ring", [True, False])
def test_colours(ring: bool) -> None:
    """Points at a distance of one or two differ, and there are five colours at most."""
    for n in range(3, 40):
        colours = colours_of(n, ring)
        assert len(colours) == n and colours.max() <= (4 if ring else 2)
        for step in (1, 2):
            there = np.roll(colours, -step)
            assert (colours != there)[: n if ring else n - step].all()


@every_grid
@pytest.mark.parametrize("systems", [None, 2])
def test_matrix_on_a_grid(name: str, systems: int | None) -> None:
    A = couplings(name, systems, "complex128")
    found = MatrixOnGrid.of(A)
    exact = np.stack([dense(A, i) for i in range(systems or 1)])
    for own, expected in ((found, exact), (found.T, np.swapaxes(exact, 1, 2)), (found.H.T, exact.conj())):
        np.testing.assert_array_equal(own.dense() if systems else own.dense()[None], expected)
    with pytest.raises(ValueError, match="There is no matrix on the grid"):
        MatrixOnGrid(HOST, found.values[:1], found.shifts[:1], found.grid, found.periodic, systems is not None)
    with pytest.raises(ValueError, match="values were given"):
        MatrixOnGrid(HOST, found.values[1:], found.shifts, found.grid, found.periodic, systems is not None)


def test_formats_on_another_library() -> None:
    """Each library has matrices in the format that is fast there: for PyTorch that depends on their size."""
    pytest.importorskip("torch")
    M = krylix.preconditioner(diffusion(ONES), "multigrid", grid=ONES.shape, direct=600)
    assert isinstance(level_of(M).A, DIA) and isinstance(level_of(M.to("torch")).A, CSR)
    k = np.ones((190, 180))
    M = krylix.preconditioner(diffusion(k), "multigrid", grid=k.shape, precision="single")
    T = M.to("torch")
    assert isinstance(level_of(T).A, DIA) and isinstance(level_of(level_of(T).coarse).A, CSR)
    r = np.random.default_rng(0).standard_normal(k.size)
    expected, found = M @ r, T @ array("torch", r)
    np.testing.assert_allclose(to_numpy(found), expected, atol=1e-5 * np.max(np.abs(expected)))
    own = array("torch", r).requires_grad_()
    (T @ own).square().sum().backward()
    twice = 2 * (M @ expected)
    np.testing.assert_allclose(to_numpy(own.grad), twice, atol=1e-4 * np.max(np.abs(twice)))


@pytest.mark.parametrize("precision", [None, "single"])
@pytest.mark.parametrize("sides", ["D", "N"])
def test_levels_of_symmetric_matrices_are_symmetric(sides: str, precision: str | None) -> None:
    """To the last digit: products read one half of them."""
    k = np.exp(np.random.default_rng(4).standard_normal((70, 66)))
    k[20:30, 40:50] = 0
    A = diffusion(k, sides)
    M: Any = krylix.preconditioner(A, "multigrid", grid=k.shape, precision=precision, direct=100)
    count = 0
    while any(hasattr(M, name) for name in M.parts if name != "steps"):
        try:
            M = level_of(M)
        except StopIteration:
            break
        assert M.hermitian and M.A.is_exactly_hermitian()
        M, count = M.coarse, count + 1
    assert count >= 2


def level_of(M: Any) -> Any:
    """The finest level."""
    found = M
    while not isinstance(found, Level):
        found = next(getattr(found, name) for name in found.parts if hasattr(getattr(found, name), "apply"))
    return found


@pytest.mark.parametrize("sides", ["N", "P"])
def test_constants_are_interpolated_exactly(sides: str) -> None:
    """Where A maps them to zero, whatever the coefficients are: else closed regions would converge slowly."""
    k = np.exp(rng.standard_normal((8, 10)))
    A = couplings_of(krylix.as_operator(diffusion(k, sides)), k.shape)  # type: ignore[arg-type]
    for factors in factors_of(A):
        P = interpolation(A, weights(A, factors), factors)
        np.testing.assert_allclose(P.dense().sum(1), 1, atol=1e-10)


def test_hermitian_coarse_matrix() -> None:
    A = couplings("rings")
    A = couplings_of(krylix.as_operator(dense(A) + dense(A).T), A.grid)  # type: ignore[arg-type]
    assert A.is_hermitian() and not couplings("rings").is_hermitian()
    W = weights(A, (2, 2))
    both = [dense(coarse_couplings(A, W, (2, 2), hermitian)) for hermitian in (True, False)]
    np.testing.assert_allclose(*both, atol=1e-12)


@every_grid
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("systems", [None, 2])
def test_block_tridiagonal_inverse(name: str, dtype: str, systems: int | None) -> None:
    A = couplings(name, systems, dtype)
    inverse = BlockTridiagonalInverse(
        HOST, *block_tridiagonal_inverse(A), A.grid, A.periodic, A.shifts, systems is not None
    )
    exact = np.stack([np.linalg.inv(dense(A, i)) for i in range(systems or 1)])
    for found, expected in ((inverse, exact), (inverse.T, np.swapaxes(exact, 1, 2)), (inverse.H.T, exact.conj())):
        entries = found.dense()
        np.testing.assert_allclose(entries if systems else entries[None], expected, atol=1e-12)
    rows = rng.standard_normal((systems or 3, inverse.shape[0])).astype(dtype)
    np.testing.assert_allclose(inverse.apply(rows), [exact[i % len(exact)] @ r for i, r in enumerate(rows)], atol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("shift", [0.0, 5.0])
def test_block_tridiagonal_inverse_of_large_blocks(shift: float, dtype: str) -> None:
    """Of 210 points in a plane, by Cholesky's factors where the matrix is definite: exactly Hermitian."""
    shape = (14, 15, 16)
    n = int(np.prod(shape))
    A = diffusion(np.exp(rng.standard_normal(shape))) - shift * sp.eye_array(n)
    if dtype.startswith("complex"):
        turned = np.exp(1j * np.arange(n))
        A = sp.diags_array(turned) @ A @ sp.diags_array(turned.conj())
    own = couplings_of(krylix.as_operator(sp.csr_array(A)), shape)  # type: ignore[arg-type]
    found = BlockTridiagonalInverse(
        HOST, *block_tridiagonal_inverse(own, hermitian=True), own.grid, own.periodic, own.shifts
    )
    assert found.pivots.shape == (1, 16, 210, 210)
    x = rng.standard_normal((2, n)).astype(dtype)
    # blocks of an indefinite matrix are eliminated in their order, whatever their size
    np.testing.assert_allclose(found.apply(x @ A.T), x, atol=1e-8 if shift else 1e-11)
    same = np.array_equal(found.pivots, np.swapaxes(found.pivots, 2, 3).conj())
    assert same == (shift == 0)


# --- the whole ---

SHAPE = (14, 12)
MIXED = {"direct": 30}


def nonsymmetric(shape: tuple[int, ...] = SHAPE) -> sp.csr_array:
    """With convection, by upwind differences."""
    A = diffusion(blocks(shape[0], 3, contrast=10.0)[:, : shape[1]])
    return sp.csr_array(A + 0.4 * sp.eye_array(A.shape[0]) - 0.4 * sp.eye_array(A.shape[0], k=-1) * 1.0)


def problem(symmetric: bool, dtype: str = "float64") -> sp.csr_array:
    A = diffusion(blocks(SHAPE[0], 3)[:, : SHAPE[1]]) if symmetric else nonsymmetric()
    A = sp.csr_array(A.multiply(on_grid(A)))
    if dtype.startswith("complex"):
        skew = sp.triu(A, 1) - sp.tril(A, -1)
        A = sp.csr_array(A + 0.2j * skew) if symmetric else sp.csr_array(A + 0.5j * sp.eye_array(A.shape[0]))
    return sp.csr_array(A.astype(dtype))


def on_grid(A: sp.csr_array) -> sp.csr_array:
    """Ones where points are neighbours: a line's last point and the next line's first are none."""
    rows, cols = A.nonzero()
    near = np.abs(rows % SHAPE[1] - cols % SHAPE[1]) <= 1
    return sp.csr_array((np.ones(near.sum()), (rows[near], cols[near])), shape=A.shape)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("cycle", ["V", "W"])
def test_facts_and_adjoints(symmetric: bool, dtype: str, cycle: str) -> None:
    A = problem(symmetric, dtype)
    M = krylix.preconditioner(A, "multigrid", grid=SHAPE, cycle=cycle, **MIXED)
    assert M.hermitian is symmetric and M.dtype == np.dtype(dtype)
    entries = M.dense()
    eps = np.finfo(dtype).eps * np.abs(entries).max()
    np.testing.assert_allclose(M.T.dense(), entries.T, rtol=0, atol=300 * eps)
    np.testing.assert_allclose(M.H.dense(), entries.conj().T, rtol=0, atol=300 * eps)
    if symmetric:
        np.testing.assert_allclose(entries, entries.conj().T, rtol=0, atol=300 * eps)
        assert np.linalg.eigvalsh(entries).min() > 0
    errors = np.linalg.eigvals(np.eye(len(entries)) - entries @ A.toarray())
    assert np.abs(errors).max() < 0.4


# Where a program is compiled, every value together with JAX's `jit`; the others on demand.
ONCE = {"jax-jit": ((True, None), (False, 2)), "tf-function": ((False, 2),), "jax": ((False, 2),)}


@pytest.mark.compiled_by_default(modes=("jax-jit", "tf-function"))
@pytest.mark.parametrize(
    ("symmetric", "systems", "mode"),
    [
        pytest.param(symmetric, systems, mode, marks=pytest.mark.slow if later else ())
        for mode in MODES
        if mode != "torch-compile"  # which traces no `with_values`
        for symmetric in (True, False)
        for systems in (None, 2)
        # every two of the three together; all three on demand
        for later in [(symmetric, systems) not in ONCE.get(mode, ((symmetric, systems),))]
    ],
)
def test_known_and_traced_values(mode: str, symmetric: bool, systems: int | None) -> None:
    """M of values that are arguments of a compiled function is M of the same values that are known."""
    pattern: Any = krylix.as_operator(problem(symmetric)).to("csr")
    scale = np.array([[1.0], [3.0]]) if systems else np.ones(1)
    values, r = scale * np.asarray(pattern.values), rng.standard_normal((2, pattern.shape[0]))

    def images(values: Any, r: Any) -> Any:
        M = krylix.preconditioner(pattern.with_values(values), "multigrid", grid=SHAPE, directional=False, **MIXED)
        return M(r), M.T(r)

    found = compiled(mode, images)(array(mode, values), array(mode, r))
    # where values are traced, it is not known that they are not symmetric
    settings = {"directional": False, "grid": SHAPE, **({"smoother": "chebyshev"} if mode in COMPILED else {}), **MIXED}
    known = krylix.preconditioner(pattern.with_values(values), "multigrid", **settings)
    for image, M in zip(found, (known, known.T)):
        np.testing.assert_allclose(to_numpy(image), M(r), rtol=0, atol=1e-9 * np.abs(M(r)).max())
    if systems:
        alone = krylix.preconditioner(pattern.with_values(values[1]), "multigrid", **settings)
        np.testing.assert_allclose(known(r)[1], alone(r[1:])[0], atol=1e-12 * np.abs(alone(r)).max())


@pytest.mark.compiled_by_default(modes=("tf",))
@pytest.mark.parametrize("mode", ["jax-jit", "torch", "tf"])
def test_gradient_of_a_solve(mode: str) -> None:
    """By coefficients that M is made of, too: as finite differences say."""
    from krylix.sparse import Stencil

    grid, b, w = (12, 10), rng.standard_normal(120), rng.standard_normal(120)
    k0, direction = 1 + rng.random(grid), rng.standard_normal(grid)

    def loss(k: Any) -> Any:
        bk = krylix.choose_backend(k)
        A = Stencil([5 * k, -1.0, -1.0, -1.0, -1.0], [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)], grid)
        M = krylix.preconditioner(A, "multigrid", direct=40)
        x = krylix.linear_solve(A, bk.asarray(b, like=k), method="CG", preconditioner=M, rtol=1e-12).x
        return bk.sum(x * bk.asarray(w, like=k), 0)

    if mode == "jax-jit":
        import jax

        found = jax.jit(jax.grad(loss))(array(mode, k0))
    elif mode == "torch":
        k = array(mode, k0).requires_grad_()
        loss(k).backward()
        found = k.grad
    else:
        import tensorflow as tf

        k = array(mode, k0)
        with tf.GradientTape() as tape:
            tape.watch(k)
            value = loss(k)
        found = tape.gradient(value, k)
    h = 1e-5
    finite = (loss(k0 + h * direction) - loss(k0 - h * direction)) / (2 * h)
    np.testing.assert_allclose(np.sum(to_numpy(found) * direction), finite, rtol=1e-6)


@pytest.mark.compiled_by_default(modes=("jax", "tf"))
@pytest.mark.parametrize("mode", EAGER)
def test_saved_moved_and_pickled(mode: str, tmp_path: Path) -> None:
    cells = [*itertools.product((True, False), ("float64", "complex64"))]
    for symmetric, dtype in cells if mode in ("numpy", "torch") else cells[-1:]:
        A, r = problem(symmetric, dtype), rng.standard_normal((2, SHAPE[0] * SHAPE[1])).astype(dtype)
        M = krylix.preconditioner(A, "multigrid", grid=SHAPE, **MIXED)
        M.save(tmp_path / "M.npz")
        there = krylix.load_preconditioner(tmp_path / "M.npz", like=array(mode, r))
        tolerance = {"rtol": 0, "atol": 100 * np.finfo(dtype).eps * np.abs(M(r)).max()}
        images = compiled("jax-jit" if mode == "jax" else mode, lambda M, r: (M(r), M.T(r)))
        for other in (there, M.to(library(mode)), pickle.loads(pickle.dumps(there))):
            for found, expected in zip(images(other, array(mode, r)), (M(r), M.T(r)), strict=True):
                np.testing.assert_allclose(to_numpy(found), expected, **tolerance)


# --- how good it is ---

ONES = np.ones((96, 96))
PROBLEMS: dict[str, tuple[Any, int]] = {
    "Dirichlet": (lambda: (diffusion(ONES), ONES.shape), 7),
    "Neumann": (lambda: (diffusion(ONES, "N"), ONES.shape), 8),
    "periodic": (lambda: (diffusion(ONES, "P"), ONES.shape), 7),
    "mixed": (lambda: (diffusion(ONES, "PN"), ONES.shape), 8),
    "odd": (lambda: (diffusion(np.ones((97, 75)), "DN"), (97, 75)), 8),
    "blocks": (lambda: (diffusion(blocks(96, 6)), ONES.shape), 8),
    "obstacles": (lambda: (diffusion(obstacles(96), "N"), ONES.shape), 9),
    "anisotropic": (lambda: (diffusion(ONES, ratios=[100.0, 1.0]), ONES.shape), 12),
    "negative": (lambda: (-diffusion(ONES), ONES.shape), 7),
    "three axes": (lambda: (diffusion(blocks(20, 4, 3)), (20, 20, 20)), 12),
    "a line": (lambda: (diffusion(np.exp(np.sin(np.arange(500.0)))), (500,)), 6),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_iterations(name: str) -> None:
    """To 1e-8, with at least two coarser grids: as pyamg's classical method takes, or fewer."""
    make, most = PROBLEMS[name]
    A, grid = make()
    direct = {1: 64, 2: 24**2, 3: 5**3}[len(grid)]
    M = krylix.preconditioner(A, "multigrid", grid=grid, direct=direct)
    b = A @ rng.standard_normal(A.shape[0])
    result = krylix.linear_solve(A, b, method="CG", preconditioner=M, rtol=1e-8, max_iter=60)
    assert np.linalg.norm(b - A @ result.x) <= 1e-8 * np.linalg.norm(b) and result.iterations <= most


SINGULAR = {
    "jumps": (10.0 ** np.random.default_rng(0).normal(size=(20, 20)), "N"),
    "equal roundings": (np.full((160, 160), 0.1), "P"),  # of all rows, which add up
}


@pytest.mark.parametrize("name", SINGULAR)
def test_singular_up_to_single_precision(name: str) -> None:
    """Coefficients that are rounded make a small eigenvalue of the zero one, of either sign."""
    k, sides = SINGULAR[name]
    A = diffusion(k, sides, [1.0, 0.37])
    b = (A @ rng.standard_normal(k.size)).astype("float32")
    M = krylix.preconditioner(sp.csr_array(A.astype("float32")), "multigrid", grid=k.shape)
    result = krylix.linear_solve(A.astype("float32"), b, method="CG", preconditioner=M, rtol=1e-4, max_iter=15)
    assert np.linalg.norm(b - A @ result.x.astype(float)) <= 1e-3 * np.linalg.norm(b)
    if k.size < 1000:
        assert np.linalg.eigvalsh(M.dense().astype(float))[0] > 0


@pytest.mark.compiled_by_default(modes=("jax-jit",))
@pytest.mark.parametrize(
    ("mode", "dtype", "rtol"),
    [
        ("numpy", "float64", 1e-9),
        ("numpy", "float32", 1e-4),
        pytest.param("jax-jit", "float64", 1e-9, marks=pytest.mark.merge),
        pytest.param("jax-jit", "float32", 1e-4, marks=pytest.mark.merge),
    ],
)
def test_closed_regions_without_null_vectors(mode: str, dtype: str, rtol: float) -> None:
    """Regions that shrink to a point, or to a few, leave no rounding that M would blow up; nobody projects here."""
    draw = np.random.default_rng(2)
    k = np.exp(draw.standard_normal((24, 20))) * (draw.random((24, 20)) > 0.5)
    exact = diffusion(k, "N")
    pattern: Any = krylix.as_operator(sp.csr_array(exact.astype(dtype))).to("csr")  # type: ignore[arg-type]
    b = (exact @ draw.standard_normal(k.size)).astype(dtype)

    def solved(values: Any, b: Any) -> Any:
        A = pattern.with_values(values)
        M = krylix.preconditioner(A, "multigrid", grid=k.shape, direct=50)
        return krylix.linear_solve(A, b, method="CG", preconditioner=M, nullspace=None, rtol=rtol, max_iter=40).x

    x = to_numpy(compiled(mode, solved)(array(mode, np.asarray(pattern.values)), array(mode, b))).astype(float)
    dense = exact.toarray()
    shortest = np.linalg.lstsq(dense, b.astype(float), rcond=1e-10)[0]
    np.testing.assert_allclose(dense @ x, dense @ shortest, rtol=0, atol=2 * rtol * np.linalg.norm(b))
    null = null_space_of(dense)
    error = x - shortest - null @ (null.T @ (x - shortest))
    assert np.linalg.norm(error) <= 1e3 * rtol * np.linalg.norm(shortest)


def null_space_of(dense: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(dense)
    found: np.ndarray = vectors[:, np.abs(values) < 1e-10 * values.max()]
    return found


def test_inverse_of_closed_regions_is_bounded() -> None:
    """Positive definite where A is not zero, and no larger elsewhere than the shift of what is singular."""
    draw = np.random.default_rng(2)
    k = (draw.random((24, 20)) > 0.5) * 1.0
    A = diffusion(k, "N")
    M = krylix.preconditioner(A, "multigrid", grid=k.shape, direct=50).dense()
    values, vectors = np.linalg.eigh(A.toarray())
    kept = vectors[:, values > 1e-10]
    assert np.abs(M).max() < 1e15 and np.linalg.eigvalsh(kept.T @ M @ kept).min() > 0.01


def test_symmetric_up_to_the_rounding_of_its_dtype() -> None:
    """Single precision rounds the two triangles apart; more than that is not symmetric."""
    A = problem(True, "float32")
    for factor, symmetric in ((1 + np.finfo("float32").eps, True), (1.01, False)):
        upper = sp.triu(A, 1) * np.float32(factor)
        other = sp.csr_array(upper + sp.tril(A))
        assert krylix.preconditioner(other, "multigrid", grid=SHAPE, **MIXED).hermitian is symmetric
    wide = sp.csr_array(sp.triu(problem(True), 1) * (1 + 1e-6) + sp.tril(problem(True)))
    assert krylix.preconditioner(wide, "multigrid", grid=SHAPE, **MIXED).hermitian is False


def test_obstacles_without_a_coarser_grid() -> None:
    """The inverse of what has entries, and the identity in rows of zeros."""
    k = obstacles(24)
    A = diffusion(k)
    M = krylix.preconditioner(A, "multigrid", grid=k.shape)
    dense = A.toarray()
    dense[np.diag_indices(A.shape[0])] += (k == 0).ravel()
    np.testing.assert_allclose(M.dense(), np.linalg.inv(dense), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("n", [32, 64, 128])
def test_iterations_do_not_grow(n: int) -> None:
    A = diffusion(np.ones((n, n)))
    M = krylix.preconditioner(A, "multigrid", grid=(n, n), direct=100)
    assert krylix.linear_solve(A, np.ones(n * n), method="CG", preconditioner=M, rtol=1e-8).iterations <= 7


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_scales(scale: float) -> None:
    A = problem(True)
    M = krylix.preconditioner(scale * A, "multigrid", grid=SHAPE, **MIXED)
    plain = krylix.preconditioner(A, "multigrid", grid=SHAPE, **MIXED)
    r = rng.standard_normal((1, A.shape[0]))
    np.testing.assert_allclose(scale * M(r), plain(r), rtol=1e-9)


def far() -> sp.csr_array:
    n = SHAPE[0] * SHAPE[1]
    return sp.csr_array(sp.diags_array([4.0, -1.0, -1.0], offsets=[0, 3, -3], shape=(n, n)))


def hole() -> sp.csr_array:
    A = problem(True).tolil()
    A[17, 17] = 0
    return sp.csr_array(A)


REFUSALS: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "far": (far, {"grid": SHAPE}, UnsupportedOperation, r"at a distance of \(0, 3\).*grid="),
    "no grid": (lambda: in_random_order(problem(True)), {}, UnsupportedOperation, "grid="),
    "grid": (lambda: problem(True), {"grid": (3, 5)}, ValueError, r"grid=\(3, 5\) has 15 points; expected 168"),
    "hole": (hole, {"grid": SHAPE}, ValueError, r"zeros on its diagonal, in 1 rows .*\(1, 5\)"),
    "NaN": (lambda: problem(True) * np.nan, {"grid": SHAPE}, ValueError, "infinite or NaN"),
    "cycle": (far, {"cycle": "K"}, ValueError, "'K' was given; expected 'V' or 'W'"),
    "smoother": (far, {"smoother": "sor"}, ValueError, "'sor' was given"),
    "degree": (far, {"degree": 0}, ValueError, "degree"),
    "direct": (lambda: problem(True), {"grid": SHAPE, "direct": -1}, ValueError, "direct"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name: str) -> None:
    make, settings, error, message = REFUSALS[name]
    with pytest.raises(error, match=message):
        krylix.preconditioner(make(), "multigrid", **settings)


def test_rings_that_cannot_be_halved() -> None:
    """Are solved with exactly, if they are small enough."""
    A = diffusion(np.ones((27, 33)), "P")
    M = krylix.preconditioner(A, "multigrid", grid=(27, 33))
    b = A @ rng.standard_normal(27 * 33)
    assert krylix.linear_solve(A, b, method="CG", preconditioner=M, rtol=1e-8).iterations <= 3
    large = Stencil([4.0, -1.0, -1.0, -1.0, -1.0], [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)], (1001, 1001))
    with pytest.raises(ValueError, match="coarsest grid is"):
        krylix.preconditioner(large, "multigrid", direct=10**6)


@pytest.mark.parametrize("period", [2, 3, 4, 5, 7])
def test_strong_axes_of_layers_of_any_period(period: int) -> None:
    """Found by some of the points of a large grid as by all of them: two thirds or more of the layers decide."""
    n = 700
    along = np.ones((1, n, n))
    across = np.where(np.arange(n) % period == 0, 0.01, 1.0)[None, :, None] * along
    for first, second in ((along, 100 * across), (100 * across, along)):
        zero = (0, 0)
        values = {(0, 1): -first, (0, -1): -first, (1, 0): -second, (-1, 0): -second, zero: 2 * first + 2 * second}
        own = Couplings(HOST, (n, n), (False, False), values, None)
        weak = [np.median(np.abs(2 * c) / values[zero]) for c in (second, first)]
        expected = tuple(2 if share >= 0.25 * max(weak) else 1 for share in weak)
        assert coarsening_factors(own, directional=True) == expected


@pytest.mark.parametrize(("period", "points", "most"), [(40, 64**2, 9), (8, 64**2, 9), (3, 128**2, 22)])
def test_details_keep_the_coarsest_grid_fine(period: int, points: int, most: int) -> None:
    """Blocks of 10 and 2 points on the grid of 128^2 are left to a coarser one, smaller ones are not."""
    n, own = 512, np.random.default_rng(2)
    count = -(-n // period)
    k = np.kron(10.0 ** own.uniform(-2, 2, (count, count)), np.ones((period, period)))[:n, :n]
    A = diffusion(k, "D")
    M = krylix.preconditioner(A, "multigrid", grid=k.shape, precision="single")
    assert dict(M.settings)["direct"] == points
    b = A @ own.standard_normal(n * n)
    assert krylix.linear_solve(A, b, method="CG", preconditioner=M, rtol=1e-8).iterations <= most


@pytest.mark.parametrize("sides", ["N", "D"])
def test_obstacles_on_grids_of_all_sizes(sides: str) -> None:
    """No point takes from an obstacle on any level: iterations do not grow with the number of levels."""
    counts = []
    for n in (64, 128, 256):
        A = diffusion(obstacles(n), sides)
        b = A @ np.random.default_rng(0).standard_normal(n * n)
        M = krylix.preconditioner(A, "multigrid", grid=(n, n), direct=32**2)
        counts.append(krylix.linear_solve(A, b, method="CG", preconditioner=M, rtol=1e-8).iterations)
    assert max(counts) <= 9


@pytest.mark.merge
@pytest.mark.parametrize("mode", ["jax-jit", "tf-function"])
def test_obstacles_of_traced_values(mode: str) -> None:
    """The same weights in a program, whose values decide where obstacles are."""
    A = diffusion(obstacles(40), "N")
    own = in_krylix(mode, A, "csr", known=False)
    r = rng.standard_normal(1600)
    settings: dict[str, Any] = {"grid": (40, 40), "direct": 400, "directional": False}
    expected = krylix.preconditioner(A, "multigrid", **settings) @ r

    def apply(values: Any, r: Any) -> Any:
        return krylix.preconditioner(own.with_values(values), "multigrid", **settings) @ r

    found = to_numpy(compiled(mode, apply)(array(mode, A.data), array(mode, r)))
    live = A.diagonal() > 0
    part = expected[live] - found[live]  # constants are free
    np.testing.assert_allclose(part, part.mean(), atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize("mode", ["numpy", "jax-jit"])
@pytest.mark.parametrize("size", [1e-36, 1.0, 1e37, 2.5e37])
def test_units_near_the_ends_of_single_precision(mode: str, size: float) -> None:
    """Products of two scales may be out of range where those with an entry between are not."""
    shape = (24, 20)
    A = (sp.csr_array(diffusion(np.ones(shape)) + 0.1 * sp.eye_array(480)) * size).astype(np.float32)
    r = (size * rng.standard_normal(480)).astype(np.float32)
    own: Any = in_krylix(mode, A, "dia")

    def image(values: Any, r: Any) -> Any:
        B = type(own)(values, own.structure.offsets, own.shape)
        return krylix.preconditioner(B, "multigrid", grid=shape) @ r

    x = to_numpy(compiled(mode, image)(array(mode, to_numpy(own.values)), array(mode, r))).astype(float)
    assert np.linalg.norm(A.astype(float) @ x - r) < 1e-3 * np.linalg.norm(r.astype(float))
