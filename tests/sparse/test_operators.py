"""`as_operator` of everything that may be called A: products, transposes, diagonal and entries, against NumPy."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spl

import krylix
from contract import CELLS, rows
from krylix import NoBackendFound, UnsupportedOperation, as_operator, linear_solve
from krylix.sparse import Composed, FunctionOperator, Layout, OffsetOperator, Operator
from matrices import tolerance
from modes import EAGER, array, compiled, library, product, to_numpy
from operands import NATIVE, SCIPY, operands

eager = pytest.mark.parametrize("mode", EAGER)
SIZES = [(6, 6), (6, 4), (4, 6)]  # even, for blocks


def matrix_of(shape: tuple[int, int], dtype: str) -> np.ndarray:
    """With zeros, an empty row and an empty column."""
    m = rows(dtype, shape, 3)
    m[np.abs(m) < 0.5] = 0
    m[1], m[:, 2] = 0, 0
    return m


def native(mode: str, m: np.ndarray) -> Any:
    """A sparse matrix of the library, which of NumPy is SciPy's."""
    return next(iter(NATIVE[library(mode)].values()), sp.coo_array)(m)


NAMES = ("A @ v", "A @ V", "A(v)", "A(X)", "A.T @ w", "A.H @ w", "A.T.H(v)", "A.conj() @ v", "A.T.T @ v",
         "A.H.conj() @ w", "A.diagonal()", "A.dense()")  # fmt: skip


def everything(A: Operator, v: Any, V: Any, w: Any, X: Any) -> tuple[Any, ...]:
    return (
        A @ v,
        A @ V,
        A(v),
        A(X),
        A.T @ w,
        A.H @ w,
        A.T.H(v),
        A.conj() @ v,
        A.T.T @ v,
        A.H.conj() @ w,
        A.diagonal(),
        A.dense(),
    )


def expected(m: np.ndarray, v: Any, V: Any, w: Any, X: Any) -> tuple[Any, ...]:
    c = m.conj()
    return (m @ v, m @ V, m @ v, X @ m.T, m.T @ w, c.T @ w, c @ v, c @ v, m @ v, m.T @ w, np.diagonal(m), m)


def mark_of(mode: str, dtype: str, shape: tuple[int, int]) -> Any:
    """Each operand is a program, or many."""
    if mode in ("numpy", "torch") or (dtype, shape) == ("float32", SIZES[0]):
        return ()
    return pytest.mark.merge if mode == "tf" else pytest.mark.slow


@pytest.mark.parametrize(
    ("mode", "dtype", "shape"),
    [
        pytest.param(mode, dtype, shape, id=f"{mode}-{dtype}-{shape}", marks=mark_of(mode, dtype, shape))
        for mode, dtype in CELLS
        for shape in (SIZES if dtype == "float32" else SIZES[:1])
        if mode != "jax" or (dtype, shape) == ("float32", SIZES[0])  # covered by its compiled mode
    ],
)  # fmt: skip
def test_everything_of_every_operand(mode: str, dtype: str, shape: tuple[int, int]) -> None:
    m = matrix_of(shape, dtype)
    vectors = [rows(dtype, s, 4) for s in ((shape[1],), (shape[1], 3), (shape[0],), (2, 2, shape[1]))]
    exact = expected(m, *vectors)
    found = operands(mode, m)
    if "-" in mode or mode == "jax":  # a few, as each is compiled
        native = ("BCOO",) if mode == "jax" else tuple(NATIVE[library(mode)])
        few = ("csr matrix", "LinearOperator", "dense", "function", *native)
        found = {kind: A for kind, A in found.items() if kind in few}
    like = array(mode, vectors[0])

    def images(*vectors: Any) -> list[tuple[Any, ...]]:
        return [everything(as_operator(given, like), *vectors) for given in found.values()]

    all_images = compiled(mode, images)(*(array(mode, v) for v in vectors))
    for (kind, given), image in zip(found.items(), all_images, strict=True):
        A = as_operator(given, like)
        assert A.bk.name == library(mode) and A.shape == shape and A.dtype == np.dtype(dtype), kind
        assert all(part in repr(A) for part in (f"{shape[0]}x{shape[1]}", dtype, library(mode))), repr(A)
        assert (A.T.shape, A.in_shape, A.T.in_shape) == (shape[::-1], shape[1:], shape[:1])

        for name, got, want in zip(NAMES, image, exact, strict=True):
            got = to_numpy(got)
            assert got.dtype == np.dtype(dtype), f"{kind}: {name}"
            assert got.shape == want.shape, f"{kind}: {name}: {got.shape}"
            np.testing.assert_allclose(got, want, **tolerance(dtype), err_msg=f"{kind}: {name}")


