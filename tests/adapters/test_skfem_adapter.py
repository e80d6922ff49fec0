"""`krylix.adapters.skfem` in scikit-fem."""

import numpy as np
import pytest
from scipy.sparse.linalg import aslinearoperator

import krylix
from frameworks import lazy
from krylix.adapters.skfem import build_pc_krylix, solver_krylix

skfem = lazy("skfem")


def diffusion(u, v, w):
    return sum(u.grad[i] * v.grad[i] for i in (0, 1))


def flow(u, v, w):  # diffusion and transport: not symmetric
    return diffusion(u, v, w) + 20 * u.grad[0] * v


def load(v, w):
    return np.sin(3 * w.x[0]) * v


def system(form, dtype=float):
    basis = skfem.Basis(skfem.MeshTri().refined(4), skfem.ElementTriP2())
    A, b = skfem.BilinearForm(form).assemble(basis), skfem.LinearForm(load).assemble(basis)
    return skfem.condense(A, b.astype(dtype), D=basis.get_dofs())


@pytest.mark.parametrize("settings", [{}, {"method": "GMRES", "preconditioner": "ilu"}, {"method": "scipy-direct"}])
@pytest.mark.parametrize("form", [flow, diffusion])
def test_solver(form, settings):
    expected = skfem.solve(*system(form))
    x = skfem.solve(*system(form), solver=solver_krylix(rtol=1e-11, **settings))
    np.testing.assert_allclose(x, expected, rtol=0, atol=1e-8 * np.abs(expected).max())


def test_solver_of_complex_systems():
    A, b, x, I = system(diffusion, complex)
    A = (A - 2j * np.eye(A.shape[0])[:1, :1].item() * skfem.utils.sp.eye(A.shape[0])).tocsr()
    got = skfem.solve(A, b, x.astype(complex), I, solver=solver_krylix(rtol=1e-11))[I]
    np.testing.assert_allclose(A @ got, b, atol=1e-9 * np.linalg.norm(b))


def test_settings_of_the_call_win():
    with pytest.raises(krylix.NotConverged):
        skfem.solve(*system(diffusion), solver=solver_krylix(method="CG", max_iter=900), max_iter=2)
    with pytest.raises(TypeError, match="maximum"):
        skfem.solve(*system(diffusion), solver=solver_krylix(maximum=2))


def test_preconditioner_in_scikit_fem():
    A, b, *_ = system(diffusion)
    counts = {}
    for name, M in {"none": None, "ic": build_pc_krylix(A, "ic")}.items():
        steps = []
        x, info = skfem.utils.spl.cg(A, b, M=M, rtol=1e-10, callback=steps.append)
        counts[name] = len(steps)
        assert info == 0
    assert counts["ic"] < 0.7 * counts["none"]
    solver = skfem.utils.solver_iter_krylov(skfem.utils.spl.cg, M=build_pc_krylix(A, "ic"), rtol=1e-10)
    np.testing.assert_allclose(solver(A, b), x)


def test_preconditioner_has_its_adjoint():
    A, *_ = system(flow)
    M, rng = aslinearoperator(build_pc_krylix(A, "ilu")), np.random.default_rng(0)
    x, y = rng.normal(size=(2, A.shape[0]))
    np.testing.assert_allclose(y @ M.matvec(x), x @ M.rmatvec(y))
    assert M.dtype == A.dtype
