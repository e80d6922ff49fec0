"""Conversion of known values to SciPy, and products by SciPy's compiled kernels on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...backends import get_backend
from ...backends.host_math import product_of, rows_times
from .entries.integers import LIMIT, csr_array, starts_of
from .entries.regather import concatenated_values
from .storage import SparseStorage

_SMALL = 4096  # entries, which SciPy multiplies in about the time of its call


def in_scipy(A: SparseStorage) -> Any:
    """Convert A to SciPy, a batch to a tuple of matrices that share their indices; None where values are not known."""
    found = A._made.get("scipy")
    if found is not None or (values := A.known_values()) is None:
        return found
    found = A.structure.to_scipy(values) if A.systems is None else _systems_in_scipy(A, values)
    if A.constant is not None:
        A._made["scipy"] = found
    return found


def _systems_in_scipy(A: SparseStorage, values: tuple[np.ndarray, ...]) -> tuple[sp.csr_array, ...]:
    rows, cols, slots = A.structure.entries()
    starts, flat = starts_of(rows, A.shape[0]), concatenated_values(get_backend("numpy"), values, A.systems)
    return tuple(csr_array(row[slots], cols, starts, A.shape) for row in flat)


def images_by_format(A: SparseStorage, v: np.ndarray, both: bool) -> tuple[np.ndarray, ...] | None:
    """`Operator.known_images` by the products of the format, where these gather nothing; else None."""
    values = None if A.structure.gathers or "scipy" in A._made else A.known_values()
    if values is None:
        return None
    host, form = get_backend("numpy"), A.form
    rows = np.broadcast_to(v.astype(np.result_type(v, A.dtype)), (A.systems or 1, *v.shape))
    products = (form.product, form.product_transposed) if both else (form.product,)
    found = tuple(product(host, values, (), rows) for product in products)
    return found if A.systems is not None else tuple(image[0] for image in found)


def compile_product(A: SparseStorage) -> tuple[Any, Callable[[np.ndarray], Any] | None]:
    """SciPy's matrices for `host_product`, None if there are none, and the product of a single one with one vector."""
    found = _compiled(A)
    single = A.systems is None and found is not None
    A._compiled = found, product_of(found) if single else None
    return A._compiled


def host_product(A: SparseStorage, compiled: Any, x: np.ndarray) -> np.ndarray:
    """`A.apply` on NumPy arrays by SciPy's matrices."""
    if isinstance(compiled, tuple):
        image = np.empty((len(x), A.shape[0]), np.result_type(A.dtype, x.dtype))
        for own, one, row in zip(image, compiled, x, strict=True):
            own[:] = rows_times(one, row)
        return image
    if A.systems is not None:
        blocks: np.ndarray = compiled @ x.reshape(-1)
        return blocks.reshape(len(x), A.shape[0])
    product: np.ndarray = rows_times(compiled, x.T).T
    return product


def _compiled(A: SparseStorage) -> Any:
    """SciPy matrix of this format for compiled products, sharing all arrays; None if there is none.

    Of a batch a tuple of them, or, where calls would take longer than products, one with all on its diagonal.
    """
    if A.systems is None:
        return in_scipy(A) if A.structure.format == "csr" else A.structure.compiled(A.arrays())
    if A.structure.nnz < _SMALL and A.systems * max(A.structure.nnz, *A.shape) < LIMIT:
        blocks = A.structure.on_diagonal(A.systems)
        return None if blocks is None else blocks.compiled([v.reshape(-1) for v in A.arrays()])
    found = tuple(A.structure.compiled([v[i] for v in A.arrays()]) for i in range(A.systems))
    return found if found and found[0] is not None else None
