"""The public constructors: what they accept, and what they say about what they do not."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from krylix.sparse.formats import COO, CSC, CSR, DIA, ELL, HYB, Stencil, choose_format, from_diagonals, from_entries
from krylix.sparse.formats.entries.integers import as_indices, check_shape, check_size
from matrices import random_matrix
from modes import EAGER, array, compiled, library, to_numpy

eager = pytest.mark.parametrize("mode", EAGER)


def untidy(S: sp.csr_array, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Entries in any order, each as a sum of two."""
    coo = S.tocoo()
    order = np.random.default_rng(seed).permutation(2 * coo.nnz)
    rows, cols, values = np.tile(coo.row, 2), np.tile(coo.col, 2), np.concatenate([coo.data / 4, coo.data * 0.75])
    return rows[order], cols[order], values[order]


@eager
def test_entries_in_any_order(mode: str) -> None:
    S = random_matrix((9, 7))
    rows, cols, values = untidy(S)
    bk = krylix.choose_backend(library(mode))
    by_row, by_col = np.argsort(rows, kind="stable"), np.argsort(cols, kind="stable")
    row_starts, col_starts = (
        np.concatenate([[0], np.cumsum(np.bincount(i, minlength=n))]) for i, n in ((rows, 9), (cols, 7))
    )
    for given in (values, array(mode, values)):
        per_row, per_col = to_numpy(given)[by_row], to_numpy(given)[by_col]
        if given is not values:
            per_row, per_col = array(mode, per_row), array(mode, per_col)
        for A in (
            COO(given, rows, cols, (9, 7)),
            CSR(per_row, cols[by_row], row_starts, (9, 7)),
            HYB(per_row, cols[by_row].tolist(), row_starts, [9, 7]),
            CSC(per_col, rows[by_col], col_starts, (9, 7)),
            from_entries(bk, rows, cols, given, (9, 7)),
        ):
            assert A.nnz == S.nnz and A.bk.name == (library(mode) if given is not values else A.bk.name)
            np.testing.assert_allclose(A.toarray(), S.toarray(), atol=1e-12)
            assert A.to_scipy().has_canonical_format
            A.to_scipy().check_format(full_check=True)


@eager
def test_diagonals_and_rows_of_equal_length(mode: str) -> None:
    values = np.arange(1.0, 9).reshape(2, 4)
    exact = np.array([[0, 1, 5, 0], [0, 0, 2, 6], [0, 0, 0, 3], [0, 0, 0, 0.0]])
    for given, offsets in ((values, [1, 2]), (values[::-1], [2, 1])):
        A = DIA(array(mode, given.copy()), offsets, (4, 4))
        np.testing.assert_array_equal(A.toarray(), exact)
        np.testing.assert_array_equal(to_numpy(A @ array(mode, np.ones(4))), exact.sum(1))
        assert A.nnz == 5
    columns = np.array([[1, -1, 3, 2], [0, -1, 3, 0]])
    E = ELL(array(mode, values), columns, (4, 4))
    exact = np.array([[5, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 10], [8, 0, 4, 0.0]])
    np.testing.assert_array_equal(E.toarray(), exact)
    np.testing.assert_array_equal(to_numpy(E.T @ array(mode, np.ones(4))), exact.sum(0))
    assert E.nnz == 5


def test_integers_become_floating_numbers() -> None:
    for dtype in ("int64", "bool", "uint8"):
        assert CSR(np.ones(2, dtype), [0, 1], [0, 1, 2], (2, 2)).dtype == np.float64
    assert CSR(np.ones(2, "float32"), [0, 1], [0, 1, 2], (2, 2)).dtype == np.float32


