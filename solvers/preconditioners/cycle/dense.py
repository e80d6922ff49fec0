"""(Pseudo-)inverses of small dense matrices: the coarsest solve."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ....backends import Array, Backend, get_backend
from .scales import times_diagonals

_CUT = 10  # times n eps: singular values below, relative to the largest one, count as zero
_GIVEN = 4  # times the rounding of the entries that A was given with, likewise: what that makes of a null vector
_OF_TERMS = 64  # times eps and the terms that a matrix was summed from, likewise
_LARGEST = 3000  # unknowns


def check_dense(n: int) -> None:
    """Raises ValueError for a matrix too large to be inverted as a dense one."""
    if n > _LARGEST:
        raise ValueError(
            f"The coarsest level has {n} unknowns; expected at most {_LARGEST}, as its inverse is dense. Allow more "
            "levels (max_levels), lower the strength, or choose another coarsening."
        )


def rounding_of(given: np.dtype, levels: int) -> float:
    """Relative rounding of the coarsest of so many levels, for a fine matrix in this precision.

    What rounding takes from the sum of a row counts about four times as much on each coarser level.
    """
    return float(np.finfo(given).eps) * 4.0 ** (levels - 1)


def known_inverse(A: np.ndarray, hermitian: bool, rounding: float, terms: np.ndarray | None = None) -> np.ndarray:
    """The (pseudo-)inverse of `(n, n)`, exactly Hermitian where A is said to be.

    Args:
        rounding: relative, of the entries that A was made of; its null vectors are such up to that.
        terms: `(n,)`: sizes of what the diagonal of a Hermitian A was summed from, by default 1.
    """
    n, eps = max(len(A), 1), float(np.finfo(A.dtype).eps)
    cut = max(_CUT * n * eps, _GIVEN * rounding)
    if not hermitian:
        singular = bool(len(A)) and bool(np.linalg.cond(A) * cut > 1)
        return np.asarray(np.linalg.pinv(A, rcond=cut)) if singular else np.asarray(np.linalg.inv(A))
    values, vectors = np.linalg.eigh((A + A.conj().T) / 2)
    kept = _are_kept(get_backend("numpy"), values, cut, _CUT * n * rounding)
    if terms is not None:
        kept &= np.abs(values) > _OF_TERMS * eps * (np.abs(vectors.T) ** 2 @ terms)
    inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].conj().T
    return (inverse + inverse.conj().T) / 2


def inverse_of_scaled(
    left: np.ndarray,
    A: sp.csr_array,
    right: np.ndarray,
    hermitian: bool,
    rounding: float,
    terms: np.ndarray | None = None,
) -> np.ndarray:
    """`known_inverse` of `diag(left) A diag(right)`.

    Args:
        terms: of A before it is scaled.

    Raises:
        ValueError: it is too large.
    """
    check_dense(A.shape[0])
    scaled = None if terms is None else np.abs(left * right) * terms
    return known_inverse(times_diagonals(left, A, right).toarray(), hermitian, rounding, scaled)


def _are_kept(bk: Backend, values: Array, cut: float, cut_beyond: float) -> Array:
    """Mask of ascending eigenvalues above `cut`; above `cut_beyond` for the sign opposite to the largest one.

    Rounding on finer levels adds up on coarse ones, and makes null vectors of semidefinite matrices such eigenvalues,
    with which M would be indefinite.
    """
    if not int(values.shape[0]):
        return values > 0
    ends = values[:1], values[-1:]
    turned = bk.where(ends[0] + ends[1] < 0, -values, values)
    largest = bk.maximum(-ends[0], ends[1])
    return (turned > cut * largest) | (turned < -cut_beyond * largest)


def traced_inverse(bk: Backend, A: Array, terms: Array | None = None) -> Array:
    """(Pseudo-)inverse of traced values, `(n, n)` or `(systems, n, n)`.

    What is not Hermitian is inverted by LU with a small shift, which serves singular matrices, too. `terms`, with the
    shape of its diagonal, are as for `known_inverse`.
    """
    if len(A.shape) == 3:
        return bk.stack([traced_inverse(bk, A[i], None if terms is None else terms[i]) for i in range(int(A.shape[0]))])
    adjoint = bk.matrix_transpose(bk.conj(A))
    eps = float(np.finfo(bk.dtype(A)).eps)
    n = int(A.shape[0])
    size, difference = (bk.max_abs(bk.reshape(M, (1, n * n)))[0, 0] for M in (A, A - adjoint))
    # both, as a branch that depends on values is none where libraries map functions
    return bk.where(difference <= 100 * eps * size, _by_eigenvalues(bk, A, terms), _by_lu(bk, A))


def _by_eigenvalues(bk: Backend, A: Array, terms: Array | None) -> Array:
    n, dtype = int(A.shape[0]), bk.dtype(A)
    values, vectors = bk.linalg.eigh((A + bk.matrix_transpose(bk.conj(A))) / 2)
    eps = float(np.finfo(dtype).eps)
    kept = _are_kept(bk, values, _CUT * n**0.5 * eps, _CUT * n * eps)
    if terms is not None:
        sizes = bk.product(bk.matrix_transpose(bk.abs(vectors) ** 2), terms[None])[0]
        kept = kept & (bk.abs(values) > _OF_TERMS * eps * sizes)
    inverse = bk.astype(bk.where(kept, 1 / bk.where(kept, values, 1), 0), dtype)
    scaled = vectors * inverse
    found = bk.product(bk.conj(vectors), scaled)  # rows i of: sum over k of conj(v_jk) scaled_ik
    return (found + bk.matrix_transpose(bk.conj(found))) / 2


def _by_lu(bk: Backend, A: Array) -> Array:
    n, dtype = int(A.shape[0]), bk.dtype(A)
    identity = bk.asarray(np.eye(n, dtype=dtype), like=A)
    size = bk.max_abs(bk.reshape(A, (1, n * n)))[0, 0]
    size = bk.astype(bk.where(size > 0, size, 1), dtype)
    shift = _CUT * n * float(np.finfo(dtype).eps)
    factors = bk.linalg.lu_factor(A + shift * size * identity)
    return bk.matrix_transpose(bk.linalg.lu_solve(factors, identity))
