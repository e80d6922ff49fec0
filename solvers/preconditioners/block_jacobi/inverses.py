"""Batched inverses of small dense matrices, with a test for singular ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....backends import Array, Backend, get_backend
from ....sparse.analysis.symmetry import REFUSED

_SINGULAR = 0.1  # over the rounding unit: the condition from which an inverse holds nothing but rounding
_SWEEPS = 5  # of scaling, each of which halves the digits that are missing
_HERMITIAN = 100  # times the rounding unit: how far entries of a Hermitian matrix may be apart


def inverses(bk: Backend, blocks: Array) -> tuple[Array, Array]:
    """Inverses of `(m, k, k)`, and the mask `(m, 1, 1)` of numerically singular ones.

    Inverses of Hermitian matrices are Hermitian; those of singular ones are unspecified.
    """
    with bk.errstate():
        scale = _scale(bk, blocks)
        even = scale * blocks * bk.matrix_transpose(scale)  # so that units of the unknowns make nothing singular
        found = bk.linalg.inverse(even)
        limit = _SINGULAR / float(np.finfo(bk.dtype(blocks)).eps)
        condition = _norm(bk, even) * _norm(bk, found)
        singular = bk.negated(condition < limit)
        adjoint = bk.conj(bk.matrix_transpose(found))
        found = bk.where(are_hermitian(bk, even), (found + adjoint) / 2, found)
        return scale * found * bk.matrix_transpose(scale), singular


def are_hermitian(bk: Backend, blocks: Array, tolerance: float | None = None) -> Array:
    """`(m, 1, 1)` bool: which of `(m, k, k)` are Hermitian, of entries of about one size."""
    limit = _HERMITIAN * float(np.finfo(bk.dtype(blocks)).eps) if tolerance is None else tolerance
    return _largest(bk, blocks - bk.conj(bk.matrix_transpose(blocks))) <= limit * _largest(bk, blocks)


def all_hermitian(blocks: np.ndarray) -> bool | None:
    """Are all of these known matrices `(m, k, k)` Hermitian? None: neither that nor far from it."""
    host = get_backend("numpy")
    if bool(np.all(are_hermitian(host, blocks))):
        return True
    return None if bool(np.all(are_hermitian(host, blocks, REFUSED))) else False


def regular_inverses(blocks: np.ndarray) -> np.ndarray:
    """Inverses of singular matrices `(m, k, k)` in which null vectors count as if their eigenvalue were the largest.

    No direction is lost, and a semi-definite matrix gets a definite inverse. Zeros count as the identity.
    """
    scale = _scale(get_backend("numpy"), blocks)
    even = scale * blocks * np.swapaxes(scale, -1, -2)
    found = np.array([_regular_inverse(block) for block in even], blocks.dtype).reshape(blocks.shape)
    return scale * found * np.swapaxes(scale, -1, -2)


def _regular_inverse(block: np.ndarray) -> np.ndarray:
    eps = np.finfo(block.dtype).eps
    if np.abs(block - block.conj().T).max() <= _HERMITIAN * eps * np.abs(block).max():
        values, vectors = np.linalg.eigh(block)
        left, right = vectors.conj().T, vectors
    else:
        u, values, vh = np.linalg.svd(block)
        left, right = u.conj().T, vh.conj().T
    largest = np.abs(values).max() or 1.0
    kept = np.where(np.abs(values) > np.sqrt(eps) * largest, values, largest)
    return (right / kept) @ left


def _scale(bk: Backend, blocks: Array) -> Array:
    """`(m, k, 1)`: numbers s with which the largest entry in each row and column of `s_i a_ij s_j` is near 1.

    Source: Ruiz, A scaling algorithm to equilibrate both rows and columns norms in matrices, 2001.
    """
    m, k = int(blocks.shape[0]), int(blocks.shape[1])
    scale: Any = 1
    for _ in range(_SWEEPS):
        rows, columns = (bk.max_abs(bk.reshape(b, (m * k, k))) for b in (blocks, bk.matrix_transpose(blocks)))
        largest = bk.maximum(rows, columns)
        root = bk.sqrt(bk.where(largest > 0, largest, bk.full_like(largest, 1)))
        factor = bk.astype(bk.reshape(1 / root, (m, k, 1)), bk.dtype(blocks))
        blocks, scale = factor * blocks * bk.matrix_transpose(factor), scale * factor
    return scale


def _norm(bk: Backend, blocks: Array) -> Array:
    """`(m, 1, 1)`: the Frobenius norm."""
    m, k = int(blocks.shape[0]), int(blocks.shape[1])
    return bk.reshape(bk.norm(bk.reshape(blocks, (m, k * k))), (m, 1, 1))


def _largest(bk: Backend, blocks: Array) -> Array:
    """`(m, 1, 1)`: the largest |entry|."""
    m, k = int(blocks.shape[0]), int(blocks.shape[1])
    return bk.reshape(bk.max_abs(bk.reshape(blocks, (m, k * k))), (m, 1, 1))
