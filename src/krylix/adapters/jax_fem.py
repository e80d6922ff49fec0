"""krylix as the `custom_solver` of JAX-FEM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from .. import linear_solve

__all__ = ["solver_krylix"]


def solver_krylix(**settings: Any) -> Callable[..., Any]:
    """A solver for JAX-FEM: `solver(problem, solver_options={"custom_solver": solver_krylix(method="GMRES")})`.

    Also for `adjoint_solver_options` of `ad_wrapper`.

    Args:
        **settings: keyword arguments of `krylix.linear_solve`: method, preconditioner, rtol, ...

    Returns:
        A function `(A, b, x0, solver_options) -> x`: A is PETSc's AIJ matrix `(n, n)`, as JAX-FEM passes it, or any
        matrix of `linear_solve`; b and x0 (None: zero) are vectors `(n,)`. x is an array of NumPy, which JAX accepts.
        It raises `krylix.NotConverged` where the tolerance was not reached.

    Raises:
        TypeError: a setting is unknown, when the system is solved.

    Cost: the entries of A are read where PETSc has them; that of `linear_solve`, on NumPy.

    Examples:
        >>> import numpy as np, scipy.sparse as sp
        >>> from krylix.adapters.jax_fem import solver_krylix
        >>> A = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(9, 9)).tocsr()
        >>> x = solver_krylix(method="CG", preconditioner="jacobi")(A, np.ones(9), None, {})
        >>> bool(np.allclose(A @ x, 1))
        True
    """

    def custom_solver(A: Any, b: Any, x0: Any, solver_options: Any) -> Any:
        if hasattr(A, "getValuesCSR"):
            starts, columns, values = A.getValuesCSR()
            A = csr_array((values, columns, starts), shape=A.getSize())
        return linear_solve(A, np.asarray(b), x0=None if x0 is None else np.asarray(x0), **settings).x

    return custom_solver
