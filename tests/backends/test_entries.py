"""Entries of each library's own sparse matrices, and such matrices made of entries."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from contract import MODES, backend
from frameworks import jax, tf, torch
from modes import EAGER, array, compiled, library, native_sparse, to_numpy

DENSE = np.array([[0, 1.5, 0, 0], [2, 0, 0, -1], [0, 0, 0, 0], [0, 0, 3, 4], [0, 5, 0, 0]])
LAYOUTS = [("numpy", f) for f in ("coo", "csr", "csc")] + [("jax", "coo"), ("jax", "csr")]
LAYOUTS += [("torch", f) for f in ("coo", "csr", "csc", "bsr")] + [("tf", "coo")]


def sparse_matrix(mode: str, dense: np.ndarray, layout: str) -> Any:
    """Of JAX made by SciPy: JAX compiles what finds the entries."""
    if mode != "jax":
        return native_sparse(mode, dense, layout)
    from jax.experimental import sparse

    return (sparse.BCSR if layout == "csr" else sparse.BCOO).from_scipy_sparse(sp.csr_array(dense).asformat(layout))


def from_entries(entries: Any) -> np.ndarray:
    values, rows, cols, shape, *_ = entries
    matrix = np.zeros(shape)
    np.add.at(matrix, (to_numpy(rows), to_numpy(cols)), to_numpy(values))
    return matrix


@pytest.mark.parametrize(("mode", "layout"), LAYOUTS)
def test_entries(mode: str, layout: str) -> None:
    dense = DENSE[:4] if layout == "bsr" else DENSE
    found = backend(mode).sparse.entries(sparse_matrix(mode, dense, layout))
    assert found.shape == dense.shape and all(type(s) is int for s in found.shape)
    np.testing.assert_array_equal(from_entries(found), dense)
    assert backend(mode).is_array(found.values) and found.values.shape == found.rows.shape == found.cols.shape
    empty = backend(mode).sparse.entries(sparse_matrix(mode, 0 * DENSE, "coo"))
    assert empty.values.shape == (0,) or not to_numpy(empty.values).any()


def test_scipy_keeps_zeros_and_duplicates() -> None:
    coo = sp.coo_matrix((np.array([1.0, 0.0, 2.0]), ([1, 0, 1], [0, 2, 0])), (2, 3))
    found = backend("numpy").sparse.entries(coo)
    assert found.values.tolist() == [1, 0, 2] and found.rows.tolist() == [1, 0, 1] and found.cols.tolist() == [0, 2, 0]


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_padding_of_jax() -> None:
    """Left out where it is seen; zeros in range where it is traced, whatever stood there."""
    from jax.experimental import sparse

    places = np.argwhere(DENSE)
    indices = jax.numpy.asarray(np.concatenate([places, [DENSE.shape] * 3]).astype(np.int32))
    values = jax.numpy.asarray(np.append(DENSE[tuple(places.T)], [np.nan] * 3))
    padded = sparse.BCOO((values, indices), shape=DENSE.shape)
    entries = backend("jax").sparse.entries
    assert entries(padded).values.shape == (6,)
    np.testing.assert_array_equal(from_entries(entries(padded)), DENSE)
    traced = jax.jit(lambda m: tuple(entries(m))[:3])(padded)
    np.testing.assert_array_equal(from_entries((*traced, DENSE.shape)), DENSE)
    values = jax.jit(lambda v: entries(sparse.BCOO((v, padded.indices), shape=DENSE.shape)).values)(padded.data)
    np.testing.assert_array_equal(values, DENSE[DENSE != 0])

    def known_inside(values: Any) -> Any:
        found = entries(sparse.BCSR((values, ordered.indices, ordered.indptr), shape=DENSE.shape))
        assert np.asarray(found.rows).tolist() == np.nonzero(DENSE)[0].tolist()
        return found.values

    ordered = sparse_matrix("jax", DENSE, "csr")
    np.testing.assert_array_equal(jax.jit(known_inside)(ordered.data), DENSE[DENSE != 0])
    with pytest.raises(ValueError, match="1 batch and 1 dense"):
        entries(sparse.BCOO.fromdense(np.ones((2, 3, 3)), n_batch=1, n_dense=1))
    with pytest.raises(ValueError, match="2 batch"):
        entries(sparse.BCOO.fromdense(np.ones((2, 2, 3, 3)), n_batch=2))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_native(mode: str, index: str) -> None:
    rows, cols = (i.astype(index) for i in np.nonzero(DENSE))

    def product(values: Any) -> Any:
        bk = backend(mode)
        matrix = bk.sparse.native(values, rows, cols, DENSE.shape)
        assert bk.sparse.accepts(matrix) and tuple(matrix.shape) == DENSE.shape
        if library(mode) == "tensorflow":
            return tf.sparse.sparse_dense_matmul(matrix, tf.eye(4, dtype=values.dtype))
        if library(mode) == "jax":
            assert matrix.indices_sorted and matrix.unique_indices and matrix.nse == 6
        if mode == "numpy":
            assert isinstance(matrix, sp.csr_array) and matrix.has_canonical_format and matrix.indices.dtype == np.int32
            assert np.shares_memory(matrix.data, values)
        return matrix @ array(mode, np.eye(4))

    found = compiled(mode, product)(array(mode, DENSE[rows, cols]))
    np.testing.assert_array_equal(to_numpy(found), DENSE)


@pytest.mark.parametrize("mode", EAGER)
def test_native_without_entries(mode: str) -> None:
    none = np.zeros(0, np.int32)
    matrix = backend(mode).sparse.native(array(mode, np.zeros(0)), none, none, (2, 3))
    assert tuple(matrix.shape) == (2, 3)
    assert from_entries(backend(mode).sparse.entries(matrix)).tolist() == np.zeros((2, 3)).tolist()


@pytest.mark.needs("torch")
def test_derivatives_go_through_torch_entries() -> None:
    bk, (rows, cols) = backend("torch"), np.nonzero(DENSE)
    values = torch.as_tensor(DENSE[rows, cols]).requires_grad_()
    entries = bk.sparse.entries(bk.sparse.native(values, rows, cols, DENSE.shape))
    (gradient,) = torch.autograd.grad((entries.values**3).sum(), values)
    torch.testing.assert_close(gradient, 3 * values.detach() ** 2)