@pytest.mark.parametrize("kind", SCIPY)
@eager
def test_scipy_matrices_stay_as_they_were(mode: str, kind: str) -> None:
    m = matrix_of((6, 6), "float64")
    A = SCIPY[kind](m)
    before, parts = A.copy(), {k: v.copy() for k, v in vars(A).items() if isinstance(v, np.ndarray)}
    operator = as_operator(A, array(mode, np.ones(6)))
    operator.T @ array(mode, np.ones(6)), operator.dense(), operator.diagonal()
    exact = 0 * m if kind == "no entries" else m
    np.testing.assert_allclose(to_numpy(operator.dense()), exact, rtol=1e-12)
    np.testing.assert_allclose(to_numpy(operator @ array(mode, np.ones(6))), exact.sum(1), atol=1e-12)
    assert type(A) is type(before) and (before != A).nnz == 0
    for name, part in parts.items():
        np.testing.assert_array_equal(vars(A)[name], part)


@pytest.mark.compiled_by_default(modes=("tf",))
@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@eager
def test_batched_dense(mode: str, dtype: str) -> None:
    """One matrix per system: `A(x)` pairs them with the vectors, `A @ v` multiplies each with all of v."""
    m, x = rows(dtype, (3, 5, 4)), rows(dtype, (3, 4), 1)
    A = as_operator(array(mode, m))
    assert (A.shape, A.systems) == ((5, 4), 3) and "3 systems" in repr(A)
    v, V, X = rows(dtype, (4,), 2), rows(dtype, (4, 2), 3), rows(dtype, (2, 3, 4), 4)
    for got, want in (
        (A(array(mode, x)), np.einsum("bij,bj->bi", m, x)),
        (A(array(mode, X)), np.einsum("bij,abj->abi", m, X)),
        (A @ array(mode, v), m @ v),
        (A @ array(mode, V), m @ V),
        (A.T @ array(mode, rows(dtype, (5,), 5)), np.swapaxes(m, 1, 2) @ rows(dtype, (5,), 5)),
        (A.H.dense(), np.swapaxes(m.conj(), 1, 2)),
        (A.diagonal(), np.einsum("bii->bi", m[:, :4])),
    ):
        np.testing.assert_allclose(to_numpy(got), want, **tolerance(dtype))
    with pytest.raises(ValueError, match="3 systems"):
        A(array(mode, v))
    four = as_operator(array(mode, m.reshape(3, 1, 5, 4)))
    assert four.systems == 3


@pytest.mark.compiled_by_default(modes=("tf",))
@eager
def test_functions_of_shaped_arrays(mode: str) -> None:
    """With axes of their own, with batch axes, with args; called with more in front than they know of."""
    m = rows("float64", (6, 6))

    def function(x: Any, factor: float = 1.0) -> Any:
        assert tuple(x.shape) in ((2, 3), (4, 2, 3)), "called with another shape than promised"
        flat = product(mode, array(mode, m))(
            x.reshape(*x.shape[:-2], 6) if mode != "tf" else reshape(x, (*x.shape[:-2], 6))
        )
        return factor * (flat.reshape(x.shape) if mode != "tf" else reshape(flat, x.shape))

    def reshape(x: Any, shape: Any) -> Any:
        return krylix.choose_backend(x).reshape(x, shape)

    single, batched = array(mode, np.ones((2, 3))), array(mode, np.ones((4, 2, 3)))
    X = rows("float64", (5, 4, 2, 3))
    exact = (X.reshape(5, 4, 6) @ m.T).reshape(X.shape)
    A, B = as_operator(function, single), as_operator(function, batched, batch_ndim=1)
    assert A.in_shape == A.out_shape == A.T.in_shape == B.in_shape == (2, 3)
    assert (A.shape, A.systems, B.shape, B.systems) == ((6, 6), None, (6, 6), 4)
    for operator in (A, B):
        np.testing.assert_allclose(to_numpy(operator(array(mode, X))), exact, rtol=1e-10)
        np.testing.assert_allclose(to_numpy(operator(array(mode, X[0]))), exact[0], rtol=1e-10)
        v, V = array(mode, X[0, 0].ravel()), array(mode, X[0].reshape(4, 6).T)
        each = (lambda y: np.broadcast_to(y, (4, *y.shape))) if operator is B else (lambda y: y)
        np.testing.assert_allclose(to_numpy(operator @ v), each(exact[0, 0].ravel()), rtol=1e-10)
        np.testing.assert_allclose(to_numpy(operator @ V), each(exact[0].reshape(4, 6).T), rtol=1e-10)
        np.testing.assert_allclose(to_numpy(operator.dense()), each(m), rtol=1e-10)
    np.testing.assert_allclose(to_numpy(A.T(array(mode, X[0, 0]))), (m.T @ X[0, 0].ravel()).reshape(2, 3), rtol=1e-10)
    np.testing.assert_allclose(to_numpy(as_operator(function, single, args=(3.0,)).dense()), 3 * m, rtol=1e-10)
    with pytest.raises(ValueError, match="4 systems"):
        B(single)


