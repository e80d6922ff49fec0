"""What all ways to a hierarchy end with: a preconditioner that says what it costs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....sparse import Matrix, Operator, SparseMatrix
from ..base import Preconditioner
from ..multigrid.coarsest import exact_inverse
from ..multigrid.cycle import numbers_stored, work_of
from ..operators import note_on_precision, permuted
from ..target import Target
from .cycle import known_cycle
from .levels import HostLevel
from .settings import AmgSettings


def small(own: Matrix, target: Target, settings: AmgSettings) -> Preconditioner:
    """The exact inverse of a small matrix."""
    cycle, hermitian = exact_inverse(own, "amg")
    return described(cycle, own, target, settings, hermitian)


def of_levels(
    own: Matrix,
    target: Target,
    levels: list[HostLevel],
    settings: AmgSettings,
    hermitian: bool,
    order: np.ndarray | None = None,
) -> Preconditioner:
    """The cycle of levels of a known matrix, in an order of its unknowns."""
    return described(known_cycle(levels, settings, hermitian, target), own, target, settings, hermitian, order)


def described(
    cycle: Operator,
    own: Matrix,
    target: Target,
    settings: AmgSettings,
    hermitian: bool | None,
    order: np.ndarray | None = None,
) -> Preconditioner:
    """A cycle as a preconditioner: in the order of A, with its costs and settings."""
    cycle = cycle if order is None else permuted(cycle, order, target)
    costs = numbers_stored(cycle), work_of(cycle), own.nnz
    return Preconditioner(cycle, "amg", hermitian, *costs, settings.pairs(), note_on_precision(cycle))


def sparse_form(matrix: Matrix) -> SparseMatrix:
    """The matrix in a sparse format."""
    found: Any = matrix if isinstance(matrix, SparseMatrix) else matrix.to("csr")
    return found
