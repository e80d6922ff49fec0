"""Automatic choice of a preconditioner for vectors that are spread over several devices."""

from __future__ import annotations

from contextlib import suppress

from ...sparse import Operator, SparseMatrix, UnsupportedOperation
from ...sparse.analysis.analysis import analysis_of, on_its_grid
from ...sparse.operators.concrete import is_known
from ..diagonal import DOMINANT
from .base import Preconditioner, Spread
from .jacobi import jacobi
from .multigrid.cut.multigrid import multigrid_on_cut_grid
from .multigrid.from_matrix import couples_neighbours
from .pipeline import entries_or_products


def chosen_for_blocks(A: Operator, precision: str | None, spread: Spread) -> Preconditioner:
    """What needs no more of vectors than neighbours have, and a small grid: `multigrid` on blocks, or `jacobi`.

    Multigrid where A couples neighbours on a grid whose blocks are boxes, unless its diagonal dominates, or A is known
    to be symmetric with a diagonal of both signs.
    """
    own = entries_or_products(A)
    if spread.cut.all_names and isinstance(own, SparseMatrix) and couples_neighbours(on_its_grid(own)) and _suits(own):
        with suppress(ValueError, UnsupportedOperation):  # which it finds out when it is made
            found = multigrid_on_cut_grid(A, spread=spread, precision=precision)
            if found is not None:
                return found
    return jacobi(A)


def _suits(A: SparseMatrix) -> bool:
    if not is_known(A):
        return True
    analysis = analysis_of(A)
    return not analysis.dominates(DOMINANT) and (not analysis.seems_hermitian or bool(analysis.one_sign))
