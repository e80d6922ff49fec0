"""Automatic choice of a preconditioner for vectors that are spread over several devices."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from ...backends import Cut
from ...sparse import FunctionOperator, Operator, SparseMatrix, UnsupportedOperation
from ...sparse.analysis.analysis import analysis_of, on_its_grid
from ...sparse.operators.concrete import is_known
from ...sparse.operators.cut_stencil import CutStencil
from ...sparse.operators.cut_values import cut_stencil
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
    own_form = jacobi_on_blocks(A, spread=spread)
    return jacobi(A) if own_form is None else own_form


def jacobi_on_blocks(A: Operator, *, spread: Spread) -> Preconditioner | None:
    """`jacobi` of a function whose coefficients are found in a program, without entries that lie on each device.

    Returns:
        None for others, and where the function is no stencil of blocks.
    """
    own, bk = A.without_offset, A.bk
    grid, alone = own.own_grid, Cut(spread.cut.mesh, spread.cut.names)
    if not isinstance(own, FunctionOperator) or own.systems is not None or grid != spread.shape or not alone.all_names:
        return None
    zero = bk.zeros((1, own.shape[0]), own.dtype, own.like)
    if not bk.compiled(*own.args) and not bk.compiled(zero):
        return None
    found = cut_stencil(own, alone, bk.on_grid(zero, grid, alone))
    if not isinstance(found, CutStencil):
        return None
    (diagonal,) = found.own_diagonal().values
    diagonal = bk.constant(diagonal)
    one = bk.full_like(diagonal, 1)
    inverse = one / bk.where(diagonal == 0, one, diagonal)
    inner = replace(found, values=(inverse,), shifts=((0,) * len(grid),))
    hermitian = True if own.dtype.kind != "c" else None
    return Preconditioner(inner, "jacobi", hermitian, memory=own.shape[0], work=own.shape[0])


def _suits(A: SparseMatrix) -> bool:
    if not is_known(A):
        return True
    analysis = analysis_of(A)
    return not analysis.dominates(DOMINANT) and (not analysis.seems_hermitian or bool(analysis.one_sign))
