"""Everything that may be called A, in every library, made of a NumPy matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from modes import array, library, native_sparse, product


def _indexed(container: Any, index: str) -> Callable[[np.ndarray], Any]:
    """With indices of another width."""

    def build(m: np.ndarray) -> Any:
        matrix = container(m)
        for name in ("indices", "indptr", "row", "col"):
            if hasattr(matrix, name) and isinstance(getattr(matrix, name), np.ndarray):
                setattr(matrix, name, getattr(matrix, name).astype(index))
        return matrix

    return build


def _entries(m: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Out of order, each value as a sum of two entries, and zeros between them."""
    rows, cols = np.nonzero(m)
    order = np.random.default_rng(5).permutation(2 * len(rows))
    rows, cols, values = np.tile(rows, 2)[order], np.tile(cols, 2)[order], np.tile(m[rows, cols] / 2, 2)[order]
    corners = np.array([0, m.shape[0] - 1])
    zeros = np.zeros(2, m.dtype)
    return np.append(values, zeros), np.append(rows, corners), np.append(cols, corners % m.shape[1])


def _coo(container: Any) -> Callable[[np.ndarray], Any]:
    def build(m: np.ndarray) -> Any:
        values, rows, cols = _entries(m)
        return container((values, (rows, cols)), shape=m.shape)

    return build


def _csr(container: Any) -> Callable[[np.ndarray], Any]:
    """Compressed rows with unsorted and duplicate columns."""

    def build(m: np.ndarray) -> Any:
        by_column = container is sp.csc_array
        values, rows, cols = _entries(m.T if by_column else m)
        order = np.argsort(rows, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=m.shape[1 if by_column else 0]))])
        matrix = container((values[order], cols[order], starts), shape=m.shape)
        assert not matrix.has_sorted_indices
        return matrix

    return build


SCIPY: dict[str, Callable[[np.ndarray], Any]] = {
    **{f"{f} array": getattr(sp, f"{f}_array") for f in ("csr", "csc", "coo", "bsr", "dia", "lil", "dok")},
    **{f"{f} matrix": getattr(sp, f"{f}_matrix") for f in ("csr", "csc", "coo", "bsr", "dia", "lil", "dok")},
    "csr int64": _indexed(sp.csr_array, "int64"),
    "csc int64": _indexed(sp.csc_matrix, "int64"),
    "coo untidy": _coo(sp.coo_array),
    "coo matrix untidy": _coo(sp.coo_matrix),
    "csr untidy": _csr(sp.csr_array),
    "csr matrix untidy": _csr(sp.csr_matrix),
    "csc untidy": _csr(sp.csc_array),
    "no entries": lambda m: sp.csr_array(m.shape, dtype=m.dtype),
}


def linear_operator(m: np.ndarray) -> Any:
    return spl.aslinearoperator(m)


def linear_operator_of_functions(m: np.ndarray) -> Any:
    return spl.LinearOperator(m.shape, matvec=lambda x: m @ x, rmatvec=lambda x: m.conj().T @ x, dtype=m.dtype)


HOST: dict[str, Callable[[np.ndarray], Any]] = {
    "nested lists": lambda m: m.tolist(),
    "numpy array": lambda m: m,
    "numpy column order": lambda m: np.asfortranarray(m),
    "LinearOperator": linear_operator,
    "LinearOperator of functions": linear_operator_of_functions,
}


def _bcoo(m: np.ndarray) -> Any:
    """Untidy entries, and padding as JAX makes it: indices beyond the end."""
    import jax.numpy as jnp
    from jax.experimental import sparse

    values, rows, cols = _entries(m)
    indices = np.stack([np.append(rows, [m.shape[0]] * 3), np.append(cols, [m.shape[1]] * 3)], 1)
    return sparse.BCOO((jnp.asarray(np.append(values, np.zeros(3, m.dtype))), jnp.asarray(indices)), shape=m.shape)


def padded_bcoo(m: np.ndarray, more: int = 4) -> Any:
    """As `fromdense` pads, which is a dozen programs for each shape."""
    import jax.numpy as jnp
    from jax.experimental import sparse

    places = np.concatenate([np.argwhere(m), np.tile(m.shape, (more, 1))]).astype(np.int32)
    values = np.append(m[m != 0], np.zeros(more, m.dtype))
    return sparse.BCOO((jnp.asarray(values), jnp.asarray(places)), shape=m.shape, indices_sorted=True)


def padded_bcsr(m: np.ndarray, more: int = 4) -> Any:
    import jax.numpy as jnp
    from jax.experimental import sparse

    csr = sp.csr_array(m)
    cols = np.append(csr.indices, np.full(more, m.shape[1], csr.indices.dtype))
    values = np.append(csr.data, np.zeros(more, m.dtype))
    return sparse.BCSR((jnp.asarray(values), jnp.asarray(cols), jnp.asarray(csr.indptr)), shape=m.shape)


def _torch_coo(m: np.ndarray) -> Any:
    import torch

    values, rows, cols = _entries(m)
    indices = torch.tensor(np.stack([rows, cols]))
    return torch.sparse_coo_tensor(indices, torch.tensor(values), m.shape)


def _torch_csr_int32(m: np.ndarray) -> Any:
    import torch

    csr = sp.csr_array(m)
    parts = (
        torch.tensor(csr.indptr.astype(np.int32)),
        torch.tensor(csr.indices.astype(np.int32)),
        torch.tensor(csr.data),
    )
    return torch.sparse_csr_tensor(*parts, m.shape)


def _tf_untidy(m: np.ndarray) -> Any:
    import tensorflow as tf

    values, rows, cols = _entries(m)
    return tf.SparseTensor(np.stack([rows, cols], 1), values, m.shape)


NATIVE: dict[str, dict[str, Callable[[np.ndarray], Any]]] = {
    "numpy": {},
    "jax": {
        "BCOO": lambda m: padded_bcoo(m, 0),
        "BCSR": lambda m: padded_bcsr(m, 0),
        "BCOO untidy": _bcoo,
        "BCOO padded": padded_bcoo,
        "BCSR padded": padded_bcsr,
    },
    "torch": {
        "COO": lambda m: native_sparse("torch", m),
        "CSR": lambda m: native_sparse("torch", m, "csr"),
        "CSC": lambda m: native_sparse("torch", m, "csc"),
        "BSR": lambda m: native_sparse("torch", m, "bsr"),
        "COO untidy": _torch_coo,
        "CSR int32": _torch_csr_int32,
    },
    "tensorflow": {"SparseTensor": lambda m: native_sparse("tf", m), "SparseTensor untidy": _tf_untidy},
}


def operands(mode: str, m: np.ndarray) -> dict[str, Any]:
    """Name -> the matrix `m` in every form that `mode` takes; a function where it is square."""
    found = {
        name: build(m) for name, build in {**SCIPY, **HOST, **NATIVE[library(mode)]}.items() if name != "no entries"
    }
    found["dense"] = array(mode, m)
    if m.shape[0] == m.shape[1]:
        found["function"] = product(mode, array(mode, m))
    return found
