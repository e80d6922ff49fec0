"""What is proven about a matrix holds, seen by dense NumPy, and what is not so is not claimed."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from krylix.sparse.analysis import facts
from krylix.sparse.analysis.canonical import row_maxima
from krylix.sparse.analysis.symmetry import is_hermitian, is_symmetric

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]


def laplacian(*shape: int, neumann: bool = False) -> sp.csr_array:
    """5-point and so on, unit weights."""
    total = sp.csr_array((1, 1))
    for k, size in enumerate(shape):
        one = sp.diags_array([np.full(size, 2.0), -np.ones(size - 1), -np.ones(size - 1)], offsets=[0, 1, -1]).tolil()
        if neumann:
            one[0, 0] = one[-1, -1] = 1
        total = sp.kronsum(one.tocsr(), total) if k else one.tocsr()
    return sp.csr_array(total)


def random_matrix(rng: np.random.Generator, dtype: type, n: int = 30) -> sp.csr_array:
    A = sp.random_array((n, n), density=0.2, rng=rng, data_sampler=rng.standard_normal)
    if np.issubdtype(dtype, np.complexfloating):
        A = A + 1j * sp.random_array((n, n), density=0.2, rng=rng, data_sampler=rng.standard_normal)
    return sp.csr_array(A.astype(dtype))


# ---- symmetry


@pytest.mark.parametrize("dtype", DTYPES)
def test_hermitian_up_to_rounding(dtype: type) -> None:
    rng = np.random.default_rng(0)
    A = random_matrix(rng, dtype)
    H = sp.csr_array(A + A.conj().T)
    assert is_hermitian(H)
    assert not is_hermitian(A)
    eps = np.finfo(dtype).eps
    noise = 1 + eps * rng.standard_normal(H.nnz)
    assert is_hermitian(sp.csr_array(((H.data * noise).astype(dtype), H.indices, H.indptr), H.shape))
    changed = H.copy()
    entries = H.tocoo()
    largest = np.argmax(np.where(entries.row != entries.col, np.abs(H.data), 0))
    changed.data[largest] *= 1 + 1e4 * eps
    assert not is_hermitian(changed)


@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e300])
def test_each_entry_counts(scale: float) -> None:
    """A small unsymmetric block beside a large symmetric one is not lost in a norm."""
    A = scale * sp.block_diag([[[1e8, 1e7], [1e7, 1e8]], [[1e-9, 1e-9], [0, 1e-9]]], format="csr")
    assert not is_hermitian(A)
    A[2, 3] = 0
    assert is_hermitian(A)


def test_hermitian_and_symmetric_differ_in_complex() -> None:
    A = sp.csr_array([[1, 2j], [2j, 3]])
    assert is_symmetric(A) and not is_hermitian(A)
    B = sp.csr_array([[1, 2j], [-2j, 3]])
    assert is_hermitian(B) and not is_symmetric(B)
    assert not is_hermitian(sp.csr_array([[1 + 1j, 0], [0, 1]]))  # a diagonal that is not real


def test_pattern() -> None:
    A = sp.csr_array([[1.0, 5, 0], [-7, 0, 0], [0, 0, 2]])
    assert facts.has_symmetric_pattern(A)
    assert not facts.has_symmetric_pattern(sp.csr_array([[1.0, 5, 1], [-7, 0, 0], [0, 0, 2]]))
    stored_zero = sp.csr_array(([1.0, 5, 0, -7, 2], ([0, 0, 0, 1, 2], [0, 1, 2, 0, 2])), (3, 3))
    assert stored_zero.nnz == 5
    assert facts.has_symmetric_pattern(stored_zero)


# ---- dominance and definiteness


def test_dominance() -> None:
    assert facts.is_diagonally_dominant(laplacian(7, 6))
    assert facts.is_diagonally_dominant(laplacian(7, 6, neumann=True))
    found = facts.dominance(laplacian(5))
    assert found.strict.tolist() == [True, False, False, False, True] and found.weak.all()
    assert not facts.is_diagonally_dominant(sp.csr_array([[1.0, -1.1], [0, 1]]))
    assert facts.is_diagonally_dominant(sp.csr_array([[-3, 1 + 1j], [2j, 2.0]]))
    assert facts.is_diagonally_dominant(sp.csr_array([[1e308, -9e307], [9e307, -1e308]]))  # sums would overflow
    assert not facts.is_diagonally_dominant(sp.csr_array([[1e-320, 1e-310], [0, 1e308]]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_row_sums_of_zero_are_weak_whatever_the_rounding(dtype: type) -> None:
    """Pure Neumann problems with variable coefficients: dominant up to rounding, semi-definite, not definite."""
    rng = np.random.default_rng(1)
    n = 2000
    weights = rng.random((4, n)).astype(dtype)
    W = sp.coo_array((weights.reshape(-1), (rng.integers(n, size=4 * n), rng.integers(n, size=4 * n))), (n, n))
    W = sp.csr_array(W + W.T)
    W.setdiag(0)
    W.eliminate_zeros()
    A = sp.csr_array(sp.diags_array(W @ np.ones(n, dtype)) - W)
    assert A.dtype == dtype
    assert facts.is_diagonally_dominant(A)
    assert facts.is_positive_definite(A) is None
    assert facts.is_positive_semidefinite(A) is True
    A = sp.csr_array(A + sp.csr_array((np.array([0.5], dtype), ([3], [3])), (n, n)))
    connected = facts.component_labels(A)[0] == 1
    assert facts.is_positive_definite(A) is (True if connected else None)


def test_strict_somewhere_in_every_component() -> None:
    one, singular = laplacian(6), laplacian(6, neumann=True)
    assert facts.is_positive_definite(one) is True
    assert facts.is_positive_definite(singular) is None
    assert facts.is_positive_definite(sp.block_diag([one, one], format="csr")) is True
    assert facts.is_positive_definite(sp.block_diag([one, singular], format="csr")) is None
    assert facts.is_positive_semidefinite(sp.block_diag([one, singular], format="csr")) is True
    assert facts.is_positive_definite(-one) is None
    assert facts.is_positive_definite(sp.csr_array([[2.0, 0], [0, 0]])) is None


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 6), st.integers(0, 10**6))
def test_definite_only_if_it_is(n: int, seed: int) -> None:
    """Small integers make ties, singular matrices and several components likely."""
    rng = np.random.default_rng(seed)
    B = rng.integers(-1, 2, (n, n)) * (rng.random((n, n)) < 0.6)
    B = np.triu(B, 1) + np.triu(B, 1).T
    A = B + np.diag(np.abs(B).sum(1) + rng.integers(-1, 2, n) * (rng.random(n) < 0.4))
    smallest = np.linalg.eigvalsh(A.astype(float))[0]
    sparse = sp.csr_array(A)
    if facts.is_positive_definite(sparse):
        assert smallest > 1e-9
    if facts.is_positive_semidefinite(sparse):
        assert smallest > -1e-9
    dense = np.abs(A)
    assert facts.is_diagonally_dominant(sparse) == bool(np.all(2 * np.diag(dense) >= dense.sum(1)))


def test_hermitian_complex_definite() -> None:
    A = sp.csr_array([[2, 1j, 0], [-1j, 2, 1], [0, 1, 2]])
    assert facts.is_positive_definite(A) is True
    assert facts.is_positive_definite(1j * A) is None


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_m_matrix(dtype: type, sign: int) -> None:
    """By its rows: no wrong sign anywhere, zeros stored or not, at any scale."""
    rng = np.random.default_rng(2)
    coupling = sp.random_array((30, 30), density=0.2, rng=rng, data_sampler=rng.random)
    coupling = sp.csr_array(coupling - sp.diags_array(coupling.diagonal()))  # with stored zeros on the diagonal
    A = sp.csr_array(sign * (sp.diags_array(coupling @ np.ones(30)) - coupling) + sign * sp.eye_array(30)).astype(dtype)
    for scale in (1.0, 1e-30, 1e30):
        assert facts.is_m_matrix(A * dtype(scale))
    wrong = A.tolil()
    wrong[3, 4] = sign * 1e-3  # no longer one, although it is dominant
    assert facts.is_diagonally_dominant(wrong.tocsr()) and not facts.is_m_matrix(wrong)
    wrong[3, 4], wrong[5, 5] = 0, -wrong[5, 5]
    assert facts.is_diagonally_dominant(wrong.tocsr()) and not facts.is_m_matrix(wrong)
    wrong[5, 5] = 0
    assert not facts.is_m_matrix(wrong)
    assert not facts.is_m_matrix(A - sp.diags_array(A.diagonal() / 2))  # the rows no longer prove it
    assert not facts.is_m_matrix(A * 1j)


# ---- components, diagonals


def test_components() -> None:
    rng = np.random.default_rng(2)
    order = rng.permutation(12)
    A = sp.csr_array(sp.block_diag([laplacian(5), laplacian(4), [[1.0]], laplacian(2)]))[order][:, order]
    count, labels = facts.component_labels(A)
    truth = np.repeat(np.arange(4), [5, 4, 1, 2])[order]
    assert count == 4
    assert np.array_equal(labels[:, None] == labels, truth[:, None] == truth)
    assert facts.component_labels(sp.csr_array([[1.0, 1], [0, 1]]))[0] == 1  # one direction is enough
    assert (
        facts.component_labels(sp.csr_array(([0.0, 1], ([0, 1], [1, 1])), (2, 2)))[0] == 2
    )  # a stored zero connects nothing
    assert facts.component_labels(sp.csr_array([[0, 1j], [0, 0]]))[0] == 1


@pytest.mark.parametrize("shape", [(5, 5), (3, 9), (9, 3), (40, 41), (1, 1), (0, 0), (0, 4), (4, 0)])
def test_occupied_diagonals(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    A = np.where(rng.random(shape) < 0.1, 1.0, 0.0)
    truth = [k for k in range(-shape[0], shape[1] + 1) if np.any(np.diagonal(A, k))] if 0 not in shape else []
    assert facts.occupied_diagonals(sp.csr_array(A)).tolist() == truth


# ---- inputs


def test_nothing_is_changed_and_any_form_is_read() -> None:
    entries = np.array([1.0, 1, 0, 2, -1, -1]), (np.array([0, 0, 1, 1, 0, 1]), np.array([0, 0, 1, 1, 1, 0]))
    A = sp.coo_array(entries, (2, 2))  # duplicates, a stored zero, unsorted
    for B in (A, sp.coo_matrix(entries, (2, 2)), A.tocsc(), A.tocsr(), A.todia(), A.astype(np.int32), A.tocsr() != 0):
        before = B.toarray().copy(), B.nnz
        assert is_hermitian(B)
        assert facts.is_positive_definite(B) is (True if B.dtype != bool else None)
        assert np.array_equal(B.toarray(), before[0]) and B.nnz == before[1]
    unsorted = sp.csr_array((np.array([1.0, 2, 3, 4]), np.array([1, 0, 1, 0]), np.array([0, 2, 4])))
    is_hermitian(unsorted)
    assert unsorted.indices.tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_prove_nothing(bad: float) -> None:
    for place in ((0, 0), (0, 1)):
        A = np.eye(3) * 2
        A[place] = A[place[::-1]] = bad
        sparse = sp.csr_array(A)
        assert not is_hermitian(sparse)
        assert not facts.is_diagonally_dominant(sparse) and not facts.is_m_matrix(sparse)
        assert not facts.is_m_matrix(-sparse)
        assert facts.is_positive_definite(sparse) is None and facts.is_positive_semidefinite(sparse) is None


def test_empty_one_and_rectangular() -> None:
    empty = sp.csr_array((0, 0))
    assert is_hermitian(empty) and facts.has_symmetric_pattern(empty) and facts.is_diagonally_dominant(empty)
    assert facts.component_labels(empty)[0] == 0
    assert facts.is_positive_definite(sp.csr_array([[3.0]])) is True
    zero = sp.csr_array((4, 4))
    assert is_hermitian(zero) and facts.is_positive_semidefinite(zero) and not facts.is_positive_definite(zero)
    assert facts.component_labels(zero)[0] == 4
    wide = sp.csr_array((2, 3))
    assert not (is_hermitian(wide) or is_symmetric(wide) or facts.is_diagonally_dominant(wide))
    assert not (facts.is_m_matrix(empty) or facts.is_m_matrix(zero) or facts.is_m_matrix(wide))
    assert facts.is_positive_definite(wide) is None and facts.is_positive_semidefinite(wide) is None
    assert not facts.has_symmetric_pattern(wide)
    for function in (facts.component_labels, facts.dominance):
        with pytest.raises(ValueError, match=r"shape \(2, 3\): expected a square one"):
            function(wide)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_row_maxima_by_rows_and_by_columns(dtype: str) -> None:
    rng = np.random.default_rng(5)
    A = (np.where(rng.random((7, 9)) < 0.4, rng.standard_normal((7, 9)), 0) * (1j if dtype[0] == "c" else 1)).astype(
        dtype
    )
    A[3], A[4, 2], A[5, 1], A[6, 0] = 0, np.nan, 1e30, -1e30
    truth = np.max(np.abs(A), axis=1).astype(float)
    for M in (sp.csr_array(A), sp.csc_array(A)):
        found = row_maxima(M)
        assert found.dtype == np.float64
        assert np.array_equal(found, truth, equal_nan=True)
