"""Means and extreme entries of matrices of every format, known and traced, one and a batch, beside dense NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from gradients import gradient
from krylix.sparse import Dense, Stencil, as_operator
from matrices import FORMATS, in_krylix, random_matrix, tolerance
from modes import EAGER, array, compiled, to_numpy

NAMES, AXES = ("min", "max", "mean"), (None, 0, 1, -1, -2)
EVERY = [(name, axis) for name in NAMES for axis in AXES]


def matrices(shape: tuple[int, int] = (7, 5)) -> list[np.ndarray]:
    """Rows and columns that are full, empty, all positive and all negative; with one sign, and with NaN."""
    M = random_matrix(shape).toarray()
    M[:, 1] = np.abs(M[:, 1]) + 1
    M[2] = -np.abs(M[2]) - 0.5
    N = M.copy()
    N[0, 1] = np.nan
    return [M, -M, N]


def reductions(A: Any) -> list[Any]:
    return [getattr(A, name)(axis) for name, axis in EVERY]


def compare(A: Any, M: np.ndarray) -> None:
    """With the reductions of dense arrays, of a batch too."""
    for (name, axis), found in zip(EVERY, reductions(A), strict=True):
        axes = (-2, -1) if axis is None else axis % 2 - 2
        expected = getattr(M, name)(axis=axes)
        assert to_numpy(found).dtype == M.dtype
        np.testing.assert_allclose(to_numpy(found), expected, **tolerance(M.dtype), err_msg=f"{name}, axis={axis}")
        if name != "mean":
            np.testing.assert_array_equal(to_numpy(found), expected)


@pytest.mark.parametrize("format", (*FORMATS, "dense"))
@pytest.mark.parametrize("mode", [mode for mode in EAGER if mode != "jax"])
def test_every_format(mode: str, format: str) -> None:
    if mode == "tf" and format not in ("csc", "hyb", "dense"):
        return
    for known in (True, False):
        for M in matrices():
            compare(in_krylix(mode, sp.csr_array(M), "csr", known).to(format), M)
        A = in_krylix(mode, sp.csr_array(matrices()[0]), "csr", known).to(format)
        V = np.random.default_rng(0).normal(size=(3, *A.values.shape)) if format in ("csc", "coo", "dense") else None
        if V is not None:
            B = A.with_values(V if known else array(mode, V))
            compare(B, B.toarray())
            for name, axis in EVERY:  # to the last digit those of the single matrices
                each = [to_numpy(getattr(B[i], name)(axis)) for i in range(3)]
                np.testing.assert_array_equal(to_numpy(getattr(B, name)(axis)), each)


@pytest.mark.compiled_by_default(modes=("jax-jit", "tf-function"))
@pytest.mark.parametrize("mode", ("jax-jit", "tf-function"))
def test_compiled(mode: str) -> None:
    """With values that are arguments, of one matrix and of a batch."""
    M = matrices()[0]
    A = in_krylix(mode, sp.csr_array(M), "csr", known=False)
    V = np.stack([A.toarray()[M != 0], -A.toarray()[M != 0]])
    both = compiled(mode, lambda v, V: [reductions(A.with_values(v)), reductions(A.with_values(V).to("ell"))])
    for found, dense in zip(both(A.values, array(mode, V)), (M, np.stack([M, -M])), strict=True):
        for (name, axis), x in zip(EVERY, found, strict=True):
            expected = getattr(dense, name)(axis=(-2, -1) if axis is None else axis % 2 - 2)
            np.testing.assert_allclose(to_numpy(x), expected, rtol=1e-14, atol=1e-14)


def test_stencils() -> None:
    k = np.arange(12.0).reshape(3, 4) - 4
    for A in (
        Stencil([2.0, -1.0], [(0, 0), (0, 1)], (3, 4)),
        Stencil([k, -1.0], [(0, 0), (1, 0)], (3, 4)),
        Stencil([np.stack([k, -k]), np.ones((2, 1, 1))], [(0, 0), (1, 0)], (3, 4)),
    ):
        compare(A, A.toarray())


@pytest.mark.parametrize("backend", ("torch", "tensorflow", "jax"))
def test_derivatives(backend: str) -> None:
    """They go to the entry that is chosen, and none where an entry that is not stored is."""
    M = matrices()[0]
    A = in_krylix(backend.replace("tensorflow", "tf"), sp.csr_array(M), "csr", known=False)
    bk, weights = A.bk, np.arange(1.0, 6.0)

    def loss(values: Any) -> Any:
        B = A.with_values(values[0])
        return bk.sum(B.max(0) * bk.asarray(weights), (0,)) + 2 * B.min() + B.mean() * M.size

    expected = np.ones(M.shape)
    for column, weight in enumerate(weights):
        if M[:, column].max() > 0:
            expected[M[:, column].argmax(), column] += weight
    expected[np.unravel_index(M.argmin(), M.shape)] += 2
    found = gradient(backend, lambda values: loss([values]), A.values)
    np.testing.assert_allclose(to_numpy(found), expected[M != 0])


@pytest.mark.parametrize("name", NAMES)
def test_edges_and_refusals(name: str) -> None:
    for shape in ((1, 1), (3, 1), (1, 3), (4, 0), (0, 4)):
        for A in (as_operator(sp.csr_array(shape)), Dense(krylix.choose_backend("numpy"), np.zeros(shape))):
            for axis in (None, 0, 1):
                count = np.prod(shape) if axis is None else shape[axis]
                if count:
                    np.testing.assert_array_equal(getattr(A, name)(axis), getattr(np.zeros(shape), name)(axis=axis))
                else:
                    with pytest.raises(ValueError, match=rf"{name} of a matrix of shape .* has no entries"):
                        getattr(A, name)(axis)
    with pytest.raises(ValueError, match="axis=2 was given; expected 0"):
        getattr(A, name)(2)
    C = as_operator(sp.csr_array(np.array([[1j, 2], [0, 3]])))
    if name == "mean":
        assert C.mean() == (5 + 1j) / 4
    else:
        with pytest.raises(TypeError, match=f"{name} of a complex matrix .* expected real entries"):
            getattr(C, name)()


def test_of_single_precision() -> None:
    for mode in ("numpy", "torch"):
        M = matrices()[0].astype(np.float32)
        compare(in_krylix(mode, sp.csr_array(M), "dia", known=mode == "numpy"), M)


@pytest.mark.parametrize("mode", EAGER)
def test_known_matrix_gives_arrays_of_its_library(mode: str) -> None:
    A = in_krylix(mode, sp.csr_array(np.eye(3)), "csr")
    assert all(A.bk.is_array(x) for x in (A.max(1), A.min(), A.mean(0)))
