"""krylix as a solver of lineax, Optimistix and Diffrax. Importing this imports JAX and lineax.

`LineaxSolver` is also found as `krylix.solvers.lineax_solver.LineaxSolver`.
"""

from ..solvers.lineax_solver import LineaxSolver

__all__ = ["LineaxSolver"]
