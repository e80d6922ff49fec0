"""Functions that a user may call linear: which are refused, which are affine, and how they may treat memory."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import krylix
from krylix import NonlinearError, UnsupportedOperation, as_operator, linear_solve
from krylix.sparse import asymmetry, linear_part
from modes import EAGER, array, compiled, library, solve, to_numpy

eager = pytest.mark.parametrize("mode", EAGER)
METHODS = ("CG", "biCG-stab(2)", "scipy-GMres", "direct")


def poisson(x: Any) -> Any:
    """1-d, with slices and products only: it runs in every library."""
    bk = krylix.choose_backend(x)
    zero = 0 * x[..., :1]
    return 3 * x - bk.concat([x[..., 1:], zero], -1) - bk.concat([zero, x[..., :-1]], -1)


MATRIX = poisson(np.eye(8)).T


def library_of(x: Any) -> Any:
    """NumPy, or the namespace of a framework that has the same names."""
    name = krylix.choose_backend(x).name
    return import_module({"jax": "jax.numpy"}.get(name, name))


def sorted_rows(x: Any) -> Any:
    xp = library_of(x)
    return xp.sort(x, -1).values if xp.__name__ == "torch" else xp.sort(x, -1)


def largest(x: Any) -> Any:
    bk = krylix.choose_backend(x)
    return poisson(x) + bk.max_abs(bk.reshape(x, (1, -1)))[0, 0]


NONLINEAR: dict[str, Callable[[Any], Any]] = {
    "square": lambda x: x**2,
    "square beside something linear": lambda x: poisson(x) + 1e-4 * x**2,
    "relu": lambda x: library_of(x).where(x > 0, x, 0 * x),
    "abs": lambda x: poisson(abs(x)),
    "sort": sorted_rows,
    "maximum": largest,
    "sign": lambda x: x / (abs(x) + 1e-30),
    "sine": lambda x: library_of(x).sin(x) if library(krylix.choose_backend(x).name) else x,
    "exponential": lambda x: library_of(x).exp(x) - 1,
    "one entry of many": lambda x: (
        poisson(x) * (1 + (x > 2)[..., :1] * 1.0 if library_of(x) is np else 1 + 0 * x) + x * abs(x)
    ),
    "quotient": lambda x: 1 / (x + 3.0),
    "homogeneous, not additive": lambda x: poisson(x) + (x**3) / ((x * x)[..., :1] + x * x + 1e-30),
    "square of an affine function": lambda x: (x + 1) ** 2,
}


@pytest.mark.parametrize("name", NONLINEAR)
@eager
def test_nonlinear_functions(mode: str, name: str) -> None:
    b = array(mode, np.ones(8))
    for method in ("CG", "auto"):
        with pytest.raises(NonlinearError, match=r"A\(x\) is not linear.*Newton"):
            linear_solve(NONLINEAR[name], b, method=method)


@pytest.mark.parametrize("name", ["conj", "real part", "conj of a part"])
@eager
def test_functions_that_are_only_real_linear(mode: str, name: str) -> None:
    def function(x: Any) -> Any:
        bk = krylix.choose_backend(x)
        if name == "conj":
            return bk.conj(x)
        if name == "real part":
            return bk.astype(bk.real(x), bk.dtype(x)) + 0.1 * x
        return bk.concat([bk.conj(x[:1]), 2 * x[1:]], 0)

    with pytest.raises(NonlinearError, match="is not linear"):
        linear_solve(function, array(mode, np.ones(8, complex)), method="biCG-stab(2)")
    if name == "conj":  # of real numbers it is the identity
        assert linear_solve(function, array(mode, np.ones(8))).converged


@pytest.mark.needs("jax")
def test_nonlinear_function_inside_jit() -> None:
    """Its values are known where the function does not depend on traced arrays: refused when it is compiled."""
    with pytest.raises(NonlinearError):
        compiled("jax-jit", lambda b: linear_solve(NONLINEAR["square"], b).x)(array("jax", np.ones(8)))


@pytest.mark.parametrize("mode", ["jax-jit", "tf-function"])
def test_nonlinear_function_of_traced_arrays_is_never_called_converged(mode: str) -> None:
    def run(b: Any) -> tuple[Any, Any]:
        result = linear_solve(lambda x: b * x * x + 0.5 * x, b, method="CG", on_failure="status", max_iter=20)
        return result.x, result.converged

    b = np.linspace(1.0, 2.0, 8)
    x, converged = (to_numpy(v) for v in compiled(mode, run)(array(mode, b)))
    error = np.linalg.norm(b - (b * x * x + 0.5 * x))
    assert not converged or error < 1e-9 * np.linalg.norm(b)


@pytest.mark.needs("jax")
@pytest.mark.parametrize("derivative", ["grad", "jacfwd"])
def test_nonlinear_function_of_traced_arrays_has_no_derivative(derivative: str) -> None:
    """A product of two unknowns has no transpose."""
    import jax

    def run(b: Any) -> Any:
        return linear_solve(lambda x: b * x * x + 0.5 * x, b, method="CG", on_failure="status", max_iter=20).x.sum()

    with pytest.raises(RuntimeError, match="not linear"):
        compiled("jax-jit", getattr(jax, derivative)(run))(array("jax", np.linspace(1.0, 2.0, 8)))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mode", [*EAGER, "jax-jit", "tf-function"])
def test_affine_functions(mode: str, method: str) -> None:
    """f(x) = A x + c = b."""
    offset = array(mode, np.linspace(-1, 4, 8))
    b = np.arange(8.0)
    result = solve(mode, lambda x: poisson(x) + offset, b, method=method)
    np.testing.assert_allclose(result.x, np.linalg.solve(MATRIX, b - np.linspace(-1, 4, 8)), rtol=1e-8)


@eager
def test_linear_part(mode: str) -> None:
    offset = array(mode, np.linspace(-1, 4, 8))
    operator = as_operator(lambda x: poisson(x) + offset, array(mode, np.ones(8)))
    part = linear_part(operator)
    np.testing.assert_allclose(to_numpy(part @ array(mode, np.ones(8))), MATRIX.sum(1), rtol=1e-10)
    np.testing.assert_allclose(to_numpy(part.dense()), MATRIX, atol=1e-12)
    np.testing.assert_allclose(to_numpy(part.T @ array(mode, np.arange(8.0))), MATRIX.T @ np.arange(8.0), atol=1e-12)
    linear = as_operator(poisson, array(mode, np.ones(8)))
    part = linear_part(linear)
    assert part.function is linear.function and part.constant is None and linear_part(part) is part


@eager
def test_evaluations(mode: str) -> None:
    """Three for a new function, then one for each solve; a function that cannot be remembered is tested every time.

    JAX traces a function once for each solve, and evaluates the program.
    """
    calls = []

    def function(x: Any) -> Any:
        calls.append(1)
        return 2 * x

    operator = as_operator(function, array(mode, np.ones(4)))
    counts = []
    for _ in range(3):
        calls.clear()
        linear_part(operator)
        counts.append(len(calls))
    assert counts == ([1, 1, 1] if mode == "jax" else [4, 1, 1])


class Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __call__(self, x: Any) -> Any:
        return poisson(x)


class NoWeakReference:
    __slots__ = ()

    def __call__(self, x: Any) -> Any:
        return poisson(x)


class Bound:
    def apply(self, x: Any) -> Any:
        return poisson(x)


@eager
def test_kinds_of_callables(mode: str) -> None:
    from functools import partial

    b, exact = array(mode, np.arange(8.0)), np.linalg.solve(MATRIX, np.arange(8.0))
    for function in (Unhashable(), NoWeakReference(), Bound().apply, partial(poisson), poisson):
        np.testing.assert_allclose(to_numpy(linear_solve(function, b, method="CG").x), exact, rtol=1e-8)


# ---- memory


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mode", ["numpy", "torch"])
def test_functions_that_write_to_their_argument(mode: str, method: str) -> None:
    """They would change the solver's own vectors: refused, with a way out."""

    def in_place(x: Any) -> Any:
        x *= 2
        return x

    def part(x: Any) -> Any:
        x[..., 0] = 0
        return 3 * x

    for function in (in_place, part):
        with pytest.raises(ValueError, match=r"writes to its argument.*x\.(copy|clone)\(\)"):
            linear_solve(function, array(mode, np.ones(8)), method=method)
        copying = lambda x, function=function: function(x.copy() if mode == "numpy" else x.clone())  # noqa: E731
        if function is in_place:
            np.testing.assert_allclose(
                to_numpy(linear_solve(copying, array(mode, np.ones(8)), method=method).x), 0.5, rtol=1e-12
            )


