"""The public door to krylix as a linear solver of lineax. Importing this imports JAX and lineax."""

from .lineax.solver import LineaxSolver

__all__ = ["LineaxSolver"]
