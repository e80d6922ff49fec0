"""Media: grids whose coefficients jump from cell to cell, thin lines and walls are told from blocks.

Each is solved in few iterations, and the answer is that of a factorisation.
"""

from __future__ import annotations

import runpy
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as sla

import krylix
from cells import in_turn
from krylix.solvers.preconditioners.multigrid.interpolation import (
    WeaklyCoupled,
    weakly_coupled,
    weights_and_weakly_coupled,
)
from krylix.sparse.operators.couplings import Couplings
from library import ROOT
from modes import array, compiled, library, to_numpy

M = runpy.run_path(str(ROOT / "benchmarks" / "media_problems.py"))
flow, bilinear, lognormal, binary, channels = (M[n] for n in ("flow", "bilinear", "lognormal", "binary", "channels"))
lines, fractures, inclusions, chequered = (M[n] for n in ("lines", "fractures", "inclusions", "chequered"))
S, T, BOX = (128, 128), (192, 192), (24, 24, 24)
AMG, GRIDS = "classical AMG", None
ANY = ""  # either is fine
SMALL: dict[int, dict[str, Any]] = {2: {"direct": 64**2}, 3: {"direct": 10**3}}  # so that there are levels

# name -> conductivities or (matrix, grid), what the cycle has to be, and the most iterations
MEDIA: dict[str, tuple[Any, str | None, int]] = {
    "smooth": (lambda: lognormal(T, 3, 8), GRIDS, 8),
    **{f"lognormal {s}": (lambda s=s: lognormal(T, s, seed=5), AMG if s > 1 else GRIDS, 15) for s in (1, 2, 3, 6)},
    "lognormal 3, correlated": (lambda: lognormal(T, 3, 1), ANY, 15),
    "lognormal 3, closed": (lambda: (flow(lognormal(T, 3), closed=True), T), AMG, 15),
    "lognormal 3, a ring": (lambda: (flow(lognormal(S, 3), periodic=[0]), S), AMG, 15),
    "lognormal 3, long": (lambda: lognormal((40, 500), 3), AMG, 15),
    "lognormal 1, flat cells": (lambda: (flow(lognormal(S, 1), ratios=[1.0, 100.0]), S), GRIDS, 15),
    "lognormal 3, flat cells": (lambda: (flow(lognormal(S, 3), ratios=[1.0, 9.0]), S), AMG, 15),
    **{f"binary, {r} cells": (lambda r=r: binary(T, 1e5, r), AMG if r == 1 else ANY, 15) for r in (1, 2, 3)},
    "binary, 8 cells": (lambda: binary(T, 1e5, 8), GRIDS, 15),
    "percolation": (lambda: binary(T, 1e6, share=0.59), AMG, 15),
    "holes": (lambda: (flow(binary(S, 0, share=0.38), closed=True), S), AMG, 15),
    "blocks": (lambda: chequered(T, 1e6), GRIDS, 15),
    "discs": (lambda: inclusions(T, 1e4, 20, (6, 20)), GRIDS, 15),
    "channels": (lambda: channels(T, 1e6), AMG, 15),
    "lines": (lambda: lines(T, 1e4), AMG, 15),
    "broad lines": (lambda: lines(T, 1e4, 3), ANY, 20),
    "walls": (lambda: lines(T, 1e-4), ANY, 20),
    "fractures": (lambda: fractures(T, 1e4), AMG, 15),
    "tight fractures": (lambda: fractures(T, 1e-4, 2), ANY, 20),
    "bilinear, lognormal 1": (lambda: bilinear(lognormal(S, 1)), GRIDS, 15),
    "bilinear, binary": (lambda: bilinear(binary(T, 1e4, 2)), ANY, 20),
    "box, lognormal 1": (lambda: lognormal(BOX, 1), GRIDS, 15),
    "box, lognormal 3": (lambda: lognormal(BOX, 3), AMG, 15),
    "box, binary": (lambda: binary(BOX, 1e5), AMG, 15),
    "box, 4 cells": (lambda: binary(BOX, 1e5, 4), GRIDS, 15),
    "box, channels": (lambda: channels(BOX, 1e6), AMG, 15),
    "box, trilinear": (lambda: bilinear(lognormal((18, 18, 18), 1)), GRIDS, 15),
}  # fmt: skip