@pytest.mark.needs("torch")
def test_writing_is_noticed_in_every_surrounding() -> None:
    import torch

    def in_place(x: Any) -> Any:
        return x.mul_(2)

    b = torch.ones(8, dtype=torch.float64)
    with torch.no_grad(), pytest.raises(ValueError, match="writes to its argument"):
        linear_solve(in_place, b)
    with torch.inference_mode():  # where torch does not count
        assert linear_solve(lambda x: 2 * x, torch.ones(8)).converged


def aliases(mode: str) -> dict[str, tuple[Callable[[Any], Any], np.ndarray]]:
    reverse = np.eye(8)[::-1]
    found = {
        "identity": (lambda x: x, np.eye(8)),
        "slice": (lambda x: x[:], np.eye(8)),
        "halves swapped": (lambda x: krylix.choose_backend(x).concat([x[4:], x[:4]], 0), np.roll(np.eye(8), 4, 0)),
    }
    if mode != "tf":
        found["reshaped"] = (lambda x: x.reshape(2, 4).reshape(8), np.eye(8))
    if mode == "numpy":
        found["reversed"] = (lambda x: x[::-1], reverse)
    return found


@pytest.mark.parametrize(
    "method", ["CG", "CG-adaptive", "biCG-stab", "biCG-stab(4)", "scipy-GMres", "direct", "scipy-direct"]
)
@eager
def test_functions_that_return_their_argument(mode: str, method: str) -> None:
    """Or a view of it: the solver must not write to what it gets back."""
    b = np.arange(1.0, 9.0)
    for name, (function, matrix) in aliases(mode).items():
        if name in ("reversed", "halves swapped") and method.startswith("CG"):
            continue  # indefinite
        native = array(mode, b.copy())
        result = linear_solve(function, native, method=method, x0=array(mode, np.ones(8)))
        np.testing.assert_allclose(to_numpy(result.x), matrix.T @ b, rtol=1e-8, err_msg=name)
        np.testing.assert_array_equal(to_numpy(native), b)


