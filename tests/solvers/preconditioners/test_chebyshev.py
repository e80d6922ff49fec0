"""The Chebyshev preconditioner, against the polynomial of eigenvalues in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyamg
import pytest
import scipy.sparse as sp

from krylix import as_operator, linear_solve, preconditioner
from krylix.sparse import UnsupportedOperation
from modes import MODES, array, compiled, product, to_numpy

OTHERS = ("block-jacobi", "cluster")


def poisson(*shape: int) -> sp.csr_array:
    return sp.csr_array(pyamg.gallery.poisson(shape, format="csr"))


def hermitian(n: int = 30, seed: int = 0) -> np.ndarray:
    """Positive definite, complex, with a diagonal over four orders of magnitude."""
    rng = np.random.default_rng(seed)
    m = rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n))
    units = 10.0 ** rng.uniform(-2, 2, n)
    return units[:, None] * (m @ m.conj().T / n + np.eye(n)) * units


def weak(n: int = 40) -> np.ndarray:
    """All off-diagonal entries alike: one eigenvalue is far above the others, and its vector is smooth."""
    return np.eye(n) + 0.9 * (np.ones((n, n)) - np.eye(n))


def scaled_eigenvalues(A: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of D^-1/2 A D^-1/2, its vectors, and D^-1/2."""
    root = 1 / np.sqrt(np.abs(np.diag(A)))
    return *np.linalg.eigh(root[:, None] * A * root), root


def by_eigenvalues(A: np.ndarray, degree: int, ratio: float, end: float) -> np.ndarray:
    """D^-1/2 p D^-1/2, where 1 - z p(z) is the Chebyshev polynomial of an interval that is 1 at zero."""
    values, vectors, root = scaled_eigenvalues(A)
    centre, radius = end * (1 + 1 / ratio) / 2, end * (1 - 1 / ratio) / 2

    def chebyshev(z: np.ndarray) -> np.ndarray:
        return np.polynomial.chebyshev.chebval((centre - z) / radius, [0] * degree + [1])

    p = (1 - chebyshev(values) / chebyshev(np.zeros(1))) / values
    return root[:, None] * ((vectors * p) @ vectors.conj().T) * root


@pytest.mark.parametrize("settings", [{}, {"degree": 1}, {"degree": 2, "ratio": 4}, {"degree": 7, "ratio": 100.0}])
@pytest.mark.parametrize("A", [poisson(5, 6).toarray(), hermitian()], ids=["poisson", "complex"])
def test_is_the_polynomial(A: np.ndarray, settings: dict[str, Any]) -> None:
    M = preconditioner(A, "chebyshev", **settings)
    end = float(M.inner.largest[0, 0])  # type: ignore[attr-defined]
    given = {"degree": 4, "ratio": 30.0, **settings}
    expected = by_eigenvalues(A, given["degree"], given["ratio"], end)
    np.testing.assert_allclose(M.dense(), expected, rtol=1e-11, atol=1e-12 * np.abs(expected).max())
    assert M.hermitian is True and np.linalg.eigvalsh(M.dense()).min() > 0
    assert dict(M.settings) == given


@pytest.mark.parametrize(
    "A",
    [poisson(20, 20), poisson(300), sp.csr_array(pyamg.gallery.linear_elasticity((12, 12))[0]), sp.csr_array(weak()),
     sp.csr_array(hermitian()), sp.csr_array(1e-200 * poisson(9, 9)), sp.csr_array(-poisson(9, 9))],
    ids=["grid", "line", "elasticity", "one far above", "complex", "tiny", "negative"],
)  # fmt: skip
@pytest.mark.parametrize("degree", [3, 4])
def test_interval_holds_the_eigenvalues(A: sp.csr_array, degree: int) -> None:
    """So the preconditioner is definite, of the sign of A."""
    M = preconditioner(A, "chebyshev", degree=degree)
    values = scaled_eigenvalues(A.toarray())[0]
    end = float(M.inner.largest[0, 0])  # type: ignore[attr-defined]
    assert 1 - 1e-9 <= end / np.abs(values).max() < 1.2
    units = np.sqrt(np.abs(A.diagonal()))
    definite = np.linalg.eigvalsh(units[:, None] * M.dense() * units) * np.sign(A.diagonal()[0].real)
    assert definite.min() > 0.1 / end


