"""Seconds of sparse factors by each library that is installed: the first ones, those of other numbers, 40 solves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from krylix import clear_setup_cache, linear_solve, prepare, setup_cache
from krylix.solvers import SparseDirect, find_method
from krylix.solvers.factors.sparse import PROVIDERS

from .measure import compare, per_call, seconds
from .settings import Settings
from .table import Row

SOLVES = 40
_REFACTOR = {"SuperLU": 0.7}  # budgets, of 0.25 elsewhere, of the first factors
_KEPT = 1.3


def rows(settings: Settings) -> Iterator[Row]:
    repeats = min(settings.repeats, 5)
    for name, make in matrices(settings.grid_of_blocks).items():
        A = sp.csr_array(make())
        what = f"{name}, {A.shape[0]} unknowns"
        for library, provider in PROVIDERS.items():
            if not provider.is_installed():
                yield Row(f"{what}: factors by {library}", library, missing="not installed")
                continue
            yield from rows_of(what, A, library, repeats)
        yield from plain_solves(what, A, repeats)


def rows_of(what: str, A: Any, library: str, repeats: int) -> Iterator[Row]:
    """The first factors beside those of SuperLU as krylix calls it, and factors of other numbers beside the first."""
    served = made_by(A, library)
    name = library if served == library else f"{library}, served by {served}"
    renewed, method = Renewed(A), SparseDirect(library)

    def first() -> float:
        return renewed.first(method)

    if library != "SuperLU":
        yield Row(
            f"{what}: factors by {name}", "SuperLU", compare(first, lambda: renewed.first("scipy-direct"), repeats)
        )
    measured = compare(lambda: renewed.again(method), first, repeats)
    yield Row(f"{what}: other numbers by {name}", "the first", measured, budget=_REFACTOR.get(served, 0.25))


class Renewed:
    """Seconds of the first factors, when no others with their pattern are there, and of those of other numbers."""

    def __init__(self, A: Any) -> None:
        self.A = A
        self.numbers = cycle([sp.csr_array(k * A) for k in (1.5, 0.7)])
        self.solver: Any = None

    def first(self, method: Any) -> float:
        """Lets the last solver go, and makes another one."""
        self.solver = None
        clear_setup_cache()
        return seconds(lambda: self._make(method))

    def again(self, method: Any) -> float:
        """Other numbers for the last solver, which is one of this method."""
        if self.solver is None or self.solver.method != find_method(method):
            self._make(method)
        A = next(self.numbers)
        return seconds(lambda: self.solver.update(A))

    def _make(self, method: Any) -> None:
        with setup_cache(False):
            self.solver = prepare(self.A, method=method)


def made_by(A: Any, library: str) -> str:
    """What served where this library was asked for: SuperLU, where it refused."""
    factors = prepare(A, method=SparseDirect(library)).preconditioner
    return str(getattr(factors, "made_by", library)).split(",")[0]


def plain_solves(what: str, A: Any, repeats: int) -> Iterator[Row]:
    """`linear_solve` with one matrix in a row, which keeps the factors, beside factors of SuperLU that are kept."""
    given = np.random.default_rng(0).standard_normal((SOLVES, A.shape[0]))

    def plain() -> None:
        with setup_cache(True):
            for b in given:
                linear_solve(A, b, method="sparse-direct")

    def kept() -> None:
        lu = spl.splu(sp.csc_matrix(A))
        for b in given:
            lu.solve(b)

    yield Row(
        f"{what}: {SOLVES} plain solves", "splu kept", compare(per_call(plain), per_call(kept), repeats), budget=_KEPT
    )


def matrices(grid: int) -> dict[str, Callable[[], Any]]:
    """Names, and what makes the matrices; those of three axes have about as many entries in their factors."""
    side = max(round(grid**0.6) - 2, 4)
    return {
        "Poisson, 2 axes": lambda: poisson(grid, 2),
        "Poisson, 3 axes": lambda: poisson(side, 3),
        "convection, 2 axes": lambda: poisson(grid, 2) + flow(grid, 2),
        "convection, 3 axes": lambda: poisson(side, 3) + flow(side, 3),
        "Helmholtz": lambda: poisson(grid, 2) - 0.05 * sp.eye_array(grid**2),
        "Stokes": lambda: stokes(grid // 2),
        "elasticity": lambda: elasticity(grid // 2),
    }


def along(matrix: Any, grid: int, axes: int, axis: int) -> Any:
    """A matrix of one axis on a grid."""
    return sp.kron(sp.kron(sp.eye_array(grid**axis), matrix), sp.eye_array(grid ** (axes - 1 - axis)))


def poisson(grid: int, axes: int) -> Any:
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(grid, grid))
    return sum(along(line, grid, axes, axis) for axis in range(axes))


def flow(grid: int, axes: int) -> Any:
    """Upwind differences, stronger along later axes."""
    line = sp.diags_array([-1.0, 1.0], offsets=[-1, 0], shape=(grid, grid)) * (30 / grid)
    return sum(along((axis + 1) * line, grid, axes, axis) for axis in range(axes))


def stokes(grid: int) -> Any:
    """Staggered velocities and pressure: symmetric, indefinite, a weak compressibility."""
    difference = sp.diags_array([-1.0, 1.0], offsets=[0, 1], shape=(grid, grid))
    gradients = [along(difference, grid, 2, axis) for axis in range(2)]
    A = poisson(grid, 2)
    compress = -1e-6 * sp.eye_array(grid**2)
    return sp.block_array(
        [[A, None, gradients[0]], [None, A, gradients[1]], [gradients[0].T, gradients[1].T, compress]]
    )


def elasticity(grid: int) -> Any:
    from pyamg.gallery import linear_elasticity

    return linear_elasticity((grid, grid), format="csr")[0]
