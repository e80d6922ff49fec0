"""Operators as SciPy's LinearOperators: in SciPy and pyamg, on every library, and what their products mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as sla

from krylix import as_operator, linear_solve, preconditioner
from krylix.sparse import UnsupportedOperation
from modes import array

N = 30
LAPLACE = sp.diags_array([-np.ones(N - 1), 2.5 * np.ones(N), -np.ones(N - 1)], offsets=(-1, 0, 1)).tocsr()
HERMITIAN = (LAPLACE + sp.diags_array([-0.5j * np.ones(N - 1), 0.5j * np.ones(N - 1)], offsets=(-1, 1))).tocsr()
GENERAL = (LAPLACE + sp.diags_array([0.7 * np.ones(N - 1)], offsets=[1])).tocsr()
B = np.sin(np.arange(N) + 1.0)
X = np.random.default_rng(2).standard_normal((N, 3))


def on_grid(x: np.ndarray) -> np.ndarray:
    return (LAPLACE @ x.reshape(-1)).reshape(x.shape)


OPERATORS: dict[str, tuple[Callable[[], Any], Any]] = {  # the operator, and its matrix
    "CSR": (lambda: as_operator(GENERAL), GENERAL),
    "dense complex": (lambda: as_operator(HERMITIAN.toarray() + np.tri(N)), HERMITIAN + np.tri(N)),
    "single precision": (lambda: as_operator(LAPLACE.astype("float32")), LAPLACE),
    "integers": (lambda: as_operator((2 * LAPLACE).astype(int).toarray()), (2 * LAPLACE).astype(int)),
    "rectangular": (lambda: as_operator(GENERAL[:, :12].toarray()), GENERAL[:, :12]),
    "function of a grid": (lambda: as_operator(on_grid, np.zeros((6, 5))), LAPLACE),
    "LinearOperator": (lambda: as_operator(sla.aslinearoperator(GENERAL)), GENERAL),
    "splu": (lambda: preconditioner(sla.splu(GENERAL.tocsc())), np.linalg.inv(GENERAL.toarray())),
    "transpose": (lambda: as_operator(HERMITIAN).T, HERMITIAN.T),
}


def dense(matrix: Any) -> np.ndarray:
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix)


@pytest.mark.parametrize("name", OPERATORS)
def test_products(name: str) -> None:
    """Of vectors, one column, many; real, complex, integers."""
    make, matrix = OPERATORS[name]
    A, D = make(), dense(matrix)
    close = {"rtol": 1e-5 if A.dtype.itemsize < 8 else 1e-9, "atol": 1e-9}
    rng = np.random.default_rng(0)
    for product, M in (("matvec", D), ("rmatvec", D.conj().T)):
        for v in (rng.standard_normal(M.shape[1]), rng.standard_normal(M.shape[1]) + 2j, np.arange(M.shape[1])):
            image = getattr(A, product)(v)
            assert isinstance(image, np.ndarray) and image.shape == (M.shape[0],)
            np.testing.assert_allclose(image, M @ v, **close)
            np.testing.assert_allclose(getattr(A, product)(v[:, None]), M @ v[:, None], **close)
            many = np.stack([v, 2 * v, v[::-1]], axis=1)
            np.testing.assert_allclose(getattr(A, product.replace("vec", "mat"))(many), M @ many, **close)
        with pytest.raises(ValueError, match=rf"{product} of .* takes \({M.shape[1]},\) or .*; got the shape \(7,\)"):
            getattr(A, product)(np.ones(7))
        with pytest.raises(ValueError, match=rf"takes \({M.shape[1]}, k\); got the shape \({M.shape[1]},\)"):
            getattr(A, product.replace("vec", "mat"))(np.ones(M.shape[1]))
    wrapped = sla.aslinearoperator(A)
    assert wrapped.shape == D.shape and wrapped.dtype == A.dtype
    v = np.ones(D.shape[0])
    np.testing.assert_allclose(wrapped.H @ v, D.conj().T @ v, **close)
    np.testing.assert_allclose(wrapped.T @ v, D.T @ v, **close)


def test_images_may_be_written_to() -> None:
    """As SciPy's methods do: they are neither the argument nor memory of the operator."""
    v, kept = np.ones(N), 2 * np.ones(N)
    for A in (as_operator(lambda x: x, v), as_operator(sla.LinearOperator((N, N), lambda v: kept, dtype=float))):
        image = A.matvec(v)
        image[:] = 7
        assert v[0] == 1 and kept[0] == 2


