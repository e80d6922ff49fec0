"""From traced arrays to matrices: formats, several outputs, pruning, dtypes, limits, errors."""

import numpy as np
import pytest

import tracing_engine as t
from krylix.backends import get_backend
from krylix.sparse import NonlinearError, UnsupportedOperation
from krylix.sparse.tracing.engine.limits import check_entries
from krylix.sparse.tracing.engine.to_matrix import blocks_of, plan_diagonals

BK = get_backend("numpy")
F8 = np.dtype(np.float64)
FORMATS = [None, "dia", "csr", "coo"]


def shifted(x, axis, step):
    config = [(max(step, 0), max(-step, 0), 0) if a == axis else (0, 0, 0) for a in range(x.ndim)]
    lo = [max(-step, 0) if a == axis else 0 for a in range(x.ndim)]
    return t.slice_(t.pad(x, config), lo, [i + n for i, n in zip(lo, x.shape)])


def laplace(x, c=1.0):
    total = t.scale(x, -2.0 * x.ndim)
    for axis in range(x.ndim):
        total = t.add(total, t.add(shifted(x, axis, 1), t.scale(shifted(x, axis, -1), c)))
    return total


def dense_laplace(n, m, c=1.0):
    def line(k):
        return np.eye(k, k=-1) + c * np.eye(k, k=1) - 2 * np.eye(k)

    return np.kron(line(n), np.eye(m)) + np.kron(np.eye(n), line(m))


def matrix(outputs, columns, dtype=F8, **options):
    return t.to_matrix(outputs, columns, BK, np.dtype(dtype), **options)


@pytest.mark.parametrize("format", FORMATS)
def test_five_point_stencil(format):
    A, (bias,) = matrix([laplace(t.identity(BK, (5, 6), F8))], 30, format=format)
    assert format is None or A.format == format
    np.testing.assert_array_equal(A.toarray(), dense_laplace(5, 6))
    assert A.nnz == np.count_nonzero(dense_laplace(5, 6))
    np.testing.assert_array_equal(bias, np.zeros((5, 6)))


@pytest.mark.parametrize("format", FORMATS)
def test_several_outputs_and_inputs(format):
    """Two inputs, three outputs of different shapes, one of them constant."""
    u, v = t.identity(BK, (4, 5), F8), t.identity(BK, (3,), F8, 20)
    constant = np.arange(2.0)
    outputs = [
        t.add(laplace(u), 1.5),
        constant,
        t.scale(v, 2.0),
        t.add(t.reduce_sum(u, (0, 1)), t.take(v, np.array(1))),
    ]
    A, biases = matrix(outputs, 23, format=format)
    expected = np.zeros((20 + 2 + 3 + 1, 23))
    expected[:20, :20] = dense_laplace(4, 5)
    expected[22:25, 20:] = 2 * np.eye(3)
    expected[25, :20] = 1
    expected[25, 21] = 1
    np.testing.assert_array_equal(A.toarray(), expected)
    for bias, value in zip(biases, [np.full((4, 5), 1.5), constant, np.zeros(3), np.zeros(())]):
        np.testing.assert_array_equal(bias, value)


@pytest.mark.parametrize("format", FORMATS)
def test_variable_coefficients_in_parts(format):
    """Enough rows for sums to be written part by part."""
    rng = np.random.default_rng(0)
    n, m = 300, 310
    u, total, expected = t.identity(BK, (n, m), F8), None, {}
    for _ in range(4):
        c = rng.standard_normal((n, m))
        part = t.slice_(t.scale(u, c), (3, 0), (n, m))
        part = t.pad(part, [(3, 0, 0), (0, 0, 0)])
        total = part if total is None else t.subtract(total, part)
        c[:3] = 0
        expected[0] = c if not expected else expected[0] - c
    A, _ = matrix([t.add(total, t.scale(shifted(u, 0, 1), 2.0))], n * m, format=format)
    B = A.to_scipy()
    np.testing.assert_allclose(B.diagonal(), expected[0].reshape(-1), atol=1e-14)
    np.testing.assert_array_equal(B.diagonal(-m), np.full((n - 1) * m, 2.0))
    assert A.nnz == (n - 3) * m + (n - 1) * m


