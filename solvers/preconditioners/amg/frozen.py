"""Tentative prolongations for matrices of unknown values: those of unit coefficients on the same pattern."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....sparse.formats import Structure
from .hierarchy import coarsened
from .levels import Tentative
from .settings import AmgSettings


def tentative_of(
    structure: Structure, settings: AmgSettings, near_nullspace: np.ndarray | None, block_size: int
) -> tuple[Tentative, ...]:
    """Tentative prolongations, finest first; cached by structure.

    Unit coefficients suit any values; those of one matrix with jumps only similar matrices.
    """
    vectors = None if near_nullspace is None else _Columns(near_nullspace)
    return _tentative_of(structure, settings, vectors, block_size)


class _Columns:
    """An array that is compared by its content."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self._content = array, (array.shape, array.dtype.str, array.tobytes())

    def __hash__(self) -> int:
        return hash(self._content)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Columns) and self._content == other._content


@lru_cache(maxsize=8)
def _tentative_of(
    structure: Structure, settings: AmgSettings, near_nullspace: _Columns | None, block_size: int
) -> tuple[Tentative, ...]:
    vectors = None if near_nullspace is None else near_nullspace.array
    levels = coarsened(unit_coefficients(structure), settings, True, vectors, block_size)
    return tuple(level.tentative for level in levels if level.tentative is not None)


def unit_coefficients(structure: Structure) -> sp.csr_array:
    """The Laplacian of the graph of a structure: -1 for each pair that is coupled, and rows whose sum is zero."""
    rows, cols, _ = structure.entries()
    apart = rows != cols
    ones = sp.csr_array((np.ones(int(apart.sum())), (rows[apart], cols[apart])), structure.shape)
    couplings = sp.csr_array(ones + ones.T)
    couplings.data[:] = 1
    degrees = np.asarray(couplings.sum(axis=1)).reshape(-1)
    return sp.csr_array(sp.diags_array(np.maximum(degrees, 1.0)) - couplings)
