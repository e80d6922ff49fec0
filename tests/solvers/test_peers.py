"""Objects of other packages as A and M: every kind against dense NumPy, its transpose and derivatives; refusals."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from krylix import as_operator, linear_solve, preconditioner, prepare
from krylix.sparse import UnsupportedOperation
from krylix.sparse.peers.table import PEERS
from peer_objects import BANDED, DIAGONAL, GENERAL, NAMES, OBJECTS, SYMMETRIC, B, Mat, N, Products, is_installed

BATCH = np.stack([B, 2 * B[::-1], 1e-3 * B])
every_kind = pytest.mark.parametrize("name", NAMES)
needs_sparse = pytest.mark.skipif(not is_installed("sparse"), reason="sparse is not installed")


def to_host(x: Any) -> np.ndarray:
    return np.asarray(x.detach() if hasattr(x, "detach") else x)


def test_every_kind_has_an_object() -> None:
    assert {peer.cls for peer in PEERS} == {one.cls for one in OBJECTS.values()} - {None}


@every_kind
def test_solution(name: str) -> None:
    """Alone, as a batch and prepared, with right-hand sides of NumPy."""
    kind = OBJECTS[name]
    A, axes = kind.make(kind.matrix), {} if kind.has_shape else {"batch_ndim": 1}
    found = linear_solve(A, BATCH, **axes)
    np.testing.assert_allclose(to_host(found.x), np.linalg.solve(kind.matrix, BATCH.T).T, rtol=1e-7, atol=1e-12)
    assert np.shape(found.converged) == (3,) and np.all(to_host(found.converged))
    one = linear_solve(A, B)
    np.testing.assert_allclose(to_host(one.x), np.linalg.solve(kind.matrix, B), rtol=1e-7)
    if kind.library == "numpy":
        np.testing.assert_allclose(prepare(A, B).solve(B).x, one.x, rtol=1e-7)
    if kind.has_shape:  # and so needs no example of b
        np.testing.assert_allclose(to_host(prepare(A).solve(B).x), one.x, rtol=1e-7)


@every_kind
def test_operator_and_adjoint(name: str) -> None:
    kind = OBJECTS[name]
    if not kind.has_shape:
        pytest.skip("needs `like`, as every function does")
    A = as_operator(kind.make(kind.matrix))
    assert A.shape == kind.matrix.shape and A.dtype == np.float64
    np.testing.assert_allclose(A.matvec(B), kind.matrix @ B, rtol=1e-12)
    if name == "matvec":
        with pytest.raises(UnsupportedOperation, match=r"the Products has no rmatvec\. Define rmatvec"):
            A.rmatvec(B)
    else:
        np.testing.assert_allclose(A.rmatvec(B), kind.matrix.T @ B, rtol=1e-12, atol=1e-13)


@every_kind
def test_as_preconditioner(name: str) -> None:
    """The inverse: GMRES takes one step, and one to see that."""
    M = OBJECTS[name].make(np.linalg.inv(DIAGONAL))
    result = linear_solve(DIAGONAL, B, preconditioner=M, method="GMRES", rtol=1e-8)
    np.testing.assert_allclose(to_host(result.x), np.linalg.solve(DIAGONAL, B), rtol=1e-6)
    assert int(to_host(result.iterations)) <= 2


def structure(name: str) -> np.ndarray:
    """1 where an object of this kind has entries of its own."""
    return np.ones((N, N)) if OBJECTS[name].matrix is GENERAL else (OBJECTS[name].matrix != 0).astype(float)


_ALIKE = ("lineax Matrix, tagged", "lineax Diagonal", "lineax composed")  # compiled much as others are
DERIVED = [
    pytest.param(*one.values, marks=[*one.marks, *([pytest.mark.slow] if one.values[0] in _ALIKE else [])])
    for one in NAMES if OBJECTS[str(one.values[0])].derived
]  # fmt: skip


@pytest.mark.parametrize("name", DERIVED)
def test_derivative_by_the_entries(name: str) -> None:
    """Of |x|^2, which is -lambda x^T, where A^T lambda = 2 x."""
    kind = OBJECTS[name]
    x = np.linalg.solve(kind.matrix, B)
    expected = -np.outer(np.linalg.solve(kind.matrix.T, 2 * x), x) * structure(name)
    np.testing.assert_allclose(_gradient(kind.library, kind.make, kind.matrix), expected, rtol=1e-6, atol=1e-9)


def _gradient(library: str, make: Callable[[Any], Any], matrix: np.ndarray) -> np.ndarray:
    if library == "jax":
        import jax

        return np.asarray(
            jax.jit(jax.grad(lambda A: (linear_solve(make(A), jax.numpy.asarray(B)).x ** 2).sum()))(matrix)
        )
    if library == "torch":
        import torch

        module = make(matrix)
        (linear_solve(module, torch.tensor(B)).x ** 2).sum().backward()
        return np.asarray(module.weight.grad)
    import tensorflow as tf

    A = tf.Variable(matrix)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(linear_solve(make(A), tf.constant(B)).x ** 2)
    return np.asarray(tf.convert_to_tensor(tape.gradient(loss, A)))


# --- what is refused, in one line ---


class NotAMatrix:
    """Has neither products nor entries."""


def written(mat: Mat) -> Mat:
    mat.assembled = False
    return mat


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "unknown": (NotAMatrix, "got NotAMatrix, .*Taken are a function, .*lineax or TensorFlow.*`shape` and `matvec`"),
    "rows elsewhere": (lambda: Mat(GENERAL, rows=(0, 4)), "has 9 rows|of which this process has 0 to 4"),
    "type of PETSc": (lambda: Mat(GENERAL, "dense"), r"type 'dense' was given; expected an AIJ.*convert\('aij'\)"),
    "not assembled": (lambda: written(Mat(GENERAL)), r"not assembled.*assemble\(\)"),
    "shape of a vector": (lambda: _with(Products(GENERAL), shape=(N,)), r"the shape \(9,\); expected two numbers"),
    "no dtype": (lambda: _with(Products(GENERAL), dtype="number"), "dtype='number' was given; expected one of NumPy"),
}


def _with(it: Any, **attributes: Any) -> Any:
    vars(it).update(attributes)
    return it


@pytest.mark.parametrize("given", ["A", "M", "as_operator"])
@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, given: str) -> None:
    make, message = REFUSED[case]
    with pytest.raises((ValueError, TypeError), match=message) as error:
        if given == "as_operator":
            as_operator(make())
        elif given == "A":
            linear_solve(make(), B)
        else:
            linear_solve(GENERAL, B, preconditioner=make(), method="GMRES")
    assert "\n" not in str(error.value)


def test_methods_that_need_the_transpose() -> None:
    with pytest.raises(UnsupportedOperation, match="the Products has no rmatvec"):
        linear_solve(Products(GENERAL), B, method="LSMR")


def test_complex_products() -> None:
    """The transpose of a complex matrix is not its adjoint; a real one takes complex vectors."""
    from peer_objects import AdjointProducts

    matrix = GENERAL + 1j * BANDED
    A = as_operator(AdjointProducts(matrix))
    np.testing.assert_allclose(A.rmatvec(B), matrix.conj().T @ B)
    np.testing.assert_allclose(A.T @ B, matrix.T @ B)
    b = B + 1j * B[::-1]
    np.testing.assert_allclose(linear_solve(AdjointProducts(GENERAL), b).x, np.linalg.solve(GENERAL, b), rtol=1e-8)
    with pytest.raises(TypeError, match="complex"):
        linear_solve(_with(Products(matrix), dtype=float), B)


@needs_sparse
def test_pydata_arrays() -> None:
    """Read when they are given; only those that are sparse, and matrices."""
    import sparse

    coo = sparse.COO.from_numpy(GENERAL)
    A, solver = as_operator(coo), prepare(coo, B)
    coo.data[:] = 7
    np.testing.assert_array_equal(A.toarray(), GENERAL)
    np.testing.assert_allclose(solver.solve(B).x, np.linalg.solve(GENERAL, B))
    for matrix in (coo + 1, sparse.GCXS.from_numpy(GENERAL, fill_value=2.0), coo * np.nan):
        with pytest.raises(ValueError, match=r"fill_value=.*dense matrix; expected fill_value=0"):
            linear_solve(matrix, B)
    with pytest.raises(ValueError, match=r"shape \(2, 9, 9\).*list of matrices"):
        linear_solve(sparse.COO(np.ones((2, N, N))), B)
    whole = sparse.GCXS.from_numpy(np.diag(np.arange(1, N + 1)))
    np.testing.assert_allclose(linear_solve(whole, B).x, B / np.arange(1, N + 1))
    both = linear_solve([sparse.COO.from_numpy(GENERAL), sparse.COO.from_numpy(SYMMETRIC)], B)
    np.testing.assert_allclose(both.x[1], np.linalg.solve(SYMMETRIC, B), rtol=1e-7)
    assert preconditioner(sparse.COO.from_numpy(GENERAL), "ilu").shape == (N, N)


@pytest.mark.needs("torch")
def test_modules() -> None:
    """One with a constant part is affine; one that is not linear is refused."""
    import torch

    linear = torch.nn.Linear(N, N, dtype=torch.float64)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor(GENERAL))
    x = linear_solve(linear, torch.tensor(B)).x.detach()
    np.testing.assert_allclose(linear(x).detach(), B, atol=1e-8)
    with pytest.raises(ValueError, match="is not linear"):
        linear_solve(torch.nn.Sequential(linear, torch.nn.Tanh()), torch.tensor(B))


def test_no_package_is_imported_to_find_out() -> None:
    code = (
        "import sys, numpy as np, krylix\n"
        "class A:\n"
        "    shape = (3, 3)\n"
        "    def matvec(self, x): return 2 * x\n"
        "krylix.linear_solve(A(), np.ones(3), preconditioner=A())\n"
        "assert not {'lineax', 'sparse', 'petsc4py', 'torch', 'jax', 'tensorflow'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- lineax: containers, tags, transformations ---


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_lineax_containers() -> None:
    """Structures are part of the operator; a rectangular one tells that of x."""
    import jax
    import jax.numpy as jnp
    import lineax as lx

    of = {"u": jax.ShapeDtypeStruct((3,), float), "v": jax.ShapeDtypeStruct((2, 3), float)}
    matrix = jnp.asarray(GENERAL)

    def product(t: Any) -> Any:
        y = matrix @ jnp.concatenate([t["u"], t["v"].reshape(-1)])
        return {"u": y[:3], "v": y[3:].reshape(2, 3)}

    A = lx.FunctionLinearOperator(product, of)
    x = linear_solve(A, {"u": B[:3], "v": B[3:].reshape(2, 3)}).x
    np.testing.assert_allclose(np.concatenate([x["u"], x["v"].reshape(-1)]), np.linalg.solve(GENERAL, B), rtol=1e-8)
    np.testing.assert_allclose(as_operator(A).rmatvec(B), GENERAL.T @ B)
    with pytest.raises(ValueError, match=r"b is float64\[9\]; expected a container"):
        linear_solve(A, B)
    with pytest.raises(TypeError, match="A is a FunctionLinearOperator with its own numbers"):
        linear_solve(A, {"u": B[:3], "v": B[3:].reshape(2, 3)}, args=(1.0,))
    tall = lx.FunctionLinearOperator(lambda u: matrix[:, :4] @ u, jax.ShapeDtypeStruct((4,), float))
    with pytest.raises(ValueError, match=r"A maps float64\[4\] to float64\[9\]; .*LSMR"):
        linear_solve(tall, B)
    best = np.linalg.lstsq(GENERAL[:, :4], B)[0]
    np.testing.assert_allclose(linear_solve(tall, B, method="LSMR").x, best, rtol=1e-7)
    np.testing.assert_allclose(as_operator(tall).rmatvec(B), GENERAL[:, :4].T @ B)
    with pytest.raises(ValueError, match=r"b is float32\[9\]; expected float64\[9\]"):
        linear_solve(lx.FunctionLinearOperator(lambda v: v, jax.ShapeDtypeStruct((N,), float)), B.astype("float32"))


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_lineax_tags() -> None:
    """They decide where the entries are not known; one that lies ends in an error, or in the right answer."""
    import equinox as eqx
    import jax.numpy as jnp
    import lineax as lx

    n = 1100  # of fewer unknowns a dense matrix is factorised
    matrix = jnp.eye(n) * 3 + jnp.eye(n, k=1) + jnp.eye(n, k=-1)
    lying = jnp.eye(n) - 2 * jnp.eye(n, k=1) + 3 * jnp.eye(n, k=7)
    solve = eqx.filter_jit(lambda A, b: linear_solve(A, b, max_iter=50, on_failure="status"))
    b = jnp.ones(n)
    assert solve(lx.MatrixLinearOperator(matrix), b).method == "biCG-stab(2)"
    assert solve(lx.MatrixLinearOperator(matrix, lx.symmetric_tag), b).method == "MINRES"
    spd = solve(lx.MatrixLinearOperator(matrix, lx.positive_semidefinite_tag), b)
    assert spd.method == "CG" and bool(spd.converged)
    wrong = solve(lx.MatrixLinearOperator(lying, lx.positive_semidefinite_tag), b)
    error = float(jnp.linalg.norm(b - lying @ wrong.x))
    assert not bool(wrong.converged) or error <= 1e-9 * float(jnp.linalg.norm(b))
    with pytest.raises(ValueError, match="CG needs a symmetric matrix"):  # as the values are known here
        linear_solve(lx.MatrixLinearOperator(lying, lx.positive_semidefinite_tag), b, method="CG")


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_lineax_complex_symmetric_is_not_hermitian() -> None:
    import jax.numpy as jnp
    import lineax as lx

    matrix = SYMMETRIC + 1j * BANDED @ BANDED.T
    A = lx.MatrixLinearOperator(jnp.asarray(matrix), lx.symmetric_tag)
    assert not as_operator(A).declared
    b = B + 0j
    np.testing.assert_allclose(linear_solve(A, b).x, np.linalg.solve(matrix, b), rtol=1e-7)
    np.testing.assert_allclose(as_operator(A).rmatvec(b), matrix.conj().T @ b)


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_lineax_complex_functions() -> None:
    """A real b is a complex one to them; a real function is not asked for complex images."""
    import jax
    import jax.numpy as jnp
    import lineax as lx

    matrix = GENERAL + 1j * BANDED
    A = lx.FunctionLinearOperator(lambda v: jnp.asarray(matrix) @ v, jax.ShapeDtypeStruct((N,), complex))
    np.testing.assert_allclose(linear_solve(A, B).x, np.linalg.solve(matrix, B), rtol=1e-8)
    np.testing.assert_allclose(as_operator(A).rmatvec(B), matrix.conj().T @ B)
    real = lx.FunctionLinearOperator(lambda v: 2 * v, jax.ShapeDtypeStruct((N,), float))
    with pytest.raises(ValueError, match=r"b is complex128\[9\]; expected float64\[9\]"):
        linear_solve(real, B + 1j)


@pytest.mark.merge
@pytest.mark.needs("tensorflow")
def test_tensorflow_variables_in_a_graph() -> None:
    """Derivatives by a variable that an operator reads, while a graph is made."""
    import tensorflow as tf

    v = tf.Variable(SYMMETRIC)

    @tf.function
    def gradient(b: Any) -> Any:
        with tf.GradientTape() as tape:
            A = tf.linalg.LinearOperatorComposition(
                [tf.linalg.LinearOperatorFullMatrix(v), tf.linalg.LinearOperatorDiag(np.full(N, 2.0))]
            )
            loss = tf.reduce_sum(linear_solve(A, b, method="CG").x)
        return tape.gradient(loss, v)

    x = np.linalg.solve(2 * SYMMETRIC, B)
    expected = -2 * np.outer(np.linalg.solve(2 * SYMMETRIC, np.ones(N)), x)
    np.testing.assert_allclose(np.asarray(gradient(tf.constant(B))), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_lineax_vmap() -> None:
    import jax
    import lineax as lx

    diagonals = np.arange(1.0, 2 * N + 1).reshape(2, N)
    found = jax.jit(jax.vmap(lambda d: linear_solve(lx.DiagonalLinearOperator(d), B, method="CG").x))(diagonals)
    np.testing.assert_allclose(found, B / diagonals, rtol=1e-8)
