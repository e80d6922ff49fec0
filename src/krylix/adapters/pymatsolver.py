"""krylix with the interface of pymatsolver, as SimPEG and discretize use it. Importing this imports pymatsolver."""

from __future__ import annotations

from typing import Any

import numpy as np
from pymatsolver.solvers import Base

from .. import prepare

__all__ = ["KrylixSolver"]

_OF_BASE = ("is_symmetric", "is_positive_definite", "is_hermitian", "check_accuracy", "check_rtol", "check_atol")


class KrylixSolver(Base):
    """`Ainv = KrylixSolver(A); x = Ainv * b`, set up once for all right-hand sides.

    Args:
        A: sparse or dense matrix `(n, n)`, real or complex.
        **settings: keyword arguments of `krylix.prepare` (method, preconditioner, rtol, ...), and those of
            `pymatsolver.solvers.Base`.

    Right-hand sides are `(n,)`, `(n, k)` or `(..., n, k)`; `.T`, `.conj()` and `b @ Ainv` are pymatsolver's.

    Raises:
        TypeError: a setting that both do not have, at the first solve.
        NotConverged, Diverged: a solve failed.

    Cost: A is set up at the first solve, once for real and once for complex right-hand sides.

    Examples:
        >>> import numpy as np, scipy.sparse as sp
        >>> from krylix.adapters.pymatsolver import KrylixSolver
        >>> A = sp.diags_array([-1.0, 2.5, -0.5], offsets=[-1, 0, 1], shape=(9, 9)).tocsr()
        >>> Ainv = KrylixSolver(A, method="GMRES", rtol=1e-12)
        >>> B = np.ones((9, 2))
        >>> bool(np.allclose(A @ (Ainv * B), B)), bool(np.allclose(A.T @ (Ainv.T * B), B))
        (True, True)
    """

    def __init__(self, A: Any, **settings: Any) -> None:
        super().__init__(A, **{name: settings.pop(name) for name in _OF_BASE if name in settings})
        self._settings = settings
        self._prepared: dict[str, Any] = {}

    def get_attributes(self) -> dict[str, Any]:
        """The settings with which pymatsolver makes the solver of the transposed matrix."""
        return {**super().get_attributes(), **self._settings}

    def _solve_single(self, rhs: Any) -> Any:
        dtype = np.result_type(self.A.dtype, rhs.dtype, np.float32)
        if dtype.char not in self._prepared:
            self._prepared[dtype.char] = prepare(self.A, np.zeros(self.shape[0], dtype), **self._settings)
        return self._prepared[dtype.char].solve(np.ascontiguousarray(rhs.T, dtype), axis=-1).x.T

    _solve_multiple = _solve_single
