"""Fast transforms of a nearby operator: exact where that is the operator itself, few iterations on any grid."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from grid_problems import diffusion
from krylix import linear_solve, preconditioner
from krylix.solvers.fast import detect
from krylix.solvers.fast.detect import around, couplings_by_axis, is_far, means, nearby
from krylix.solvers.preconditioners.multigrid.couplings import couplings_of
from krylix.sparse import UnsupportedOperation
from modes import EAGER, MODES, array, compiled, library, to_numpy

rng = np.random.default_rng(0)
Function = Callable[[Any], Any]


def waves(shape: tuple[int, ...], size: float = 0.9, periodic: bool = False) -> np.ndarray:
    """Coefficients between 1 - size and 1 + size."""
    axes = [np.linspace(0, 2 * np.pi, n, endpoint=not periodic) for n in shape]
    factors = [np.sin(x + k) for k, x in enumerate(axes)]
    return 1 + size * np.prod(np.meshgrid(*factors, indexing="ij"), axis=0)


def across_corners(shape: tuple[int, int], periodic: bool) -> sp.csr_array:
    """Differences of neighbours across corners, with couplings of 0.3."""
    up = [sp.eye_array(n, k=1) + (sp.eye_array(n, k=1 - n) if periodic else 0 * sp.eye_array(n)) for n in shape]
    W = 0.3 * (sp.kron(up[0], up[1]) + sp.kron(up[0], up[1].T))
    W = sp.csr_array(W + W.T)
    return sp.csr_array(sp.diags_array(W.sum(axis=1)) - W)


def made(A: Any, shape: tuple[int, ...]) -> Any:
    return preconditioner(A, "fast", grid=shape)


def iterations(A: sp.csr_array, M: Any) -> int:
    b = A @ np.random.default_rng(1).standard_normal(A.shape[0])
    result = linear_solve(A, b, method="CG", preconditioner=M, rtol=1e-8)
    assert np.linalg.norm(A @ result.x - b) <= 1.01e-8 * np.linalg.norm(b)
    return int(result.iterations)


SUMS = {
    "constant": lambda shape, boundary: diffusion(np.full(shape, 2.0), boundary) + 0.1 * sp.eye_array(np.prod(shape)),
    "of their own axis": lambda shape, boundary: sp.csr_array(
        sp.kronsum(*(diffusion(waves((n,)), boundary) + 0.1 * sp.eye_array(n) for n in shape[::-1]))
    ),
    "negative": lambda shape, boundary: -diffusion(np.ones(shape), boundary) - sp.eye_array(np.prod(shape)),
}


@pytest.mark.parametrize("boundary", ["D", "N", "P"])
@pytest.mark.parametrize("shape", [(12, 11), (9, 14)], ids=str)
@pytest.mark.parametrize("name", SUMS)
def test_sums_of_matrices_along_the_axes_are_inverted(name: str, shape: tuple[int, ...], boundary: str) -> None:
    A = sp.csr_array(SUMS[name](shape, boundary))
    M = made(A, shape)
    inverse = np.linalg.inv(A.toarray())
    np.testing.assert_allclose(M.dense(), inverse, atol=1e-11 * np.abs(inverse).max())


@pytest.mark.parametrize("boundary", ["D", "N", "P"])
def test_three_axes(boundary: str) -> None:
    A = sp.csr_array(diffusion(np.full((5, 6, 7), 3.0), boundary) + 0.5 * sp.eye_array(210))
    np.testing.assert_allclose(made(A, (5, 6, 7)).dense(), np.linalg.inv(A.toarray()), atol=1e-12)
    smooth = diffusion(waves((10, 11, 12), 0.5, boundary == "P"), boundary)
    assert iterations(smooth, made(smooth, (10, 11, 12))) <= 16


@pytest.mark.parametrize("boundary", ["D", "N", "P"])
@pytest.mark.parametrize("size", [0.5, 0.9])
def test_iterations_do_not_grow_with_the_grid(size: float, boundary: str) -> None:
    counts = []
    for n in (20, 40, 80):
        A = diffusion(waves((n, n + 3), size, boundary == "P"), boundary)
        counts.append(iterations(A, made(A, (n, n + 3))))
    assert counts[-1] <= counts[0] + 1
    assert counts[-1] <= 17


def test_large_factors() -> None:
    """Of 3000 between the smallest and the largest coefficient."""
    x, y = np.meshgrid(*(np.linspace(0, 1, n) for n in (40, 50)), indexing="ij")
    A = diffusion(np.exp(4 * np.cos(2 * x) * np.sin(3 * y)), "D")
    assert iterations(A, made(A, (40, 50))) <= 12
    assert iterations(A, "jacobi") > 100


@pytest.mark.parametrize("factor", [1.0, -1.0, 1e150, 1e-150])
@pytest.mark.parametrize("boundary", ["D", "N", "P"])
@pytest.mark.parametrize("name", ["smooth", "noise", "jumps", "nine points", "zero rows"])
def test_symmetric_and_definite_on_anything(name: str, boundary: str, factor: float) -> None:
    shape = (9, 10)
    k = {"smooth": waves(shape), "noise": np.exp(rng.standard_normal(shape)),
         "jumps": np.kron(10.0 ** rng.uniform(-4, 4, (3, 2)), np.ones((3, 5))), "nine points": waves(shape),
         "zero rows": np.where(rng.random(shape) < 0.2, 0, 1)}[name]  # fmt: skip
    A = diffusion(k, boundary)
    A = A + across_corners(shape, boundary == "P") if name == "nine points" else A
    M = factor * made(factor * A, shape).dense()
    np.testing.assert_allclose(M, M.T, atol=1e-12 * np.abs(M).max())
    assert np.linalg.eigvalsh(M)[0] > 0


def test_of_waves_it_has_both_signs() -> None:
    A = sp.csr_array(diffusion(np.ones((12, 13)), "D") - 1.0 * sp.eye_array(156))
    M = made(A, (12, 13)).dense()
    np.testing.assert_allclose(M, np.linalg.inv(A.toarray()), atol=1e-10 * np.abs(M).max())
    B = sp.csr_array(diffusion(waves((12, 13), 0.1), "D") - 1.0 * sp.eye_array(156))
    result = linear_solve(B, np.ones(156), method="GMRES", preconditioner=made(B, (12, 13)), rtol=1e-8)
    np.testing.assert_allclose(result.x, np.linalg.solve(B.toarray(), np.ones(156)), rtol=1e-5, atol=1e-5)


def test_complex() -> None:
    turn = sp.diags_array(np.exp(1j * np.linspace(0, 0.1, 132)))
    A = sp.csr_array(turn @ diffusion(waves((11, 12)), "D") @ turn.conj())
    M = made(A, (11, 12))
    dense = M.dense()
    np.testing.assert_allclose(dense, dense.conj().T, atol=1e-12)
    assert iterations(A, M) <= 20


def test_convection_gets_that_of_the_symmetric_part() -> None:
    shape = (20, 21)
    A = diffusion(waves(shape), "D")
    along = sp.eye_array(21, k=1) - sp.eye_array(21, k=-1)
    B = sp.csr_array(A + 0.2 * sp.kron(sp.eye_array(20), along))
    np.testing.assert_allclose(made(B, shape).dense(), made(A, shape).dense(), atol=1e-10)
    b = np.ones(420)
    result = linear_solve(B, b, method="biCG-stab(2)", preconditioner=made(B, shape), rtol=1e-8)
    assert np.linalg.norm(B @ result.x - b) <= 1.01e-8 * np.linalg.norm(b) and result.iterations <= 30


@pytest.mark.compiled_by_default(modes=("jax-jit", "tf-function"))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode", MODES)
def test_functions_on_every_library(mode: str, dtype: str) -> None:
    """Traced, made when the program is compiled, with the derivative by b."""
    shape = (15, 13)
    A = diffusion(waves(shape), "D").astype(dtype)
    matrix, b = krylix.as_operator(A, array(mode, np.zeros(195, dtype))), rng.standard_normal(195).astype(dtype)

    def solve(b: Any) -> Any:
        M = preconditioner(matrix, "fast", grid=shape)
        return linear_solve(matrix, b, method="CG", preconditioner=M).x

    x = to_numpy(compiled(mode, solve)(array(mode, b)))
    expected = np.linalg.solve(A.toarray().astype(float), b)
    assert np.linalg.norm(x - expected) <= (1e-3 if dtype == "float32" else 1e-8) * np.linalg.norm(expected)


@pytest.mark.parametrize("periodic", [False, True])
def test_saved_and_moved(periodic: bool, tmp_path: Path) -> None:
    A = diffusion(waves((12, 13), 0.9, periodic), "P" if periodic else "N") + 0.01 * sp.eye_array(156)
    M = made(A, (12, 13))
    M.save(tmp_path / "M.npz")
    r = rng.standard_normal(156)
    np.testing.assert_array_equal(krylix.load_preconditioner(tmp_path / "M.npz") @ r, M @ r)
    for mode in EAGER:
        like = array(mode, r)
        np.testing.assert_allclose(to_numpy(M.to(library(mode), like) @ like), M @ r, rtol=1e-9, atol=1e-11)


def far() -> sp.csr_array:
    A = diffusion(np.ones((10, 12)), "D")
    return sp.csr_array(A + 0.1 * (sp.eye_array(120, k=3) + sp.eye_array(120, k=-3)))


REFUSED = {
    "far": (far, {"grid": (10, 12)}, UnsupportedOperation, r"at a distance of \(0, 3\)"),
    "another size": (far, {"grid": (10, 13)}, ValueError, "grid"),
    "a batch": (lambda: [far(), far()], {"grid": (10, 12)}, UnsupportedOperation, "batch.*multigrid"),
    "NaN": (lambda: far() * np.nan, {"grid": (120,)}, (ValueError, UnsupportedOperation), "NaN|distance"),
    "no such setting": (far, {"cycle": "V"}, ValueError, "no setting cycle"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    make, settings, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        preconditioner(make(), "fast", **settings)


def test_traced_values_are_refused() -> None:
    A = krylix.as_operator(diffusion(np.ones((10, 12)), "D"), array("jax-jit", np.zeros(120)))

    def solve(values: Any) -> Any:
        M = preconditioner(A.with_values(values), "fast", grid=(10, 12))
        return M @ values[:120]

    with pytest.raises(UnsupportedOperation, match=r"when a program runs.*multigrid"):
        compiled("jax-jit", solve)(A.values)


@pytest.mark.parametrize(("kind", "coefficients"), [
    ("fast", lambda: waves((76, 75))), ("multigrid", lambda: np.exp(rng.standard_normal((76, 75)))),
    ("multigrid", lambda: np.kron(10.0 ** rng.uniform(-2, 2, (4, 5)), np.ones((19, 15)))),
    ("multigrid", lambda: np.where(rng.random((76, 75)) < 0.1, 0.0, 1.0)),
], ids=["smooth", "noise", "jumps", "obstacles"])  # fmt: skip
def test_auto_takes_it_for_smooth_coefficients(kind: str, coefficients: Callable[[], np.ndarray]) -> None:
    """Eagerly; in compiled functions runs count more than compiling."""
    k = coefficients()
    A = diffusion(k, "D")
    function = stencil_of(A, k.shape)
    b = A @ rng.standard_normal(k.size)
    result = linear_solve(function, b.reshape(k.shape), method="CG", preconditioner="auto", rtol=1e-8)
    assert result.preconditioner == kind and int(result.iterations) <= 20
    assert np.linalg.norm(A @ result.x.reshape(-1) - b) <= 1.01e-8 * np.linalg.norm(b)


def stencil_of(A: sp.csr_array, shape: tuple[int, ...]) -> Function:
    """The same as a function that can be traced, on the grid."""
    return lambda u: (A @ u.reshape(-1)).reshape(shape)


@pytest.mark.parametrize("boundary", ["D", "N", "P"])
@pytest.mark.parametrize("corners", [False, True])
def test_a_few_planes_never_reject_what_is_near(corners: bool, boundary: str) -> None:
    shape, said = (11, 9), 0
    for seed in range(40):
        own = np.random.default_rng(seed)
        ramps = [np.cos(own.uniform(0, 3) * np.linspace(0, 1, n)) for n in shape]
        k = np.exp(own.choice([0.1, 0.5, 2, 6]) * np.add.outer(*ramps))
        k *= np.exp(own.choice([0, 0.05, 1.5]) * own.standard_normal(shape))
        A = sp.csr_array(diffusion(k, boundary) * own.choice([1.0, -1.0, 1e150]))
        if corners:
            A = sp.csr_array(A + np.abs(A.data).min() * across_corners(shape, boundary == "P"))
        couplings = couplings_of(krylix.as_operator(A), shape).symmetrised()
        if is_far(couplings, 0.2):
            said += 1
            assert nearby(couplings, 0.2).spread > 0.2
    assert 0 < said < 40


@pytest.mark.parametrize("boundary", ["D", "N", "P"])
@pytest.mark.parametrize("shape", [(11, 9), (7, 6, 5)])
@pytest.mark.parametrize("part", [1, 2**17])
def test_taken_apart(part: int, shape: tuple[int, ...], boundary: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by SciPy, for few and for many planes at a time; means along lines, and the scaling."""
    monkeypatch.setattr(detect, "PART", part)
    k = np.exp(np.random.default_rng(1).standard_normal(shape))
    A = sp.csr_array(diffusion(k, boundary) + sp.diags_array(k.reshape(-1)))
    couplings = couplings_of(krylix.as_operator(A), shape)
    unit = sp.eye_array(A.shape[0], format="csr")
    places = np.arange(A.shape[0]).reshape(shape)
    root = np.sqrt(around(couplings, means(couplings)))
    for D in (None, root):
        S = unit if D is None else sp.diags_array(1 / D.reshape(-1))
        scaled = sp.csr_array(S @ A @ S)
        up, rows, lines = couplings_by_axis(couplings, D)
        np.testing.assert_allclose(rows.reshape(-1), scaled.sum(axis=1), atol=1e-12)
        for axis, line in enumerate(lines):
            next_ones = np.roll(places, -1, axis)
            own = np.array([scaled[i, j] for i, j in zip(places.flat, next_ones.flat, strict=True)]).reshape(shape)
            np.testing.assert_allclose(up[axis], own, atol=1e-13)
            others = tuple(a for a in range(len(shape)) if a != axis)
            np.testing.assert_allclose(line.up, own.mean(axis=others), atol=1e-13)
            shifted = rows.mean(axis=others) - rows.mean() * (len(shape) - 1) / len(shape)
            np.testing.assert_allclose(line.rows, shifted, atol=1e-12)
            assert line.ring == (boundary == "P")
    sizes_along = [np.abs(A[places.flat, np.roll(places, -1, a).flat]) for a in range(len(shape))]
    exact = [float(np.mean(s[s > 0])) for s in sizes_along]
    np.testing.assert_allclose(means(couplings), exact)
    found = np.zeros(shape)
    for axis, mean in enumerate(exact):
        both = [np.abs(A[places.flat, np.roll(places, s, axis).flat]).reshape(shape) for s in (1, -1)]
        found += sum(both) / np.maximum(sum((b > 0).astype(int) for b in both), 1) / mean / len(shape)
    np.testing.assert_allclose(around(couplings, exact), found)


