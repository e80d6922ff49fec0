"""Eigenvalues and eigenvectors of matrices along one axis: by formulas where there are some, else by LAPACK.

A tridiagonal matrix whose diagonals are constant, but for the ends of the main one, has sines or cosines for
eigenvectors. With d in the middle of the diagonal and c beside it the ends say what the boundary is:

| end | boundary |
|---|---|
| d | value 0 at the point behind the last |
| d + c | derivative 0 half a cell behind the last point |
| d - c | value 0 half a cell behind the last point |

Source: Strang, The Discrete Cosine Transform, SIAM Review 41 (1999); Buzbee, Golub, Nielson, SIAM J. Numer. Anal. 7
(1970).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp

_CLOSE = 100  # times the rounding unit of the largest entry


class Eigen(NamedTuple):
    """`A = vectors @ diag(values) @ inverse`, each `(n, n)`; values `(n,)`."""

    values: np.ndarray
    vectors: np.ndarray
    inverse: np.ndarray


def eigen(A: sp.csr_array, eps: float) -> Eigen | None:
    """Of a matrix that is Hermitian, or tridiagonal and so by a scaling of its rows; None for others.

    Args:
        A: in double precision.
        eps: rounding unit of the numbers that it was made of.

    Cost: `(n, n)` sines; 10 n^3 operations where there is no formula.
    """
    A, n = A.real if A.dtype.kind == "c" and not np.any(A.data.imag) else A, A.shape[0]
    entries = sp.coo_array(A)
    limit = _CLOSE * eps * float(np.max(np.abs(entries.data), initial=0))
    if np.all(np.abs(entries.row - entries.col) <= 1) and A.dtype.kind == "f" and n > 1:
        diagonals = A.diagonal(), A.diagonal(1), A.diagonal(-1)
        return _of_constants(*diagonals, limit) or _of_tridiagonal(*diagonals, eps)
    dense = A.toarray()
    if np.max(np.abs(dense - dense.conj().T), initial=0) > limit:
        return None
    values, vectors = np.linalg.eigh(dense)
    return Eigen(values, vectors, np.ascontiguousarray(vectors.conj().T))


def _of_constants(d: np.ndarray, up: np.ndarray, low: np.ndarray, limit: float) -> Eigen | None:
    n, c, middle = len(d), up[0], d[len(d) // 2] if len(d) > 2 else d[0]
    if n < 3 or np.any(np.abs(up - c) > limit) or np.any(np.abs(low - c) > limit) or c == 0:
        return None
    if np.any(np.abs(d[1:-1] - middle) > limit):
        return None
    ends = []
    for end in (d[0], d[-1]):
        kind = [k for k in (0, 1, -1) if abs(end - middle - k * c) <= limit]
        if not kind:
            return None
        ends.append(kind[0])
    waves, vectors = _waves(n, *ends)
    values = middle + 2 * c * np.cos(waves)
    return Eigen(values, vectors, vectors.T)


@lru_cache(maxsize=8)
def _waves(n: int, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """Wave numbers `(n,)` and normalised waves `(n, n)` in columns, for the ends 0, 1 (d + c) and -1 (d - c).

    Each is sin or cos of wave * (j + offset): the offset and the function are those of the first end, the wave numbers
    those that the last end allows.
    """
    half = (first != 0) / 2 + (last != 0) / 2  # by how much the domain is shorter than with values at points
    length = n + 1 - half
    odd = first == 1, last == 1
    k = np.arange(n) + (0.5 if odd[0] != odd[1] else 0.0 if odd[0] else 1.0)
    waves = np.pi * k / length
    j = np.arange(n) + (0.5 if first else 1.0)
    vectors = (np.cos if odd[0] else np.sin)(np.outer(j, waves))
    vectors /= np.sqrt(np.sum(vectors**2, axis=0))
    vectors.flags.writeable = waves.flags.writeable = False
    return waves, vectors


def _of_tridiagonal(d: np.ndarray, up: np.ndarray, low: np.ndarray, eps: float) -> Eigen | None:
    """By a diagonal S for which `S^-1 A S` is symmetric: both numbers beside each other have one sign."""
    product = up * low
    if np.any(product < 0) or np.any((product == 0) & ((up != 0) | (low != 0))):
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(product > 0, np.log(np.abs(low) / np.abs(up)) / 2, 0)
    logs = np.concatenate([[0], np.cumsum(steps)])
    logs -= (logs.max() + logs.min()) / 2
    if np.max(np.abs(logs)) > -np.log(eps) / 4:  # the vectors would lose too many digits
        return None
    values, vectors = scipy.linalg.eigh_tridiagonal(d, np.sign(up) * np.sqrt(product))
    scale = np.exp(logs)[:, None]
    return Eigen(values, scale * vectors, (vectors / scale).T)
