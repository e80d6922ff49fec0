"""Matrices, the memory of users, copies, and numbers that are not finite."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from krylix import linear_solve
from krylix.backends import get_backend
from krylix.sparse import as_operator
from krylix.sparse.formats import COO, CSC, CSR, DIA, ELL, HYB, Stencil, TracedCOO, from_scipy

FORMATS = ["csr", "csc", "coo", "dia", "ell", "hyb"]
LIBRARIES = ["numpy", "jax", "torch", "tensorflow"]
S = sp.csr_array(np.array([[4.0, 0, 2, 0], [0, 0, 0, 0], [0, 3, 0, 0], [1, 0, 0, 5]]))
REGULAR = S + sp.eye_array(4, format="csr") * 7
x = np.arange(1.0, 5)


def library(name):
    if name != "numpy":
        pytest.importorskip(name)
    return get_backend(name)


def made(bk, A, kind):
    return from_scipy(bk, A).to("dense") if kind == "dense" else from_scipy(bk, A, format=kind)


@pytest.mark.parametrize("bk", LIBRARIES)
@pytest.mark.parametrize("kind", [*FORMATS, "dense"])
def test_writing_to_the_given_matrix_changes_all_views_of_it_or_none(bk, kind):
    """Products, transposed products, entries and other formats are of the same values."""
    given = S.copy()
    A = made(library(bk), given, kind)
    _ = A @ x, A.T @ x, A.toarray(), A.diagonal()
    given.data *= 2
    found = [np.asarray(y)[0] for y in (A @ x, A.T @ x, A.toarray() @ x, A.to("coo") @ x)]
    once = [10.0, 8.0, 10.0, 10.0]
    assert found == once or found == [2 * y for y in once]


def in_memory(kind, bk):
    """A matrix, and the array of its numbers."""
    if kind in ("C", "F"):
        matrix = np.array(REGULAR.toarray(), order=kind)
        return matrix, matrix
    if kind == "list":
        matrix = REGULAR.copy()
        return [matrix, matrix], matrix.data
    if kind.startswith("sparse_"):
        dense = bk.asarray(REGULAR.toarray())
        matrix = dense.to_sparse_bsr((2, 2)) if kind == "sparse_bsr" else getattr(dense, f"to_{kind}")()
        return matrix, matrix.values()
    matrix = REGULAR.copy().asformat(kind)
    return matrix, matrix.data


IN_MEMORY = [
    *(("numpy", kind) for kind in ("csr", "csc", "coo", "dia", "bsr", "lil", "dok", "C", "F", "list")),
    *(("torch", kind) for kind in ("csr", "dia", "C", "sparse_csr", "sparse_csc", "sparse_bsr")),
]


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(("bk", "kind"), IN_MEMORY)
def test_an_operator_has_the_entries_of_the_moment_when_it_was_made(bk, kind):
    """Whatever is written to the matrix afterwards; a solve with the matrix itself reads what it holds."""
    bk = library(bk)
    if kind in ("lil", "dok"):
        matrix = REGULAR.asformat(kind)
        numbers = None
    else:
        matrix, numbers = in_memory(kind, bk)
    b = bk.asarray(np.stack([x, x]) if kind == "list" else x)
    A = as_operator(matrix, like=None if bk.on_host else b, batch_ndim=b.ndim - 1)
    before = [np.asarray(f()) for f in (lambda: A(b), lambda: A.T(b), A.toarray, A.diagonal)]
    if numbers is None:
        matrix[:, :] = 2 * matrix
    else:
        numbers *= 2
    after = [np.asarray(f()) for f in (lambda: A(b), lambda: A.T(b), A.toarray, A.diagonal)]
    for found, expected in zip(after, before, strict=True):
        np.testing.assert_array_equal(found, expected)
    exact = np.linalg.solve(REGULAR.toarray(), x)
    for method in ("GMRES", "direct"):
        of_operator, of_matrix = (linear_solve(M, b, method=method, batch_ndim=b.ndim - 1).x for M in (A, matrix))
        np.testing.assert_allclose(np.asarray(of_operator), np.broadcast_to(exact, b.shape), rtol=1e-8)
        np.testing.assert_allclose(np.asarray(of_matrix), np.broadcast_to(exact / 2, b.shape), rtol=1e-8)


def test_an_operator_has_the_structure_of_the_moment_when_it_was_made():
    """SciPy moves entries within its arrays."""
    given = sp.csr_array(([0.0, 4, 2, 5], [0, 1, 0, 1], [0, 2, 4]), (2, 2))
    A, before = as_operator(given), given.toarray()
    given.eliminate_zeros()
    np.testing.assert_array_equal(A.toarray(), before)
    np.testing.assert_array_equal(A @ x[:2], before @ x[:2])


def test_a_tensor_that_an_optimiser_writes_to_is_held():
    torch = pytest.importorskip("torch")
    W = torch.tensor(REGULAR.toarray(), requires_grad=True)
    A, b = as_operator(W), torch.tensor(x)
    for factor in (1, 2):
        found = linear_solve(A, b, method="GMRES").x
        np.testing.assert_allclose(found.detach(), np.linalg.solve(REGULAR.toarray(), x) / factor, rtol=1e-8)
        (gradient,) = torch.autograd.grad(found.sum(), W)
        np.testing.assert_allclose((A @ b).detach(), factor * (REGULAR @ x))
        assert gradient.abs().sum() > 0
        with torch.no_grad():
            W *= 2


@pytest.mark.parametrize("kind", [*FORMATS, "dense"])
def test_values_that_are_given_are_copied(kind):
    """As nothing else that was made of them would follow what is written to them."""
    A = made(get_backend("numpy"), REGULAR, kind)
    values = tuple(np.array(v) for v in A.values) if isinstance(A.values, tuple) else np.array(A.values)
    B = A.with_values(values)
    for v in values if isinstance(values, tuple) else (values,):
        v *= 2
    for found, expected in ((B @ x, A @ x), (B.T @ x, A.T @ x), (B.toarray(), A.toarray())):
        np.testing.assert_array_equal(found, expected)


def constructed():
    values, starts = np.array([1.0, 2, 3]), np.array([0, 1, 3], np.int32)
    places, rows = np.array([1, 0, 1], np.int32), np.array([0, 1, 1], np.int32)
    yield CSR, (values, places, starts, (2, 2))
    yield CSC, (values, places, starts, (2, 2))
    yield COO, (values, rows, places, (2, 2))
    yield HYB, (values, places, starts, (2, 2))
    yield DIA, (np.ones((2, 3)), np.array([0, 1], np.int32), (3, 3))
    yield ELL, (np.ones((1, 3)), np.array([[0, 1, 2]], np.int32), (3, 3))
    yield Stencil, ([np.ones(3), np.ones(3)], np.array([[0], [1]]), (3,))


@pytest.mark.parametrize(("cls", "args"), list(constructed()), ids=lambda a: getattr(a, "__name__", ""))
def test_constructors_keep_nothing_of_the_arrays_that_they_are_given(cls, args):
    args = copy.deepcopy(args)
    A = cls(*args)
    before = A.toarray()
    arrays = [a for part in args for a in (part if isinstance(part, list) else [part]) if isinstance(a, np.ndarray)]
    for a in arrays:
        a[...] = 0
    v = np.arange(1.0, A.shape[1] + 1)
    np.testing.assert_array_equal(A @ v, before @ v)
    np.testing.assert_array_equal(A.T.toarray(), before.T)
    np.testing.assert_array_equal(A.toarray(), before)


@pytest.mark.parametrize("kind", [*FORMATS, "dense"])
def test_known_values_are_not_changed_by_what_values_returns(kind):
    A = from_scipy(library("torch"), S).to(kind)
    _ = A.T @ x
    for part in A.values if isinstance(A.values, tuple) else (A.values,):
        part.mul_(2)
    np.testing.assert_array_equal(np.asarray(A @ x), S @ x)
    np.testing.assert_array_equal(np.asarray(A.T @ x), S.T @ x)
    if kind != "dense":
        B = from_scipy(library("numpy"), S, format=kind)
        with pytest.raises(ValueError, match="read-only"):
            (B.values[0] if isinstance(B.values, tuple) else B.values)[...] = 0


@pytest.mark.parametrize("bk", LIBRARIES)
@pytest.mark.parametrize("kind", [*FORMATS, "dense"])
@pytest.mark.parametrize("duplicate", [lambda A: pickle.loads(pickle.dumps(A)), copy.deepcopy, copy.copy])
def test_a_copy_works_as_the_matrix_itself(bk, kind, duplicate):
    bk = library(bk)
    A = made(bk, REGULAR, kind)
    _ = A @ x, A.T @ x
    B = duplicate(A)
    assert B.bk is A.bk
    np.testing.assert_array_equal(np.asarray(B @ x), np.asarray(A @ x))
    np.testing.assert_array_equal((A + B).toarray(), 2 * REGULAR.toarray())
    if kind == "dia":
        found = linear_solve(B, bk.asarray(x), method="GMRES").x
        np.testing.assert_allclose(np.asarray(found), np.linalg.solve(REGULAR.toarray(), x), rtol=1e-4)


@pytest.mark.parametrize("kind", [*FORMATS, "dense"])
def test_what_scipy_and_numpy_get_is_their_own(kind):
    """But for the memory of CSR, which `to_scipy` says that it shares."""
    A = made(get_backend("numpy"), REGULAR, kind)
    A.toarray()[:] = 7
    if kind != "csr":
        A.to_scipy().data[:] = 7
    if kind == "dense":
        with pytest.raises(ValueError, match="read-only"):
            A.values[:] = 7
    np.testing.assert_array_equal(A.toarray(), REGULAR.toarray())
    np.testing.assert_allclose(A @ x, REGULAR @ x)
    np.testing.assert_allclose(linear_solve(A, REGULAR @ x, method="direct").x, x)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("factor", [np.inf, np.nan, -np.inf])
def test_padding_stays_zero_when_a_matrix_is_multiplied_by_what_is_not_finite(kind, factor):
    A = from_scipy(get_backend("numpy"), S, format=kind)
    with np.errstate(invalid="ignore", divide="ignore"):
        np.testing.assert_array_equal((A * factor) @ x, (S * factor) @ x)
        np.testing.assert_array_equal((A / 0) @ x, (S * np.inf) @ x)


@pytest.mark.parametrize("kind", ["dia", "ell", "hyb"])
def test_padding_stays_zero_when_the_factor_is_traced(kind):
    bk = library("jax")
    import jax

    A = from_scipy(bk, S, format=kind)
    v = bk.asarray(x)
    scaled = jax.jit(lambda c: (A * c) @ v)(np.inf)
    np.testing.assert_array_equal(scaled, (S * np.inf) @ x)


def test_a_multiple_of_a_stencil_stays_known():
    bk = library("jax")
    A = Stencil([4.0, -1.0], [(0,), (1,)], (4,)).on_backend(bk, None)
    for B in (2 * A, A + A, -A, A / 2, A.with_values([np.float64(1), np.float64(2)])):
        assert B.constant is not None


def test_gradients_of_a_stencil_are_known_values():
    A = Stencil([4.0, -1.0, -1.5], [(0,), (1,), (-1,)], (5,))
    gradient = linear_solve(A, np.ones(5), method="GMRES").vjp(np.arange(5.0)).A
    dense = linear_solve(A.toarray(), np.ones(5)).vjp(np.arange(5.0)).A
    assert gradient.constant is not None
    np.testing.assert_allclose(gradient.values, [np.trace(dense, k) for k in (0, 1, -1)], rtol=1e-6)


@pytest.mark.parametrize("bk", LIBRARIES)
def test_matrices_are_multiplied_by_numbers_only(bk):
    bk = library(bk)
    places = np.array([0, 1], np.int32)
    traced = TracedCOO(bk, bk.asarray(np.ones(2)), bk.asarray(places), bk.asarray(places), (2, 2))
    dense = as_operator(bk.asarray(np.eye(2)))
    for A in (traced, dense, traced.T):
        for wrong in (bk.asarray(np.array([1.0, 2.0])), np.array([1.0, 2.0])):
            with pytest.raises(TypeError, match="expected a number"):
                A * wrong
            with pytest.raises(TypeError, match="expected a number"):
                A / wrong
        with pytest.raises(ValueError, match="axis=2"):
            A.sum(2)
        for factor in (2, np.float64(2), bk.asarray(np.full((1,), 2.0))):
            np.testing.assert_array_equal(np.asarray((A * factor) @ np.ones(2)), [2.0, 2.0])
    assert (dense * 1j).dtype == np.complex128


def test_a_mask_of_the_whole_matrix_selects_single_entries():
    A, mask = from_scipy(get_backend("numpy"), S), S.toarray() > 1
    np.testing.assert_array_equal(A[mask], S.toarray()[mask])


def test_half_precision_is_refused():
    with pytest.raises(TypeError, match="float16"):
        CSR(np.ones(2, np.float16), [0, 1], [0, 1, 2], (2, 2))


def test_integer_values_become_floating_numbers():
    A = from_scipy(get_backend("numpy"), S)
    assert A.with_values(np.arange(5)).dtype == np.float64


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("count", [1, 20_000])
def test_sums_of_a_matrix_with_one_row(dtype, count):
    """SciPy's COO product of a 1x1 matrix is no array."""
    A = from_scipy(get_backend("numpy"), sp.csr_array(np.ones((1, count), dtype)), format="coo")
    np.testing.assert_array_equal(A.sum(1), [count])
    assert COO(np.ones(count, dtype), np.zeros(count, int), np.zeros(count, int), (1, 1))[0, 0] == count