@pytest.mark.parametrize(
    "method",
    ["CG", "CG-adaptive", "biCG-stab", "biCG-stab(4)", "scipy-GMres", "scipy-QMR", "direct", "scipy-direct", "auto"],
)
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("mode", ["numpy", "torch"])
def test_functions_that_reuse_their_output(mode: str, affine: bool, method: str) -> None:
    """The same buffer every time, as functions with `out=` return it."""
    buffer, b = array(mode, np.zeros(8)), np.arange(1.0, 9.0)

    def function(x: Any) -> Any:
        buffer[:] = poisson(x) + (3 if affine else 0)
        return buffer

    if (mode, method) == ("torch", "scipy-QMR"):  # which needs the transpose
        with pytest.raises(UnsupportedOperation, match="PyTorch refused"):
            linear_solve(function, array(mode, b), method=method)
        return
    result = linear_solve(function, array(mode, b), method=method)
    np.testing.assert_allclose(to_numpy(result.x), np.linalg.solve(MATRIX, b - 3 * affine), rtol=1e-8)


def test_reused_output_of_a_linear_operator() -> None:
    from scipy.sparse.linalg import LinearOperator

    buffer, b = np.zeros(8), np.arange(1.0, 9.0)
    A = LinearOperator((8, 8), matvec=lambda x: np.matmul(MATRIX, x.reshape(8), out=buffer), dtype=float)
    np.testing.assert_allclose(as_operator(A).dense(), MATRIX, atol=1e-12)
    for method in ("CG", "biCG-stab(2)", "scipy-GMres", "direct"):
        np.testing.assert_allclose(linear_solve(A, b, method=method).x, np.linalg.solve(MATRIX, b), rtol=1e-8)


# ---- what comes back


@pytest.mark.compiled_by_default(modes=("tf",))
@eager
def test_functions_of_another_dtype(mode: str) -> None:
    """A result in another precision is brought back; a complex one for a real b is refused."""
    bk, b = krylix.choose_backend(library(mode)), array(mode, np.arange(8.0, dtype=np.float32))
    exact = np.linalg.solve(MATRIX, np.arange(8.0))
    wide = linear_solve(lambda x: poisson(bk.astype(x, np.dtype("float64"))), b, method="CG")
    assert to_numpy(wide.x).dtype == np.float32
    np.testing.assert_allclose(to_numpy(wide.x), exact, rtol=1e-4)
    with pytest.raises(TypeError, match=r"A\(x\) is complex.*give b as a complex array"):
        linear_solve(lambda x: 1j * bk.astype(x, np.dtype("complex64")), b)
    eye = linear_solve(lambda x: bk.astype(bk.real(x), np.dtype("float32")) + 0 * x, b)
    np.testing.assert_array_equal(to_numpy(eye.x), np.arange(8.0))


