"""Incomplete factors of a matrix whose rows were put into an order with a large diagonal."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee

from ....sparse import Matrix, UnsupportedOperation
from ....sparse.formats import from_entries
from ....sparse.operators.concrete import nonzero_entries
from ..base import Preconditioner
from ..operators import DiagonallyScaled
from ..reordered import Reordered
from ..target import Target
from .factored import factored
from .matching import row_matching
from .on_host import incomplete_factors
from .scaled import UnitDiagonalMatrix

_SMALL = 0.5  # of the largest entry of its row and of its column: a diagonal entry that is smaller makes us look
_POOR = 1.0  # relative size of A M z - z above which M makes random vectors worse than no preconditioner does
_NOTE = "rows put into an order with a large diagonal"


def has_small_diagonal(own: Matrix) -> bool:
    """Is some diagonal entry of a known matrix 0, or less than half of the largest of its row and of its column?"""
    bk, rows, cols, values = nonzero_entries(own)
    if not bk.on_host:
        return False
    n, sizes = own.shape[0], np.abs(values)
    for each in sizes:
        in_row, in_col, diagonal = np.zeros(n), np.zeros(n), np.zeros(n)
        np.maximum.at(in_row, rows, each)
        np.maximum.at(in_col, cols, each)
        here = rows == cols
        diagonal[rows[here]] = each[here]
        if np.any(diagonal < _SMALL * np.minimum(in_row, in_col)):
            return True
    return False


def is_poor(A: UnitDiagonalMatrix, shift: float) -> bool:
    """Do exact solves with the factors make some random vector larger than it was, or are there none?

    Factors that serve leave |A M z - z| < |z|, with rows scaled as in A; those with small pivots 1e2 to 1e100.

    Cost: the factors, two triangular solves and a product.
    """
    try:
        factors, pivots, _ = incomplete_factors(A, shift, False)
    except ValueError:
        return True
    bk, n = A.host, A.pattern.n
    V = from_entries(bk, A.pattern.rows, A.pattern.cols, A.values, (n, n), prune=False, sum_duplicates=False)
    M, _ = factored(replace(A, target=Target(V, V.dtype)), factors, pivots, None)
    z = np.random.default_rng(5).choice([-1.0, 1.0], (A.systems, n)).astype(V.dtype)
    with np.errstate(all="ignore"):
        left = V.apply(M.apply(A.units * z)) - z
        return not bool(np.all(np.linalg.norm(left, axis=1) <= _POOR * np.sqrt(n)))


class Ordered(NamedTuple):
    """A in an order of rows and of columns that puts large entries on the diagonal.

    Attributes:
        matrix: row k is row `rows[k]` of A, column k column `cols[k]` of A times `scale[k]`.
    """

    matrix: Matrix
    rows: np.ndarray
    cols: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, own: Matrix) -> Ordered:
        """By the matching, then in a narrow order: that of A has lost its meaning when rows have moved.

        For a batch by the product of all sizes, of entries that are not zero in any of its matrices.

        Raises:
            ValueError: every order has a zero on the diagonal, or it is not found in time.
            UnsupportedOperation: the values are not known now.
        """
        bk, rows, cols, values = nonzero_entries(own)
        if not bk.on_host:
            raise UnsupportedOperation(
                "A matching of rows was asked for of a matrix whose values are not known before the compiled function "
                "runs; expected values that are known. Leave matching out."
            )
        n, sizes = own.shape[0], np.abs(values)
        whole = (sizes > 0).all(axis=0) & np.isfinite(sizes).all(axis=0)
        with np.errstate(all="ignore"):
            product = np.exp(np.log(sizes[:, whole]).mean(axis=0)) if len(sizes) > 1 else sizes[0, whole]
        found = row_matching(rows[whole], cols[whole], product.astype(np.float64), n)
        if found is None:
            raise ValueError(
                "No order of the rows with entries on all of the diagonal was found: the matrix is singular by its "
                "pattern, or too large to look further. Use 'ilu' with drop_tolerance=1e-3, or a direct method."
            )
        place = np.argsort(found.rows)
        pattern = sp.csr_array((np.ones(len(rows)), (place[rows], cols)), (n, n))
        narrow = reverse_cuthill_mckee(sp.csr_array(pattern + pattern.T), symmetric_mode=True).astype(np.int32)
        back = np.argsort(narrow)
        order, scale = found.rows[narrow], found.scale[narrow]
        scaled = values * found.scale[cols].astype(values.real.dtype)
        matrix = from_entries(
            bk, back[place[rows]], back[cols], scaled if own.systems is not None else scaled[0], (n, n),
            sum_duplicates=False,
        )  # fmt: skip
        return cls(matrix, order, narrow, scale)

    def restored(self, M: Preconditioner, target: Target) -> Preconditioner:
        """The preconditioner of A from that of `matrix`."""
        back = [np.argsort(index).astype(np.int32) for index in (self.rows, self.cols)]
        inner = Reordered(M.inner, self.rows, back[0], back[1], self.cols)
        scale = np.empty(len(self.scale))
        scale[self.cols] = self.scale
        left, right = (target.array(row[None]) for row in (scale, np.ones(len(scale))))
        note = "; ".join(filter(None, (_NOTE, M.note)))
        settings = (*M.settings, ("matching", True))
        found = DiagonallyScaled(inner, left, right)
        return replace(M, inner=found, hermitian=False, settings=settings, note=note)