def test_batches_are_refused() -> None:
    A = as_operator(np.ones((2, N, N)))
    for name in ("matvec", "rmatvec", "matmat", "rmatmat"):
        with pytest.raises(ValueError, match=f"{name} is for one matrix; .* is a batch"):
            getattr(A, name)(np.ones((N, 1)))


def test_no_transpose() -> None:
    A = as_operator(sla.LinearOperator((N, N), lambda v: GENERAL @ v, dtype=float))
    with pytest.raises(UnsupportedOperation, match="has no rmatvec"):
        A.rmatvec(B)


SOLVERS = ("cg", "cgs", "bicg", "bicgstab", "gmres", "lgmres", "minres", "qmr", "tfqmr", "gcrotmk")


@pytest.mark.parametrize("solver", SOLVERS)
def test_krylov_methods_of_scipy(solver: str) -> None:
    A, M = as_operator(LAPLACE), preconditioner(LAPLACE, "amg")
    preconditioned = {} if solver == "qmr" else {"M": M}  # which takes two others
    x, info = getattr(sla, solver)(A, B, rtol=1e-9, **preconditioned)
    assert info == 0
    np.testing.assert_allclose(LAPLACE @ x, B, atol=1e-7)


@pytest.mark.parametrize("solver", ["cg", "gmres", "bicgstab", "fgmres", "cr"])
def test_krylov_methods_of_pyamg(solver: str) -> None:
    krylov = pytest.importorskip("pyamg.krylov")
    x, info = getattr(krylov, solver)(as_operator(LAPLACE), B, tol=1e-9, M=preconditioner(LAPLACE, "jacobi"))
    assert info == 0
    np.testing.assert_allclose(LAPLACE @ x, B, atol=1e-7)


@pytest.mark.parametrize("matrix", [LAPLACE, HERMITIAN], ids=["real", "complex"])
def test_eigenvalues(matrix: Any) -> None:
    A, expected = as_operator(matrix), np.linalg.eigvalsh(matrix.toarray())
    np.testing.assert_allclose(np.sort(sla.eigsh(A, 3)[0]), expected[-3:])
    np.testing.assert_allclose(np.sort(sla.eigs(A, 3, which="LR")[0].real), expected[-3:])
    np.testing.assert_allclose(np.sort(sla.svds(A, 3)[1]), np.sort(np.abs(expected))[-3:])
    np.testing.assert_allclose(sla.onenormest(A), np.abs(matrix.toarray()).sum(0).max())
    M = preconditioner(matrix, "amg" if matrix is LAPLACE else "jacobi")
    values, vectors = sla.lobpcg(A, X.astype(matrix.dtype), M=M, largest=False, tol=1e-7, maxiter=200)
    np.testing.assert_allclose(np.sort(values), expected[:3], rtol=1e-9)
    np.testing.assert_allclose(matrix @ vectors, vectors * values, atol=1e-5)


@pytest.mark.parametrize("n", range(2, 9))
@pytest.mark.parametrize("mode", ["numpy", "torch"])
def test_lobpcg_of_small_matrices(mode: str, n: int) -> None:
    """It evaluates these on the unit vectors as columns: rows of a complex matrix would be another one."""
    small = HERMITIAN[:n, :n].toarray()
    with pytest.warns(UserWarning, match="dense eigensolver"):
        values, vectors = sla.lobpcg(as_operator(array(mode, small)), X[:n, :2].astype(complex))
    np.testing.assert_allclose(small @ vectors, vectors * values, atol=1e-9)
    np.testing.assert_allclose(np.sort(values), np.linalg.eigvalsh(small)[-2:])


SQUARES: dict[str, Callable[[], Any]] = {
    "CSR": lambda: as_operator(GENERAL[:6, :6]),
    "dense": lambda: as_operator(GENERAL[:6, :6].toarray()),
    "rectangular": lambda: as_operator(GENERAL[:8, :6].toarray()),
    "LinearOperator": lambda: as_operator(sla.aslinearoperator(GENERAL[:6, :6])),
    "function": lambda: as_operator(lambda x: 2 * x, np.ones(6)),
    "function of a grid": lambda: as_operator(lambda x: 2 * x, np.ones((2, 3))),
    "preconditioner": lambda: preconditioner(GENERAL[:6, :6], "ilu"),
}


