"""Classical strength of connection: which couplings of an unknown are strong."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ..settings import AmgSettings
from .rows import on_diagonal, reduced, repeated

_HUB = 20  # times the mean number of entries of a row
_STRENGTH_OF_HUBS = 0.7  # of graphs with such rows, whose distant neighbours would be too many
DOMINATED = 0.9  # of the diagonal entry: rows of a larger sum are solved by smoothing alone


def with_positive_diagonal(A: sp.csr_array) -> sp.csr_array:
    """A with rows multiplied by unit numbers that make its diagonal positive; A itself where it is."""
    diagonal = A.diagonal()
    size = np.abs(diagonal)
    if np.array_equal(diagonal, size):
        return A
    units = np.where(size > 0, np.conj(diagonal) / np.where(size > 0, size, 1), 1)
    return sp.csr_array((A.data * repeated(units, A), A.indices, A.indptr), A.shape)


def couplings(A: sp.csr_array) -> np.ndarray:
    """The entries of a matrix with a positive diagonal as real numbers, negative where i takes the value of j.

    Those of a real matrix are its entries. Those of a complex one are `-|a_ij|` and `a_ii`, as if phases were those of
    the unknowns: a Hermitian matrix `D A D^H` with unit numbers D is coarsened like A.
    """
    if A.dtype.kind != "c":
        return A.data
    return np.where(on_diagonal(A), 1, -1) * np.abs(A.data)


def strong_entries(A: sp.csr_array, coupled: np.ndarray, sums: np.ndarray, theta: float) -> np.ndarray:
    """Mask of the strong entries: `-a_ij >= theta max_k -a_ik`.

    Rows without a negative coupling, and those with a sum above 0.9 `a_ii`, have none.

    Args:
        A: with a positive diagonal.
        coupled: of its entries, see `couplings`; zeros are never strong.
        sums: of `coupled` in each row.
    """
    least = theta * reduced(np.minimum, coupled, A.indptr, 0.0)
    least[(least >= 0) | (sums > DOMINATED * A.diagonal().real)] = -np.inf
    return np.asarray(coupled <= repeated(least, A))


def threshold_of(A: sp.csr_array, settings: AmgSettings) -> float:
    """Strength threshold: as it was given, or the default, a higher one for graphs with hubs."""
    lengths = np.diff(A.indptr)
    hubs = len(lengths) and lengths.max() > _HUB * max(lengths.mean(), 1)
    return _STRENGTH_OF_HUBS if hubs and settings.strength is None else settings.threshold
