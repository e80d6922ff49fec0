"""Checks and scalings of matrices with known values, and dense inverses for the coarsest level."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ....backends import Array, Backend, get_backend
from ....sparse import Dense, Matrix
from ....sparse.analysis.symmetry import nearest_hermitian
from ....sparse.operators.concrete import in_scipy
from ..amg.rows import repeated, row_sums
from ..checks import check_finite, check_in_range
from ..pipeline import Target

_CUT = 10  # times n eps: smaller singular values, relative to the largest one, count as zero
_GIVEN = 4  # times the rounding of the given entries of A, likewise: its effect on a null vector
_OF_TERMS = 64  # times eps and the terms that a matrix was summed from, likewise
_LARGEST = 3000  # unknowns
_RESIDUE = 0.75  # power of the rounding unit: such sums of terms of size one are only rounding


def hermitian_and_double(A: sp.csr_array, kind: str) -> tuple[bool, sp.csr_array]:
    """Is A Hermitian; and A in double precision, exactly Hermitian if it is nearly so."""
    check_finite(kind, bool(np.isfinite(A.data).all()))
    check_in_range(kind, A.diagonal())
    rows = np.flatnonzero((A.diagonal() == 0) & (np.diff(A.indptr) > 0))
    if len(rows) and A.shape[0] > 1:
        raise ValueError(
            f"{kind} was asked for a matrix with zeros on its diagonal, in {len(rows)} rows that have other entries "
            f"(the first is row {rows[0]}); its smoothers divide by the diagonal. Use another kind, or a part of A."
        )
    wide = A.astype(np.result_type(A.dtype, np.float64))
    nearest = nearest_hermitian(wide)
    return nearest is not None, wide if nearest is None else nearest


def unit_scale(bk: Backend, sizes: Array) -> Array:
    """`1 / sqrt(sizes)`; 1 where they are zero, as on the diagonal of isolated unknowns."""
    one = bk.full_like(sizes, 1)
    return bk.where(sizes > 0, 1 / bk.sqrt(bk.where(sizes > 0, sizes, one)), one)


def phases(bk: Backend, diagonal: Array) -> Array:
    """`conj(d) / |d|` for each number d; 1 for zeros."""
    size, one = bk.abs(diagonal), bk.full_like(diagonal, 1)
    safe = bk.where(size > 0, size, bk.full_like(size, 1))
    return bk.where(size > 0, bk.conj(diagonal) / bk.astype(safe, bk.dtype(diagonal)), one)


def times_diagonals(left: float | np.ndarray | None, A: sp.csr_array, right: np.ndarray | None = None) -> sp.csr_array:
    """`diag(left) A diag(right)`, of CSR; None: ones."""
    data = A.data
    if left is not None and not (isinstance(left, float) and left == 1):
        data = data * (left if isinstance(left, float) else repeated(left, A))
    if right is not None:
        data = data * right[A.indices]
    return A if data is A.data else sp.csr_array((data, A.indices, A.indptr), A.shape)


def scales_of(A: sp.csr_array, hermitian: bool, by_rows: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Diagonals such that `left A right` has ones on its diagonal; 1 where that of A is zero.

    For a Hermitian matrix they are equal up to sign, so that the product is Hermitian.

    Args:
        by_rows: scale by the sums of the absolute values in rows instead of the diagonal, so that no eigenvalue of a
            Hermitian matrix is above 1.
    """
    diagonal = A.diagonal()
    size, host = row_sums(np.abs(A.data), A) if by_rows else np.abs(diagonal), get_backend("numpy")
    right = unit_scale(host, size)
    if hermitian:
        return right * (-1 if (size > 0).any() and (diagonal.real <= 0).all() else 1), right
    return right * phases(host, diagonal), right


def check_dense(n: int) -> None:
    """Refuse a coarsest level too large for a dense inverse."""
    if n > _LARGEST:
        raise ValueError(
            f"The coarsest level has {n} unknowns; expected at most {_LARGEST}, as its inverse is dense. Allow more "
            "levels (max_levels), lower the strength, or choose another coarsening."
        )


def rounding_of(dtype: np.dtype, levels: int) -> float:
    """Relative rounding of the coarsest of `levels` levels, for a fine matrix in `dtype`.

    The rounding of row sums counts about four times as much on each coarser level.
    """
    return float(np.finfo(dtype).eps) * 4.0 ** (levels - 1)


def residue_of(dtype: np.dtype) -> float:
    """Size up to which a sum of terms of size one is only rounding."""
    return float(np.finfo(dtype).eps) ** _RESIDUE


def known_inverse(A: np.ndarray, hermitian: bool, rounding: float, terms: np.ndarray | None = None) -> np.ndarray:
    """The (pseudo-)inverse of `(n, n)`, exactly Hermitian if `hermitian`.

    Args:
        rounding: relative rounding of the entries from which A was computed, up to which null vectors are exact.
        terms: `(n,)`: sizes of the terms whose sum is the diagonal of a Hermitian A, by default 1.
    """
    n, eps = max(len(A), 1), float(np.finfo(A.dtype).eps)
    cut = max(_CUT * n * eps, _GIVEN * rounding)
    if not hermitian:
        singular = bool(len(A)) and bool(np.linalg.cond(A) * cut > 1)
        return np.asarray(np.linalg.pinv(A, rcond=cut)) if singular else np.asarray(np.linalg.inv(A))
    values, vectors = np.linalg.eigh((A + A.conj().T) / 2)
    regular = _nonzero(get_backend("numpy"), values, cut, _CUT * n * rounding)
    if terms is not None:
        regular &= np.abs(values) > _OF_TERMS * eps * (np.abs(vectors.T) ** 2 @ terms)
    inverse = (vectors[:, regular] / values[regular]) @ vectors[:, regular].conj().T
    return (inverse + inverse.conj().T) / 2


