"""Banded direct solver in the array library's own operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ....backends import Array, Backend
from ....sparse import Dense, HostOperator, Matrix, Operator, SparseMatrix, UnsupportedOperation
from ....sparse.operators.concrete import as_matrix, concrete, from_host
from ...block_tridiagonal.band import WIDEST, narrow, tridiagonal_blocks
from ...block_tridiagonal.cyclic_reduction import reduced
from ...block_tridiagonal.singular import BlockTridiagonal, examined_blocks
from ...null_space.projections import WithoutVectors
from ...preconditioners.operators import reordered
from .factorisation import InverseFactors
from .refinement import Refinement
from .singular import SingularFactors


@dataclass(frozen=True)
class BandedDirect(Refinement):
    """Cyclic reduction of matrices with few diagonals, as of problems along a line: in the library, and in batches.

    For tridiagonal and banded matrices, also where a ring or another order of the unknowns hides it: a narrow order is
    found (reverse Cuthill-McKee), in which at most 8 diagonals lie beside the main one. With w of them, blocks of w
    unknowns are eliminated, every second one at a time, so that log2(n / w) passes over arrays do it all; in compiled
    functions too, where values may be traced. Dense matrices and LinearOperators must be known; the entries of the
    latter are found by evaluations, about 12 for each of a row. Rows are not exchanged: for definite matrices, and for
    those with large diagonals, it is as good as LU; others are refined, and reported where that is not enough. Of a
    singular matrix with a solution it finds the one of least norm, with pivots that are shifted where they vanish, and
    null vectors by inverse iteration (2 at most where values are traced).

    Cost: 5 w numbers per unknown and 8 w^2 operations for each, once per matrix, and 1 solve and product that show
    whether it is singular; then per iteration 1 product with A and 10 w operations per unknown; mostly 1 iteration.

    Source: Buzbee, Golub, Nielson, SIAM J. Numer. Anal. 7 (1970); Heller, SIAM J. Numer. Anal. 13 (1976).

    Examples:
        >>> import numpy as np
        >>> from krylix import linear_solve
        >>> from krylix.solvers import BandedDirect
        >>> A = np.array([[4.0, 1.0, 0.0], [2.0, 4.0, 1.0], [0.0, 3.0, 4.0]])
        >>> result = linear_solve(A, np.ones(3), method=BandedDirect())
        >>> np.allclose(A @ result.x, 1)
        True
    """

    needs_band: ClassVar[bool] = True
    short_steps: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return "banded-direct"

    def factorise(self, bk: Backend, A: Operator) -> InverseFactors | SingularFactors:
        return banded_factors(A)


def banded_factors(A: Operator) -> InverseFactors | SingularFactors:
    """Factors of a banded matrix, by NumPy where its values are known.

    Raises:
        UnsupportedOperation: it has too many, or its entries cannot be found.
    """
    if A.offset:
        raise _refusal("matrix_offset is added to all entries", "'CG' with a preconditioner, or 'scipy-direct'")
    matrix = _entries(A.without_offset)
    own: Operator = concrete(matrix)
    if isinstance(own, Dense) and own.known() is not None:
        own = own.to("csr")
    if not isinstance(own, SparseMatrix):
        raise _refusal(f"which those of {own!r} are is not known while it is compiled", "'direct'")
    known, (width, order) = own.bk.on_host, narrow(own)
    if width > WIDEST:
        raise _refusal(f"there are {width} of them in the narrowest order that was found", "'scipy-direct'")
    if not own.shape[0]:
        raise _refusal("there are no unknowns", "any other method")
    bk = own.bk
    wide = np.result_type(own.dtype, np.float64) if known else own.dtype
    blocks = BlockTridiagonal(*tridiagonal_blocks(own, max(width, 1), order), own.shape[0]).astype(bk, wide)
    inverse = reduced(bk, *blocks.parts, own.shape[0], own.systems is not None, own.dtype)
    told = examined_blocks(bk, blocks, inverse, own.dtype)
    narrowed: Operator = inverse.astype(own.dtype)
    found: Any = InverseFactors(narrowed if order is None else reordered(narrowed, order, order))
    if told is not None:
        found = _without_null_vectors(found, told, own.dtype, order)
    placed: Any = from_host(found, matrix) if known else found
    return placed


def _without_null_vectors(
    factors: InverseFactors, told: tuple[Array, Array, Array], dtype: np.dtype, order: np.ndarray | None
) -> SingularFactors:
    *vectors, singularity = told
    bk = factors.bk
    if order is not None:
        vectors = [bk.take_in_bounds(basis, np.argsort(order), 2) for basis in vectors]
    right, left = (WithoutVectors(bk, bk.astype(basis, dtype)) for basis in vectors)
    return SingularFactors(factors, right, left, singularity)


def _entries(A: Operator) -> Matrix:
    """Matrix of A: a function is traced, a LinearOperator probed by about 12 evaluations per entry of a row."""
    try:
        return A.matrix() if isinstance(A, HostOperator) else as_matrix(A)
    except UnsupportedOperation as error:
        why = str(error).split(". ")[0].rstrip(".")
        raise UnsupportedOperation(
            f"banded-direct needs the entries of the matrix, which are not found here ({why}). Use 'GMRES'."
        ) from error


def _refusal(why: str, instead: str) -> UnsupportedOperation:
    return UnsupportedOperation(
        f"banded-direct needs a matrix with at most {WIDEST} diagonals beside the main one, but {why}. Use {instead}."
    )