def system(name: str) -> tuple[sp.csr_array, tuple[int, ...], np.ndarray, np.ndarray | None]:
    """Matrix, grid, right-hand side, and its solution where that takes long to compute, or there are many."""
    made = MEDIA[name][0]()
    A, grid = made if isinstance(made, tuple) else (flow(made), made.shape)
    b = np.random.default_rng(7).standard_normal(A.shape[0])
    return (A, grid, A @ b, b) if len(grid) == 3 or name == "holes" else (A, grid, b, None)


@pytest.mark.parametrize("name", MEDIA)
def test_iterations_and_answer(name: str) -> None:
    (A, grid, b, exact), (_, kind, most) = system(name), MEDIA[name]
    own = krylix.preconditioner(A, "multigrid", grid=grid, **SMALL[len(grid)])
    if kind != ANY:
        assert (own.note or "")[: len(AMG)] == (kind or ""), own
    result = krylix.linear_solve(A, b, method="CG", preconditioner=own, rtol=2e-9, max_iter=60)
    relative = np.linalg.norm(b - A @ result.x) / np.linalg.norm(b)
    assert relative <= 2e-9 and result.history is None
    assert krylix.linear_solve(A, b, method="CG", preconditioner=own, rtol=1e-8).iterations <= most
    x = exact if exact is not None else sla.spsolve(sp.csc_array(A), b)
    energy = np.sqrt(abs((result.x - x) @ (A @ (result.x - x))) / (x @ (A @ x)))  # in which the contrast plays no role
    assert energy <= 1e-6


def test_lost_points_by_hand() -> None:
    """A line of ten times and of 1e4 times the ground: the share of the couplings across it, of its points only."""
    for contrast in (10.0, 1e4):
        k = np.ones((9, 9))
        k[3] = contrast
        face = 2 * contrast / (1 + contrast)
        own = couplings(k)
        _, (across, along) = weights_and_weakly_coupled(own, (2, 2))  # of points beside the second axis, the first
        expected = np.zeros((5, 5), int)
        share = 2 * face / (2 * face + 2 * contrast)
        expected[1, 1:4] = 0 if share > 0.01 else 2 if share < 0.001 else 1
        np.testing.assert_array_equal(along[0, :4, 1:4], expected[:4, 1:4])
        assert not across.any()


def couplings(k: np.ndarray) -> Couplings:
    from krylix.solvers.preconditioners.multigrid.couplings import couplings_of

    return couplings_of(krylix.as_operator(flow(k)), k.shape)  # type: ignore[arg-type]


def test_weak_and_faint_points() -> None:
    one = np.ones((1, 6))
    terms = [0.5e-3 * one, np.array([[-0.5e-3, 0, 1, 1, 1, 1e-2]])]
    strength = np.array([[0.0, 1e-4, 5e-3, 2e-2, 5e-3, 5e-3]])
    excess = np.array([[0.0, 0.0, 0.0, 0.0, 0.5, 0.0]])
    found = weakly_coupled(one, excess, strength, terms)
    np.testing.assert_array_equal(found, [[1, 2, 1, 0, 0, 1]])
    assert not weakly_coupled(0 * one, excess, strength, terms).any()
    counted = WeaklyCoupled.of([found[:, :, None], found[:, :, None]], slice(1, None))
    assert counted == (10, 6, 2) and counted.plus(counted) == (20, 12, 4)
    assert not counted.too_many(True, 10) and WeaklyCoupled(10**6, 700, 0).too_many(True, 10**6)
    assert not WeaklyCoupled(10**6, 700, 0).too_many(False, 10**6) and WeaklyCoupled(10**6, 9, 8).too_many(False, 10**6)