def test_points_without_couplings_have_a_size_of_one() -> None:
    """Also along one axis only, where the others tell."""
    k = np.ones((6, 5))
    k[2:4], k[:, 3] = 0, 0
    couplings = couplings_of(krylix.as_operator(sp.csr_array(diffusion(k, "N"))), k.shape)
    found = around(couplings, means(couplings))
    assert np.isfinite(found).all() and np.all(found > 0)
    alone = sum(np.abs(a[0]) for s, a in couplings.values.items() if any(s)) == 0
    assert alone.any() and np.all(found[alone] == 1)
    apart = couplings_of(krylix.as_operator(sp.eye_array(30, format="csr")), (6, 5))
    assert means(apart) == [0, 0] and np.all(around(apart, [0, 0]) == 1)


@pytest.mark.parametrize("units", [1e-290, 1e-100, 1e100, 1e290])
def test_units_play_no_role(units: float) -> None:
    A = sp.csr_array(diffusion(waves((30, 28)), "D"))
    power = 2.0 ** np.round(np.log2(units))
    found, other = (nearby(couplings_of(krylix.as_operator(c * A), (30, 28))) for c in (1.0, power))
    assert other.size == found.size * power and other.distance == found.distance and other.spread == found.spread
    assert other.left == found.left
    for own, same in zip(found.sum.along, other.sum.along, strict=True):
        np.testing.assert_array_equal(own.toarray(), same.toarray())


