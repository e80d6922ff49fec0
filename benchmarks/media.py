"""Seconds of `linear_solve` to 1e-8 in porous media, nothing named: beside the best of pyamg, and hypre's BoomerAMG."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from krylix import linear_solve

from . import media_problems as media
from .hypre import Hypre, missing_hypre
from .measure import Sampler, compare, per_call
from .settings import Settings
from .table import Row

RTOL = 1e-8
_MOST = 150  # iterations that a peer gets
_HYPRE, _PYAMG = 1.1, 0.5  # budgets


class Medium(NamedTuple):
    """A matrix on a grid."""

    A: sp.csr_array
    grid: tuple[int, ...]


def rows(settings: Settings) -> Iterator[Row]:
    settings = replace(settings, repeats=min(settings.repeats, 3))
    for name, make in media_of(settings.grid_of_media, settings.grid_of_media_in_3d).items():
        medium = make()
        b = np.random.default_rng(7).standard_normal(medium.A.shape[0])
        yield from rows_of(name, medium, b, settings.repeats)


def media_of(n: int, box: int) -> dict[str, Callable[[], Medium]]:
    """Name -> what makes the medium; n: of the sides in two dimensions, whose double is taken, too."""
    square, cube = (n, n), (box,) * 3

    def of(k: np.ndarray) -> Medium:
        return Medium(media.flow(k), k.shape)

    found: dict[str, Callable[[], Medium]] = {}
    for sigma in (1, 2, 3):
        found[f"lognormal {sigma}, {n}²"] = lambda s=sigma: of(media.lognormal(square, s))
    found[f"lognormal 3, {2 * n}²"] = lambda: of(media.lognormal((2 * n, 2 * n), 3))
    for sigma in (1, 2, 3):
        found[f"lognormal {sigma}, {box}³"] = lambda s=sigma: of(media.lognormal(cube, s))
    return found | {
        f"channels 1e6, {n}²": lambda: of(media.channels(square, 1e6)),
        f"channels 1e6, {box}³": lambda: of(media.channels(cube, 1e6)),
        f"cells of 1 and 1e4, {n}²": lambda: of(media.binary(square, 1e4)),
        f"blocks of 3 cells, 1 and 1e4, {n}²": lambda: of(media.binary(square, 1e4, 3)),
        f"cells of 1 and 1e4, {box}³": lambda: of(media.binary(cube, 1e4)),
        f"14² blocks of 1 and 1e4, {n}²": lambda: of(media.chequered(square, 1e4)),
        f"lines of 1e4, {n}²": lambda: of(media.lines(square, 1e4)),
        f"walls of 1e-4, {n}²": lambda: of(media.lines(square, 1e-4)),
        f"fractures of 1e4, {n}²": lambda: of(media.fractures(square, 1e4)),
        f"bilinear elements, blocks of 2 cells, {n}²": lambda: Medium(*media.bilinear(media.binary(square, 1e4, 2))),
    }


def rows_of(name: str, medium: Medium, b: np.ndarray, repeats: int) -> Iterator[Row]:
    """Set-up and solve of both, measured in turns."""
    result, ours = krylix(medium, b), per_call(lambda: krylix(medium, b))
    what = f"{name}: {int(result.iterations)} iterations"
    if missing_hypre():
        yield Row(what, "hypre", missing="not installed")
    else:
        theirs = Hypre(medium.A, b, three=len(medium.grid) == 3, rtol=RTOL)
        yield Row(what, f"hypre, {theirs.iterations} iterations", compare(ours, theirs, repeats), budget=_HYPRE)
    peer, sampler = best_of_pyamg(medium.A, b)
    yield Row(what, peer, compare(ours, sampler, repeats), budget=_PYAMG)


def krylix(medium: Medium, b: np.ndarray) -> Any:
    """As a user without settings gets it."""
    return linear_solve(medium.A, b, rtol=RTOL)


def best_of_pyamg(A: sp.csr_array, b: np.ndarray) -> tuple[str, Sampler]:
    """The quickest of what converges: smoothed aggregation, Ruge-Stüben with both passes."""
    import pyamg

    own = sp.csr_matrix(A)
    solvers: dict[str, Callable[[], Any]] = {
        "SA": lambda: pyamg.smoothed_aggregation_solver(own),
        "Ruge-Stüben, two passes": lambda: pyamg.ruge_stuben_solver(own, CF=("RS", {"second_pass": True})),
    }
    found = []
    for name, make in solvers.items():
        count: list[float] = []
        x = _solved(make, b, count)
        if np.linalg.norm(b - A @ x) <= 1.1 * RTOL * np.linalg.norm(b):
            sampler = per_call(lambda make=make: _solved(make, b, []))  # type: ignore[misc]
            found.append((sampler(), f"pyamg, {name}, {len(count) - 1} iterations", sampler))
    if not found:
        return f"pyamg has not converged in {_MOST} iterations", lambda: float("nan")
    return min(found, key=lambda one: one[0])[1:]


def _solved(make: Callable[[], Any], b: np.ndarray, residuals: list[float]) -> np.ndarray:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        x: np.ndarray = make().solve(b, tol=RTOL, accel="cg", maxiter=_MOST, residuals=residuals)
    return x
