"""`krylix.adapters.jax_fem`: the solver by itself, and in JAX-FEM's Newton iteration and its adjoint.

Where petsc4py is missing, a class over SciPy with the methods that JAX-FEM calls stands for its matrix.
"""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from frameworks import import_quietly, missing
from krylix.adapters.jax_fem import solver_krylix

N = 20


class Aij:
    """What JAX-FEM uses of `petsc4py.PETSc.Mat`."""

    def createAIJ(self, size, csr):
        starts, columns, values = csr
        self.csr = sp.csr_array((values, columns, starts), shape=size)
        return self

    def zeroRows(self, rows):
        keep = np.ones(self.csr.shape[0])
        keep[rows] = 0
        self.csr = (sp.diags_array(keep) @ self.csr + sp.diags_array(1 - keep)).tocsr()

    def transpose(self):
        self.csr = self.csr.T.tocsr()
        return self

    def getSize(self):
        return self.csr.shape

    def getValuesCSR(self):
        return self.csr.indptr, self.csr.indices, self.csr.data


def matrix():
    A = sp.diags_array([-1.0, 3.0, -0.5], offsets=[-1, 0, 1], shape=(N, N)).tocsr()
    return Aij().createAIJ(A.shape, (A.indptr, A.indices, A.data))


@pytest.mark.parametrize("settings", [{}, {"method": "GMRES", "preconditioner": "ilu"}])
def test_solver(settings):
    A, b = matrix(), np.cos(np.arange(N))
    for x0 in (None, np.ones(N)):
        np.testing.assert_allclose(A.csr @ solver_krylix(rtol=1e-11, **settings)(A, b, x0, {}), b, atol=1e-9)
    np.testing.assert_allclose(solver_krylix()(A.csr, b, None, {}), np.linalg.solve(A.csr.toarray(), b))
    with pytest.raises(krylix.NotConverged):
        solver_krylix(method="GMRES", max_iter=2)(A, b, None, {})


@pytest.fixture(scope="module")
def jax_fem():
    wanted = ("jax_fem", "jax", "basix", "gmsh", "meshio", "pyfiglet")
    if absent := [name for name in wanted if missing(name)]:
        pytest.skip(f"not installed: {', '.join(absent)}")
    stands_in = missing("petsc4py")
    if stands_in:
        sys.modules["petsc4py"] = ModuleType("petsc4py")
        sys.modules["petsc4py"].PETSc = SimpleNamespace(Mat=Aij, IntType=np.int32)
    try:
        return import_quietly("jax_fem", "jax_fem.generate_mesh", "jax_fem.problem", "jax_fem.solver")[0]
    finally:
        if stands_in:  # others ask whether it is installed
            del sys.modules["petsc4py"]


@pytest.mark.merge
@pytest.mark.filterwarnings("ignore")
def test_in_jax_fem(jax_fem):
    import jax
    import jax.numpy as jnp

    class Diffusion(jax_fem.problem.Problem):
        def get_tensor_map(self):
            return lambda grad_u, k: k * (1 + 0.1 * jnp.sum(grad_u**2)) * grad_u

        def get_mass_map(self):
            return lambda u, x, k: -jnp.sin(3 * x[:1])

        def set_params(self, k):
            self.internal_vars = [k * jnp.ones((len(self.fes[0].cells), self.fes[0].num_quads))]

    grid = jax_fem.generate_mesh.rectangle_mesh(6, 5, 1.0, 1.0)
    mesh = jax_fem.generate_mesh.Mesh(grid.points, grid.cells_dict["quad"])
    walls = [
        [lambda p: jnp.isclose(p[0], 0.0), lambda p: jnp.isclose(p[0], 1.0)],
        [0, 0],
        [lambda p: 0.0, lambda p: 1.0],
    ]
    problem = Diffusion(mesh, vec=1, dim=2, ele_type="QUAD4", dirichlet_bc_info=walls)
    options = {"custom_solver": solver_krylix(rtol=1e-12)}
    solution = jax_fem.solver.ad_wrapper(problem, options, options)

    def loss(k):
        return jnp.sum(solution(k)[0] ** 2)

    gradient = jax.grad(loss)(2.0)
    np.testing.assert_allclose(gradient, (loss(2.001) - loss(1.999)) / 0.002, rtol=1e-5)
    problem.set_params(2.0)
    theirs = jax_fem.solver.solver(problem, {"jax_solver": {}})
    np.testing.assert_allclose(solution(2.0)[0], theirs[0], atol=1e-6)
