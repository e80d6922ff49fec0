"""`krylix.adapters.lineax` is the solver that `krylix.solvers.lineax_solver` has."""

import numpy as np

from frameworks import lazy

lineax = lazy("lineax")


def test_one_solver_by_two_names():
    from krylix.adapters.lineax import LineaxSolver
    from krylix.solvers import lineax_solver

    assert LineaxSolver is lineax_solver.LineaxSolver
    A = np.diag([2.0, 4.0, 5.0])
    x = lineax.linear_solve(lineax.MatrixLinearOperator(A), np.ones(3), LineaxSolver("GMRES")).value
    np.testing.assert_allclose(x, [0.5, 0.25, 0.2])
