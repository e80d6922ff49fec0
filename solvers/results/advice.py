"""What to try after a failure whose cause is not known, by the family of the method that failed."""

from __future__ import annotations

from ..iteration.method import Method
from ..iteration.status import Status

EXPLANATION = {
    Status.MAX_ITER: "reached the limit of iterations",
    Status.STAGNATED: "stopped making progress before the tolerance",
    Status.BREAKDOWN: "broke down: a step divided by (nearly) zero or made nothing better, and a restart did not help",
    Status.DIVERGED: "left the finite numbers, or grew beyond what the precision can take back",
}

_FACTORS = {
    Status.MAX_ITER: ["raise max_iter"],
    Status.DIVERGED: ["check A, b and x0 for NaN and infinity"],
}
_SINGULAR = "check that A is not singular: name its null vectors (nullspace=...)"


def is_least_squares(method: Method) -> bool:
    """Does it minimise |b - A x| by products with A and its transpose?"""
    return method.least_squares or (method.minimises_residual and method.needs_transpose)


def advice(
    kind: Status, method: Method | None, name: str, preconditioner: str | None, precision: str, looked: bool
) -> list[str]:
    """Alternatives in the imperative, for a method of this family; nothing that has been tried.

    Args:
        kind: how the worst system ended.
        method: that failed, or the last one that was tried.
        name: what the result calls it, which names those tried before.
        preconditioner: the kind that was given, or None.
        precision: "float32" or "float64".
        looked: have A and M been looked at, with nothing found that explains it?
    """
    if method is None:  # of a result that was read from a file of another version
        found = ["look at A and b"]
    elif method.factorises:
        found = _of_factors(kind)
    elif is_least_squares(method):
        found = _of_least_squares(kind)
    else:
        found = _of_krylov(kind, method, "direct" in name, preconditioner, looked)
    if precision == "float32" and kind in (Status.STAGNATED, Status.BREAKDOWN):
        found.append("use double precision")
    return found


def in_a_row(advice: list[str]) -> str:
    """Alternatives as one clause, each once."""
    *most, last = dict.fromkeys(advice)
    return f"{', '.join(most)}, or {last}" if most else last


def _of_factors(kind: Status) -> list[str]:
    found = list(_FACTORS.get(kind, ["loosen rtol"]))
    return [*found, _SINGULAR, "ask for the least-squares solution (method='LSMR')"]


def _of_least_squares(kind: Status) -> list[str]:
    if kind is Status.DIVERGED:
        return ["check A, b and x0 for NaN and infinity", "bring the columns of A to one size"]
    found = ["raise max_iter", "loosen rtol"] if kind is Status.MAX_ITER else ["loosen rtol"]
    return [*found, "bring the columns of A to one size", "damp the problem (krylix.solvers.LSMR(damp=...))"]


def _of_krylov(kind: Status, method: Method, factorised: bool, preconditioner: str | None, looked: bool) -> list[str]:
    first = {
        Status.MAX_ITER: ["raise max_iter", "loosen rtol"],
        Status.STAGNATED: ["loosen rtol"],
        Status.DIVERGED: ["check A, b and x0 for NaN and infinity"],
    }.get(kind, [])
    found = list(first)
    if kind in (Status.STAGNATED, Status.BREAKDOWN):
        found.append(_SINGULAR)
    if method.needs_hermitian and not looked:
        sign = " and definite" if method.needs_definite else ""
        found.append(f"check that A is symmetric{sign}, as {method.name} needs it")
    if preconditioner is not None and not looked:
        signs = "symmetric and positive definite" if method.needs_hermitian else "close to the inverse of A"
        found.append(f"check that the preconditioner is {signs}")
    elif preconditioner is None and method.takes_preconditioner and kind is Status.MAX_ITER:
        found.append("give a preconditioner (preconditioner='auto' or your own)")
    if not factorised:
        found.append("factorise (method='scipy-direct')")
    return found
