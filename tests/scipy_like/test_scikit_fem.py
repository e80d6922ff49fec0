"""A script of scikit-fem, its own first example, with one import changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from frameworks import lazy

lazy("skfem")  # or else these are skipped

SCIPY, KRYLIX = "import scipy.sparse.linalg as sla", "from krylix import scipy_like as sla"
EXAMPLE_1 = f"""
from skfem import *
from skfem.helpers import dot, grad
{SCIPY}

m = MeshTri().refined(5)
basis = Basis(m, ElementTriP1())

@BilinearForm
def laplace(u, v, _):
    return dot(grad(u), grad(v))

@LinearForm
def rhs(v, _):
    return 1.0 * v

A = asm(laplace, basis)
b = asm(rhs, basis)
A, b = enforce(A, b, D=m.boundary_nodes())
x = SOLVE
"""


@pytest.mark.parametrize(
    "solve",
    [
        "sla.spsolve(A, b)",
        "sla.splu(A.tocsc()).solve(b)",
        "sla.factorized(A.tocsc())(b)",
        "solve(A, b, solver=lambda A, b, **_: sla.spsolve(A, b))",
        "sla.gmres(A, b, rtol=1e-10, restart=50, M=sla.LinearOperator(A.shape, sla.spilu(A.tocsc()).solve))[0]",
        "sla.bicgstab(A, b, rtol=1e-10)[0]",
        "solve(*condense(asm(laplace, basis), asm(rhs, basis), D=m.boundary_nodes()), "
        "solver=lambda A, b, **_: sla.cg(A, b, rtol=1e-10)[0])",
    ],
)
def test_example_1(solve: str) -> None:
    script = EXAMPLE_1.replace("SOLVE", solve)
    found: list[dict[str, Any]] = []
    for text in (script, script.replace(SCIPY, KRYLIX)):
        names: dict[str, Any] = {}
        exec(compile(text, "example 1", "exec"), names)
        found.append(names)
    theirs, ours = found
    assert ours["sla"].__name__ == "krylix.scipy_like" and theirs["sla"].__name__ == "scipy.sparse.linalg"
    assert np.allclose(ours["x"], theirs["x"], atol=1e-8 * abs(theirs["x"]).max())
    assert abs(ours["x"].max() - 0.07366) < 6e-4  # of -u'' = 1 in the unit square, with zero on its boundary