V = np.ones(3)
BAD: list[tuple[Any, type[Exception], str]] = [
    (lambda: CSR(V, [0, 1], [0, 1, 2, 3], (3, 3)), ValueError, "3 lines and 2 entries|3 values and 2 columns"),
    (lambda: CSR(V, [0, 1, 3], [0, 1, 2, 3], (3, 3)), ValueError, "contain 3; expected numbers from 0 to 2"),
    (lambda: CSR(V, [0, 1, 2], [-4, 1, 2, 3], (3, 3)), ValueError, "rise from 0 to 3"),
    (lambda: CSC(V, [0, -1, 2], [0, 1, 2, 3], (3, 3)), ValueError, "contain -1"),
    (lambda: CSC(V, [0, 1, 2], [0, 2, 1, 3], (3, 3)), ValueError, "rise from 0 to 3"),
    (lambda: CSC(V, [0, 1, 2], [1, 1, 2, 3], (3, 3)), ValueError, "rise from 0 to 3"),
    (lambda: HYB(V, [0, 1, 2], [0, 1, 2, 2], (3, 3)), ValueError, "rise from 0 to 3"),
    (lambda: HYB(V, [0, 7, 2], [0, 1, 2, 3], (3, 3)), ValueError, "contain 7"),
    (lambda: COO(V, np.array([0, 1, 2**64 - 1], np.uint64), [0, 1, 2], (3, 3)), ValueError, str(2**64 - 1)),
    (lambda: COO(V, [0, 1, 2**32], [0, 1, 2], (3, 3)), ValueError, "contain 4294967296"),
    (lambda: COO(V, [0, 1, 2], [0, 1, -(2**32)], (3, 3)), ValueError, "contain -4294967296"),
    (lambda: COO(V[:1], [0], [0], (0, 3)), ValueError, "contain 0; expected none"),
    (lambda: ELL(np.ones((1, 3)), [[0, 5, 1]], (3, 3)), ValueError, "contain 5"),
    (lambda: ELL(np.ones((1, 3)), np.array([[0, 2**64 - 1, 1]], np.uint64), (3, 3)), ValueError, str(2**64 - 1)),
    (lambda: DIA(np.ones((1, 3)), [-3], (3, 3)), ValueError, "from -2 to 2"),
    (lambda: DIA(np.ones((1, 3)), np.array([2**64 - 1], np.uint64), (3, 3)), ValueError, "from -2 to 2"),
    (lambda: from_entries(krylix.choose_backend("numpy"), [0, 3, 1], [0, 1, 2], V, (3, 3)), ValueError, "contain 3"),
    (lambda: CSR(V, [0, -1, 2], [0, 1, 2, 3], (3, 3)), ValueError, "contain -1"),
    (lambda: CSR(V, [0, 1, 2], [0, 1, 3], (3, 3)), ValueError, "expected 4 that rise from 0 to 3"),
    (lambda: CSR(V, [0, 1, 2], [0, 2, 1, 3], (3, 3)), ValueError, "rise"),
    (lambda: CSR(V, [0.0, 1, 2], [0, 1, 2, 3], (3, 3)), TypeError, "float64; expected integers"),
    (lambda: CSR(V[None, None], [0, 1, 2], [0, 1, 2, 3], (3, 3)), ValueError, "expected 1 axis"),
    (lambda: CSR(np.array(["a"] * 3), [0, 1, 2], [0, 1, 2, 3], (3, 3)), TypeError, "expected numbers"),
    (lambda: CSC(V, [0, 1, 5], [0, 1, 2, 3], (3, 3)), ValueError, "rows contain 5"),
    (lambda: COO(V, [0, 1], [0, 1, 2], (3, 3)), ValueError, "3 values and 2 rows"),
    (lambda: COO(V, [0, 1, 2], [[0, 1, 2]], (3, 3)), ValueError, "one axis"),
    (lambda: COO(V, [0, 1, 2], [0, 1, 2], (3,)), ValueError, "two numbers"),
    (lambda: COO(V, [0, 1, 2], [0, 1, 2], (3, -3)), ValueError, "none negative"),
    (lambda: COO(V, [0, 1, 2], [0, 1, 2], (3, 2**31)), ValueError, "2147483648 rows or columns"),
    (lambda: COO(V, [0, 1, 2], [0, 1, 2], (3.5, 3)), ValueError, "whole numbers"),
    (lambda: DIA(np.ones((2, 3)), [0, 0], (3, 3)), ValueError, "each once"),
    (lambda: DIA(np.ones((2, 3)), [0, 3], (3, 3)), ValueError, "from -2 to 2"),
    (lambda: DIA(np.ones((2, 3)), [0, 1.5], (3, 3)), TypeError, "expected integers"),
    (lambda: DIA(np.ones((2, 4)), [0, 1], (3, 3)), ValueError, r"\(2, 4\) were given; expected \(2, 3\)"),
    (lambda: ELL(np.ones((2, 3)), np.zeros((2, 4), int), (3, 3)), ValueError, r"expected \(k, 3\)"),
    (lambda: ELL(np.ones((2, 3)), np.full((2, 3), -2), (3, 3)), ValueError, "-1 for no entry"),
    (lambda: ELL(np.ones((2, 3)), np.zeros((2, 3)), (3, 3)), TypeError, "expected integers"),
    (lambda: HYB(V, [0, 1, 2], [0, 1, 2], (3, 3)), ValueError, "expected 4 that rise"),
    (lambda: Stencil([1.0], [(0, 0), (0, 1)], (3, 3)), ValueError, "a coefficient for each shift"),
    (lambda: Stencil([1.0], [(0,)], (3, 3)), ValueError, "a shift along each axis"),
    (lambda: Stencil([1.0, 2.0], [(0,), (0,)], (3,)), ValueError, "each once"),
    (lambda: Stencil([np.ones(4)], [(0,)], (3,)), ValueError, r"expected a number or an array of \(3,\)"),
    (lambda: from_diagonals(krylix.choose_backend("numpy"), [0], np.ones((2, 3)), (3, 3)), ValueError, r"\(1, 3\)"),
    (lambda: from_entries(krylix.choose_backend("numpy"), [0], [0], V, (3, 3)), ValueError, "3 values and 1 rows"),
    (lambda: COO(V, [0, 1, 2], [0, 1, 2], (3, 3)).to("stencil"), TypeError, "cannot be found"),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_bad_input(case: int) -> None:
    make, error, message = BAD[case]
    with pytest.raises(error, match=message):
        make()


def test_limits_of_integers() -> None:
    assert check_shape((np.int64(3), 2**31 - 1)) == (3, 2**31 - 1)
    assert check_size(2**31 - 1, "entries") == 2**31 - 1
    with pytest.raises(ValueError, match="2147483648 entries"):
        check_size(2**31, "entries")
    assert as_indices(np.array([2**31 - 2], np.int64), 2**31 - 1, "rows").dtype == np.int32
    wide = 2**31 - 1
    A = COO(np.array([2.0]), [0], [wide - 1], (1, wide))
    assert A.shape == (1, wide) and A.structure.entries().cols[0] == wide - 1
    with pytest.raises(ValueError, match="keep it sparse"):
        from_entries(krylix.choose_backend("numpy"), [0], [0], np.ones(1), (2**16, 2**16), format="csr").dense()


# ---- the choice of a format


def chosen(S: sp.csr_array, library: str = "jax") -> tuple[str, str]:
    choice = choose_format(krylix.choose_backend(library), S.indptr, S.indices, S.shape)
    return choice.format, choice.reason


@pytest.mark.needs("jax")
def test_choice() -> None:
    n = 5000
    rng = np.random.default_rng(0)
    band = sp.diags_array([np.ones(n), np.ones(n - 1), np.ones(n - 70)], offsets=[0, 1, -70], shape=(n, n)).tocsr()
    even = sp.csr_array((np.ones(5 * n), rng.permutation(np.arange(5 * n) % n), np.arange(0, 5 * n + 1, 5)), (n, n))
    lengths = np.where(rng.random(n) < 0.01, 200, 6)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    skewed = sp.csr_array((np.ones(starts[-1]), rng.integers(0, n, starts[-1]), starts), (n, n))
    skewed.sum_duplicates()
    assert chosen(band) == ("dia", "3 diagonals, 100% filled")
    for S, format in ((even, "ell"), (skewed, "hyb")):
        assert chosen(S)[0] == format and "more than 40 diagonals" in chosen(S)[1]
        assert chosen(S, "numpy")[0] == chosen(S, "torch")[0] == "csr"
    scattered = sp.csr_array((np.ones(20), (np.arange(20) * 100, np.arange(20) * 101)), (n, n))
    assert "filled" in chosen(scattered)[1] and chosen(scattered)[0] != "dia"
    assert chosen(sp.csr_array((4, 4)))[0] == "csr"
    coo = skewed.tocoo()
    A = from_entries(krylix.choose_backend("jax"), coo.row, coo.col, coo.data, (n, n))
    assert A.format == "hyb" and "more than 40 diagonals" in A.explain()
    assert A.structure.size <= 1.6 * A.nnz, "too much padding"


@pytest.mark.parametrize("mode", ["jax-jit", "tf-function"])
def test_positions_must_be_known(mode: str) -> None:
    values, two = array(mode, np.ones(2)), np.array([0, 1])
    makers = {
        "The rows": lambda i: COO(values, i, two, (2, 2)),
        "The columns": lambda i: CSR(values, i, [0, 1, 2], (2, 2)),
        "The starts": lambda i: CSC(values, two, i, (2, 2)),
        "The offsets": lambda i: DIA(array(mode, np.ones((2, 2))), i, (2, 2)),
    }
    for what, make in makers.items():
        with pytest.raises(TypeError, match=f"{what} must be known when the matrix is made"):
            compiled(mode, lambda i, make=make: (make(i), i)[1])(array(mode, two))
    with pytest.raises(TypeError, match="The columns must be known"):
        compiled(mode, lambda i: (ELL(array(mode, np.ones((1, 2))), i, (2, 2)), i)[1])(array(mode, two[None]))
