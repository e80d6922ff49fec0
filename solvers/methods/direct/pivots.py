"""Row interchanges of LU in the conventions of LAPACK (from 0, as in files) and of each library."""

from __future__ import annotations

import numpy as np


def as_interchanges(pivots: np.ndarray, first: int | None) -> np.ndarray:
    """Convert pivots to LAPACK's interchanges: row i was swapped with row `interchanges[..., i]`, in order.

    Args:
        pivots: `(..., n)` of a library.
        first: the number of the first row in interchanges; None: they are a permutation.
    """
    if first is not None:
        return (pivots - first).astype(np.int32)
    found = [_interchanges(one) for one in pivots.reshape(-1, pivots.shape[-1])]
    return np.array(found, np.int32).reshape(pivots.shape)


def from_interchanges(interchanges: np.ndarray, first: int | None) -> np.ndarray:
    """Convert LAPACK's interchanges to the convention of a library."""
    if first is not None:
        return (interchanges + first).astype(np.int32)
    found = [_permutation(one) for one in interchanges.reshape(-1, interchanges.shape[-1])]
    return np.array(found, np.int32).reshape(interchanges.shape)


def check_interchanges(interchanges: np.ndarray) -> None:
    """Check interchanges, which LAPACK does not.

    Raises:
        ValueError: a row is swapped with one above, or that is not there.
    """
    n = interchanges.shape[-1]
    if interchanges.dtype.kind != "i" or np.any((interchanges < np.arange(n)) | (interchanges >= n)):
        raise ValueError("the row interchanges lie outside of the matrix")


def _interchanges(permutation: np.ndarray) -> np.ndarray:
    order, place = np.arange(len(permutation)), np.arange(len(permutation))  # order[place[k]] == k
    found = np.zeros(len(permutation), np.int32)
    for i, row in enumerate(permutation):
        found[i] = j = place[row]
        other = order[i]
        order[i], order[j], place[row], place[other] = row, other, i, j
    return found


def _permutation(interchanges: np.ndarray) -> np.ndarray:
    order = np.arange(len(interchanges), dtype=np.int32)
    for i, j in enumerate(interchanges):
        order[[i, j]] = order[[j, i]]
    return order
