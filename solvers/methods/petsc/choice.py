"""Defaults of KSP and PC for a matrix, and norms in which its methods test convergence."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ....sparse.analysis.symmetry import PRODUCTS
from .library import petsc


class Choice(NamedTuple):
    """A Krylov method and a preconditioner of PETSc, with options."""

    ksp: str
    pc: str
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"KSP {self.ksp} with PC {self.pc}"


# The side of the preconditioner on which the residual's own norm is tested. Other methods test the norm of the
# preconditioned residual, and begin another round where that stopped too early.
_TRUE_NORM = {
    "cg": "left", "groppcg": "left", "pipecg": "left", "pipecgrr": "left", "fcg": "left", "pipefcg": "left",
    "cr": "left", "gcr": "right", "fgmres": "right", "pgmres": "right", "gmres": "right", "lgmres": "right",
    "dgmres": "right", "bcgs": "right", "ibcgs": "right", "fbcgs": "right", "fbcgsr": "right", "cgs": "right",
    "tfqmr": "right", "bicg": "left", "richardson": "left",
}  # fmt: skip


def suited(given: Choice, hermitian: bool, one_sign: bool, is_complex: bool, ranks: int) -> Choice:
    """The settings that were given, with what suits the matrix for those that were not ("").

    Args:
        hermitian: is it Hermitian?
        one_sign: have all its diagonal entries one sign, as those of a definite matrix?
        ranks: processes.
    """
    multigrid = "hypre" if _has_pc("hypre") and not is_complex else "gamg"
    if not given.ksp and not given.pc and hermitian and not one_sign:
        factors = "mumps" if _has_factors("mumps") else "superlu_dist" if _has_factors("superlu_dist") else ""
        if factors:
            return Choice("preonly", "lu", (("pc_factor_mat_solver_type", factors), *given.options))
    pc = given.pc or (multigrid if one_sign else "ilu" if ranks == 1 else "asm")
    direct = pc in ("lu", "cholesky", "svd")
    ksp = given.ksp or ("preonly" if direct else "cg" if hermitian and one_sign else "gmres")
    options = given.options
    if direct and pc != "svd" and ranks > 1 and "pc_factor_mat_solver_type" not in dict(options):
        options = (("pc_factor_mat_solver_type", "mumps"), *options)  # PETSc's own factors are of one process
    return Choice(ksp, pc, options)


class MatFacts(NamedTuple):
    """What the settings depend on, of a Mat of several processes."""

    hermitian: bool
    one_sign: bool
    negative: bool
    is_complex: bool


def facts_of(mat: Any) -> MatFacts:
    """MatFacts that products and the diagonal tell. Collective; 2 products, 5 messages."""
    PETSc = petsc()
    u, Au = mat.createVecs()
    v, Av = u.duplicate(), Au.duplicate()
    for k, vector in enumerate((u, v)):
        rng = np.random.default_rng((7 + k, mat.getComm().getRank()))
        vector.setArray(rng.standard_normal(vector.getLocalSize()).astype(PETSc.ScalarType))
    mat.mult(u, Au)
    mat.mult(v, Av)
    size = u.norm() * Av.norm() + Au.norm() * v.norm()
    hermitian = abs(Av.dot(u) - v.dot(Au)) <= PRODUCTS * float(np.finfo(PETSc.RealType).eps) * size
    is_complex = np.dtype(PETSc.ScalarType).kind == "c"
    if is_complex:
        return MatFacts(hermitian, False, False, True)
    diagonal = mat.getDiagonal()
    least, most = diagonal.min()[1], diagonal.max()[1]
    return MatFacts(hermitian, least > 0 or most < 0, most < 0, False)


def ask_for_true_norm(ksp: Any, name: str) -> None:
    """Let a KSP test the norm of the residual, where it can."""
    side = _TRUE_NORM.get(name)
    if side is None:
        return
    PETSc = petsc()
    ksp.setNormType(PETSc.KSP.NormType.UNPRECONDITIONED)
    ksp.setPCSide(PETSc.PC.Side.LEFT if side == "left" else PETSc.PC.Side.RIGHT)


def _has_pc(name: str) -> bool:
    PETSc = petsc()
    pc = PETSc.PC().create(PETSc.COMM_SELF)
    try:
        pc.setType(name)
    except PETSc.Error:
        return False
    finally:
        pc.destroy()
    return True


def _has_factors(name: str) -> bool:
    """Can a matrix be factorised by this package, in this build?"""
    PETSc = petsc()
    mat = PETSc.Mat().createAIJ((1, 1), nnz=1, comm=PETSc.COMM_SELF)
    mat.setValue(0, 0, 1.0)
    mat.assemble()
    pc = PETSc.PC().create(PETSc.COMM_SELF)
    try:
        pc.setOperators(mat)
        pc.setType("lu")
        pc.setFactorSolverType(name)
        pc.setFactorSetUpSolverType()
    except PETSc.Error:
        return False
    finally:
        pc.destroy()
        mat.destroy()
    return True