def test_boundary_entries_join_the_diagonals():
    u = laplace(t.identity(BK, (40, 50), F8))
    corner = t.take(u, np.array([3, 77, 100]))
    x = t.scatter_add(u, np.array([3, 77, 100]), corner)
    plan = plan_diagonals(BK, blocks_of([x]), F8, 2000)
    assert plan is not None and plan.rest is not None and len(plan.offsets) == 5
    expected = dense_laplace(40, 50)
    expected[[3, 77, 100]] *= 2
    for format in FORMATS:
        np.testing.assert_array_equal(matrix([x], 2000, format=format)[0].toarray(), expected)


def test_known_zeros_are_pruned_or_kept():
    c = np.ones((4, 5))
    c[2] = 0
    u = t.identity(BK, (4, 5), F8)
    x = t.add(t.scale(u, c), t.scale(shifted(u, 0, 1), 0.0))
    assert matrix([x], 20)[0].nnz == 15
    assert matrix([x], 20, format="csr")[0].nnz == 15
    assert matrix([x], 20, format="csr", prune=False)[0].nnz == 20 + 15
    cancelled = t.subtract(u, u)
    assert matrix([cancelled], 20)[0].nnz == 0 and not cancelled.is_zero
    assert t.scale(u, 0.0).is_zero
    np.testing.assert_array_equal(t.scale(u, 0.0).plain(), np.zeros((4, 5)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("format", FORMATS)
def test_dtypes(dtype, format):
    u = t.identity(BK, (4, 5), dtype)
    c = np.linspace(1, 2, 20).reshape(4, 5).astype(dtype)
    x = t.divide(t.scale(t.add(laplace(u), t.scale(u, c)), dtype(0.1)), c)
    A, _ = matrix([x], 20, dtype, format=format)
    assert A.dtype == dtype
    expected = (dense_laplace(4, 5) + np.diag(c.reshape(-1))) * 0.1 / c.reshape(-1)[:, None]
    np.testing.assert_allclose(A.toarray(), expected, rtol=1e-5 if np.dtype(dtype).itemsize in (4, 8) else 1e-14)


@pytest.mark.parametrize("shape", [(), (0,), (0, 4), (1,), (1, 1)])
@pytest.mark.parametrize("format", FORMATS)
def test_empty_and_tiny(shape, format):
    size = int(np.prod(shape))
    u = t.identity(BK, shape, F8)
    A, (bias,) = matrix([t.add(t.scale(u, 3.0), 1.0)], size, format=format)
    np.testing.assert_array_equal(A.toarray(), 3 * np.eye(size))
    np.testing.assert_array_equal(bias, np.ones(shape))


def test_constant_output_only():
    A, (bias,) = matrix([np.arange(3.0)], 4)
    assert A.shape == (3, 4) and A.nnz == 0
    np.testing.assert_array_equal(bias, np.arange(3.0))


def test_nan_and_infinity_are_entries():
    u = t.identity(BK, (4,), F8)
    A, _ = matrix([t.divide(u, np.array([0.0, 1, np.nan, np.inf]))], 4, format="csr")
    np.testing.assert_array_equal(A.toarray().diagonal(), [np.inf, 1, np.nan, 0])
    B, _ = matrix([t.divide(u, 0.0)], 4, format="csr")
    np.testing.assert_array_equal(B.toarray().diagonal(), np.full(4, np.inf))


def test_nan_where_a_mask_does_not_choose_it():
    u = t.identity(BK, (2, 3), F8)
    c = np.full((2, 3), np.nan)
    mask = np.zeros((2, 3), bool)
    mask[0, 1] = mask[1, 2] = True
    c[mask] = 2
    for format in FORMATS:
        A, _ = matrix([t.select(mask, [u, t.scale(u, c)])], 6, format=format)
        np.testing.assert_array_equal(A.toarray(), np.diag(np.where(mask, 2, 1).reshape(-1)))


def test_repeated_indexing_does_not_grow():
    """The number of entries is that of the matrix, not that of all paths to them."""
    n, rng = 12, np.random.default_rng(0)
    x, expected = t.identity(BK, (n,), F8), np.eye(n)
    for _ in range(40):
        i, j = rng.integers(0, n, n), rng.integers(0, n, n)
        x = t.scale(t.add(t.take(x, i), t.scatter_add(np.zeros(n), j, x)), 0.5)
        step = np.eye(n)[i] + np.eye(n)[j].T
        expected = 0.5 * step @ expected
    assert sum(term.size for term in x.terms) < 60 * n * n
    np.testing.assert_allclose(matrix([x], n)[0].toarray(), expected, rtol=1e-12)


def test_inputs_are_not_written_to():
    c = np.ones((40, 50))
    u = t.identity(BK, (40, 50), F8)
    x = t.add(t.scale(u, c), t.scale(u, c))
    matrix([x], 2000)
    np.testing.assert_array_equal(c, np.ones((40, 50)))
    y = t.scale(u, np.arange(2000.0).reshape(40, 50))
    A, _ = matrix([y], 2000, format="dia")
    np.testing.assert_array_equal(A.toarray().diagonal(), np.arange(2000.0))


def test_complex_parts_of_a_real_input():
    c = np.array([1 + 2j, 3 - 1j, 0.5j])
    u = t.identity(BK, (3,), F8)
    z = t.add(t.scale(u, c), 2 - 3j)
    for part, of in ((t.real_part, np.real), (t.imaginary_part, np.imag), (t.conjugate, np.conj)):
        found = part(z)
        A, (bias,) = matrix([found], 3, found.dtype)
        np.testing.assert_allclose(A.toarray(), np.diag(of(c)))
        np.testing.assert_allclose(bias, np.full(3, of(2 - 3j)))
    assert t.real_part(z).dtype == F8 and t.conjugate(z).dtype == np.complex128
    assert t.imaginary_part(u).is_zero and t.real_part(u) is u


def test_complex_parts_of_a_complex_input_are_refused():
    z = t.identity(BK, (3,), np.complex128)
    for part in (t.real_part, t.imaginary_part, t.conjugate):
        with pytest.raises(UnsupportedOperation, match="two real inputs"):
            part(z)


def test_conversions():
    u = t.identity(BK, (3,), F8)
    assert t.convert(u, np.float32).dtype == np.float32
    assert t.convert(u, np.complex64).dtype == np.complex64
    with pytest.raises(NonlinearError, match="int32"):
        t.convert(u, np.int32)
    with pytest.raises(UnsupportedOperation, match="real part"):
        t.convert(t.convert(u, np.complex64), np.float32)


def test_limits():
    with pytest.raises(UnsupportedOperation, match=r"2,147,483,648.*int32"):
        t.identity(BK, (2**16, 2**15), F8)
    with pytest.raises(UnsupportedOperation, match="int32"):
        t.identity(BK, (1,), F8, 2**31 - 1)
    assert t.identity(BK, (1,), F8, 2**31 - 2).terms[0].offset == 2**31 - 2
    huge = t.identity(BK, (20_000, 20_000), F8)
    with pytest.raises(UnsupportedOperation, match="entries"):
        t.reduce_sum(huge, (0, 1))
    with pytest.raises(UnsupportedOperation, match="entries"):
        t.pad(huge, [(0, 0, 1), (0, 0, 0)])
    with pytest.raises(UnsupportedOperation, match="solve with the function itself"):
        t.cumulative_sum(t.identity(BK, (2**17,), F8), 0)
    with pytest.raises(UnsupportedOperation, match="a test"):
        check_entries(2**40, "a test")


def test_wide_offsets_stay_in_int32():
    u = t.identity(BK, (4,), F8, 2**31 - 10)
    x = t.take(u, np.array([3, 0, -1]))
    A, _ = matrix([x], 2**31 - 2, format="coo")
    rows, cols, _ = A.structure.entries()
    np.testing.assert_array_equal(rows, [0, 1])
    np.testing.assert_array_equal(cols, [2**31 - 7, 2**31 - 10])


@pytest.mark.parametrize(
    "combine", [lambda c: t.concatenate([c, c], 0), lambda c: t.stack([c], 0), lambda c: t.add(c, c)]
)
def test_coefficients_alone_are_refused(combine):
    with pytest.raises(TypeError, match="at least one"):
        combine(np.ones(3))


@pytest.mark.parametrize("positions", [[0, 4], [-2, 1]])
def test_positions_out_of_range_are_refused(positions):
    x = t.identity(BK, (2, 2), F8)
    for operation in (
        lambda: t.take(x, np.array(positions)),
        lambda: t.assemble([x], np.array(positions)),
        lambda: t.scatter_add(np.zeros(4), np.array(positions), t.take(x, np.array([0, 1]))),
    ):
        with pytest.raises(IndexError, match="for 4 elements"):
            operation()
