"""Hierarchies by pyamg, on the host: aggregates or coarse points, and prolongations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from .classical.rows import on_diagonal, row_sums
from .classical.rule import ClassicalRule
from .settings import AmgSettings

Tentative: TypeAlias = sp.csr_array | ClassicalRule  # a prolongation before smoothing, or a rule of interpolation
_SEED = 5
_DOMINANT = 1.5  # times the diagonal entry: rows of a smaller sum of absolute values


class HostLevel(NamedTuple):
    """SciPy matrices of a level: A, and P from and R to the next coarser one; both None on the coarsest.

    `tentative` is the prolongation before smoothing, or P; of classical coarsening the rule of its interpolation. `rho`
    bounds the eigenvalues of D⁻¹ A, if computed. Of classical coarsening `splitting` is the mask of the coarse
    unknowns. `exact`: fine unknowns are eliminated, P and R are exact.
    """

    A: sp.csr_array
    P: sp.csr_array | None = None
    R: sp.csr_array | None = None
    tentative: Tentative | None = None
    rho: float | None = None
    splitting: np.ndarray | None = None
    exact: bool = False


def levels_of_pyamg(solver: Any) -> list[HostLevel]:
    """Levels of a `MultilevelSolver`, without empty ones."""
    found: list[HostLevel] = []
    for level, coarser in zip(solver.levels, [*solver.levels[1:], None]):
        if coarser is None or coarser.A.shape[0] == 0:
            return [*found, HostLevel(without_duplicates(level.A))]
        P = without_duplicates(level.P)
        found.append(HostLevel(without_duplicates(level.A), P, without_duplicates(level.R), P))
    return found


def levels_by_pyamg(
    A: sp.csr_array, settings: AmgSettings, hermitian: bool, near_nullspace: np.ndarray | None, block_size: int
) -> list[HostLevel]:
    """The levels that pyamg makes of A, finest first."""
    with _repeatable():
        return levels_of_pyamg(_solver(A, settings, hermitian, near_nullspace, block_size))


def _solver(
    A: sp.csr_array, settings: AmgSettings, hermitian: bool, near_nullspace: np.ndarray | None, block_size: int
) -> Any:
    import pyamg
    from pyamg.aggregation import adaptive_sa_solver, rootnode_solver

    options: dict[str, Any] = {"max_levels": settings.max_levels, "max_coarse": settings.max_coarse}
    if settings.coarsening == "ruge-stuben":
        strength = ("classical", {"theta": settings.threshold})
        return pyamg.ruge_stuben_solver(A, strength, presmoother=None, postsmoother=None, **options)
    options["strength"] = ("symmetric", {"theta": settings.threshold})
    options["symmetry"] = "hermitian" if hermitian else "nonsymmetric"
    blocks: Any = A if block_size == 1 else sp.bsr_array(A, blocksize=(block_size, block_size))
    if settings.coarsening == "adaptive":
        start = np.ones((A.shape[0], 1), A.dtype) if near_nullspace is None else near_nullspace.astype(A.dtype)
        return adaptive_sa_solver(blocks, initial_candidates=start, **options)[0]
    if near_nullspace is not None:
        options["B"] = near_nullspace.astype(A.dtype)
        options["improve_candidates"] = None
    options |= {"presmoother": None, "postsmoother": None}
    if settings.coarsening == "root-node":
        return rootnode_solver(blocks, **options)
    return pyamg.smoothed_aggregation_solver(blocks, smooth="energy", **options)


def is_diagonal(A: sp.csr_array) -> bool:
    """Is the matrix diagonal?"""
    return A.nnz <= A.shape[0] and bool(np.all(on_diagonal(A)))


def is_solved_by_scaling(A: sp.csr_array, most: int) -> bool:
    """Is A diagonal, or of more than `most` unknowns with diagonal entries of at least twice the rest of their rows?"""
    if is_diagonal(A):
        return True
    if A.shape[0] <= most:
        return False
    return bool(np.all(row_sums(np.abs(A.data), A) <= _DOMINANT * np.abs(A.diagonal())))


def without_duplicates(A: Any) -> sp.csr_array:
    """A in rows, with no place twice."""
    found = sp.csr_array(A)
    found.sum_duplicates()
    return found


@contextmanager
def _repeatable() -> Iterator[None]:
    """Fix the seed of pyamg's random vectors, and restore NumPy's global state after it."""
    state = np.random.get_state()  # noqa: NPY002, as pyamg uses these
    np.random.seed(_SEED)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002
