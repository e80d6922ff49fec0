"""NumPy's own functions for operations that the standard does not have."""

import numpy as np
from scipy.special import erf as erf
from scipy.special import gammainc as gammainc
from scipy.special import gammaincc as gammaincc
from scipy.special import gammaln

from ..interface.arrays import Array

einsum = np.einsum
_UPDATES = {"add": np.add.at, "max": np.maximum.at, "min": np.minimum.at}


def lgamma(x: Array) -> Array:
    """log |gamma(x)|; inf at both infinities, as in C, where SciPy has -inf at -inf."""
    return gammaln(np.where(np.isneginf(x), -x, x))


def scatter_rows(rows: Array, places: Array, values: Array, mode: str) -> Array:
    """A copy of rows `(n, channels)` with others put in at places `(count,)`: "update", "add", "max" or "min"."""
    rows = rows.copy()
    if mode == "update":
        rows[places] = values
    else:
        _UPDATES[mode](rows, places, values)
    return rows


def eig(matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors in columns, complex whatever they are."""
    values, vectors = np.linalg.eig(matrix)
    dtype = np.result_type(matrix, np.complex64)
    return values.astype(dtype, copy=False), vectors.astype(dtype, copy=False)


def eigvals(matrix: Array) -> Array:
    """Eigenvalues, complex whatever they are."""
    return np.linalg.eigvals(matrix).astype(np.result_type(matrix, np.complex64), copy=False)


def get_sparse_format(x: Array) -> str:
    """The format of one of SciPy's sparse matrices; "dense" of arrays."""
    return getattr(x, "format", "dense")


__all__ = ["erf", "gammainc", "gammaincc"]
