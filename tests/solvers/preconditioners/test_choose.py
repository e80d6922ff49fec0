"""What `preconditioner(A)` chooses, whatever kinds there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyamg
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from krylix import as_operator, linear_solve, preconditioner
from krylix.solvers import PRECONDITIONERS
from krylix.solvers.preconditioners.choose import choose_kind
from krylix.sparse import Stencil
from matrices import in_random_order
from modes import array, compiled, to_numpy

ALL = ("jacobi", "block-jacobi", "chebyshev", "cluster", "ilu", "ic", "ssor", "amg", "multigrid", "fast")
PLANE = sp.csr_array(pyamg.gallery.poisson((80, 80), format="csr"))
LARGE = in_random_order(PLANE)
SMALL = sp.csr_array(pyamg.gallery.poisson((8, 8), format="csr"))


SHIFTS = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)]
GRID = Stencil([4.0, -1.0, -1.0, -1.0, -1.0], SHIFTS, (80, 80))
FAR = Stencil([4.0, -1.0, -1.0, -1.0, -1.0], [(2 * a, 2 * b) for a, b in SHIFTS], (80, 80))


def saddle() -> sp.csr_array:
    B = sp.eye_array(10, 64)
    return sp.csr_array(sp.block_array([[SMALL, B.T], [B, None]]))


@pytest.mark.parametrize(
    ("A", "kind"),
    [
        (LARGE, "amg"), (-LARGE, "amg"), (SMALL, "jacobi"), (SMALL + sp.eye_array(64, k=1), "ilu"),
        (LARGE + sp.eye_array(6400, k=1), "ilu"), (SMALL.toarray(), "jacobi"), (saddle(), "jacobi"),
        (saddle() + sp.eye_array(74, k=1), "jacobi"), (spl.aslinearoperator(SMALL), "chebyshev"),
        ([LARGE, 2 * LARGE], "jacobi"), (LARGE + 0.1 * sp.eye_array(6400), "jacobi"), (GRID, "multigrid"),
        (-1 * GRID, "multigrid"), (GRID.to("dia"), "multigrid"), (GRID.to("csr"), "multigrid"), (FAR, "amg"),
        (FAR.to("csr"), "amg"), (PLANE, "multigrid"), (-PLANE.tocsc(), "multigrid"),
    ],
    ids=["large", "negative", "small", "not symmetric", "large and not symmetric", "dense", "indefinite",
         "zeros on the diagonal", "products", "batch", "dominant", "grid", "negative grid", "diagonals", "rows",
         "far on a grid", "far in rows", "grid in rows", "grid in columns"],
)  # fmt: skip
def test_table(A: Any, kind: str) -> None:
    operator = as_operator(A)
    assert choose_kind(operator, ALL) == kind
    assert choose_kind(operator, ("jacobi",)) == "jacobi"
    smooth = {"multigrid": "fast"}  # which these grids are, see test_fast.py
    assert preconditioner(operator).kind == smooth.get(kind, kind)
    assert choose_kind(operator, PRECONDITIONERS) == kind


@pytest.mark.parametrize("mode", ["numpy", "jax-jit", "tf-function", "torch"])
def test_values_that_are_not_known(mode: str) -> None:
    pattern, b = as_operator(SMALL, array(mode, np.ones(64))), array(mode, np.ones(64))
    kinds = []

    def solve(v: Any) -> Any:
        result = linear_solve(pattern.with_values(v), b, method="CG", preconditioner="auto")
        kinds.append(result.preconditioner)
        return result.x

    x = compiled(mode, solve)(pattern.values)
    assert kinds[-1] == "jacobi"
    np.testing.assert_allclose(SMALL @ to_numpy(x), 1, rtol=1e-4)


def test_functions() -> None:
    assert preconditioner(lambda x: SMALL @ x, like=np.ones(64)).kind == "jacobi"
