"""Consecutive rows, compared with slices of the whole CSR matrix."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from frameworks import missing
from krylix import as_operator, matrix_from_function
from krylix.sparse import COO, Stencil, UnsupportedOperation
from krylix.sparse.formats.sparse_matrix import row_block

rng = np.random.default_rng(0)
STAR = [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]


def traced_by_jax() -> Any:
    import jax.numpy as jnp

    def f(u: Any) -> Any:
        k = jnp.exp(jnp.sin(jnp.arange(7.0)))[:, None]
        p = jnp.pad(u, 1)
        return (4 + k) * u - p[:-2, 1:-1] - k * p[2:, 1:-1] - p[1:-1, :-2] - jnp.roll(u, 1, 1)

    return matrix_from_function(f, jnp.zeros((7, 5)))[0]


def traced_by_numpy() -> Any:
    def f(u: np.ndarray) -> np.ndarray:
        p = np.pad(u, 1)
        return 4 * u - p[:-2, 1:-1] - p[2:, 1:-1] - p[1:-1, :-2]

    return matrix_from_function(f, np.zeros((7, 5)))[0]


MATRICES = {
    "stencil of numbers": lambda: Stencil([4.0, -1.0, -1.0, -2.0, -1.0], STAR, (7, 5)),
    "stencil of arrays": lambda: Stencil([*rng.standard_normal((4, 7, 5)), -1.0], STAR, (7, 5)),
    "stencil, 3-d": lambda: Stencil([6.0, rng.standard_normal((3, 4, 5))], [(0, 0, 0), (1, -1, 2)], (3, 4, 5)),
    "stencil, 1-d": lambda: Stencil([2.0, rng.standard_normal(9)], [(0,), (-2,)], (9,)),
    "stencil between two grids": lambda: Stencil([1.0, 2.0], [(0, 0), (1, 1)], (6, 7), (5, 4)),
    "complex stencil": lambda: Stencil([1j, 2.0], [(0, 0), (0, 1)], (4, 3)),
    "numpy": traced_by_numpy,
    "jax": traced_by_jax,
    "diagonals": lambda: as_operator(sp.csr_array(np.tril(np.triu(np.ones((9, 9)), -3), 1))).to("dia"),
    "csr": lambda: as_operator(sp.csr_array(rng.standard_normal((9, 8)) * (rng.random((9, 8)) < 0.3))),
    "coo": lambda: COO(np.ones(4), [0, 2, 2, 8], [1, 1, 0, 7], (9, 8)),
}


@pytest.mark.parametrize("name", MATRICES)
def test_rows_are_those_of_the_whole_matrix(name: str) -> None:
    if name == "jax" and missing("jax"):
        pytest.skip("jax is not installed")
    A = MATRICES[name]()
    whole, n = sp.csr_array(A.known()), A.shape[0]
    for members in (1, 2, 3, n, n + 2):
        for first, last in pairwise(n * rank // members for rank in range(members + 1)):
            rows = row_block(A, first, last)
            assert rows.shape == (last - first, A.shape[1]) and rows.has_canonical_format and rows.dtype == A.dtype
            assert np.array_equal(rows.toarray(), whole[first:last].toarray())


def test_a_batch_has_no_rows() -> None:
    with pytest.raises(UnsupportedOperation, match="batch of matrices"):
        row_block(Stencil([np.ones((2, 4)), 1.0], [(0,), (1,)], (4,)), 0, 2)
