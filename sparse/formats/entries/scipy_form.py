"""SciPy CSR and CSC arrays from canonical arrays, without checks or copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp


def csr_array(values: np.ndarray, cols: np.ndarray, starts: np.ndarray, shape: tuple[int, int]) -> sp.csr_array:
    """Rows with rising columns and no duplicates; nothing is copied."""
    return _canonical(sp.csr_array((values, cols, starts), shape, copy=False))


def csc_array(values: np.ndarray, rows: np.ndarray, starts: np.ndarray, shape: tuple[int, int]) -> sp.csc_array:
    """Columns with rising rows and no duplicates; nothing is copied."""
    return _canonical(sp.csc_array((values, rows, starts), shape, copy=False))


def _canonical(A: Any) -> Any:
    A.has_sorted_indices = A.has_canonical_format = True
    return A