@pytest.mark.parametrize(
    "mode", [pytest.param(m, marks=pytest.mark.slow if m == "torch-compile" else ()) for m in MODES]
)
def test_made_of_traced_values(mode: str) -> None:
    """The same as of known ones, to the accuracy of the bound."""
    A, b = poisson(6, 7), np.random.default_rng(0).standard_normal(42)
    pattern = as_operator(A, array(mode, b))

    def image(values: Any, r: Any) -> Any:
        return preconditioner(pattern.with_values(values), "chebyshev") @ r

    expected, function = preconditioner(A, "chebyshev") @ b, compiled(mode, image)
    for factor in (1.0, 3.0):
        found = function(factor * pattern.values, array(mode, factor * b))
        np.testing.assert_allclose(to_numpy(found), expected, rtol=1e-6)


@pytest.mark.compiled_by_default
@pytest.mark.parametrize("mode", MODES)
def test_of_a_function_that_cannot_be_traced(mode: str) -> None:
    """Not scaled: the polynomial of A itself."""
    A = weak()
    matrix = array(mode, A)
    f, b = product(mode, matrix), array(mode, np.linspace(1, 2, 40))

    def opaque(x: Any) -> Any:
        y = f(x)
        return y + 0 * y**2

    M = preconditioner(opaque, "chebyshev", like=b)
    expected = by_eigenvalues(A, 4, 30.0, float(to_numpy(M.inner.largest)[0, 0]))  # type: ignore[attr-defined]
    np.testing.assert_allclose(to_numpy(M @ b), expected @ to_numpy(b), rtol=1e-10)

    def solve(b: Any) -> Any:
        return linear_solve(f, b, method="CG", preconditioner="chebyshev", rtol=1e-10).x

    np.testing.assert_allclose(to_numpy(compiled(mode, solve)(b)), np.linalg.solve(A, to_numpy(b)), rtol=1e-8)


def test_products_are_those_it_tells() -> None:
    """Ten for the bound, and then one less than the degree for each application."""
    A, calls = poisson(8, 8), []

    def f(x: np.ndarray) -> np.ndarray:
        calls.append(np.size(x))
        return np.asarray(list(A @ np.ravel(x))).reshape(x.shape)  # not to be traced

    M = preconditioner(f, "chebyshev", like=np.ones(64), degree=5)
    made = len(calls)
    M @ np.ones(64)
    assert len(calls) == made + 4 and "4 products with A per application" in repr(M) and M.work is None
    known = preconditioner(A, "chebyshev", degree=5)
    assert known.work is not None and 4 * A.nnz <= known.work <= 6 * A.nnz
    assert f"{known.work / A.nnz:.3g} products with A" in repr(known)


@pytest.mark.parametrize("mode", ["numpy", "jax-jit", "torch", "tf"])
def test_function_of_a_batch(mode: str) -> None:
    """With coefficients of its own for each system: bounds of their own, too."""
    scales = np.array([[1.0], [50.0], [0.02]])
    A, units = weak(12), array(mode, scales)
    f = product(mode, array(mode, A))
    b = np.random.default_rng(0).standard_normal((3, 12))

    def solve(b: Any) -> Any:
        return linear_solve(lambda x: units * f(x), b, method="CG", preconditioner="chebyshev", batch_ndim=1).x

    np.testing.assert_allclose(
        to_numpy(compiled(mode, solve)(array(mode, b))), np.linalg.solve(A, b.T).T / scales, rtol=1e-5
    )


@pytest.mark.parametrize("entry", [0.0, -1.0, 1j], ids=["zero", "negative", "imaginary"])
def test_refuses_diagonals_that_are_not_positive(entry: complex) -> None:
    A = poisson(4, 4).toarray().astype(type(entry))
    A[3, 3] = entry
    with pytest.raises(ValueError, match=r"diagonal is real and of one sign.*'ilu'"):
        preconditioner(A, "chebyshev")


