"""Search for NaN and infinity among the entries of a known matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..formats import Dense, SparseMatrix
from ..operator import Operator


def not_finite(A: Operator) -> str | None:
    """Message about NaN or infinite entries of A; None where all are finite, or values are not known now.

    Of one dense matrix for each system: only where every one of them is wrong, as good systems are to be solved.

    Cost: one sum of the values, less than a product. Those on another device are not fetched.
    """
    values = _values(A)
    if values is None or all(map(_sums_up, values)):
        return None
    known: Any = A.known()
    entries = sp.coo_array(known) if sp.issparse(known) else None
    stored = np.asarray(known) if entries is None else entries.data
    bad = ~np.isfinite(stored)
    if not bad.any() or (bad.ndim == 3 and not bad.any(axis=(1, 2)).all()):  # a sum that only overflows is none
        return None
    first = int(np.argmax(bad))
    *_, row, column = np.unravel_index(first, bad.shape) if entries is None else (c[first] for c in entries.coords)
    return (
        f"{int(bad.sum())} of {bad.size} entries are not finite; the first is {stored.flat[first]} in row {int(row)}, "
        f"column {int(column)}"
    )


def _values(A: Operator) -> Sequence[np.ndarray] | None:
    """The stored values on the host, as they lie."""
    arrays: Sequence[Any]
    if isinstance(A, Dense):
        arrays = (A.matrix if A.constant is None else A.constant,)
    elif isinstance(A, SparseMatrix):
        arrays = A.known_or_arrays()
    else:
        return None
    bk = A.bk
    if all(isinstance(a, np.ndarray) for a in arrays):
        return arrays
    return [bk.to_numpy(a) for a in arrays] if all(map(bk.is_concrete, arrays)) else None


def _sums_up(values: np.ndarray) -> bool:
    with np.errstate(all="ignore"):
        return bool(np.isfinite(values.sum()))
