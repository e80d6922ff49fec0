"""SciPy's compiled loops for elementwise products of rows: one pass over memory, and the interpreter lock released.

NumPy takes two passes for a product that is added, and BLAS, as SciPy calls it, lets no other thread run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

try:
    from scipy.sparse import _sparsetools as _loops
except ImportError:  # they are SciPy's own, and may move
    _loops = None

csr_matvec: Any = getattr(_loops, "csr_matvec", None)
csr_matvecs: Any = getattr(_loops, "csr_matvecs", None)
csr_matmat: Any = getattr(_loops, "csr_matmat", None)
csc_matvec: Any = getattr(_loops, "csc_matvec", None)
dia_matvec: Any = getattr(_loops, "dia_matvec", None)
_COMPLETE = None not in (csr_matvec, csr_matvecs, csc_matvec, dia_matvec)

_KNOWN = frozenset(map(np.dtype, "fdFD"))
_STARTS, _FIRST = np.array([0, 1], np.int32), np.array([0], np.int32)  # of a matrix of one entry


def takes(dtype: np.dtype, *others: np.dtype) -> bool:
    """Are SciPy's loops there for arrays of this dtype?"""
    return _COMPLETE and dtype in _KNOWN and others.count(dtype) == len(others)


def add_multiple(a: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    """`y += a x` with `a` of one element: the product with a matrix of one entry."""
    if takes(y.dtype, x.dtype, a.dtype) and len(x) == len(y):
        csr_matvecs(1, 1, len(y), _STARTS, _FIRST, a, x, y)
    else:
        y += a * x


def add_product(d: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    """`y += d x`: the product with a matrix of one diagonal."""
    if takes(y.dtype, x.dtype, d.dtype) and len(d) == len(x) == len(y):
        dia_matvec(len(y), len(y), 1, len(y), _FIRST, d, x, y)
    else:
        y += d * x
