"""Diagonals that are compared with those of a sum along the axes: the same as dense matrices say, or left open."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from cells import in_turn
from krylix import matrix_from_function
from krylix.solvers.fast import spectra as eigenvalues
from krylix.solvers.fast.detect import Separable, equals_sum, separable
from krylix.sparse import DIA, SparseMatrix, Stencil

GRIDS = [(6, 5), (5, 4, 3), (2, 6)]
rng = np.random.default_rng(5)


def kronecker_sum(grid: tuple[int, ...], kind: str, dtype: str) -> np.ndarray:
    """Of tridiagonal matrices, and rings where so asked."""
    total = 0
    for axis, n in enumerate(grid):
        if kind == "constant":
            A = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
        else:
            A = np.diag(rng.random(n) + 3) - np.diag(rng.random(n - 1), 1) - np.diag(rng.random(n - 1), -1)
        if kind == "ring" and n > 2:
            A[0, -1] = A[-1, 0] = -0.5
        if dtype.startswith("complex"):
            A = A * (1 + 0.5j)
        before, after = int(np.prod(grid[:axis])), int(np.prod(grid[axis + 1 :]))
        total = total + np.kron(np.kron(np.eye(before), A), np.eye(after))
    return np.asarray(total, dtype)


def diagonals(A: np.ndarray, grid: tuple[int, ...], outside: float) -> SparseMatrix:
    """With some number where the diagonals leave the matrix."""
    n = len(A)
    where = sp.coo_array(A)
    offsets = sorted({*(where.col - where.row).tolist(), 0, 1, n - 1})
    values = np.full((len(offsets), n), outside, A.dtype)
    for row, offset in zip(values, offsets, strict=True):
        row[max(0, -offset) : n - max(0, offset)] = np.diagonal(A, offset)
    return DIA(values, offsets, (n, n)).on_grids(grid, grid)


@pytest.mark.parametrize(
    ("matrix", "numbers"),
    in_turn(
        itertools.product(GRIDS, ["constant", "variable", "ring"]),
        itertools.product(["float32", "float64", "complex128"], [0, 5, np.inf, np.nan]),
    ),
)
def test_sums_are_found_and_others_are_not(matrix: tuple[tuple[int, ...], str], numbers: tuple[str, float]) -> None:
    """Each entry of a sum, and each place on its diagonals, also between lines, changed by a little and by more."""
    (grid, kind), (dtype, outside) = matrix, numbers
    A = kronecker_sum(grid, kind, dtype)
    eps, size = float(np.finfo(dtype).eps), float(np.abs(A).max())

    def is_sum(A: np.ndarray) -> bool:
        matrix = diagonals(A, grid, outside)
        return isinstance(separable(matrix, matrix), Separable)

    assert is_sum(A)
    steps = {int(o) for o in diagonals(A, grid, 0).structure.offsets}  # type: ignore[attr-defined]
    corner = [np.ravel_multi_index((0,) * k + (i,) + (0,) * (len(grid) - k - 1), grid)
              for k, n in enumerate(grid) for i in range(n)]  # fmt: skip
    # but for those on the lines along the axes that the parts are read from
    places = [(i, j) for i, j in itertools.product(range(len(A)), repeat=2)
              if j - i in steps and not (i in corner and j in corner)]  # fmt: skip
    for i, j in rng.permutation(places)[:10]:
        changed = A.copy()
        changed[i, j] += eps * size
        assert is_sum(changed), (i, j)
        for more in (1e4 * eps, 1e-2, 1e2):
            changed[i, j] = A[i, j] + more * size
            assert not is_sum(changed), (i, j, more)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_is_no_sum(value: float) -> None:
    A = kronecker_sum((6, 5), "constant", "float64")
    for i, j in ((0, 0), (8, 8), (8, 9), (29, 28), (7, 12)):
        changed = A.copy()
        changed[i, j] = value
        matrix = diagonals(changed, (6, 5), 0)
        assert isinstance(separable(matrix, matrix), str), (i, j)


@pytest.mark.parametrize("factor", [np.inf, 5e307])
def test_sums_beyond_the_range_are_refused(factor: float) -> None:
    """Also where all entries are those of a sum, digit by digit."""
    A = kronecker_sum((6, 5), "constant", "float64")
    with np.errstate(all="ignore"):
        changed = np.where(A < 0, factor, A) if np.isinf(factor) else factor * A
    matrix = diagonals(changed, (6, 5), 0)
    assert "NaN or infinite" in str(separable(matrix, matrix))


def test_it_needs_no_product() -> None:
    """A sum is seen digit by digit, and a difference at once; rounding leaves it open."""
    A = kronecker_sum((6, 5), "constant", "float64")
    structure = diagonals(A, (6, 5), 0)
    offsets, values = structure.structure.offsets, np.array(structure.arrays()[0])  # type: ignore[attr-defined]
    along = [(axis, step, -1.0) for axis in (0, 1) for step in (-1, 1)]
    for change, expected in ((0.0, True), (1e-15, None), (1e-3, False)):
        values[offsets.index(0), 13] = 4 + change
        assert equals_sum(values, offsets, (6, 5), 4.0, along, 1e-12) is expected


def five_points(u: Any, xp: Any) -> Any:
    p = xp.pad(u, 1)
    return 4.3 * u - p[2:, 1:-1] - 2 * p[:-2, 1:-1] - p[1:-1, 2:] - p[1:-1, :-2]


def on_a_torus(u: Any, xp: Any) -> Any:
    return 4 * u - sum(xp.roll(u, s, axis) for s in (1, -1) for axis in (0, 1))


def layers(u: Any, xp: Any) -> Any:
    return xp.concatenate([2 * u[:3], 5 * u[3:]]) - xp.pad(u, ((1, 0), (0, 0)))[:-1]


def corner(u: Any, xp: Any) -> Any:
    return 4 * u + xp.pad(u, 1)[2:, 2:]


def patch(u: Any, xp: Any) -> Any:
    return 4 * u - 2 * xp.pad(u[:3, :2], ((1, u.shape[0] - 4), (0, u.shape[1] - 2)))


@pytest.mark.needs("jax")
@pytest.mark.parametrize("function", [five_points, on_a_torus, layers, corner, patch])
def test_stencils_of_numbers_need_no_product(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each stands at all points of the other axes."""
    jnp, grid = pytest.importorskip("jax.numpy"), (7, 5)
    matrix: Any = matrix_from_function(lambda u: function(u, jnp), jnp.zeros(grid, "float32"))[0]
    assert isinstance(matrix, Stencil)
    host = matrix.for_host()[1](())
    found = separable(matrix, host)
    assert isinstance(found, Separable) == (function not in (corner, patch))
    if isinstance(found, Separable):
        total = found.shift * np.eye(35) + np.kron(found.along[0].toarray(), np.eye(5))
        np.testing.assert_array_equal(total + np.kron(np.eye(7), found.along[1].toarray()), host.dense())
        monkeypatch.setattr(Stencil, "apply", None)
        assert isinstance(separable(matrix, host), Separable)


@pytest.mark.parametrize("planes", [1, 2, 5])
def test_eigenvalues_in_parts(planes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eigenvalues, "_PART", planes * 12)
    spectra = [rng.normal(size=n) for n in (5, 4, 3)]
    full = spectra[0][:, None, None] + spectra[1][:, None] + spectra[2] + 0.3
    np.testing.assert_allclose(np.concatenate(list(eigenvalues.sums_in_parts(spectra, 0.3))), full)
    least, at = eigenvalues.nearest_to_zero(spectra, 0.3)
    assert abs(full[at]) == np.min(np.abs(full)) and abs(least - full[at]) < 1e-15
    ends = eigenvalues.extremes_of(lambda: eigenvalues.sums_in_parts(spectra, 0.3))
    np.testing.assert_allclose(ends, (full.min(), full.max()))
