"""What people call methods and preconditioners: taken for what it means, or refused with our name for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from krylix import as_operator, linear_solve, prepare
from krylix.solvers import CG, METHODS, PRECONDITIONERS, find_method, preconditioner
from krylix.solvers.names import (
    FACTORS,
    METHOD_HINTS,
    PRECONDITIONER_HINTS,
    SAME_METHODS,
    is_method,
    squeezed,
)
from modes import native_sparse

MATRIX = sp.diags_array([-1.0, 4, -1], offsets=[-1, 0, 1], shape=(12, 12)).toarray()
ONES = np.ones(12)

MEANT = {  # word -> name of the method
    "bicgstab": "biCG-stab", "BiCGSTAB": "biCG-stab", "bi-cgstab": "biCG-stab", "bicg_stab": "biCG-stab",
    "bicgstab(2)": "biCG-stab(2)", "BiCGStab (4)": "biCG-stab(4)", "bicgstabl": "biCG-stab(2)",
    "bicg": "scipy-biCG", "biCG": "scipy-biCG", "cgs": "scipy-CGS", "qmr": "scipy-QMR", "tfqmr": "scipy-TFQMR",
    "lgmres": "scipy-lGMres", "gcrotmk": "scipy-GCrotMK", "lsqr": "scipy-lsqr", "lsmr": "LSMR", "lstsq": "LSMR",
    "gmres": "GMRES", "gmres(7)": "GMRES(7)", "fgmres": "FGMRES", "FGMRES(7)": "FGMRES(7)", "flexible gmres": "FGMRES",
    "idr": "IDR(4)", "idrs": "IDR(4)", "IDR(s)": "IDR(4)", "minres": "MINRES", "pcg": "CG", "conjugate gradients": "CG",
    "superlu": "scipy-direct", "spsolve": "scipy-direct", "splu": "scipy-direct", "scipy_direct": "scipy-direct",
    "scipy bicgstab": "scipy-biCG-stab", "cg_adaptive": "CG-adaptive", "block cg": "block-CG", "mixed_cg": "mixed-CG",
    "mixed-bicgstab(2)": "mixed-biCG-stab(2)", "mixed-pcg": "mixed-CG", "cgnr": "CGLS", "thomas": "banded-direct",
    "cg one reduction": "CG-single-reduction", "Chronopoulos-Gear": "CG-single-reduction",
}  # fmt: skip

HINTS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {  # what is given, and the words of the refusal
    "a preconditioner": ({"method": "jacobi"}, ("which is a preconditioner", "preconditioner='jacobi'")),
    "ILU(0) as a method": ({"method": "ILU(0)"}, ("preconditioner='ilu'",)),
    "sor as a method": ({"method": "sor"}, ("preconditioner='ssor'",)),
    "Gauss-Seidel": ({"method": "Gauss-Seidel"}, ("preconditioner='ssor'",)),
    "ichol as a method": ({"method": "ichol"}, ("preconditioner='ic'",)),
    "multigrid as a method": ({"method": "multigrid"}, ("preconditioner='multigrid'",)),
    "umfpack": ({"method": "umfpack"}, ("'sparse-direct'",)),
    "qr": ({"method": "qr"}, ("'LSMR'",)),
    "symmlq": ({"method": "symmlq"}, ("'MINRES'",)),
    "almost": ({"method": "gmers"}, ("'GMRES'",)),
    "nonsense": ({"method": "foo"}, ("There are auto, CG, ", "fast-direct, banded-direct", "FGMRES")),
    "a class": ({"method": CG}, ("class CG", "CG()")),
    "a preconditioner's object": ({"method": preconditioner(MATRIX, "jacobi")}, ("preconditioner=",)),
    "CG as M": ({"preconditioner": "CG"}, ("which is a method", "method='CG'")),
    "bicgstab as M": ({"preconditioner": "bicgstab"}, ("method='bicgstab'",)),
    "lu as M": ({"preconditioner": "lu"}, ("method='lu'",)),
    "a method object as M": ({"preconditioner": CG()}, ("is a method", "method=")),
    "sor": ({"preconditioner": "sor"}, ("'ssor'",)),
    "ichol": ({"preconditioner": "ichol"}, ("'ic'",)),
    "ILU(0)": ({"preconditioner": "ILU(0)"}, ("'ilu'",)),
    "diagonal": ({"preconditioner": "diagonal"}, ("'jacobi'",)),
    "pyamg": ({"preconditioner": "pyamg"}, ("'amg'",)),
    "none": ({"preconditioner": "none"}, ("preconditioner=None",)),
    "nearly a kind": ({"preconditioner": "jacobbi"}, ("'jacobi'",)),
    "no kind": ({"preconditioner": "foo"}, ("Available: auto, jacobi, ", "cluster")),
}


@pytest.mark.parametrize("word", MEANT)
def test_other_names_of_methods(word: str) -> None:
    assert find_method(word).name == MEANT[word]
    result = linear_solve(MATRIX, ONES, method=word)
    assert result.method == MEANT[word]
    np.testing.assert_allclose(MATRIX @ result.x, ONES, rtol=1e-8)


@pytest.mark.parametrize("word", ["lu", "LU", "cholesky", "ldlt", "solve"])
def test_factorisations_by_what_a_is(word: str) -> None:
    """Dense on the array library, all else by SuperLU."""
    sparse = sp.csr_array(MATRIX)
    kinds: list[tuple[Any, str]] = [(MATRIX, "direct"), (MATRIX.tolist(), "direct"), (np.stack([MATRIX] * 2), "direct"),
             (as_operator(MATRIX), "direct"), (sparse, "scipy-direct"), (as_operator(sparse), "scipy-direct"),
             (lambda x: sparse @ x, "scipy-direct"), (spl.aslinearoperator(sparse), "scipy-direct"),
             ([sparse, sparse], "scipy-direct")]  # fmt: skip
    for A, name in kinds:
        result = linear_solve(A, ONES, method=word)
        assert result.method == name
        np.testing.assert_allclose(result.x, np.broadcast_to(np.linalg.solve(MATRIX, ONES), result.x.shape), rtol=1e-10)
    assert prepare(sparse, ONES, method=word).method.name == "scipy-direct"


@pytest.mark.parametrize("mode", ["jax", "torch", "tf"])
def test_factorisations_of_matrices_of_a_library(mode: str) -> None:
    A = native_sparse(mode, MATRIX)
    assert find_method("lu", A).name == "scipy-direct"


@pytest.mark.parametrize("case", HINTS)
def test_hints(case: str) -> None:
    given, words = HINTS[case]
    settings = {"method": "CG"} | given
    for call in (lambda: linear_solve(MATRIX, ONES, **settings), lambda: prepare(MATRIX, ONES, **settings)):
        with pytest.raises((ValueError, TypeError)) as caught:
            call()
        for word in words:
            assert word in str(caught.value), str(caught.value)


@pytest.mark.parametrize("kind", PRECONDITIONERS)
def test_spellings_of_preconditioners(kind: str) -> None:
    for word in (kind.upper(), kind.replace("-", "_"), kind.replace("-", " "), kind.replace("-", "")):
        try:
            assert preconditioner(sp.csr_array(MATRIX), word).kind == kind
        except ValueError as error:  # no grid, no blocks
            assert "No preconditioner is called" not in str(error)


def test_tables_hold_what_there_is() -> None:
    """Every word leads to a method or a kind that there is, and none to two."""
    assert all(is_method(name) for name in METHODS) and not any(map(is_method, PRECONDITIONERS))
    assert all(find_method(word).name == find_method(name).name for word, name in SAME_METHODS.items())
    assert {*PRECONDITIONER_HINTS.values()} <= {*PRECONDITIONERS}
    ours = {squeezed(name) for name in (*METHODS, *PRECONDITIONERS)}
    tables = [SAME_METHODS, dict.fromkeys(FACTORS), METHOD_HINTS, PRECONDITIONER_HINTS]
    assert not any(ours & {*table} for table in tables)
    assert not any({*a} & {*b} for i, a in enumerate(tables[:3]) for b in tables[:i])