def test_a_batch_keeps_its_grids() -> None:
    """Of several matrices there is one cycle, whatever one of them is like."""
    A = flow(lognormal((20, 20), 3))
    own = krylix.as_operator(np.stack([A.toarray(), 2 * A.toarray()]))
    M = krylix.preconditioner(own, "multigrid", grid=(20, 20), direct=30)
    assert M.note is None


@pytest.mark.parametrize(
    ("precision", "mode"), in_turn([None, "single"], ["numpy", "jax-jit", "torch", "tf"], always=["numpy"])
)
def test_on_all_libraries(precision: str | None, mode: str, tmp_path: Any) -> None:
    """Levels of grids above, rows below: the same numbers everywhere, moved and stored."""
    A, grid, b = flow(k := binary((96, 96), 1e4, 2)), k.shape, np.random.default_rng(0).standard_normal(96 * 96)
    M = krylix.preconditioner(A, "multigrid", grid=grid, direct=30, precision=precision)
    assert M.note is not None and M.note.startswith("classical AMG from the grid (48, 48) on")
    moved = M.to(library(mode))
    expected = M @ b
    size = np.abs(expected).max() * (1e-4 if precision else 1e-10)
    found, turned = map(to_numpy, compiled(mode, lambda r: (moved @ r, moved.T @ r))(array(mode, b)))
    np.testing.assert_allclose(found, expected, atol=size)
    np.testing.assert_allclose(turned, M.T @ b, atol=size)
    M.save(tmp_path / "M.npz")
    np.testing.assert_allclose(krylix.load_preconditioner(tmp_path / "M.npz") @ b, expected, atol=1e-12 * size)


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("sign", [1, -1])
def test_dtypes_and_signs(dtype: str, sign: int) -> None:
    k = lognormal((100, 100), 3)
    A = sp.csr_array(sign * flow(k)).astype(dtype)
    if dtype.startswith("c"):  # Hermitian: a phase in each cell
        phase = sp.diags_array(np.exp(1j * np.random.default_rng(0).uniform(0, 1, k.size)))
        A = sp.csr_array(phase @ A @ phase.conj())
    b = np.random.default_rng(1).standard_normal(k.size).astype(dtype)
    M = krylix.preconditioner(A, "multigrid", grid=k.shape, **SMALL[2])
    assert M.hermitian and M.note is not None and M.dtype == dtype
    result = krylix.linear_solve(A, b, method="CG", preconditioner=M, rtol=1e-4 if dtype == "float32" else 1e-8)
    assert result.iterations <= 15


def test_not_symmetric() -> None:
    """With a wind, upwind: the symmetric part decides."""
    k = lognormal((100, 100), 3)
    wind = sp.diags_array([2.0, -2.0], offsets=[0, -1], shape=(k.size, k.size))
    edge = sp.diags_array(1.0 * (np.arange(k.size) % 100 > 0))
    A = sp.csr_array(flow(k) + edge @ wind)
    b = np.random.default_rng(1).standard_normal(k.size)
    M = krylix.preconditioner(A, "multigrid", grid=k.shape, **SMALL[2])
    result = krylix.linear_solve(A, b, preconditioner=M, method="biCG-stab(2)", rtol=1e-8)
    assert M.note is not None and not M.hermitian and result.iterations <= 15


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_scales(scale: float) -> None:
    A, b = scale * flow(lognormal((100, 100), 3)), np.random.default_rng(1).standard_normal(10_000)
    M = krylix.preconditioner(sp.csr_array(A), "multigrid", grid=(100, 100), precision="single", **SMALL[2])
    assert M.note is not None and "classical AMG" in M.note and "single precision inside" in M.note
    assert krylix.linear_solve(A, b, method="CG", preconditioner=M, rtol=1e-8).iterations <= 15


def test_chosen_and_said() -> None:
    """By "auto", and the result says what the cycle is."""
    A = flow(channels((256, 256), 1e6))
    b = np.random.default_rng(1).standard_normal(A.shape[0])
    result = krylix.linear_solve(A, b, method="CG", preconditioner="auto", rtol=1e-8)
    assert result.preconditioner == "multigrid" and result.iterations <= 15