def test_tiny_couplings_along_an_axis() -> None:
    """Whose inverse is no number, beside points without any."""
    shape = (8, 7)
    k = np.ones(shape)
    k[4] = 0
    along = couplings_of(krylix.as_operator(diffusion(k, "N")), shape)
    tiny = along.with_values({s: a * 1e-310 if s[1] else a for s, a in along.values.items()})
    found = around(tiny, means(tiny))
    assert np.isfinite(found).all() and found.max() < 2


@pytest.mark.parametrize("name", ["blocks", "a wall"])
def test_a_few_planes_show_jumps(name: str) -> None:
    shape = (24, 20)
    k = np.kron(10.0 ** np.random.default_rng(3).uniform(-2, 2, (4, 4)), np.ones((6, 5)))
    if name == "a wall":
        k = np.ones(shape)
        k[6:7, :15] = 0
    assert is_far(couplings_of(krylix.as_operator(diffusion(k, "D")), shape).symmetrised(), 0.2)


def test_auto_takes_multigrid_in_compiled_functions() -> None:
    k = waves((76, 75))
    A = diffusion(k, "D")
    kinds = []

    def solve(b: Any) -> Any:
        result = linear_solve(stencil_of(krylix.as_operator(A, b), k.shape), b, method="CG", preconditioner="auto")
        kinds.append(result.preconditioner)
        return result.x

    compiled("jax-jit", solve)(array("jax-jit", np.ones(k.shape)))
    assert kinds[-1] == "multigrid"


@pytest.mark.parametrize("size", [1e-170, 1e-160, 1e154, 1e160])
def test_units_of_any_size(size: float) -> None:
    """Coefficients that vary along one axis, whose squares are out of range: the same but for the units."""
    grid = (20, 24)
    k = np.exp(np.sin(np.arange(20.0)))[:, None] * np.ones(grid)
    A = sp.csr_array(diffusion(k, "D"))
    b = np.random.default_rng(0).standard_normal(A.shape[0])
    plain = krylix.preconditioner(A, "fast", grid=grid) @ b
    found = krylix.preconditioner(sp.csr_array(size * A), "fast", grid=grid) @ (size * b)
    assert np.linalg.norm(A @ plain - b) <= 0.1 * np.linalg.norm(b)
    np.testing.assert_allclose(found, plain, rtol=1e-9)
