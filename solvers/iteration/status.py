"""How the solve of one system ended, and what is said about it."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Status(IntEnum):
    """How the solve of one system ended; `SolveResult.status` holds these numbers."""

    RUNNING = 0
    CONVERGED = 1
    MAX_ITER = 2
    STAGNATED = 3
    BREAKDOWN = 4
    DIVERGED = 5
    CANDIDATE = 6

    @property
    def diverged(self) -> bool:
        """Did the iteration leave the finite numbers, or start outside of them?"""
        return self is Status.DIVERGED


# Inside the loop only: RUNNING, and CANDIDATE (the recurrence says converged; the true residual is still to be seen).

_EXPLANATION = {
    Status.MAX_ITER: "reached the limit of iterations",
    Status.STAGNATED: "stopped making progress before the tolerance, at the limit of this precision or of this method",
    Status.BREAKDOWN: "broke down: a step divided by (nearly) zero or made nothing better, and a restart did not help",
    Status.DIVERGED: "left the finite numbers, or grew beyond what the precision can take back",
}

_ADVICE = {
    Status.MAX_ITER: "raise max_iter, loosen rtol, give a preconditioner (preconditioner='jacobi' or your own), or "
    "factorise (method='scipy-direct'); check that the matrix has what the method needs (CG: symmetric and definite)",
    Status.STAGNATED: "loosen rtol, use double precision, or check that the system has a solution: the matrix may be "
    "singular, and b outside of its range; name its null vectors with nullspace=... (nullspace='constant')",
    Status.BREAKDOWN: "check that the matrix has what the method needs (CG: symmetric and definite) and the "
    "preconditioner too (MINRES: symmetric and positive definite, also where the matrix is indefinite), and that the "
    "system has a solution (name the null vectors of a singular matrix with nullspace=...), or try another method",
    Status.DIVERGED: "check A, b and x0 for NaN and infinity and that the matrix has what the method needs, or try a "
    "direct method",
}

_WITHOUT_SOLUTION = (
    "ask for the least-squares solution with method='LSMR' (in scipy: scipy-lsmr), or check A and b: a pure Neumann "
    "problem needs a b whose sum is zero"
)


def describe(
    method: str,
    status: np.ndarray,
    steps: np.ndarray,
    norm: np.ndarray,
    bound: np.ndarray,
    attainable: np.ndarray,
    *,
    precision: str,
    least_squares: bool = False,
    no_solution: str | None = None,
    singular: np.ndarray | None = None,
) -> str:
    """One sentence for success; for failures also the worst system and what to try, and why there is no solution."""
    kind_of_norm = "normal residual norm" if least_squares else "residual norm"
    status, steps, norm, bound, attainable = map(np.atleast_1d, (status, steps, norm, bound, attainable))
    bound = np.broadcast_to(bound, norm.shape)
    failed = status != Status.CONVERGED
    clause = "" if singular is None else _singular(np.atleast_1d(singular))
    if not failed.any():
        limited = np.any((attainable > 0) & (bound <= attainable))
        return _success(method, steps, norm, bound, kind_of_norm, precision if limited else None) + clause
    with np.errstate(all="ignore"):
        excess = np.where(failed, np.where(np.isfinite(norm), norm / bound, np.inf), -1)
    worst = np.unravel_index(np.argmax(np.nan_to_num(excess, nan=np.inf)), status.shape)
    kind = Status(int(status[worst]))
    where = ""
    if status.size > 1:
        index = worst[0] if len(worst) == 1 else tuple(int(i) for i in worst)
        where = f" in {int(failed.sum())} of {status.size} systems; the worst, system {index},"
    why, advice = _EXPLANATION[kind], _ADVICE[kind]
    if kind is Status.STAGNATED and norm[worst] <= attainable[worst]:
        why = f"has come to the limit of {precision}, which allows about {attainable[worst]:.1e} here, and stopped"
        advice = "use a larger rtol, or leave it out: the default takes what can be had"
        if precision == "float32":
            advice = f"use double precision, a method 'mixed-...' with double precision outside, or {advice[4:]}"
    if no_solution is not None:
        advice = f"{_WITHOUT_SOLUTION}; or {advice}" if kind is Status.DIVERGED else _WITHOUT_SOLUTION
    reason = "" if no_solution is None else f" There is no solution: {no_solution}."
    return (
        f"{method}{where} {why} after {steps[worst]} iterations: {kind_of_norm} {norm[worst]:.3e}, "
        f"tolerance {bound[worst]:.3e}.{reason}{clause} To do: {advice}."
    )


def _singular(singular: np.ndarray) -> str:
    """A sentence about the matrices that are known to be singular."""
    if not singular.any():
        return ""
    which = "The matrix is" if singular.size == 1 else "The matrices are"
    if not singular.all():
        which = f"The matrices of {int(singular.sum())} of {singular.size} systems are"
    return f" {which} singular: x has no part in the null vectors that are known."


def _success(
    method: str, steps: np.ndarray, norm: np.ndarray, bound: np.ndarray, kind_of_norm: str, limit: str | None
) -> str:
    if steps.size == 0:
        return f"{method}: no systems to solve."
    low, high = int(steps.min()), int(steps.max())
    taken = f"{high}" if low == high else f"{low} to {high}"
    systems = "" if steps.size == 1 else f" for all {steps.size} systems"
    how = "" if limit is None else f" to the limit of {limit}"
    return (
        f"{method} converged{how} in {taken} iterations{systems}: {kind_of_norm} {norm.max():.3e}, tolerance "
        f"{bound.flat[int(norm.argmax())]:.3e}."
    )
