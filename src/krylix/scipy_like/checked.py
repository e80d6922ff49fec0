"""SciPy's own functions, called again from their x until the true residual is below the tolerance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse.linalg as spl

from ..solvers.preconditioners import preconditioner
from ..sparse import Operator

_ROUNDS = 10
_LESS = 0.5  # of the residual before has to be left, or another round is in vain


def checked(
    function: Callable[..., tuple[Any, int]],
    A: Any,
    b: Any,
    x0: Any,
    rtol: Any,
    atol: Any,
    maxiter: Any,
    settings: dict[str, Any],
) -> tuple[Any, int]:
    """`function(A, b, x0, ...)`, with info 0 only for an x whose true residual is below max(rtol |b|, atol).

    SciPy's recurrences may drift away from the residual, and TFQMR and MINRES stop by bounds of their own.

    Args:
        function: one of SciPy's.
        settings: further keyword arguments.

    Cost: 1 product with A more, in each round.
    """
    given = {"rtol": rtol, "atol": atol, "maxiter": maxiter, **settings}
    x, info = function(A, b, x0, **given)
    if info != 0:
        return x, info
    matvec, b = spl.aslinearoperator(A).matvec, np.asarray(b).ravel()
    goal, norm = max(rtol * float(np.linalg.norm(b)), atol), np.inf
    for _ in range(_ROUNDS):
        before, norm = norm, float(np.linalg.norm(b - matvec(x) + settings.get("shift", 0) * x))
        if norm <= goal:
            return x, 0
        if not norm < _LESS * before:
            break
        x, info = function(A, b, x, **given)
        if info != 0:
            return x, info
    return x, max(1, 10 * len(b) if maxiter is None else maxiter)


def for_scipy(M: Any, A: Any) -> Any:
    """A preconditioner of krylix, its name, or a function, as SciPy's functions take it; others as they are."""
    if isinstance(M, str):
        M = preconditioner(A, M)
    if isinstance(M, Operator) or (callable(M) and not hasattr(M, "shape")):
        apply = (lambda v: M @ v) if isinstance(M, Operator) else M
        adjoint = (lambda v: M.H @ v) if isinstance(M, Operator) else None
        return spl.LinearOperator(A.shape, matvec=apply, rmatvec=adjoint)
    return M