WRONG_SHAPES: dict[str, Callable[[Any], Any]] = {
    "column": lambda x: x[:, None],
    "shorter": lambda x: x[1:],
    "number": lambda x: x[0],
    "tuple": lambda x: (x, x),
    "none": lambda x: None,
    "text": lambda x: "Ax",
}


@pytest.mark.parametrize("name", WRONG_SHAPES)
@eager
def test_functions_of_another_shape(mode: str, name: str) -> None:
    with pytest.raises((ValueError, TypeError), match=r"A\(x\) (has the (shape|structure)|must|is|returned)"):
        linear_solve(WRONG_SHAPES[name], array(mode, np.ones(8)))


@pytest.mark.compiled_by_default(modes=("tf",))
@eager
def test_functions_with_nan_coefficients(mode: str) -> None:
    """Not linear, not non-linear: the solve itself says that it diverged."""
    coefficients = np.ones(8)
    coefficients[3] = np.nan
    native = array(mode, coefficients)
    for method in ("CG", "biCG-stab(2)"):
        result = linear_solve(lambda x: native * x, array(mode, np.ones(8)), method=method, on_failure="status")
        assert not bool(to_numpy(result.converged))
    factors = array(mode, np.array([[1.0], [np.nan]]))
    b = array(mode, np.ones((2, 4)))
    good = linear_solve(lambda x: factors * x, b, batch_ndim=1, method="CG", on_failure="status")
    assert to_numpy(good.converged).tolist() == [True, False]


@pytest.mark.parametrize("mode", ["jax", "torch", "tf"])
def test_numpy_functions_under_a_framework(mode: str) -> None:
    """What comes back as a NumPy array is converted. JAX compiles the loop, where it cannot be called, and says so."""

    def function(x: Any) -> np.ndarray:
        return MATRIX @ np.asarray(x)

    b = np.arange(8.0)
    operator = as_operator(function, array(mode, b))
    np.testing.assert_allclose(to_numpy(operator @ array(mode, b)), MATRIX @ b, atol=1e-12)
    if mode == "jax":
        with pytest.raises(TypeError, match="__array__"):
            linear_solve(function, array(mode, b), method="CG")
        return
    result = linear_solve(function, array(mode, b), method="CG")
    assert krylix.choose_backend(result.x).name == library(mode)
    np.testing.assert_allclose(to_numpy(result.x), np.linalg.solve(MATRIX, b), rtol=1e-8)


@pytest.mark.needs("jax")
def test_jax_functions_under_numpy() -> None:
    import jax.numpy as jnp

    matrix = jnp.asarray(MATRIX)
    result = linear_solve(lambda x: matrix @ x, np.arange(8.0), method="CG")
    assert type(result.x) is np.ndarray
    np.testing.assert_allclose(result.x, np.linalg.solve(MATRIX, np.arange(8.0)), rtol=1e-8)


@eager
def test_scale_does_not_matter(mode: str) -> None:
    """Neither tiny nor large coefficients look non-linear, in single precision either."""
    for scale in (1e-30, 1e-10, 1e10, 1e30):
        operator = as_operator(lambda x, scale=scale: scale * poisson(x), array(mode, np.ones(8, np.float32)))
        linear_part(operator)
    operator = as_operator(lambda x: 1e-20 * x * x + 1e-20 * x, array(mode, np.ones(8)))
    with pytest.raises(NonlinearError):
        linear_part(operator)


@eager
def test_asymmetry(mode: str) -> None:
    like = array(mode, np.ones(8))
    assert asymmetry(as_operator(array(mode, MATRIX))) < 1e-14
    assert asymmetry(as_operator(array(mode, MATRIX + np.eye(8, k=1)))) > 0.01
    assert asymmetry(as_operator(array(mode, np.stack([MATRIX, MATRIX + np.eye(8, k=1)])))) > 0.01
    assert asymmetry(as_operator(array(mode, np.ones((2, 3))))) == np.inf
    assert asymmetry(as_operator(array(mode, np.eye(2) + 1j * np.eye(2)))) > 0.1
    assert asymmetry(as_operator(poisson, like)) is None
