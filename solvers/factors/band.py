"""Factors of banded matrices: bandwidth, partition into blocks and cyclic reduction; on the host, LU by LAPACK."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lapack
from scipy.sparse.csgraph import reverse_cuthill_mckee

from ...backends import Array
from ...sparse import DIA, Dense, HostOperator, Operator, SparseMatrix, UnsupportedOperation
from ...sparse.formats.dia import DiaStructure
from ...sparse.formats.entries.values import take_or_zero
from ...sparse.operators.concrete import as_matrix, concrete, concrete_entries, from_host
from ..preconditioners.operators import Reordered
from ..singular.projections import WithoutVectors
from .cyclic_reduction import BlockTridiagonal, reduced
from .inverse import InverseOperator, PseudoInverse
from .protocol import ExactlySingular, Factors
from .singularity import examined_blocks

WIDEST = 8  # half bandwidth; the reduction stores 5 times as many values per unknown
_WASTE, _SMALL = 4, 8  # storage limit per row of a band on the host: multiple of its entries, plus a constant


class Band(NamedTuple):
    """Half bandwidth, and the order that has it; None for the given order."""

    width: int
    order: np.ndarray | None = None


def may_be_narrow(matrix: SparseMatrix) -> bool:
    """Whether the matrix has few entries, and its grid is (nearly) one-dimensional."""
    grid, n = matrix.in_shape, matrix.shape[0]
    sides = [k for k in grid if isinstance(k, int)]
    on_line = len(sides) < len(grid) or n <= WIDEST * max(sides, default=0)
    return on_line and matrix.nnz <= (2 * WIDEST + 1) * n


def narrow(matrix: SparseMatrix) -> Band:
    """Narrowest band that was found. Cost: a pass over the entries, and reordering where the band is wide."""
    structure: Any = matrix.structure
    if isinstance(matrix, DIA) and max(map(abs, structure.offsets), default=0) <= WIDEST:
        return Band(max(map(abs, structure.offsets), default=0))
    rows, cols, _ = structure.entries()
    width = _width(rows, cols)
    if width <= WIDEST:
        return Band(width)
    n = matrix.shape[0]
    pattern = sp.csr_array((np.ones(len(rows), np.int8), (rows, cols)), (n, n))
    order = np.asarray(reverse_cuthill_mckee(pattern + pattern.T, symmetric_mode=True))
    places = np.argsort(order).astype(np.int32)
    found = _width(places[rows], places[cols])
    return Band(found, order.astype(np.int32)) if found < width else Band(width)


def tridiagonal_blocks(matrix: SparseMatrix, width: int, order: np.ndarray | None) -> tuple[Array, Array, Array]:
    """Sub-diagonal, diagonal and super-diagonal blocks `(systems or 1, width, width, count)`; the last is padded."""
    n = matrix.shape[0]
    count = -(-n // width)
    if order is None:
        own: Any = matrix.to("dia")
        values: Any = own.known_or_arrays()[0]
        bk, offsets = own.bk, own.structure.offsets
        diagonals = values if matrix.systems is not None else values[None]
    else:
        bk, rows, cols, values = concrete_entries(matrix)
        places = np.argsort(order).astype(np.int32)
        structure, (source,) = DiaStructure.from_entries(places[rows], places[cols], matrix.shape)
        offsets, diagonals = structure.offsets, take_or_zero(bk, values, source)

    def line(diagonal: Any, offset: int) -> Array:
        """A diagonal `(systems or 1, n)` as `(systems or 1, count, width)`, zero outside the matrix."""
        first, last = max(0, -offset), min(n, n - offset)
        padded = bk.pad(diagonal[:, first:last], [(0, 0), (first, count * width - last)])
        return bk.reshape(padded, (-1, count, width))

    lines: dict[int, Array] = {offset: line(diagonals[:, k], offset) for k, offset in enumerate(offsets)}
    nothing = bk.zeros((int(diagonals.shape[0]), count), bk.dtype(diagonals), diagonals)
    ones = np.arange(count * width).reshape(1, count, width) >= n
    filled = bk.asarray(ones.astype(bk.dtype(diagonals)), like=diagonals)
    lines[0] = lines[0] + filled if 0 in lines else bk.broadcast_to(filled, (int(diagonals.shape[0]), count, width))

    def block(side: int) -> Array:
        offsets = [(a, side * width + b - a) for a in range(width) for b in range(width)]
        rows = [lines[offset][:, :, a] if offset in lines else nothing for a, offset in offsets]
        return bk.permute_dims(bk.reshape(bk.stack(rows), (width, width, -1, count)), (2, 0, 1, 3))

    return block(-1), block(0), block(1)


def _width(rows: np.ndarray, cols: np.ndarray) -> int:
    return int(np.max(np.abs(rows - cols), initial=0))


def banded_factors(A: Operator) -> InverseOperator | PseudoInverse:
    """Factorise a banded matrix, by NumPy where its values are known."""
    if A.offset:
        raise _refusal("matrix_offset is added to all entries", "'CG' with a preconditioner, or 'scipy-direct'")
    try:  # Functions are traced, and LinearOperators probed by about 12 evaluations per entry of a row.
        A = A.without_offset
        matrix = A.matrix() if isinstance(A, HostOperator) else as_matrix(A)
    except UnsupportedOperation as error:
        why = str(error).split(". ")[0].rstrip(".")
        raise UnsupportedOperation(
            f"banded-direct needs the entries of the matrix, which are not found here ({why}). Use 'GMRES'."
        ) from error
    own: Operator = concrete(matrix)
    if isinstance(own, Dense) and own.known() is not None:
        own = own.to("csr")
    if not isinstance(own, SparseMatrix):
        raise _refusal(f"those of {own!r} are not known while it is compiled", "'direct'")
    known, (width, order) = own.bk.on_host, narrow(own)
    if width > WIDEST:
        raise _refusal(f"there are {width} of them in the narrowest order that was found", "'scipy-direct'")
    if not own.shape[0]:
        raise _refusal("there are no unknowns", "any other method")
    bk = own.bk
    wide = np.result_type(own.dtype, np.float64) if known else own.dtype
    parts = tridiagonal_blocks(own, max(width, 1), order)
    blocks: Any = BlockTridiagonal(bk, *parts, own.shape[0], own.systems is not None).astype(wide)
    inverse = reduced(blocks, own.dtype)
    seen = examined_blocks(bk, blocks, inverse, own.dtype)
    narrowed: Operator = inverse.astype(own.dtype)
    factors: Any = InverseOperator(narrowed if order is None else Reordered.of(narrowed, order, order))
    if seen is not None:
        *bases, singularity = seen
        if order is not None:
            bases = [bk.take_in_bounds(basis, np.argsort(order), 2) for basis in bases]
        right, left = (WithoutVectors(bk, bk.astype(basis, own.dtype)) for basis in bases)
        factors = PseudoInverse(factors, right, left, singularity)
    placed: Any = from_host(factors, matrix) if known else factors
    return placed


def _refusal(why: str, instead: str) -> UnsupportedOperation:
    return UnsupportedOperation(
        f"banded-direct needs a matrix with at most {WIDEST} diagonals beside the main one, but {why}. Use {instead}."
    )


# --- on the host, by LAPACK


class BandFactors(Factors):
    """LU factors with partial pivoting in band storage `(2 lower + upper + 1, n)`, double precision.

    A one-dimensional grid of a thousand points has a condition number of a million, which leaves single precision at
    most two digits. Bands are so small that double precision costs next to nothing.
    """

    library = "LAPACK"

    def __init__(self, A: Any, lower: int, upper: int) -> None:
        """Factorise a SciPy CSC matrix without duplicates."""
        n, _ = A.shape
        columns = np.repeat(np.arange(n), np.diff(A.indptr))
        band = np.zeros((2 * lower + upper + 1, n), np.result_type(A.dtype, np.float64), order="F")
        band[lower + upper + A.indices - columns, columns] = A.data
        self.lower, self.upper = lower, upper
        factorise, self._solve = lapack.get_lapack_funcs(("gbtrf", "gbtrs"), (band,))
        self.factors, self.exchanges, failed = factorise(band, lower, upper, overwrite_ab=True)
        if failed:
            raise ExactlySingular("Factor is exactly singular")
        self.nnz, self.dtype = int(self.factors.size), self.factors.dtype

    def solve(self, b: np.ndarray, transposed: bool = False) -> np.ndarray:
        band = self.factors, self.lower, self.upper
        return np.asarray(self._solve(*band, b, self.exchanges, trans=int(transposed))[0])


def lapack_band_factors(A: Any) -> BandFactors | None:
    """Factorise a CSC matrix that is banded in the given order; None for others."""
    n, nnz = A.shape[0], A.nnz
    if not nnz:
        return None
    distance = A.indices - np.repeat(np.arange(n, dtype=A.indices.dtype), np.diff(A.indptr))
    lower, upper = max(int(distance.max()), 0), max(-int(distance.min()), 0)
    if (2 * lower + upper + 1) * n > _WASTE * nnz + _SMALL * n:
        return None
    return BandFactors(A, lower, upper)
