"""What NumPy functions are refused, with which words; and which are left to evaluations or to another library."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from krylix import NonlinearError, UnsupportedOperation, jacobian_matrix, linear_solve, matrix_from_function
from krylix.sparse.tracing.front_end import front_end_of
from krylix.sparse.tracing.matrix_from_function import traced_matrix
from krylix.sparse.tracing.messages import OpaqueFunction

N = 6
C = np.random.default_rng(1).random((N, N))
LIKE = np.empty((N, N))


def traced(f: Callable[[Any], Any], like: Any = LIKE) -> Any:
    return traced_matrix(front_end_of("numpy"), f, like)


def branch(u: Any) -> Any:
    return u if u.sum() > 0 else -u


NONLINEAR: dict[str, tuple[Callable[[Any], Any], str]] = {
    "multiply": (lambda u: u * u, "both factors depend on it"),
    "square": (lambda u: u**2, "power|square"),
    "divide": (lambda u: 1 / u, "the divisor depends on it"),
    "exp": (np.exp, "'exp'"),
    "absolute": (abs, "'absolute'"),
    "maximum": (lambda u: np.maximum(u, 0), "'maximum'"),
    "max": (lambda u: u - u.max(), "'max'"),
    "norm": (lambda u: u / np.linalg.norm(u), "'norm'"),
    "comparison": (branch, r"'greater' at .*\(branch\)"),
    "truth": (lambda u: u if u.sum() else -u, "a branch depends on the values"),
    "where": (lambda u: np.where(u > 0, u, 0), "'greater'"),
    "sort": (lambda u: np.sort(u), "'sort'"),
    "clip": (lambda u: u.clip(0, 1), "'clip'"),
    "round": (lambda u: np.round(u, 2), "'round'"),
    "integers": (lambda u: u.astype(int).astype(float), "rounds"),
    "half": (lambda u: u.astype(np.float16).astype(float), "rounds"),
    "einsum": (lambda u: np.einsum("ij,ij->i", u, u), "several factors depend on it"),
    "matmul": (lambda u: u @ u, "both factors|several factors"),
    "solve": (lambda u: np.linalg.solve(u, C), "the matrix depends on it"),
    "reduce": (lambda u: np.multiply.reduce(u), r"'multiply.reduce'|method 'reduce'"),
    "floor": (lambda u: u // 2, "floor_divide"),
    "finite": (lambda u: u if np.isfinite(u).all() else 0 * u, "'isfinite'"),
}


@pytest.mark.parametrize("name", NONLINEAR)
def test_what_is_not_linear(name: str) -> None:
    f, words = NONLINEAR[name]
    error = UnsupportedOperation if name == "reduce" else NonlinearError
    with pytest.raises(error, match=words) as caught:
        traced(f)
    assert "test_numpy_refusals.py" in str(caught.value) or f in (np.exp, abs)


@pytest.mark.parametrize(
    "write",
    [
        lambda u: u.__setitem__(0, 1.0),
        lambda u: u.__iadd__(1),
        lambda u: np.add(u, 1, out=u),
        lambda u: u[1:].__imul__(2),
        lambda u: u.T.reshape(N, N).T.fill(0),
        lambda u: np.add.at(u, 0, 1.0),
        lambda u: np.fill_diagonal(u, 0),
        lambda u: np.broadcast_to(u.copy()[0], (N, N)).__setitem__(0, 1),
        lambda u: np.einsum("ii->i", u.copy()).__setitem__(0, 1),  # a view in NumPy, a copy here
        lambda u: (1j * u).real.__setitem__(0, 1),
    ],
)
def test_arguments_are_not_written_to(write: Callable[[Any], Any]) -> None:
    def f(u: Any) -> Any:
        write(u)
        return 2 * u

    with pytest.raises(UnsupportedOperation, match=r"read-only.*Write to x.copy\(\)"):
        traced(f)


OPAQUE: dict[str, Callable[[Any], Any]] = {
    "asarray": lambda u: np.asarray(u) * 2,
    "list": lambda u: np.array([row.sum() for row in u]),
    "float": lambda u: C * float(u[0, 0]),
    "item": lambda u: C * u[1, 1].item(),
    "plain array": lambda u: (lambda y: (y.__setitem__(slice(1, None), u[1:]), y)[1])(np.zeros(u.shape)),
    "plain target": lambda u: np.add(u, 1, out=np.zeros(u.shape)),
    "add.at": lambda u: (lambda y: (np.add.at(y, [0, 0], u[0]), y)[1])(np.zeros(u.shape)),
    "apply": lambda u: np.apply_along_axis(lambda row: row[::-1], 0, u),
    "vectorize": lambda u: np.vectorize(lambda x: 2 * x)(u),
    "frompyfunc": lambda u: np.frompyfunc(lambda x: 2 * x, 1, 1)(u).astype(float),
    "scipy": lambda u: __import__("scipy.ndimage").ndimage.laplace(u),
    "filter": lambda u: __import__("scipy.signal").signal.fftconvolve(u, C, mode="same"),
    "interp": lambda u: np.interp(C[0], np.linspace(0, 1, N), u[0]),
    "masked": lambda u: (np.ma.masked_array(C, C > 0.5) * u).filled(0),
    "type": lambda u: u if isinstance(u, np.ndarray) else 1 / 0,
}


@pytest.mark.parametrize("name", OPAQUE)
def test_what_cannot_be_followed_is_evaluated(name: str) -> None:
    f = OPAQUE[name]
    with pytest.raises(OpaqueFunction, match="matrix_from_function"):
        traced(f)
    matrix, bias = matrix_from_function(f, LIKE)
    x = np.random.default_rng(2).standard_normal((N, N))
    np.testing.assert_allclose(matrix.toarray() @ x.ravel() + bias.ravel(), f(x).ravel(), atol=1e-12)


def test_numbers_that_others_have_are_not_written_to() -> None:
    def f(u: Any) -> Any:
        y = np.zeros_like(u)
        z = np.asarray(y)
        y += u
        return y + z

    with pytest.raises(OpaqueFunction, match="numbers other code has"):
        traced(f)


def test_stand_ins_that_are_kept_are_of_no_use() -> None:
    kept = []
    traced(lambda u: (kept.append(u), 2 * u)[1])
    with pytest.raises(OpaqueFunction, match="after the function returned"):
        kept[0] + 1


def test_inputs_and_outputs() -> None:
    with pytest.raises(TypeError, match=r"the input.*dtype int64"):
        matrix_from_function(lambda u: u, np.zeros(3, int))
    with pytest.raises(TypeError, match=r"an output.*dtype bool"):
        traced(lambda u: np.ones(3, bool))
    with pytest.raises(TypeError, match="returned None"):
        traced(lambda u: None)
    with pytest.raises(UnsupportedOperation, match=r"NumPy has no derivatives.*JAX"):
        jacobian_matrix(lambda u: u * u, np.zeros(3))


def test_errors_of_the_function_are_its_own() -> None:
    def f(u: Any) -> Any:
        return u + np.ones(N + 1)

    with pytest.raises(ValueError, match="could not be broadcast"):
        matrix_from_function(f, LIKE)


def test_a_wrong_record_is_noticed() -> None:
    state = []

    def f(u: Any) -> Any:
        state.append(1)
        return u * len(state)

    with pytest.raises(UnsupportedOperation, match="returns other numbers when it is called again"):
        matrix_from_function(f, LIKE)


def test_a_solve_starts_no_evaluations_by_itself() -> None:
    calls = []

    def f(u: Any) -> Any:
        calls.append(1)
        return 3 * np.asarray(u)

    assert linear_solve(f, np.ones(30), method="CG").converged
    assert len(calls) < 15


@pytest.mark.needs("jax")
def test_functions_of_jax_take_arrays_of_numpy() -> None:
    import jax
    import jax.numpy as jnp

    for f in (
        lambda u: 2 * jnp.pad(u, 1)[2:] - u,
        lambda u: jax.jit(lambda v: 2 * v)(u),
        lambda u: jax.lax.cumsum(u),
        lambda u: jnp.asarray(u) * 2,
    ):
        matrix, _ = matrix_from_function(f, np.zeros(4))
        assert matrix.bk.name == "jax"
        x = np.arange(4.0)
        np.testing.assert_allclose(matrix.toarray() @ x, np.asarray(f(x)), rtol=1e-6)
    c = jnp.arange(4.0)
    matrix, _ = matrix_from_function(lambda u: c * u, np.zeros(4))  # its arrays are constants
    np.testing.assert_array_equal(matrix.toarray(), np.diag(np.arange(4.0)))