@pytest.mark.needs("jax")
def test_functions_of_containers() -> None:
    import jax.numpy as jnp

    like = {"u": jnp.ones((2, 2)), "p": jnp.ones(3)}
    A = as_operator(lambda x: {"u": 2 * x["u"] + x["p"][0], "p": x["p"] - x["u"][0, 1]}, like)
    image = A(like)
    np.testing.assert_array_equal(image["u"], np.full((2, 2), 3.0))
    np.testing.assert_array_equal(image["p"], np.zeros(3))
    transposed = A.T(like)
    flat = A.T @ jnp.ones(7)
    np.testing.assert_allclose(np.concatenate([transposed["p"], transposed["u"].ravel()]), flat)
    np.testing.assert_allclose(flat, np.asarray(A.dense()).T @ np.ones(7))


@pytest.mark.parametrize(
    ("entries", "vector"),
    [
        ("float32", "float64"),
        ("float32", "complex64"),
        ("float32", "int32"),
        ("float64", "float32"),
        ("float64", "complex128"),
        ("complex64", "float32"),
    ],
)
@pytest.mark.parametrize("mode", [pytest.param(m, marks=pytest.mark.slow if m == "jax" else ()) for m in EAGER])
@pytest.mark.compiled_by_default()
def test_mixed_dtypes(mode: str, entries: str, vector: str) -> None:
    """As in NumPy: the product has the dtype that holds both."""
    m, v = matrix_of((4, 4), entries), (10 * rows("complex128" if "c" in vector else "float64", (4,), 1)).astype(vector)
    wanted = np.result_type(entries, vector)
    found = operands(mode, m)
    for kind in ("csr array", "LinearOperator", "dense", "function", *list(NATIVE[library(mode)])[:1]):
        A = as_operator(found[kind], array(mode, np.ones(4, entries)))
        for got, exact in ((A @ array(mode, v), m @ v), (A.T(array(mode, v)), m.T @ v)):
            assert to_numpy(got).dtype == wanted, kind
            np.testing.assert_allclose(to_numpy(got), exact, rtol=1e-5, atol=1e-5, err_msg=kind)


@eager
def test_integer_and_boolean_matrices(mode: str) -> None:
    for dtype in ("int64", "int8", "bool"):
        m = np.array([[2, 0, 1], [0, 3, 0], [1, 0, 1]]).astype(dtype)
        for A in (array(mode, m), sp.csr_array(m), m.tolist()):
            operator = as_operator(A, array(mode, np.ones(3)))
            assert operator.dtype == np.float64
            np.testing.assert_array_equal(to_numpy(operator @ array(mode, np.ones(3))), m.sum(1))


@pytest.mark.compiled_by_default(modes=("tf",))
@eager
def test_known_entries_and_offsets(mode: str) -> None:
    m = matrix_of((6, 6), "float64")
    found = operands(mode, m)
    if mode == "jax":
        found = {kind: found[kind] for kind in ("csr untidy", "LinearOperator", "dense", "function", *NATIVE["jax"])}
    for kind, A in found.items():
        operator = as_operator(A, array(mode, np.ones(6)))
        known = operator.known()
        if kind in ("function", "LinearOperator", "LinearOperator of functions"):
            assert known is None
        else:
            np.testing.assert_allclose(known.toarray() if sp.issparse(known) else known, m, rtol=1e-12, err_msg=kind)
        shifted = OffsetOperator(operator, 0.5)
        assert (shifted.offset, shifted.without_offset) == (0.5, operator)
        assert (operator.offset, operator.without_offset) == (0, operator)
        for got, exact in (
            (shifted @ array(mode, np.ones(6)), (m + 0.5).sum(1)),
            (shifted.T @ array(mode, np.arange(6.0)), (m + 0.5).T @ np.arange(6.0)),
            (shifted @ array(mode, np.eye(6)[:, :2]), (m + 0.5)[:, :2]),
            (shifted.diagonal(), np.diagonal(m) + 0.5),
            (shifted.dense(), m + 0.5),
        ):
            np.testing.assert_allclose(to_numpy(got), exact, rtol=1e-10, atol=1e-12, err_msg=kind)


