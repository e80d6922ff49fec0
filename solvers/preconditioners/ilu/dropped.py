"""Incomplete LU with a drop tolerance: SciPy's factors as matrices of the library."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import SuperLU, spilu

from ....sparse import Matrix, UnsupportedOperation
from ....sparse.analysis.symmetry import CHOSEN
from ....sparse.formats import from_csr
from ....sparse.operators.concrete import in_scipy
from ...diagonal import DiagonalOperator
from ...triangular.by_superlu import inverse_of_unit
from ..base import Preconditioner
from ..checks import check_number
from ..reordered import Reordered
from ..target import Target
from .factored import Factored, TriangleSweeps
from .scaled import check_finite_rows


def dropped(
    own: Matrix, target: Target, apply: str | None, sweeps: int, tolerance: float, fill_factor: float
) -> Preconditioner:
    """ILU with a drop tolerance and row exchanges; see `ilu`.

    Raises:
        ValueError: a setting does not fit, or SciPy finds the matrix singular.
        UnsupportedOperation: the values are not known, or there are several systems.

    Source: Li and Shao, A supernodal approach to incomplete LU factorization with partial pivoting, TOMS 37 (2011).
    """
    check_number("fill_factor", fill_factor, 0)
    if tolerance != 0:
        check_number("drop_tolerance", tolerance, 0)
    known = in_scipy(own)
    if known is None or isinstance(known, tuple):
        got = "of a matrix whose values are not known yet" if known is None else f"of {len(known)} systems"
        raise UnsupportedOperation(
            f"A drop tolerance was given for a factorisation {got}; expected one matrix whose values are known, as the "
            "pattern of the factors depends on them. Leave drop_tolerance out for factors in the pattern of A."
        )
    check_finite_rows(known)  # of which SuperLU never ends
    try:
        found = spilu(sp.csc_array(known), drop_tol=float(tolerance), fill_factor=float(fill_factor))
    except RuntimeError as error:
        raise ValueError(
            "SciPy's spilu found the matrix singular, or its factors too large. Use 'jacobi', or shift A's diagonal."
        ) from error
    apply = apply or "exact"
    upper = sp.csr_array(found.U)
    pivots = upper.diagonal()
    if not (pivots != 0).all() or not np.isfinite(upper.data).all():
        raise ValueError("SciPy's spilu made a pivot of zero: the matrix is singular. Use 'jacobi'.")
    unit = (sp.csr_array(sp.tril(found.L, -1)), sp.csr_array(sp.diags_array(1 / pivots) @ sp.triu(upper, 1)))
    triangles = [from_csr(target.bk, S.astype(own.dtype), prune=False, like=target.like) for S in unit]
    solves = [inverse_of_unit(S) if apply == "exact" else TriangleSweeps(S, sweeps) for S in triangles]
    inverse = DiagonalOperator(target.bk, target.array((1 / pivots)[None]))
    order = [index.astype(np.int32) for index in (found.perm_r, found.perm_c)]
    back = [np.argsort(index).astype(np.int32) for index in order]
    M = Reordered(Factored(solves[0], inverse, solves[1]), back[0], order[0], order[1], back[1])
    entries = sum(S.nnz for S in triangles)
    settings = {"drop_tolerance": tolerance, "fill_factor": fill_factor, "apply": apply}
    if apply == "sweeps":
        settings["sweeps"] = sweeps
    return Preconditioner(
        M, "ilu", None if _seems_hermitian(found) else False,
        memory=entries + len(pivots), work=entries * (sweeps if apply == "sweeps" else 1) + len(pivots),
        settings=tuple(settings.items()),
    )  # fmt: skip


def _seems_hermitian(factors: SuperLU) -> bool:
    """By one random vector."""
    v = np.random.default_rng(3).standard_normal(factors.shape[0]).astype(factors.U.dtype)
    forward, backward = factors.solve(v), factors.solve(v, "H")
    return bool(np.linalg.norm(forward - backward) <= CHOSEN * np.linalg.norm(forward))
