"""Parts of a sparse matrix: SciPy selects from a matrix that holds the number of each entry in its place."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ....backends import Array
from ..compressed import CsrStructure
from ..entries.integers import starts_of
from ..entries.regather import Regather
from ..entries.scipy_form import csr_array
from ..stored import Stored


def submatrix(A: Stored, key: Any) -> Stored | Array:
    """`A[key]`: rows, or a dense array where SciPy's result has less than two axes."""
    rows, cols, _ = A.structure.entries()
    numbers = np.arange(1, len(rows) + 1, dtype=np.int32)
    chosen = csr_array(numbers, cols, starts_of(rows, A.shape[0]), A.shape)[_plain(key, A.shape)]
    if not sp.issparse(chosen) or chosen.ndim < 2:
        found = chosen.toarray() if sp.issparse(chosen) else np.asarray(chosen)
        return _dense(A, found.astype(np.int32) - np.int32(1))
    chosen = chosen.tocsr()
    chosen.sort_indices()
    structure = CsrStructure(chosen.indptr, chosen.indices, chosen.shape)
    return A.beside(structure, (A.host.take(A.entry_values(), chosen.data - np.int32(1)),))


def _plain(key: Any, shape: tuple[int, int]) -> Any:
    """The rows of `A[rows]` as a pair, and lists as arrays."""
    if isinstance(key, np.ndarray) and key.dtype == bool and key.shape == shape:
        return np.nonzero(key)
    pair = key if isinstance(key, tuple) else (key, slice(None))
    if len(pair) > 2:
        raise IndexError(f"{len(pair)} indices were given for a matrix; expected A[rows] or A[rows, columns].")
    if len(pair) == 1:
        pair = (pair[0], slice(None))
    return tuple(np.asarray(k) if isinstance(k, (list, range)) else k for k in pair)


def _dense(A: Stored, entries: np.ndarray) -> Array:
    (found,) = Regather((entries.reshape(-1),))(A.host, (A.entry_values(),))
    return A.bk.reshape(found if A.constant is None else A.placed(found), entries.shape)
