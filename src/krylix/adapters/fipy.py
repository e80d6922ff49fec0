"""krylix as a solver of FiPy. Importing this imports FiPy."""

from __future__ import annotations

from typing import Any

from fipy.solvers.scipy.scipySolver import ScipySolver

from .. import Status, linear_solve

__all__ = ["LinearKrylixSolver"]


class LinearKrylixSolver(ScipySolver):
    """A solver for `eq.solve(var, solver=...)` and `eq.sweep(var, solver=...)`, on one process.

    Args:
        method: as for `krylix.linear_solve`.
        tolerance: FiPy's, 1e-5 by default, relative to `criterion`.
        criterion: "RHS" (the default), "unscaled", "matrix" or "initial".
        iterations: limit of iterations, 1000 by default.
        precon: a preconditioner of `linear_solve` ("amg", ...) or of FiPy's SciPy solvers.
        absolute_tolerance: a residual norm that is always enough.
        **settings: further arguments of `linear_solve`, such as nullspace and on_failure.

    `solver.convergence` has iterations and residual. A failed solve raises; with `on_failure="status"` FiPy gives its
    `DivergenceWarning`.

    Raises:
        NotConverged, Diverged: the tolerance was not reached.

    Cost: that of `linear_solve`; it starts from the variable's values.

    Examples:
        >>> import fipy
        >>> from krylix.adapters.fipy import LinearKrylixSolver
        >>> mesh = fipy.Grid1D(nx=4)
        >>> u = fipy.CellVariable(mesh=mesh)
        >>> u.constrain(1.0, mesh.facesRight)
        >>> fipy.DiffusionTerm().solve(u, solver=LinearKrylixSolver("CG", precon="amg", tolerance=1e-9))
        >>> u.value.round(6).tolist()
        [1.0, 1.0, 1.0, 1.0]
    """

    def __init__(
        self, method: Any = "auto", tolerance: Any = "default", criterion: str = "default", iterations: Any = "default",
        precon: Any = None, absolute_tolerance: float = 0.0, **settings: Any,
    ) -> None:  # fmt: skip
        super().__init__(tolerance, absolute_tolerance, criterion, iterations, precon)
        self._settings = {"method": method, **settings}

    def _adaptRHSTolerance(self, L: Any, x: Any, b: Any) -> tuple[float, None]:
        return self._rhsNorm(L, x, b), None

    _adaptLegacyTolerance = _adaptRHSTolerance

    def _adaptUnscaledTolerance(self, L: Any, x: Any, b: Any) -> tuple[float, None]:
        return 1.0, None

    def _adaptMatrixTolerance(self, L: Any, x: Any, b: Any) -> tuple[float, None]:
        return self._matrixNorm(L, x, b), None

    def _adaptInitialTolerance(self, L: Any, x: Any, b: Any) -> tuple[float, None]:
        return self._residualNorm(L, x, b), None

    def _solve_(self, L: Any, x: Any, b: Any) -> Any:
        scale, _ = self._adaptTolerance(L, x, b)
        M = self.preconditioner
        M = M._applyToMatrix(L)[0] if hasattr(M, "_applyToMatrix") else M
        result = linear_solve(
            L, b, x0=x, rtol=0.0, atol=max(self.tolerance * scale, self.absolute_tolerance),
            max_iter=self.iterations, preconditioner=M, **self._settings,
        )  # fmt: skip
        code = 0 if result.converged else 1 if int(result.status) == Status.MAX_ITER else -1
        self._setConvergence(
            "scipy", code, iterations=int(result.iterations), residual=float(result.residual_norm),
            tolerance_scale=float(scale),
        )  # fmt: skip
        self.convergence.warn()
        return result.x
