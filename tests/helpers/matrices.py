"""Sparse matrices to test formats with, and the same ones in krylix."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

import krylix
from krylix.sparse.formats import SparseMatrix, from_entries
from modes import array, library

FORMATS = ("csr", "csc", "coo", "dia", "ell", "hyb")


def random_matrix(shape: tuple[int, int], dtype: str = "float64", seed: int = 0) -> sp.csr_array:
    """With long, short and empty rows; canonical."""
    rng = np.random.default_rng(seed)
    n, m = shape
    dense = np.where(rng.random(shape) < 0.25, rng.normal(size=shape), 0)
    if np.dtype(dtype).kind == "c":
        dense = dense + np.where(dense != 0, 1j * rng.normal(size=shape), 0)
    if n > 2 and m:
        dense[1], dense[2] = 0, rng.normal(size=m)
    return sp.csr_array(dense.astype(dtype))


def in_random_order(A: Any) -> sp.csr_array:
    """The same system with its unknowns in another order, which shows no grid."""
    order = np.random.default_rng(0).permutation(A.shape[0])
    return sp.csr_array(sp.csr_array(A)[order][:, order])


def in_krylix(mode: str, S: Any, format: str | None, known: bool = True, **options: Any) -> SparseMatrix:
    """The matrix in a format of krylix, with values that are NumPy's or of the library."""
    coo = S.tocoo()
    values = coo.data if known else array(mode, coo.data)
    bk = krylix.choose_backend(library(mode))
    return from_entries(bk, coo.row, coo.col, values, S.shape, format=format, prune=False, **options)


def tolerance(dtype: Any) -> dict[str, float]:
    eps = float(np.finfo(dtype).eps)
    return {"rtol": 100 * eps, "atol": 100 * eps}
