"""The rules by NumPy's functions.

    UFUNCS, METHODS    elementwise functions, and their `reduce`, `accumulate` and `outer`
    FUNCTIONS          functions of whole arrays: their parameters are those of NumPy's function
    WRITERS            those that write to their first argument: positions and what goes there
    CREATORS           make arrays of the shape of another
    DESCRIPTIONS       tell shapes and dtypes

A function that is in none of them is not followed; NONLINEAR has the names of those that no rule could follow.

>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine import identity
>>> u = identity(get_backend("numpy"), (4,), float)
>>> FUNCTIONS[np.roll](u, -1).terms[0].offset
1
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...engine.arithmetic import conjugate
from ...engine.linear import Linear
from .arithmetic import METHODS, SUMS, UFUNCS
from .fourier import FOURIER
from .products import PRODUCTS, einsum, matmul
from .structure import STRUCTURE, WRITERS


def _conjugate(x: Any) -> Any:
    return conjugate(x) if isinstance(x, Linear) else np.conj(x)


_VECTOR_PRODUCTS = {
    "vecdot": lambda x, y: einsum("...i,...i->...", _conjugate(x), y),
    "matvec": lambda x, y: einsum("...ij,...j->...i", x, y),
    "vecmat": lambda x, y: einsum("...i,...ij->...j", _conjugate(x), y),
}
UFUNCS.update({getattr(np, name): rule for name, rule in _VECTOR_PRODUCTS.items() if hasattr(np, name)})
_NEW: dict[Any, dict[str, Callable[..., Any]]] = {  # in NumPy 2
    np: {"cumulative_sum": lambda x, axis=None, dtype=None: SUMS[np.cumsum](x, axis, dtype)},
    np.linalg: {
        "matmul": matmul,
        "outer": PRODUCTS[np.outer],
        "tensordot": PRODUCTS[np.tensordot],
        "vecdot": _VECTOR_PRODUCTS["vecdot"],
        "trace": lambda x, offset=0, dtype=None: SUMS[np.trace](x, offset, -2, -1, dtype),
    },
}
FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **SUMS,
    **STRUCTURE,
    **PRODUCTS,
    **FOURIER,
    **{
        getattr(module, name): rule
        for module, new in _NEW.items()
        for name, rule in new.items()
        if hasattr(module, name)
    },
}
CREATORS = frozenset(
    getattr(np, name)
    for name in ("zeros_like", "ones_like", "full_like", "empty_like", "zeros", "ones", "full", "empty")
)
DESCRIPTIONS = frozenset(
    getattr(np, name)
    for name in ("shape", "ndim", "size", "result_type", "iscomplexobj", "isrealobj", "can_cast", "common_type")
)
NONLINEAR = frozenset(
    (
        *("amax", "amin", "max", "min", "nanmax", "nanmin", "argmax", "argmin", "sort", "argsort", "lexsort"),
        *("partition", "median", "percentile", "quantile", "std", "var", "nanstd", "nanvar", "prod", "cumprod"),
        *("nanprod", "any", "all", "clip", "round", "around", "array_equal", "array_equiv", "allclose"),
        *("isclose", "count_nonzero", "nonzero", "argwhere", "flatnonzero", "unique", "searchsorted", "digitize"),
        *("histogram", "bincount", "nan_to_num", "ptp", "norm", "det", "slogdet", "inv", "pinv", "eig", "eigh"),
        *("eigvals", "eigvalsh", "svd", "qr", "cholesky", "matrix_rank", "cond", "fix", "sinc", "i0", "angle"),
        *("unwrap", "corrcoef", "cov", "nansum", "nanmean", "isin", "in1d", "isposinf", "isneginf", "isreal"),
        *("iscomplex", "poly", "polyval", "matrix_power", "multi_dot"),
    )
)

__all__ = ["CREATORS", "DESCRIPTIONS", "FUNCTIONS", "METHODS", "NONLINEAR", "UFUNCS", "WRITERS"]
