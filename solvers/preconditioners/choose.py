"""Automatic choice of a preconditioner, by properties of the matrix."""

from __future__ import annotations

from collections.abc import Callable, Container
from contextlib import suppress

import numpy as np

from ...sparse import Dense, FunctionOperator, Matrix, Operator, SparseMatrix, UnsupportedOperation
from ...sparse.analysis.analysis import analysis_of, on_its_grid
from ...sparse.analysis.facts import is_dominated, is_m_matrix
from ...sparse.analysis.random_values import with_facts
from ...sparse.operators.concrete import as_matrix, concrete, is_known
from ..diagonal import DOMINANT
from .fast import fast_where_near
from .ilu import serving_ilu
from .jacobi import jacobi, jacobi_on_blocks
from .multigrid.couplings import couples_neighbours
from .multigrid.cut import multigrid_on_cut_grid
from .multigrid.multigrid import multigrid
from .operators import Preconditioner, Spread
from .pipeline import entries_or_products
from .runtime_choice import ilu_or_jacobi, ilu_pays_unseen, multigrid_or_jacobi, pays_unseen
from .shifted_laplacian import looks_like_waves

_SMALL = 5000  # unknowns up to which Jacobi takes less time than setting up a hierarchy
_LEAST_GRID = 256  # likewise on grids in compiled functions, which are set up once


def choose_kind(A: Operator, kinds: Container[str]) -> str:
    """Choose the kind of preconditioner for A.

    | known about A | kind |
    |---|---|
    | symmetric (Hermitian), smaller than 5000 unknowns (in compiled functions, on a grid: 256), or a batch | jacobi |
    | symmetric (Hermitian), diagonal of one sign, at least 1.02 times the sum of its row everywhere | jacobi |
    | symmetric (Hermitian), diagonal of one sign, couples neighbours on a grid | multigrid, or fast |
    | symmetric (Hermitian), diagonal of one sign, no row of zeros | amg |
    | complex symmetric, at least 5000 unknowns, on a grid, a Laplacian with a negative k^2 | shifted-laplacian |
    | not symmetric, at least 5000 unknowns, an M-matrix by its rows or columns, which do not dominate as above | amg |
    | not symmetric, sparse, some order of its rows has no zero on the diagonal | ilu |
    | products only | chebyshev |
    | not known before it runs, symmetric with a diagonal of one sign for random arguments, on a grid | multigrid |
    | the same, no grid, at least 5000 unknowns | amg |
    | not known before it runs, couples neighbours on a large grid | multigrid |
    | not known before it runs, not known to be symmetric, sparse, at least 20 000 unknowns | ilu |
    | anything else: dense, or values that are not known | jacobi |

    "multigrid" then stands for `fast_or_multigrid`, which chooses "fast" outside compiled functions where coefficients
    are so smooth that it is faster, and "ilu" for `ilu_where_it_serves`, which may reorder the rows. Where values are
    not known, both become jacobi in runs whose values do not suit them.
    """
    function, A = A, entries_or_products(A)
    if isinstance(function, FunctionOperator) and isinstance(A, Matrix):
        A = with_facts(A, function)
    if not isinstance(A, Matrix) and "chebyshev" in kinds:
        return "chebyshev"
    if not isinstance(A, Matrix) or isinstance(A, Dense):
        return "jacobi"
    if not (is_known(A) if isinstance(A, SparseMatrix) else A.known() is not None):
        return _of_traced_values(A, kinds)
    analysis = analysis_of(A)
    if analysis.seems_hermitian:
        large, several = A.shape[0] > _SMALL, A.systems is not None
        grid = "multigrid" in kinds and (large or (A.bk.compiled() and A.shape[0] >= _LEAST_GRID))
        if several or not (large or grid) or not analysis.one_sign or analysis.dominates(DOMINANT):
            return "jacobi"
        if grid and couples_neighbours(on_its_grid(A)):
            return "multigrid"
        whole = large and "amg" in kinds and bool(np.all(concrete(A).diagonals() != 0))
        return "amg" if whole else "jacobi"
    if "shifted-laplacian" in kinds and _is_of_waves(A):
        return "shifted-laplacian"
    if "amg" in kinds and _is_elliptic(A):
        return "amg"
    return "ilu" if "ilu" in kinds else "jacobi"


def _of_traced_values(A: Matrix, kinds: Container[str]) -> str:
    analysis = analysis_of(A)
    definite = analysis.seems_hermitian and bool(analysis.maybe_definite)  # for random arguments
    if "multigrid" in kinds and pays_unseen(A, symmetric=definite):
        return "multigrid"
    if definite:
        return "amg" if "amg" in kinds and A.shape[0] > _SMALL and A.bk.sets_up_by_host() else "jacobi"
    return "ilu" if "ilu" in kinds and ilu_pays_unseen(A) else "jacobi"


def _is_elliptic(A: Matrix) -> bool:
    """Is a non-symmetric A like convection-diffusion or a Markov chain, and large enough for a hierarchy?"""
    if A.shape[0] <= _SMALL or A.systems is not None:
        return False
    entries = analysis_of(A).entries
    by_rows_and_columns = () if entries is None else (entries, entries.T.tocsr())
    return any(is_m_matrix(B) and not is_dominated(B, DOMINANT) for B in by_rows_and_columns)


def _is_of_waves(A: Matrix) -> bool:
    """Is a complex A like Helmholtz's equation with absorption, on a grid, and large enough for a hierarchy?"""
    large = A.dtype.kind == "c" and A.shape[0] > _SMALL and A.systems is None
    return large and looks_like_waves(A) and couples_neighbours(on_its_grid(A))


def fast_or_multigrid(A: Operator, precision: str | None = None) -> Preconditioner:
    """`fast` outside compiled functions where coefficients are smooth, else `multigrid`."""
    if not is_known(as_matrix(A)):
        return multigrid_or_jacobi(A, precision=precision)
    near = None if A.bk.compiled() else fast_where_near(A, precision)
    return multigrid(A, precision=precision) if near is None else near


def ilu_where_it_serves(A: Operator) -> Preconditioner:
    """`ilu` for values known before the program runs, else `ilu_or_jacobi`."""
    return (serving_ilu if is_known(as_matrix(A)) else ilu_or_jacobi)(A)


AUTOMATIC: dict[str, Callable[..., Preconditioner]] = {"multigrid": fast_or_multigrid, "ilu": ilu_where_it_serves}
"""Chosen kind -> the function that builds it, if not that of the kind itself."""


def chosen_for_blocks(A: Operator, precision: str | None, spread: Spread) -> Preconditioner:
    """`multigrid` on blocks, or `jacobi`: they send no more than ghost values and one small gathered grid.

    Multigrid is for an A that couples neighbours on a grid whose blocks are boxes, unless its diagonal dominates, or A
    is known to be symmetric with a diagonal of both signs.
    """
    own = entries_or_products(A)
    if (
        spread.cut.all_names
        and isinstance(own, SparseMatrix)
        and couples_neighbours(on_its_grid(own))
        and _blocks_suit(own)
    ):
        with suppress(ValueError, UnsupportedOperation):  # Only building it shows whether it suits A.
            M = multigrid_on_cut_grid(A, spread=spread, precision=precision)
            if M is not None:
                return M
    M = jacobi_on_blocks(A, spread=spread)
    return jacobi(A) if M is None else M


def _blocks_suit(A: SparseMatrix) -> bool:
    if not is_known(A):
        return True
    analysis = analysis_of(A)
    return not analysis.dominates(DOMINANT) and (not analysis.seems_hermitian or bool(analysis.one_sign))
