"""Seconds of whole solves to 1e-8 on meshes and graphs, by AMG: beside the best of pyamg, and hypre's BoomerAMG."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from krylix import linear_solve, preconditioner, rigid_motions

from .hypre import Hypre, missing_hypre
from .measure import Sampler, compare, per_call
from .mesh_problems import Problem, problems
from .settings import Settings
from .table import Row

RTOL = 1e-8
_MOST = 200  # iterations that a peer gets
_HYPRE = {"anisotropy 100:1 at 30°": 1.2, "convection": 1.3, "recirculating convection": 1.3}  # budgets, of 0.9
_PYAMG = 0.7  # the budget beside smoothed aggregation with rigid motions


def rows(settings: Settings) -> Iterator[Row]:
    settings = replace(settings, repeats=min(settings.repeats, 5))
    for name, make in problems(settings.grid_of_meshes).items():
        yield from rows_of(name, make(), settings.repeats)


def rows_of(name: str, problem: Problem, repeats: int) -> Iterator[Row]:
    """Set-up and solve of both, measured in turns."""
    result, ours = krylix(problem), per_call(lambda: krylix(problem))
    what = f"{name}, {problem.A.shape[0]} unknowns: {int(result.iterations)} iterations"
    of_elasticity = problem.points is not None
    if missing_hypre():
        yield Row(what, "hypre", missing="not installed")
    else:
        options = {"symmetric": problem.symmetric, "three": problem.three}
        theirs = Hypre(problem.A, problem.b, unknowns_per_point=problem.unknowns_per_point, rtol=RTOL, **options)
        budget = None if of_elasticity else _HYPRE.get(name, 0.9)
        yield Row(what, f"hypre, {theirs.iterations} iterations", compare(ours, theirs, repeats), budget=budget)
    peer, sampler = best_of_pyamg(problem)
    yield Row(what, peer, compare(ours, sampler, repeats), budget=_PYAMG if of_elasticity else None)


def krylix(problem: Problem) -> Any:
    """AMG with CG, or biCG-stab where A is not symmetric."""
    points = problem.unknowns_per_point
    M = preconditioner(problem.A, "amg", block_size=points if points > 1 else None)
    method = "CG" if problem.symmetric else "biCG-stab"
    return linear_solve(problem.A, problem.b, method=method, preconditioner=M, rtol=RTOL)


def best_of_pyamg(problem: Problem) -> tuple[str, Sampler]:
    """The quickest of what converges: smoothed aggregation (with rigid motions), Ruge-Stüben."""
    import pyamg

    A = sp.csr_matrix(problem.A)
    solvers: dict[str, Callable[[], Any]] = {}
    if problem.points is None:
        solvers["SA"] = lambda: pyamg.smoothed_aggregation_solver(A)
        solvers["Ruge-Stüben"] = lambda: pyamg.ruge_stuben_solver(A)
    else:
        motions = rigid_motions(problem.points)
        vectors, size = motions.reshape(len(motions), -1).T, problem.unknowns_per_point
        solvers["SA, rigid motions"] = lambda: pyamg.smoothed_aggregation_solver(
            A.tobsr((size, size)), B=vectors.copy()
        )
    found = [(peer, run) for peer, make in solvers.items() if (run := _pyamg(problem, make))]
    if not found:
        return "pyamg has not converged", lambda: float("nan")
    return min(((f"pyamg, {peer}, {its} iterations", run) for peer, (its, run) in found), key=lambda one: one[1]())


def _pyamg(problem: Problem, make: Callable[[], Any]) -> tuple[int, Sampler] | None:
    """Iterations and what measures; None if it has not converged."""
    A, b, its = problem.A, problem.b, 0

    def solve() -> np.ndarray:
        nonlocal its
        residuals: list[float] = []
        accel = "cg" if problem.symmetric else "gmres"
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            x = make().solve(b, tol=RTOL, accel=accel, maxiter=_MOST, residuals=residuals)
        its = len(residuals) - 1
        return x

    residual = np.linalg.norm(b - A @ solve()) / np.linalg.norm(b)
    return (its, per_call(solve)) if residual <= 10 * RTOL else None
