"""krylix as a solver and as a preconditioner of scikit-fem."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator

from .. import linear_solve, preconditioner

__all__ = ["build_pc_krylix", "solver_krylix"]


def solver_krylix(**settings: Any) -> Callable[..., Any]:
    """A solver for `skfem.solve(A, b, solver=...)`.

    Args:
        **settings: keyword arguments of `krylix.linear_solve`: method, preconditioner, rtol, ... Further arguments of
            `skfem.solve` override them.

    Returns:
        A function `(A, b, **settings) -> x` of a sparse matrix `(n, n)` and a vector `(n,)`, real or complex. It raises
        `krylix.NotConverged` where scikit-fem's own iterative solvers warn.

    Raises:
        TypeError: a setting is unknown, when the system is solved.

    Cost: that of `linear_solve`, which keeps its set-up for the same matrix again.

    Examples:
        >>> import numpy as np, scipy.sparse as sp
        >>> from krylix.adapters.skfem import solver_krylix
        >>> solver = solver_krylix(method="CG", preconditioner="amg", rtol=1e-8)
        >>> A = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(9, 9)).tocsr()
        >>> x = solver(A, np.ones(9))  # skfem.solve(*skfem.condense(A, b, D=basis), solver=solver)
        >>> bool(np.allclose(A @ x, 1))
        True
    """

    def solver(A: Any, b: Any, **when_solving: Any) -> Any:
        return linear_solve(A, b, **{**settings, **when_solving}).x

    return solver


def build_pc_krylix(A: Any, kind: str = "auto", **settings: Any) -> LinearOperator:
    """A preconditioner for `skfem.utils.solver_iter_krylov(M=...)` and SciPy's Krylov methods.

    Args:
        A: sparse matrix `(n, n)`.
        kind: a kind of `krylix.preconditioner`: "amg", "ilu", ...
        **settings: further arguments of `krylix.preconditioner`.

    Returns:
        SciPy's `LinearOperator` `(n, n)` of A's dtype, with its adjoint.

    Raises:
        ValueError: the kind is unknown, or cannot be made of this matrix.

    Cost: that of the preconditioner, once.

    Examples:
        >>> import numpy as np, scipy.sparse as sp
        >>> from krylix.adapters.skfem import build_pc_krylix
        >>> A = sp.diags_array([4.0, 2.0]).tocsr()
        >>> (build_pc_krylix(A, "jacobi") @ np.ones(2)).tolist()
        [0.25, 0.5]
    """
    M = preconditioner(A, kind, **settings)
    dtype = np.dtype(A.dtype) if A.dtype.kind in "fc" else np.dtype(float)
    return LinearOperator(A.shape, matvec=lambda r: M @ r, rmatvec=lambda r: M.H @ r, dtype=dtype)
