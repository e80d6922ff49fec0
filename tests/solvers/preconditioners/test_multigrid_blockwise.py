"""Levels of multigrid that are made part by part: the numbers of the whole grid, to the last digit."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from krylix.backends import get_backend
from krylix.solvers.preconditioners.multigrid import grid_levels, interpolation
from krylix.solvers.preconditioners.multigrid.grid_levels import made_level
from krylix.solvers.preconditioners.multigrid.interpolation import WeaklyCoupled
from krylix.sparse.operators.couplings import Couplings, neighbours

HOST = get_backend("numpy")
# rows of a part and its rows around it are far less than those of the grids
GRIDS = [((40, 6), (False, False)), ((41, 7), (False, False)), ((40, 8), (True, False)), ((43, 6), (False, True)),
         ((38, 5, 4), (False, False, False)), ((36, 6, 5), (True, True, False)), ((33,), (False,))]  # fmt: skip


def random_couplings(
    grid: tuple[int, ...], rings: tuple[bool, ...], dtype: str, systems: int | None, hermitian: bool
) -> Couplings:
    """Of any signs, with points that are coupled to nothing, and some with no entries at all."""
    rng = np.random.default_rng(3)
    shape = (systems or 1, *grid)
    values: dict[tuple[int, ...], Any] = {}
    alive = rng.random(shape) > 0.2
    for s in neighbours(len(grid)):
        a = rng.uniform(-1, 0.05, shape) + (1j * rng.uniform(-0.2, 0.2, shape) if dtype.startswith("c") else 0)
        for axis, step in enumerate(s, 1):
            edge: list[Any] = [slice(None)] * a.ndim
            edge[axis] = -1 if step > 0 else 0
            if step and not rings[axis - 1]:
                a[tuple(edge)] = 0
        values[s] = np.where(alive, a, 0)
    A = Couplings(HOST, grid, rings, values, systems)
    values = {s: np.where(A.moved(1.0 * alive, s) > 0, a, 0) for s, a in A.values.items()}
    values[A.here] = np.where(alive, 3.0 + rng.random(shape), rng.integers(0, 2, shape))
    A = A.with_values({s: a.astype(dtype) for s, a in values.items()})
    return A.symmetrised() if hermitian else A


@pytest.mark.parametrize("grid, rings", GRIDS)
@pytest.mark.parametrize(
    ("dtype", "systems", "hermitian", "kept"),  # every two values meet
    [
        ("float64", None, True, "single"),
        ("float64", None, False, "double"),
        ("complex128", 2, True, "double"),
        ("complex128", 2, False, "single"),
    ],
)
def test_same_as_at_once(
    grid: tuple[int, ...],
    rings: tuple[bool, ...],
    dtype: str,
    systems: int | None,
    hermitian: bool,
    kept: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    A = random_couplings(grid, rings, dtype, systems, hermitian)
    within = np.dtype({"float64": "float32", "complex128": "complex64"}[dtype] if kept == "single" else dtype)
    for factors in {(2,) * len(grid), (1, *(2,) * (len(grid) - 1)), (2, *(1,) * (len(grid) - 1))} - {(1,)}:
        make = partial(made_level, factors=factors, hermitian=hermitian, rounding=1e-12)
        whole, whole_coarse, points = make(A)
        monkeypatch.setattr(grid_levels, "_LEAST_IN_BLOCKS", 0)
        monkeypatch.setattr(grid_levels, "_ROWS_OF_A_BLOCK", 5)
        found, weak_points = grid_levels.blockwise_setup(make, A, factors, within)
        assert found is not None and weak_points == WeaklyCoupled.of(points, slice(None))
        level, coarse = found
        assert type(level.A.values) is not type(whole.A.values)  # it was made in parts indeed
        np.testing.assert_array_equal(level.scale, whole.scale)
        np.testing.assert_array_equal(level.P.weights, whole.P.weights.astype(within))
        assert level.A.diagonal.dtype == level.P.weights.dtype == within and level.P.shape == whole.P.shape
        for ours, theirs, kind in ((level.A, whole.A, within), (coarse, whole_coarse, np.dtype(dtype))):
            assert (ours.grid, ours.periodic, ours.systems) == (theirs.grid, theirs.periodic, theirs.systems)
            assert {*ours.values} == {*theirs.values}
            for s, a in theirs.values.items():
                np.testing.assert_array_equal(ours.values[s], a.astype(kind), str(s))


def test_gives_up_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first part that loses too many points; the others are not made."""
    monkeypatch.setattr(grid_levels, "_LEAST_IN_BLOCKS", 0)
    monkeypatch.setattr(grid_levels, "_ROWS_OF_A_BLOCK", 5)
    A, count = random_couplings((40, 6), (False, False), "float64", None, True), 0

    def make(part: Couplings) -> Any:
        nonlocal count
        count += 1
        return made_level(part, (2, 2), True, 1e-12)

    found, weak_points = grid_levels.blockwise_setup(
        make, A, (2, 2), np.dtype(float), lambda weak_points: weak_points.points > 0
    )
    assert found is None and count == 1 and weak_points.points == 2 * 5 * 3


