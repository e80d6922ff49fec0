"""The same operator in four libraries: the same matrix, solution and behaviour, whichever library's arrays come in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from catalogue import LIBRARIES, OPERATORS, Operator, dense, laplace
from krylix import as_operator, choose_backend, linear_solve, matrix_from_function, prepare

FEW = ("diffusion", "mesh", "wave")
later = pytest.mark.merge


def over(entries: list[Operator]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("operator", entries, ids=lambda operator: operator.name)


libraries = pytest.mark.parametrize("mode", LIBRARIES)
every = pytest.mark.compiled_by_default(modes=("jax", "tf"))  # which traces, and compiles next to nothing
but_jax = pytest.mark.compiled_by_default(modes=("tf",))  # whose products and loops are programs


def given(operator: Operator, mode: str) -> tuple[Any, Any, np.ndarray]:
    """The function, an array that it takes, and that array as NumPy's."""
    of, rng = LIBRARIES[mode](), np.random.default_rng(9)
    b = rng.standard_normal(operator.shape).astype(operator.dtype)
    if b.dtype.kind == "c":
        b = b + 1j * rng.standard_normal(operator.shape)
    return operator.make(of), of.array(b), b


def numbers(x: Any) -> np.ndarray:
    return np.asarray(choose_backend(x).to_numpy(x))


@every
@libraries
@over(OPERATORS)
def test_matrix(operator: Operator, mode: str) -> None:
    f, like, _ = given(operator, mode)
    found, bias = matrix_from_function(f, like)
    wanted, constant = dense(operator)
    np.testing.assert_allclose(numbers(found.dense()), wanted, rtol=0, atol=1e-14 * np.abs(wanted).max())
    assert found.nnz == np.count_nonzero(wanted)
    if bias is None:
        bias = np.zeros_like(constant)
    np.testing.assert_allclose(np.reshape(numbers(bias), -1), constant, rtol=0, atol=1e-14)


@every
@pytest.mark.parametrize(
    ("operator", "mode"),
    [
        pytest.param(o, mode, id=f"{o.name}-{mode}", marks=later if mode == "jax" and o.name not in FEW else ())
        for o in OPERATORS
        for mode in LIBRARIES
        if o.square
    ],
)
def test_solutions(operator: Operator, mode: str) -> None:
    """By the factors of the matrix, once and prepared."""
    f, b, known = given(operator, mode)
    matrix, constant = dense(operator)
    wanted = np.linalg.solve(matrix, known.reshape(-1) - constant).reshape(operator.shape)
    close = {"rtol": 0, "atol": 1e-9 * np.abs(wanted).max()}
    np.testing.assert_allclose(numbers(linear_solve(f, b, method="scipy-direct").x), wanted, **close)
    np.testing.assert_allclose(numbers(prepare(f, b, method="scipy-direct").solve(b).x), wanted, **close)


@but_jax
@libraries
@over([o for o in OPERATORS if o.name != "affine"])
def test_operators(operator: Operator, mode: str) -> None:
    """The product, its transpose where the library has derivatives, and the diagonal."""
    f, x, known = given(operator, mode)
    matrix, _ = dense(operator)
    A = as_operator(f, x) if operator.square else matrix_from_function(f, x)[0]
    image = numbers(A(x) if operator.square else A @ x.reshape(-1) if mode != "tf" else A @ _flat(x))
    np.testing.assert_allclose(image.reshape(-1), matrix @ known.reshape(-1), rtol=1e-12, atol=1e-12)
    if not operator.square:
        return
    np.testing.assert_allclose(np.reshape(numbers(A.diagonal()), -1), np.diag(matrix), rtol=1e-12, atol=1e-12)
    if mode != "numpy":
        found = numbers(A.T(x)).reshape(-1)
        np.testing.assert_allclose(found, matrix.T @ known.reshape(-1), rtol=1e-12, atol=1e-12)


def _flat(x: Any) -> Any:
    import tensorflow as tf

    return tf.reshape(x, [-1])


@but_jax
@libraries
@over([o for o in OPERATORS if o.name in FEW])
def test_named_preconditioners(operator: Operator, mode: str) -> None:
    """Of the matrix that the function has."""
    f, b, known = given(operator, mode)
    matrix, constant = dense(operator)
    result = linear_solve(f, b, method="biCG-stab(2)", preconditioner="jacobi", rtol=1e-10)
    residual = matrix @ numbers(result.x).reshape(-1) + constant - known.reshape(-1)
    assert np.linalg.norm(residual) <= 1.01e-10 * np.linalg.norm(known)


@pytest.mark.parametrize("method", ["scipy-direct", "direct"])
@pytest.mark.parametrize("mode", ["numpy", "torch", "tf"])
def test_functions_are_traced_instead_of_evaluated(mode: str, method: str) -> None:
    """Once, and once more to verify the matrix; direct solves trace them too."""
    of, calls = LIBRARIES[mode](), []
    f, b = laplace(of, "constant"), of.array(np.random.default_rng(0).standard_normal((12, 12)))

    def counted(u: Any) -> Any:
        calls.append(1)
        return f(u)

    for verify in (False, True):
        calls.clear()
        matrix_from_function(counted, of.array(np.zeros((300, 300), "float32")), verify=verify)
        assert len(calls) == 1 + verify
    calls.clear()
    x = linear_solve(counted, b, method=method).x
    assert len(calls) < 20
    np.testing.assert_allclose(numbers(f(x)), numbers(b), atol=1e-12)
    np.testing.assert_allclose(numbers(prepare(f, b, method=method).solve(b).x), numbers(x))


@but_jax
@libraries
def test_batches_of_systems(mode: str) -> None:
    of = LIBRARIES[mode]()
    b = of.array(np.random.default_rng(0).standard_normal((3, 5, 5)))
    x = linear_solve(lambda u: 5 * u - of.roll(u, 1, -1), b, method="scipy-direct", batch_ndim=1).x
    np.testing.assert_allclose(numbers(5 * x - of.roll(x, 1, -1)), numbers(b), atol=1e-12)
