"""Public import of `LineaxSolver`. Importing this imports JAX and lineax."""

from .lineax.solver import LineaxSolver

__all__ = ["LineaxSolver"]