def inverse_of_scaled(
    left: np.ndarray,
    A: sp.csr_array,
    right: np.ndarray,
    hermitian: bool,
    rounding: float,
    terms: np.ndarray | None = None,
) -> np.ndarray:
    """`known_inverse` of `diag(left) A diag(right)`, with the terms of the unscaled A."""
    check_dense(A.shape[0])
    scaled = None if terms is None else np.abs(left * right) * terms
    return known_inverse(times_diagonals(left, A, right).toarray(), hermitian, rounding, scaled)


def _nonzero(bk: Backend, values: Array, cut: float, cut_beyond: float) -> Array:
    """Mask of ascending eigenvalues above `cut`; above `cut_beyond` for the sign opposite to the largest one.

    Rounding accumulates on coarse levels, and turns null vectors of semidefinite matrices into such eigenvalues, with
    which M would be indefinite.
    """
    if not int(values.shape[0]):
        return values > 0
    ends = values[:1], values[-1:]
    turned = bk.where(ends[0] + ends[1] < 0, -values, values)
    largest = bk.maximum(-ends[0], ends[1])
    return (turned > cut * largest) | (turned < -cut_beyond * largest)


def traced_inverse(bk: Backend, A: Array, terms: Array | None = None) -> Array:
    """(Pseudo-)inverse of traced values, `(n, n)` or `(systems, n, n)`.

    A non-Hermitian A is inverted by LU with a small shift, which works for singular matrices, too. `terms`, with the
    shape of the diagonal, are those of `known_inverse`.
    """
    if len(A.shape) == 3:
        return bk.stack([traced_inverse(bk, A[i], None if terms is None else terms[i]) for i in range(int(A.shape[0]))])
    adjoint = bk.matrix_transpose(bk.conj(A))
    eps = float(np.finfo(bk.dtype(A)).eps)
    n = int(A.shape[0])
    size, difference = (bk.max_abs(bk.reshape(M, (1, n * n)))[0, 0] for M in (A, A - adjoint))
    # Both are computed, because mapped functions cannot branch on values.
    return bk.where(difference <= 100 * eps * size, _by_eigenvalues(bk, A, terms), _by_lu(bk, A))


def _by_eigenvalues(bk: Backend, A: Array, terms: Array | None) -> Array:
    n, dtype = int(A.shape[0]), bk.dtype(A)
    values, vectors = bk.linalg.eigh((A + bk.matrix_transpose(bk.conj(A))) / 2)
    eps = float(np.finfo(dtype).eps)
    regular = _nonzero(bk, values, _CUT * n**0.5 * eps, _CUT * n * eps)
    if terms is not None:
        sizes = bk.product(bk.matrix_transpose(bk.abs(vectors) ** 2), terms[None])[0]
        regular = regular & (bk.abs(values) > _OF_TERMS * eps * sizes)
    inverse = bk.astype(bk.where(regular, 1 / bk.where(regular, values, 1), 0), dtype)
    # Row i: the sum over k of conj(v_jk) v_ik / lambda_k.
    product = bk.product(bk.conj(vectors), vectors * inverse)
    return (product + bk.matrix_transpose(bk.conj(product))) / 2


def _by_lu(bk: Backend, A: Array) -> Array:
    n, dtype = int(A.shape[0]), bk.dtype(A)
    identity = bk.asarray(np.eye(n, dtype=dtype), like=A)
    size = bk.max_abs(bk.reshape(A, (1, n * n)))[0, 0]
    size = bk.astype(bk.where(size > 0, size, 1), dtype)
    shift = _CUT * n * float(np.finfo(dtype).eps)
    factors = bk.linalg.lu_factor(A + shift * size * identity)
    return bk.matrix_transpose(bk.linalg.lu_solve(factors, identity))


def exact_inverse(matrix: Matrix, kind: str) -> tuple[Dense, bool | None]:
    """(Pseudo-)inverse, computed with a unit diagonal, and whether it is Hermitian (None: unknown)."""
    known, target = in_scipy(matrix), Target(matrix, matrix.dtype)
    if known is None:
        bk = matrix.bk
        entries = bk.constant(matrix.dense())
        scale = bk.astype(unit_scale(bk, bk.abs(bk.diagonal(entries))), matrix.dtype)
        both = scale[..., :, None] * scale[..., None, :]
        return Dense(bk, both * traced_inverse(bk, both * entries)), None
    matrices = [hermitian_and_double(A, kind) for A in ([known] if isinstance(known, sp.csr_array) else known)]
    hermitian = all(is_hermitian for is_hermitian, _ in matrices)
    inverses = []
    for _, A in matrices:
        left, right = scales_of(A, hermitian)
        inverse = inverse_of_scaled(left, A, right, hermitian, rounding_of(matrix.dtype, 1))
        inverses.append(right[:, None] * inverse * left)
    if isinstance(known, sp.csr_array):
        return target.dense(inverses[0]), hermitian
    dtype = inverses[0].dtype if inverses else matrix.dtype
    return target.dense(np.array(inverses, dtype).reshape(len(inverses), *matrix.shape)), hermitian
