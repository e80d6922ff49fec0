"""Batches of sparse matrices of one structure, and lists of matrices: every system comes out as if solved alone."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from krylix import as_operator, linear_solve, prepare
from krylix.backends import NoBackendFound
from krylix.sparse import SparseMatrix
from matrices import FORMATS, random_matrix
from modes import EAGER, MODES, array, library, native_sparse, solve, to_numpy

N, SYSTEMS = 9, 3
LINE = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(N, N), format="csr")
VALUES = np.stack([LINE.data, 1e3 * LINE.data, LINE.data + 2 * (LINE.data > 0)])  # all symmetric
DENSE = np.stack([sp.csr_array((v, LINE.indices, LINE.indptr)).toarray() for v in VALUES])
B = np.random.default_rng(6).standard_normal((SYSTEMS, N))
X = np.linalg.solve(DENSE, B[..., None])[..., 0]
METHODS = ["CG", "biCG-stab(2)", "GMRES", "direct", "scipy-direct", "scipy-GMres"]


def batch(mode: str, format: str = "csr", known: bool = True) -> SparseMatrix:
    A: Any = as_operator(LINE, like=array(mode, B)).to(format)
    values = as_operator(LINE).to("csr").with_values(VALUES).to(format).values  # type: ignore[attr-defined]
    given = tuple(v if known else array(mode, v) for v in (values if isinstance(values, tuple) else (values,)))
    found: SparseMatrix = A.with_values(given[0] if len(given) == 1 else given)
    return found


@pytest.mark.compiled_by_default("CG", "scipy-direct", modes=("jax-jit", "tf-function"))
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", METHODS)
def test_one_sparse_matrix_per_system(method: str, mode: str) -> None:
    A = batch(mode)
    result = solve(mode, A, B, method=method)
    np.testing.assert_allclose(result.x, X, rtol=1e-7, atol=1e-10)
    for i in range(SYSTEMS) if mode in ("numpy", "torch") else (1,):
        single = solve(mode, A[i], B[i], method=method)
        assert single.iterations == result.iterations[i]
        np.testing.assert_allclose(result.x[i], single.x, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("format", [*FORMATS, "dense"])
@pytest.mark.parametrize("mode", ["numpy", "torch"])
def test_formats(mode: str, format: str) -> None:
    """With jacobi, for a batch in front of the batch, and for one right-hand side for all."""
    A = batch(mode, format, known=False)
    many = np.stack([B, 2 * B[:, ::-1]])
    for b in (B, many, B[0]):
        wide = np.broadcast_to(b, (SYSTEMS, N)) if b.ndim == 1 else b
        for settings in ({"method": "CG", "preconditioner": "jacobi"}, {"method": "auto"}):
            result = solve(mode, A, b, **settings)
            assert result.converged.shape == wide.shape[:-1]
            np.testing.assert_allclose(result.x, np.linalg.solve(DENSE, wide[..., None])[..., 0], rtol=1e-7, atol=1e-10)
    with pytest.raises(ValueError, match=r"batch \(3,\) of matrices and b a batch \(2,\)"):
        solve(mode, A, B[:2])


@pytest.mark.parametrize("mode", EAGER)
@pytest.mark.compiled_by_default(modes=())
def test_dense_matrices_and_one_right_hand_side(mode: str) -> None:
    result = solve(mode, array(mode, DENSE), B[0], method="direct")
    np.testing.assert_allclose(result.x, np.linalg.solve(DENSE, B[0]), rtol=1e-10)
    nested = linear_solve(array(mode, np.stack([DENSE, 2 * DENSE])), array(mode, B), method="direct").x
    np.testing.assert_allclose(to_numpy(nested), [X, X / 2], rtol=1e-10)


@pytest.mark.compiled_by_default(modes=())
@pytest.mark.parametrize("mode", EAGER)
def test_prepared(mode: str) -> None:
    A, b = batch(mode), array(mode, B)
    for settings in ({"method": "scipy-direct"}, {"method": "CG", "preconditioner": "jacobi"}):
        solver = prepare(A, b[0], **settings)
        np.testing.assert_allclose(to_numpy(solver.solve(b).x), X, rtol=1e-7, atol=1e-10)
        assert tuple(solver.solve(b[0]).x.shape) == (SYSTEMS, N)
        np.testing.assert_allclose(to_numpy(solver.update(2 * A).solve(b).x), X / 2, rtol=1e-7, atol=1e-10)
        with pytest.raises(ValueError, match=r"made for 3 systems .* got 6"):
            solver.solve(array(mode, np.stack([B, B])))


def test_facts_hold_for_all() -> None:
    A = batch("numpy")
    assert A.is_hermitian() and A.is_positive_definite() and linear_solve(A, B).method == "CG"
    values = VALUES.copy()
    values[2, 1] *= 2
    skewed = A.with_values(values)
    assert not skewed.is_hermitian() and skewed.is_positive_definite() is None
    assert linear_solve(skewed, B).method == "scipy-direct"
    with pytest.raises(ValueError, match="CG needs a symmetric matrix"):
        linear_solve(skewed, B, method="CG")
    turned = A.with_values(VALUES * np.array([[1], [1], [-1]]))
    assert turned.is_hermitian() and turned.is_positive_definite() is None
    with pytest.raises(ValueError, match="matrix to be the same for all systems"):
        linear_solve(A, B, method="block-CG")


@pytest.mark.parametrize("mode", ["numpy", "torch"])
@pytest.mark.parametrize("method", ["CG", "direct", "scipy-direct", "biCG-stab(2)"])
def test_bad_systems_leave_the_others_alone(method: str, mode: str) -> None:
    values = VALUES.copy()
    values[0, 3], values[1] = np.nan, 0
    A: Any = batch(mode).with_values(values)
    result = solve(mode, A, B, method=method, on_failure="status", nullspace=None)
    assert result.converged.tolist() == [False, False, True]
    single = solve(mode, A[2], B[2], method=method)
    assert single.iterations == result.iterations[2]
    np.testing.assert_allclose(result.x[2], single.x, rtol=1e-12)


def test_rectangular() -> None:
    R = random_matrix((7, 4)) + sp.eye_array(7, 4)
    A: Any = as_operator(sp.csr_array(R)).with_values(np.stack([R.data, R.data**2 + 1]))
    b = np.random.default_rng(1).normal(size=(2, 7))
    for rhs in (b, b[0]):
        wide = np.broadcast_to(rhs, b.shape)
        wanted = [np.linalg.lstsq(M, c)[0] for M, c in zip(A.toarray(), wide, strict=True)]
        np.testing.assert_allclose(linear_solve(A, rhs, method="LSMR").x, wanted, rtol=1e-6, atol=1e-9)


# --- the libraries' own batches ---------------------------------------------------------------------------------------

DIFFERENT = np.stack([DENSE[0], np.triu(DENSE[1]) + np.eye(N), DENSE[2] + np.eye(N, k=5)])


def own_batch(mode: str, layout: str) -> Any:
    if library(mode) == "jax":
        from jax.experimental import sparse

        return (sparse.BCSR if layout == "csr" else sparse.BCOO).fromdense(DIFFERENT, n_batch=1)
    if layout == "csr":  # of one pattern
        return as_operator(LINE, like=array(mode, B)).to("csr").with_values(array(mode, VALUES)).native()  # type: ignore[attr-defined]
    return native_sparse(mode, DIFFERENT)


@pytest.mark.compiled_by_default(modes=("tf",))
@pytest.mark.parametrize(
    ("mode", "layout"), [("jax", "coo"), ("jax", "csr"), ("torch", "coo"), ("torch", "csr"), ("tf", "coo")]
)
def test_own_batches(mode: str, layout: str) -> None:
    given = own_batch(mode, layout)
    A: Any = as_operator(given)
    matrices = DENSE if (mode, layout) == ("torch", "csr") else DIFFERENT
    assert A.systems == SYSTEMS and A.bk.name == library(mode)
    np.testing.assert_array_equal(A.toarray(), matrices)
    np.testing.assert_array_equal(as_operator(A.native()).toarray(), matrices)
    x = linear_solve(given, array(mode, B), method="scipy-direct").x
    np.testing.assert_allclose(to_numpy(x), np.linalg.solve(matrices, B[..., None])[..., 0], rtol=1e-9)


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_bcoo_as_an_argument_of_a_compiled_function() -> None:
    """Where nobody knows the places of its entries."""
    import jax
    from jax.experimental import sparse

    given = sparse.BCOO.fromdense(DENSE, n_batch=1)

    @jax.jit
    def loss(data: Any) -> Any:
        A = sparse.BCOO((data, given.indices), shape=given.shape)
        inner = jax.jit(lambda A: linear_solve(A, B, method="CG", preconditioner="jacobi").x)
        return (inner(A) ** 2).sum()

    np.testing.assert_allclose(jax.grad(loss)(given.data), by_values(DENSE), rtol=1e-6, atol=1e-9)
    factorised = jax.jit(
        lambda A: (linear_solve(A, B, method="scipy-direct").x, as_operator(A).T(B), as_operator(A).sum(0))
    )(given)
    for got, want in zip(factorised, (X, np.einsum("kji,kj->ki", DENSE, B), DENSE.sum(1)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


# --- derivatives and transformations ----------------------------------------------------------------------------------


def by_values(matrices: np.ndarray, b: np.ndarray = B) -> np.ndarray:
    """The gradient of sum x^2 by the entries of LINE, from the dense inverses."""
    x = np.linalg.solve(matrices, np.broadcast_to(b, B.shape)[..., None])[..., 0]
    y = np.linalg.solve(matrices.swapaxes(1, 2), 2 * x[..., None])[..., 0]
    rows = np.repeat(np.arange(N), np.diff(LINE.indptr))
    return -y[:, rows] * x[:, LINE.indices]


def check(got: Any, want: Any) -> None:
    np.testing.assert_allclose(to_numpy(got), want, rtol=1e-6, atol=1e-9)


@pytest.mark.needs("jax")
@pytest.mark.parametrize(
    "method",
    ["CG", pytest.param("scipy-direct", marks=pytest.mark.merge), pytest.param("direct", marks=pytest.mark.slow)],
)
def test_derivatives_jax(method: str) -> None:
    import jax
    import jax.numpy as jnp

    A: Any = as_operator(LINE, like=jnp.asarray(B)).to("ell")
    given = jnp.asarray(A.to("csr").with_values(VALUES).to("ell").values)
    want = A.to("csr").with_values(by_values(DENSE)).to("ell").values

    def loss(values: Any) -> Any:
        return (linear_solve(A.with_values(values), B, method=method).x ** 2).sum()

    def mapped(values: Any) -> Any:
        each = jax.vmap(lambda v, b: linear_solve(A.with_values(v), b, method=method).x)
        return (each(values, B) ** 2).sum()

    @jax.jit
    def everything(values: Any) -> Any:
        first, second = jax.jvp(jax.grad(loss), (values,), (values,))
        if method == "CG":
            return first, second, jax.grad(mapped)(values)
        # one more batch around the batch
        many = jax.vmap(lambda b: linear_solve(A.with_values(values), b, method=method).x)(jnp.stack([B, 2 * B]))
        return first, second, many

    first, second, other = everything(given)
    check(first, want)
    check(second, -3 * np.asarray(want))  # the gradient is homogeneous of degree -3
    check(other, want if method == "CG" else [X, 2 * X])


@pytest.mark.needs("jax")
def test_made_by_vmap() -> None:
    """Matrices that functions under vmap return, also twice mapped."""
    import jax
    import jax.numpy as jnp

    def matrix(c: Any) -> Any:
        return krylix.matrix_from_function(lambda u: (1 + c) * u - c * jnp.roll(u, 1), jnp.zeros(N))[0]

    c = jnp.asarray([1.0, 2.0, 3.0])
    want = np.stack([(1 + k) * np.eye(N) - k * np.roll(np.eye(N), 1, 0) for k in (1, 2, 3)])
    A = jax.jit(jax.vmap(matrix))(c)
    assert A.systems == 3 and A.shape == (N, N)
    np.testing.assert_allclose(A.toarray(), want)
    check(linear_solve(A, B, method="scipy-direct").x, np.linalg.solve(want, B[..., None])[..., 0])
    twice = jax.vmap(jax.vmap(matrix))(jnp.stack([c, c]))
    assert twice.systems == 6
    np.testing.assert_allclose(twice(jnp.stack([B, B]))[1], np.einsum("kij,kj->ki", want, B), rtol=1e-12)

    shapes = jax.eval_shape(jax.vmap(matrix), c)
    assert shapes.systems == 3
    with pytest.raises(ValueError, match="out_axes=0"):
        jax.vmap(lambda k: matrix(k).to("dia"), out_axes=1)(c[:2])

    def cube(u: Any) -> Any:
        return u**3 - jnp.roll(u, 1)

    J = jax.jit(jax.vmap(lambda u: krylix.jacobian_matrix(cube, u)))(jnp.asarray(B))
    np.testing.assert_allclose(J.toarray(), [np.diag(3 * b**2) - np.roll(np.eye(N), 1, 0) for b in B])


@pytest.mark.needs("torch")
@pytest.mark.parametrize("method", ["CG", "direct", "scipy-direct", "biCG-stab(2)"])
def test_derivatives_torch(method: str) -> None:
    import torch

    A, b = batch("torch"), torch.as_tensor(B)

    def loss(values: Any, b: Any = b) -> Any:
        return (linear_solve(A.with_values(values), b, method=method).x ** 2).sum()

    values, one = torch.tensor(VALUES, requires_grad=True), torch.tensor(B[0], requires_grad=True)
    (first,) = torch.autograd.grad(loss(values), values, create_graph=True)
    check(first.detach(), by_values(DENSE))
    (second,) = torch.autograd.grad((first * values.detach()).sum(), values)
    check(second, -3 * by_values(DENSE))
    loss(values, one).backward()
    inverse = np.linalg.inv(DENSE)
    check(one.grad, 2 * np.einsum("kij,kil,l->j", inverse, inverse, B[0]))

    def mapped(values: Any) -> Any:
        each = torch.func.vmap(lambda v, b: linear_solve(A.with_values(v), b, method=method).x)
        return (each(values, b) ** 2).sum()

    for function in (loss, mapped):
        check(torch.func.grad(function)(values.detach()), by_values(DENSE))
    pushed = torch.func.jvp(loss, (values.detach(),), (values.detach(),))[1]
    check(pushed, (by_values(DENSE) * VALUES).sum())


@pytest.mark.needs("tensorflow")
@pytest.mark.parametrize("method", ["CG", "scipy-direct"])
def test_derivatives_tensorflow(method: str) -> None:
    import tensorflow as tf

    A, rhs = batch("tf"), B if method == "CG" else B[0]  # one for all systems

    @tf.function(autograph=False)
    def gradients(values: Any, b: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([values, b])
            loss = tf.reduce_sum(linear_solve(A.with_values(values), b, method=method).x ** 2)
        return tape.gradient(loss, [values, b])

    by, by_b = gradients(tf.constant(VALUES), tf.constant(rhs))
    check(by, by_values(DENSE, rhs))
    inverse = np.linalg.inv(DENSE)
    each = 2 * np.einsum("kij,kil,kl->kj", inverse, inverse, np.broadcast_to(rhs, B.shape))
    check(by_b, each if method == "CG" else each.sum(0))


def test_derivatives_numpy() -> None:
    A = batch("numpy")
    result = linear_solve(A, B, method="CG")
    check(result.vjp(2 * result.x).A.values, by_values(DENSE))
    check(result.jvp(None, A), -X)
    twice = linear_solve(A, np.stack([B, B]), method="CG")
    check(twice.vjp(2 * twice.x).A.values, 2 * by_values(DENSE))
    check(twice.jvp(None, A), [-X, -X])
    inverse = np.linalg.inv(DENSE)
    for given in (A, DENSE):
        one = linear_solve(given, B[0], method="direct")
        check(one.vjp(2 * one.x).b, 2 * np.einsum("kij,kil,l->j", inverse, inverse, B[0]))
    matrices = [LINE, 3 * LINE]
    result = linear_solve(matrices, B[:2], method="CG")
    gradient = result.vjp(2 * result.x).A
    check([g.data for g in gradient], by_values(np.stack([DENSE[0], 3 * DENSE[0], DENSE[2]]))[:2])
    check(result.jvp(None, matrices), -result.x)


# --- lists ------------------------------------------------------------------------------------------------------------


@pytest.mark.compiled_by_default(modes=())
@pytest.mark.parametrize("mode", EAGER)
def test_lists(mode: str) -> None:
    """Dense, sparse of one structure and of several, SciPy's and the library's."""
    own = [native_sparse(mode, M) for M in DIFFERENT]
    lists = {
        "dense": ([array(mode, M) for M in DIFFERENT], DIFFERENT),
        "of NumPy": (list(DIFFERENT), DIFFERENT),
        "of SciPy": (tuple(map(sp.csc_array, DIFFERENT)), DIFFERENT),
        "own": (own, DIFFERENT),
        "mixed": ([sp.csr_array(DIFFERENT[0]), own[1], batch(mode)[2]], np.stack([*DIFFERENT[:2], DENSE[2]])),
        "krylix": (list(batch(mode, "dia")), DENSE),
    }
    for name, (matrices, dense) in lists.items():
        result = linear_solve(matrices, array(mode, B), method="scipy-direct")
        want = np.linalg.solve(dense, B[..., None])[..., 0]
        np.testing.assert_allclose(to_numpy(result.x), want, rtol=1e-9, err_msg=name)
        assert type(result.x) is type(array(mode, B))
    A: Any = as_operator(lists["krylix"][0])
    assert A.format == "dia" and A.systems == SYSTEMS
    solver = prepare(lists["of SciPy"][0], array(mode, B), method="scipy-direct")
    np.testing.assert_allclose(to_numpy(solver.update(lists["krylix"][0]).solve(array(mode, B)).x), X, rtol=1e-9)


@pytest.mark.needs("torch")
def test_gradients_of_a_list() -> None:
    import torch

    first, second = torch.tensor(DENSE[0], requires_grad=True), torch.tensor(VALUES[2], requires_grad=True)
    A: Any = batch("torch")[0]
    for matrices, b in (([first, 2 * first], B[:2]), ([A.with_values(second), LINE], B[[2, 0]])):
        (linear_solve(matrices, torch.as_tensor(b), method="CG").x ** 2).sum().backward()
    x = np.linalg.solve(DENSE[0], B[:2].T).T
    y = np.linalg.solve(DENSE[0].T, 2 * x.T).T
    check(first.grad, -np.outer(y[0], x[0]) - np.outer(y[1], x[1]) / 4)
    check(second.grad, by_values(DENSE)[2])


def test_refused_lists() -> None:
    import scipy.sparse.linalg as spl

    dense, sparse = DENSE[0], LINE
    for matrices, error, message in (
        ([sparse, dense], TypeError, "kinds CSR, Dense"),
        ([sparse, sp.eye_array(4)], ValueError, r"shapes \(9, 9\), \(4, 4\)"),
        ([dense, lambda x: x], TypeError, r"A\[1\] is function"),
        ([dense, spl.aslinearoperator(dense)], TypeError, r"A\[1\] is "),
        ([batch("numpy"), sparse], TypeError, r"A\[0\] is a batch of shape \(3,\)"),
        ([dense, DENSE], TypeError, r"A\[1\] is a batch of shape \(3,\)"),
        ([dense, [1, 2]], ValueError, "expected a matrix"),
    ):
        with pytest.raises(error, match=message):
            linear_solve(matrices, B[:2])
    with pytest.raises(ValueError, match=r"batch \(2,\) of matrices and b a batch \(3,\)"):
        linear_solve([sparse, sparse], B)


@pytest.mark.needs("torch", "jax")
def test_lists_of_two_libraries() -> None:
    import jax.numpy as jnp
    import torch

    with pytest.raises(NoBackendFound, match="torch and jax"):
        linear_solve([torch.as_tensor(DENSE[0]), jnp.asarray(DENSE[1])], B[:2])