def test_transposes_of_tensors_are_made_for_each_tape():
    tf = pytest.importorskip("tensorflow")
    A = from_scipy(get_backend("tensorflow"), S, format="csr")
    v = tf.constant(A.values)
    B = A.with_values(v)
    for _ in range(2):
        with tf.GradientTape() as tape:
            tape.watch(v)
            image = tf.reduce_sum(B.T @ x)
        assert tape.gradient(image, v) is not None


def test_matrices_used_in_inference_mode_have_derivatives_later():
    torch = pytest.importorskip("torch")
    with torch.inference_mode():
        A = from_scipy(get_backend("torch"), S, format="ell")
        _ = A @ x, A.T @ x
    v = torch.tensor(x, requires_grad=True)
    (A @ v).sum().backward()
    np.testing.assert_array_equal(v.grad, S.T @ np.ones(4))


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # Dynamo looks at it itself
@pytest.mark.merge
@pytest.mark.parametrize("kind", ["dia", *(pytest.param(k, marks=pytest.mark.slow) for k in ("csr", "ell"))])
def test_compiling_a_product_with_pytorch(kind):
    torch = pytest.importorskip("torch")
    A = from_scipy(get_backend("torch"), S, format=kind)
    v = torch.tensor(x, requires_grad=True)
    torch._dynamo.reset()
    image = torch.compile(lambda v: 2 * (A @ (3 * v)), backend="aot_eager")(v)
    image.sum().backward()
    np.testing.assert_allclose(image.detach(), 6 * (S @ x))
    np.testing.assert_allclose(v.grad, 6 * (S.T @ np.ones(4)))


@pytest.mark.parametrize("bk", LIBRARIES)
@pytest.mark.parametrize("kind", FORMATS)
def test_a_matrix_of_numpy_is_a_constant_to_every_library(bk, kind):
    A = from_scipy(get_backend("numpy"), S, format=kind)
    library = get_backend(bk)
    v = library.asarray(np.arange(1.0, S.shape[1] + 1))
    found = A @ v
    assert library.is_array(found)
    np.testing.assert_allclose(library.to_numpy(found), S @ np.arange(1.0, S.shape[1] + 1), rtol=1e-12)
    doubled = A.with_values(library.asarray(2 * np.asarray(A.values)) if kind != "hyb" else A.values)
    assert doubled.bk is library or kind == "hyb"
    factor = 1 if kind == "hyb" else 2
    np.testing.assert_allclose(doubled.toarray(), factor * S.toarray(), rtol=1e-12)