def test_empty_rows_stay() -> None:
    A = poisson(4, 4).toarray()
    A[5] = A[:, 5] = 0
    M = preconditioner(A, "chebyshev")
    assert np.isfinite(M.dense()).all() and np.linalg.eigvalsh(M.dense()).min() > 0
    for matrix in (np.zeros((3, 3)), np.full((1, 1), 7.0)):
        assert np.isfinite(preconditioner(matrix, "chebyshev").dense()).all()
    np.testing.assert_allclose(preconditioner(np.full((1, 1), 7.0), "chebyshev").dense(), 1 / 7, rtol=0.5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"degree": 0}, "degree=0 was given; expected an integer of at least 1"),
        ({"degree": 2.5}, "degree=2.5"),
        ({"ratio": 1}, "ratio=1 was given; expected a number above 1"),
        ({"ratio": "30"}, "ratio='30'"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        preconditioner(poisson(3, 3), "chebyshev", **settings)


def test_takes_a_quarter_of_the_iterations() -> None:
    A, b = poisson(50, 50), np.random.default_rng(0).standard_normal(2500)
    steps = {}
    for kind in ("jacobi", "chebyshev"):
        result = linear_solve(A, b, method="CG", preconditioner=kind, rtol=1e-8)
        assert np.linalg.norm(A @ result.x - b) <= 1.01e-8 * np.linalg.norm(b)
        steps[kind] = int(result.iterations)
    assert steps["chebyshev"] < 0.35 * steps["jacobi"]


@pytest.mark.needs("jax")
@pytest.mark.parametrize("kind", ["chebyshev", *(pytest.param(k, marks=pytest.mark.slow) for k in OTHERS)])
def test_gradient_by_jax(kind: str) -> None:
    """Of a solve whose preconditioner is made of the same traced values: exact, and none of M's own."""
    import jax

    check_gradient(kind, "jax", lambda loss, v: jax.jit(jax.grad(loss))(v))


@pytest.mark.needs("torch")
@pytest.mark.parametrize("kind", ["chebyshev", "block-jacobi", "cluster"])
def test_gradient_by_torch(kind: str) -> None:
    def gradient(loss: Callable[[Any], Any], v: Any) -> Any:
        v.requires_grad_()
        loss(v).backward()
        return v.grad

    check_gradient(kind, "torch", gradient)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("kind", ["chebyshev", "block-jacobi", "cluster"])
def test_mapped_and_differentiated_by_torch(kind: str) -> None:
    """Each of the matrices that torch.func.vmap maps over gets bounds and blocks of its own."""
    import torch

    A = poisson(5, 5)
    pattern, b = as_operator(A, array("torch", np.ones(25))), array("torch", np.linspace(1, 2, 25))
    settings = {"block_size": 5} if kind == "block-jacobi" else {}

    def total(t: Any) -> Any:
        matrix = pattern.with_values(t * pattern.values)
        M = preconditioner(matrix, kind, **settings)
        return linear_solve(matrix, b, method="CG", preconditioner=M, rtol=1e-10).x.sum()

    scales = array("torch", np.array([1.0, 4.0]))
    exact = np.linalg.solve(A.toarray(), to_numpy(b)).sum()
    np.testing.assert_allclose(to_numpy(torch.func.vmap(total)(scales)), [exact, exact / 4], rtol=1e-8)
    slopes = torch.func.vmap(torch.func.grad(total))(scales)
    np.testing.assert_allclose(to_numpy(slopes), [-exact, -exact / 16], rtol=1e-8)


@pytest.mark.merge
@pytest.mark.needs("tensorflow")
@pytest.mark.parametrize("kind", ["chebyshev", *(pytest.param(k, marks=pytest.mark.slow) for k in OTHERS)])
def test_gradient_by_tensorflow(kind: str) -> None:
    import tensorflow as tf

    def gradient(loss: Callable[[Any], Any], v: Any) -> Any:
        def taped(v: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(v)
                value = loss(v)
            return tape.gradient(value, v)

        return tf.function(taped, autograph=False)(v)

    check_gradient(kind, "tf", gradient)


def check_gradient(kind: str, mode: str, gradient: Callable[..., Any]) -> None:
    dense = weak(8) + np.diag(np.arange(8.0))
    values, b = array(mode, dense), array(mode, np.linspace(1, 2, 8))
    settings = {"block_size": 3} if kind == "block-jacobi" else {}

    def loss(v: Any) -> Any:
        M = preconditioner(v, kind, **settings)
        x = linear_solve(v, b, method="CG", preconditioner=M, rtol=1e-13).x
        return (x * x * b).sum() if hasattr(x, "sum") else _sum(x * x * b)

    x = np.linalg.solve(dense, np.linspace(1, 2, 8))
    adjoint = np.linalg.solve(dense.T, 2 * x * np.linspace(1, 2, 8))
    np.testing.assert_allclose(to_numpy(gradient(loss, values)), -np.outer(adjoint, x), rtol=1e-9, atol=1e-12)


def _sum(x: Any) -> Any:
    import tensorflow as tf

    return tf.reduce_sum(x)


def test_matrix_that_shows_nothing_is_taken() -> None:
    """A LinearOperator has no diagonal that is found in less than n products."""
    from scipy.sparse.linalg import aslinearoperator

    A, b = poisson(9, 9), np.ones(81)
    result = linear_solve(aslinearoperator(A), b, method="CG", preconditioner="chebyshev")
    np.testing.assert_allclose(A @ result.x, b, rtol=1e-4)
    with pytest.raises(UnsupportedOperation, match="chebyshev"):
        preconditioner(aslinearoperator(A), "block-jacobi")
