"""Matrices whose numbers nobody else can change."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ..backends import Backend
from .convert import is_list_of_matrices
from .formats import Dense, SparseMatrix

_OF_ARRAYS = ("csr", "csc", "coo", "bsr", "dia")  # the other formats of SciPy are converted anyway


def owned(A: Any, bk: Backend) -> Any:
    """What is called A, in memory of its own where it is a matrix in memory that its owner may write to.

    That is of NumPy, SciPy and PyTorch, and krylix's formats in these; sparse tensors are copied where they are read.
    Functions and LinearOperators stay as they are, and whatever these read. Derivatives go on to what was given.

    Cost: one pass over the entries.
    """
    if isinstance(A, np.ndarray) or (sp.issparse(A) and A.format in _OF_ARRAYS):
        return A.copy()
    if bk.is_array(A):
        return bk.owned(A)
    if isinstance(A, SparseMatrix):
        return A.with_values([_own(A.bk, values) for values in A.known_or_arrays()])
    if isinstance(A, Dense):
        known = None if A.constant is None else A.constant.copy()
        return Dense(A.bk, known if A.constant is A.matrix else A.bk.owned(A.matrix), known)
    if is_list_of_matrices(A, bk):
        return [owned(one, bk) for one in A]
    return A


def _own(bk: Backend, values: Any) -> Any:
    return values.copy() if isinstance(values, np.ndarray) else bk.owned(values)