@pytest.mark.parametrize("grid, rings", GRIDS)
@pytest.mark.parametrize("dtype, systems", [("float32", None), ("complex128", 2)])
def test_interpolation_by_some_rows(
    grid: tuple[int, ...], rings: tuple[bool, ...], dtype: str, systems: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up and down, for one vector and several, as if all rows were taken at once, and as the dense matrix does."""
    rng = np.random.default_rng(4)
    for factors in {(2,) * len(grid), (1, *(2,) * (len(grid) - 1)), (2, *(1,) * (len(grid) - 1))} - {(1,)}:
        coarse = tuple(-(-n // f) for n, f in zip(grid, factors))
        W = rng.standard_normal((len(interpolation.interpolation_places(factors)), systems or 1, *coarse)).astype(dtype)
        P = interpolation.Interpolation(HOST, W, grid, factors, rings, systems is not None)
        dense = P.dense() if systems else P.dense()[None]
        for rows in (systems,) if systems else (1, 3):
            u, v = (rng.standard_normal((rows, n)).astype(dtype) for n in P.shape[::-1])
            whole = P.apply(u), P.T.apply(v)
            monkeypatch.setattr(interpolation, "_PART", 1)
            for ours, theirs, image in zip((P.apply(u), P.T.apply(v)), whole, (u, v), strict=True):
                np.testing.assert_array_equal(ours, theirs)
                A = np.broadcast_to(
                    dense if image is u else dense.swapaxes(1, 2), (rows, *ours.shape[1:], image.shape[1])
                )
                expected = np.einsum("sij,sj->si", A, image)
                np.testing.assert_allclose(ours, expected, atol=1e-5 if dtype == "float32" else 1e-12)
            monkeypatch.undo()


def test_interpolation_of_other_dtypes_and_batches() -> None:
    """Integers and lower precisions are not rounded; one vector for a batch of matrices is refused."""
    rng = np.random.default_rng(6)
    W = rng.standard_normal((len(interpolation.interpolation_places((2,))), 3, 5))
    P = interpolation.Interpolation(HOST, W[:, :1], (9,), (2,), (False,))
    for x in (np.arange(5)[None], rng.standard_normal((1, 5)).astype(np.float32)):
        assert P.apply(x).dtype == np.float64
        np.testing.assert_allclose(P.apply(x)[0], P.dense() @ x[0], atol=1e-14)
    batch = interpolation.Interpolation(HOST, W, (9,), (2,), (False,), batch=True)
    for operator, n in ((batch, 5), (batch.T, 9)):
        with pytest.raises(ValueError, match="broadcast"):
            operator.apply(np.ones((1, n)))
