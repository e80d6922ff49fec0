"""`krylix.adapters.fipy` in FiPy."""

import os
import warnings

import numpy as np
import pytest

os.environ.setdefault("FIPY_SOLVERS", "scipy")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    fipy = pytest.importorskip("fipy")

import krylix
from krylix.adapters.fipy import LinearKrylixSolver

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")


def steady(solver, convection=0.0):
    """A layer between two walls, with a source."""
    mesh = fipy.Grid2D(nx=24, ny=12, dx=0.1, dy=0.1)
    u = fipy.CellVariable(mesh=mesh, value=0.3)
    u.constrain(1.0, mesh.facesLeft)
    u.constrain(0.0, mesh.facesRight)
    transport = fipy.PowerLawConvectionTerm(coeff=(convection, 0.5 * convection))
    equation = fipy.DiffusionTerm(coeff=1.0 + mesh.faceCenters[0]) + fipy.numerix.sin(mesh.x)
    equation = equation == transport if convection else equation
    equation.solve(u, solver=solver)
    return u.value


@pytest.mark.parametrize(
    ("method", "precon"), [("auto", None), ("CG", "amg"), ("GMRES", "ilu"), ("scipy-direct", None)]
)
@pytest.mark.parametrize("convection", [0.0, 3.0])
def test_as_fipys_own_solver(method, precon, convection):
    if convection and method == "CG":
        with pytest.raises(ValueError, match=r"symmetric|Hermitian"):
            steady(LinearKrylixSolver(method, precon=precon), convection)
        return
    expected = steady(fipy.LinearLUSolver(tolerance=1e-12), convection)
    solver = LinearKrylixSolver(method, tolerance=1e-10, precon=precon)
    np.testing.assert_allclose(steady(solver, convection), expected, atol=1e-7)
    assert solver.convergence.status_name == "SCIPY_SUCCESS"


@pytest.mark.parametrize("criterion", ["default", "legacy", "RHS", "unscaled", "matrix", "initial"])
def test_criteria_are_those_of_fipy(criterion):
    """The residual is below the tolerance times what the criterion says, and not far below."""
    tolerance = 1e-4
    solver = LinearKrylixSolver("CG", tolerance=tolerance, criterion=criterion)
    steady(solver)
    bound = tolerance * solver.convergence.tolerance_scale
    assert bound / 1e3 < solver.convergence.residual <= bound
    theirs = fipy.LinearCGSolver(tolerance=tolerance, criterion=criterion)
    steady(theirs)
    assert abs(solver.convergence.iterations - theirs.convergence.iterations) <= 2


def test_preconditioners_of_fipy():
    with_one, plain = (LinearKrylixSolver("CG", tolerance=1e-10, precon=p) for p in (fipy.JacobiPreconditioner(), None))
    np.testing.assert_allclose(steady(with_one), steady(plain), atol=1e-8)


def test_failures():
    with pytest.raises(krylix.NotConverged):
        steady(LinearKrylixSolver("CG", iterations=2))
    with pytest.warns(Warning, match="SCIPY_MAXIT"):
        steady(LinearKrylixSolver("CG", iterations=2, on_failure="status"))


def test_time_steps():
    mesh = fipy.Grid1D(nx=50, dx=0.02)
    u, v = (fipy.CellVariable(mesh=mesh, value=np.sin(3 * mesh.x.value)) for _ in range(2))
    equation = fipy.TransientTerm() == fipy.DiffusionTerm(coeff=0.1)
    for _ in range(5):
        equation.solve(u, dt=0.1, solver=LinearKrylixSolver(tolerance=1e-12))
        equation.solve(v, dt=0.1, solver=fipy.LinearLUSolver(tolerance=1e-12))
    np.testing.assert_allclose(u.value, v.value, atol=1e-10)