@dataclass(eq=False, repr=False)
class RowsScaled(Composed):
    """A matrix whose rows are multiplied by numbers `(1, n)`."""

    parts = ("inner", "factors")
    inner: Operator
    factors: Any
    flipped: bool = False

    def apply(self, x: Any) -> Any:
        return self.inner.apply(self.factors * x) if self.flipped else self.factors * self.inner.apply(x)

    def transpose(self) -> Operator:
        return RowsScaled(self.inner.transpose(), self.factors, not self.flipped)


@pytest.mark.compiled_by_default(modes=("tf",))
@eager
def test_an_operator_made_of_parts(mode: str) -> None:
    """It states its parts, `apply` and `transpose`: all else follows."""
    m, d = matrix_of((6, 6), "complex128"), rows("complex128", (1, 6))
    A = RowsScaled(as_operator(array(mode, m)), array(mode, d))
    exact, vectors = d.T * m, [rows("complex128", shape) for shape in ((6,), (6, 2), (6,), (3, 6))]
    bk = A.bk
    arrays, rebuild = A.for_host()
    parts, unflatten = bk.flatten(A.as_container())
    same = {
        "itself": A,
        "apart and together": unflatten(parts),
        "twice transposed": A.T.T,
        "of other precision": A.astype(np.dtype("complex64")),
    }
    for name, B in same.items():
        rtol = 1e-5 if name == "of other precision" else 1e-10
        found = everything(B, *(array(mode, v) for v in vectors))
        for got, wanted in zip(found, expected(exact, *vectors), strict=True):
            np.testing.assert_allclose(to_numpy(got), wanted, rtol=rtol, atol=rtol, err_msg=name)
    host = rebuild([to_numpy(a) for a in arrays])
    np.testing.assert_allclose(host.apply(vectors[3]), vectors[3] @ exact.T, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(host.per_system(0).rmatvec(vectors[0]), exact.conj().T @ vectors[0], rtol=1e-10)
    moved = RowsScaled(as_operator(m), d).on_backend(bk, array(mode, d))
    assert moved is not None and moved.bk is bk
    np.testing.assert_allclose(to_numpy(moved @ array(mode, vectors[0])), exact @ vectors[0], rtol=1e-10, atol=1e-12)
    function = as_operator(lambda x: x + 0, array(mode, np.ones(6, "complex128")))
    if bk.name == "numpy":
        assert RowsScaled(function, d).on_backend(krylix.choose_backend("numpy"), None) is None


@pytest.mark.compiled_by_default(modes=("tf",))
@eager
def test_the_same_on_the_host(mode: str) -> None:
    """`for_host` gives what SciPy's methods work with."""
    m, x = matrix_of((6, 6), "complex128"), rows("complex128", (1, 6))
    for kind, A in operands(mode, m).items():
        arrays, rebuild = as_operator(A, array(mode, np.ones(6, "complex128"))).for_host()
        host = rebuild([to_numpy(a) for a in arrays])
        np.testing.assert_allclose(host.apply(x), x @ m.T, rtol=1e-10, atol=1e-12, err_msg=kind)
        single = host.per_system(0)
        np.testing.assert_allclose(single @ x[0], m @ x[0], rtol=1e-10, atol=1e-12, err_msg=kind)
        if kind != "function" or mode == "numpy":
            np.testing.assert_allclose(
                spl.aslinearoperator(single).rmatvec(x[0]), m.conj().T @ x[0], rtol=1e-10, atol=1e-12
            )


@pytest.mark.parametrize("mode", ["jax-jit", "tf-function"])
def test_sparse_matrix_as_an_argument_of_a_compiled_function(mode: str) -> None:
    m = matrix_of((6, 4), "float64")
    given = {kind: build(m) for kind, build in NATIVE[library(mode)].items()}

    def all_of_it(matrices: dict[str, Any], v: Any, w: Any) -> dict[str, Any]:
        operators = {kind: as_operator(A) for kind, A in matrices.items()}
        return {kind: (A @ v, A.T @ w, A.diagonal(), A.dense()) for kind, A in operators.items()}

    found = compiled(mode, all_of_it)(given, array(mode, np.ones(4)), array(mode, np.ones(6)))
    for kind in given:
        for got, exact in zip(found[kind], (m.sum(1), m.sum(0), np.diagonal(m), m), strict=True):
            np.testing.assert_allclose(to_numpy(got), exact, rtol=1e-12, atol=1e-12, err_msg=kind)


@pytest.mark.needs("jax")
def test_operators_are_containers_in_jax() -> None:
    import jax
    import jax.numpy as jnp

    m = matrix_of((6, 6), "float64")
    given = [as_operator(A, jnp.ones(6)) for A in (jnp.asarray(m), native("jax", m), sp.csr_array(m))]
    given += [OffsetOperator(A, 2.0) for A in given]
    program = jax.jit(lambda As, v: [(A @ v, A.T @ v, jax.tree.map(lambda x: 2 * x, A)) for A in As])
    for operator, found in zip(given, program(given, jnp.ones(6)), strict=True):
        exact = m + operator.offset
        np.testing.assert_allclose(found[0], exact.sum(1), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found[1], exact.sum(0), rtol=1e-12, atol=1e-12)
        assert isinstance(found[2], type(operator)) and found[2].shape == (6, 6)


@pytest.mark.parametrize("mode", ["numpy", "jax-jit", "torch", "tf"])
def test_extreme_shapes(mode: str) -> None:
    matrices = [rows("float64", shape) for shape in ((1, 1), (3, 1), (1, 3), (0, 3), (3, 0))]

    def images() -> list[Any]:
        found = []
        for m in matrices:
            v, w, V = (array(mode, np.ones(shape)) for shape in (m.shape[1], m.shape[0], (m.shape[1], 0)))
            for A in (as_operator(array(mode, m), v), as_operator(sp.csr_array(m), v)):
                found.append((A @ v, A.T @ w, A @ V))
        return found

    for k, found in enumerate(compiled(mode, images)()):
        m = matrices[k // 2]
        for got, exact in zip(found, (m.sum(1), m.sum(0), np.ones((m.shape[0], 0))), strict=True):
            np.testing.assert_allclose(to_numpy(got), exact)


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@eager
def test_numpy_subclasses(mode: str) -> None:
    """`np.matrix` has a product and an indexing of its own, which must not leak in."""
    m = matrix_of((4, 4), "float64") + 3 * np.eye(4)
    for A in (np.matrix(m), np.ma.masked_array(m)):
        operator = as_operator(A, array(mode, np.ones(4)))
        found = to_numpy(operator @ array(mode, np.ones(4)))
        assert type(found) is np.ndarray and found.shape == (4,)
        np.testing.assert_allclose(found, m.sum(1))
        result = linear_solve(A, array(mode, m.sum(1)), method="direct")
        np.testing.assert_allclose(to_numpy(result.x), np.ones(4))


# ---- refused


@eager
def test_bad_operands(mode: str) -> None:
    v = array(mode, np.ones(3))
    with pytest.raises(ValueError, match="give `like`"):
        as_operator(lambda x: x)
    for bad in (v, array(mode, np.array(3.0)), [1.0, 2.0]):
        with pytest.raises(ValueError, match=r"expected a matrix \(n, n\)"):
            as_operator(bad, v)
    for bad in (None, "CG", object(), np.array(["a"])):
        with pytest.raises(TypeError, match=r"dtype|must be a function, a matrix"):
            as_operator(bad, v)
    for A in (array(mode, np.eye(3)), sp.eye_array(3), native(mode, np.eye(3)), as_operator(np.eye(3))):
        with pytest.raises(TypeError, match="args are passed on to a function"):
            as_operator(A, v, args=(1,))
    for batch_ndim in (2, 3):
        with pytest.raises(ValueError, match="batch_ndim"):
            as_operator(lambda x: x, v, batch_ndim=batch_ndim)


@eager
def test_wrong_vectors(mode: str) -> None:
    for A in (array(mode, np.ones((2, 3))), sp.csr_array(np.ones((2, 3)))):
        operator = as_operator(A, array(mode, np.ones(3)))
        for bad in (np.ones(2), np.ones((2, 3)), np.ones((3, 3, 3)), np.array(1.0)):
            with pytest.raises(ValueError, match=r"\(2, 3\) multiplies \(3,\) or \(3, k\)"):
                operator @ array(mode, bad)
        for bad in (np.ones(2), np.ones((3, 2, 1)), np.array(1.0)):
            with pytest.raises(ValueError, match=r"last axes are \(3,\)"):
                operator(array(mode, bad))


@eager
def test_sparse_arrays_with_other_axes(mode: str) -> None:
    with pytest.raises(ValueError, match="two axes"):
        as_operator(sp.coo_array(np.ones(3)), array(mode, np.ones(3)))


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_bcoo_with_other_axes() -> None:
    from jax.experimental import sparse

    many = sparse.BCOO.fromdense(np.ones((2, 2, 3, 3)), n_batch=2)
    for A in (many, sparse.BCOO.fromdense(np.ones((3, 3)), n_dense=1), sparse.BCOO.fromdense(np.ones((2, 3, 3)))):
        with pytest.raises(ValueError, match="with n_batch=1"):
            as_operator(A)


@pytest.mark.needs("torch")
def test_torch_tensors_with_other_axes() -> None:
    import torch

    for A in (torch.ones(2, 2, 3, 3).to_sparse(), torch.ones(3, 3).to_sparse(1)):
        with pytest.raises(ValueError, match="in the layout COO or CSR"):
            as_operator(A)


@pytest.mark.needs("tensorflow")
def test_tensorflow_tensors_with_other_axes() -> None:
    import tensorflow as tf

    with pytest.raises(ValueError, match="expected a matrix"):
        as_operator(tf.sparse.from_dense(np.ones((2, 2, 3, 3))))


@pytest.mark.parametrize("mode", ["jax", "torch", "tf"])
def test_operators_of_another_library(mode: str) -> None:
    other = "torch" if mode == "jax" else "jax"
    like = array(mode, np.ones(3))
    for A in (
        as_operator(array(other, np.eye(3))),
        as_operator(lambda x: x, array(other, np.ones(3))),
        array(other, np.eye(3)),
    ):
        with pytest.raises(NoBackendFound, match="given together"):
            as_operator(A, like)
    for A in (np.diag([1.0, 2, 3]), sp.diags_array([1.0, 2, 3]), spl.aslinearoperator(np.diag([1.0, 2, 3]))):
        moved = as_operator(as_operator(A), like)
        assert moved.bk.name == library(mode)
        np.testing.assert_array_equal(to_numpy(moved @ like), [1, 2, 3])
    with pytest.raises(TypeError, match="is an operator"):
        as_operator(as_operator(lambda x: x, np.ones(3)), like)


@eager
def test_linear_operator_without_adjoint(mode: str) -> None:
    m = matrix_of((4, 4), "float64")
    A = as_operator(spl.LinearOperator((4, 4), matvec=lambda x: m @ x, dtype=m.dtype), array(mode, np.ones(4)))
    np.testing.assert_allclose(to_numpy(A @ array(mode, np.ones(4))), m.sum(1))
    np.testing.assert_allclose(to_numpy(A.dense()), m)
    np.testing.assert_allclose(to_numpy(A.conj() @ array(mode, np.ones(4))), m.sum(1))
    with pytest.raises(UnsupportedOperation, match="no rmatvec"):
        _ = A.T


def test_functions_too_large_to_list_their_entries() -> None:
    A = as_operator(lambda x: 2 * np.asarray(x), np.ones(5000))
    with pytest.raises(UnsupportedOperation, match="n = 4096"):
        A.dense()
    np.testing.assert_array_equal(A @ np.ones(5000), 2 * np.ones(5000))


def test_layout_of_batches() -> None:
    bk = krylix.choose_backend("numpy")
    layout = Layout.of(bk, np.ones((2, 3, 4, 5)), 2)
    assert (layout.systems, layout.size, layout.batch, layout.shape) == (6, 20, (2, 3), (4, 5))
    x = rows("float64", (2, 3, 4, 5))
    flat = layout.flatten(bk, x, np.dtype("float64"), "x")
    assert flat.shape == (6, 20)
    np.testing.assert_array_equal(layout.unflatten(bk, flat), x)
    np.testing.assert_array_equal(layout.unflatten(bk, np.stack([flat, 2 * flat]), (2,)), np.stack([x, 2 * x]))
    assert isinstance(as_operator(lambda x: x, x, batch_ndim=2), FunctionOperator)
