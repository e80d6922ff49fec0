"""Inverses of small dense matrices, also of singular ones: what the coarsest level is solved with."""

from __future__ import annotations

import numpy as np

from ....backends import Array, Backend

_CUT = 10  # times n eps: singular values below, relative to the largest one, count as zero


_LARGEST = 3000  # unknowns


def check_dense(n: int) -> None:
    """Raises ValueError for a matrix too large to be inverted as a dense one."""
    if n > _LARGEST:
        raise ValueError(
            f"The coarsest level has {n} unknowns; expected at most {_LARGEST}, as its inverse is dense. Allow more "
            "levels (max_levels), lower the strength, or choose another coarsening."
        )


def known_inverse(A: np.ndarray, hermitian: bool) -> np.ndarray:
    """The (pseudo-)inverse of `(n, n)`, exactly Hermitian where A is said to be."""
    cut = _CUT * max(len(A), 1) * np.finfo(A.dtype).eps
    if not hermitian:
        return np.asarray(np.linalg.pinv(A, rcond=cut)) if _is_singular(A) else np.asarray(np.linalg.inv(A))
    values, vectors = np.linalg.eigh((A + A.conj().T) / 2)
    size = np.abs(values)
    kept = size > cut * size.max(initial=0)
    inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].conj().T
    return (inverse + inverse.conj().T) / 2


def _is_singular(A: np.ndarray) -> bool:
    return bool(np.linalg.cond(A) * _CUT * max(len(A), 1) * np.finfo(A.dtype).eps > 1) if A.size else False


def traced_inverse(bk: Backend, A: Array) -> Array:
    """The same in a compiled program, of `(n, n)` or `(systems, n, n)`.

    What is not Hermitian is inverted by LU with a small shift, which serves singular matrices, too.
    """
    if len(A.shape) == 3:
        return bk.stack([traced_inverse(bk, A[i]) for i in range(int(A.shape[0]))])
    adjoint = bk.matrix_transpose(bk.conj(A))
    eps = float(np.finfo(bk.dtype(A)).eps)
    n = int(A.shape[0])
    size, difference = (bk.max_abs(bk.reshape(M, (1, n * n)))[0, 0] for M in (A, A - adjoint))
    # both, as a branch that depends on values is none where libraries map functions
    return bk.where(difference <= 100 * eps * size, _by_eigenvalues(bk, A), _by_lu(bk, A))


def _by_eigenvalues(bk: Backend, A: Array) -> Array:
    n, dtype = int(A.shape[0]), bk.dtype(A)
    values, vectors = bk.linalg.eigh((A + bk.matrix_transpose(bk.conj(A))) / 2)
    size = bk.abs(values)
    kept = size > _CUT * n * float(np.finfo(dtype).eps) * bk.max_abs(size[None])[0]
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