@pytest.mark.parametrize("name", SQUARES)
def test_square_arrays(name: str) -> None:
    """Rows or columns? Refused, and what the message says gives both."""
    A = SQUARES[name]()
    D = A @ np.eye(6)
    Y = np.random.default_rng(0).standard_normal((6, 6))
    for square in (Y, np.eye(6), 2 * np.eye(6, dtype=int), Y.tolist(), np.tri(6, dtype=int)):
        with pytest.raises(
            ValueError, match=r"rows or its columns.*A @ X for columns.*\(A @ X\.T\)\.T for rows"
        ) as error:
            A(square)
        assert "\n" not in str(error.value)
    np.testing.assert_allclose(A @ Y, D @ Y, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose((A @ Y.T).T, Y @ D.T, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(A(np.eye(6, dtype=int)), D, rtol=1e-12)
    np.testing.assert_allclose(A(Y[:, :2]), D @ Y[:, :2], rtol=1e-9, atol=1e-12)
    if len(A.in_shape) == 1:
        np.testing.assert_allclose(A(Y[:2]), Y[:2] @ D.T, rtol=1e-9, atol=1e-12)


def test_square_arrays_that_are_no_batch() -> None:
    """One number, a grid itself, and a batch of matrices, each of which has one row."""
    assert as_operator(np.array([[3.0]]))(np.ones((1, 1))).tolist() == [[3]]
    np.testing.assert_allclose(as_operator(lambda x: 2 * x, np.ones((3, 3)))(np.eye(3)), 2 * np.eye(3))
    np.testing.assert_allclose(as_operator(np.stack([np.eye(2), 3 * np.eye(2)]))(np.ones((2, 2))), [[1, 1], [3, 3]])
    with pytest.raises(ValueError, match="rows or its columns"):
        as_operator(np.ones((3, 1)))(np.ones((1, 1)))


@pytest.mark.parametrize("mode", ["numpy", "jax", "torch", "tf"])
def test_operators_of_every_library(mode: str) -> None:
    """NumPy's vectors give NumPy's; its own arrays give its own."""
    A = as_operator(array(mode, GENERAL.toarray()))
    for name, M in (("matvec", GENERAL), ("rmatvec", GENERAL.T)):
        image = getattr(A, name)(B)
        assert type(image) is np.ndarray
        np.testing.assert_allclose(image, M @ B, rtol=1e-12, atol=1e-13)
        own = getattr(A, name)(array(mode, B))
        assert type(own) is type(array(mode, B))
    x, info = sla.gmres(A, B, rtol=1e-9)
    assert info == 0 and type(x) is np.ndarray
    np.testing.assert_allclose(GENERAL @ x, B, atol=1e-7)


@pytest.mark.parametrize("mode", ["jax", "torch", "tf"])
def test_operators_of_numpy_take_every_array(mode: str) -> None:
    """They are constants to other libraries, as they are to a solve."""
    for A in (as_operator(GENERAL), preconditioner(GENERAL, "ilu"), as_operator(sla.aslinearoperator(GENERAL))):
        for product in (lambda v, A=A: A @ v, lambda v, A=A: A(v), lambda v, A=A: A.matvec(v)):
            image = product(array(mode, B))
            assert type(image) is type(array(mode, B))
            np.testing.assert_allclose(np.asarray(image), A @ B, rtol=1e-12)
    with pytest.raises(TypeError, match="has no way there"):
        as_operator(on_grid, np.zeros((6, 5)))(array(mode, np.ones((6, 5))))


@pytest.mark.needs("jax")
def test_cg_of_jax() -> None:
    """Its M is a function; one of a SciPy matrix is a constant of the program, in `jit` and in gradients."""
    import jax
    import jax.numpy as jnp

    matrix, M = jnp.asarray(LAPLACE.toarray()), preconditioner(LAPLACE, "amg")

    def solve(b: Any) -> Any:
        return jax.scipy.sparse.linalg.cg(lambda v: matrix @ v, b, M=M, tol=1e-10)[0]

    found, gradient = jax.jit(jax.value_and_grad(lambda b: (solve(b) ** 2).sum()))(B)
    x = np.linalg.solve(LAPLACE.toarray(), B)
    np.testing.assert_allclose(found, x @ x)
    np.testing.assert_allclose(gradient, np.linalg.solve(LAPLACE.toarray(), 2 * x), rtol=1e-6)


def test_columns_in_calls() -> None:
    """Where an array can only be columns, it is taken as these; else its last axis is the vector."""
    A, grid = as_operator(GENERAL), as_operator(on_grid, np.zeros((6, 5)))
    np.testing.assert_allclose(A(X), GENERAL @ X)
    np.testing.assert_allclose(A(X.T), (GENERAL @ X).T)
    np.testing.assert_allclose(grid(X), LAPLACE @ X)
    with pytest.raises(ValueError, match="whose last axes are"):
        A(np.ones((N, 2, 3)))
    np.testing.assert_allclose(linear_solve(A, B).x, np.linalg.solve(GENERAL.toarray(), B))
