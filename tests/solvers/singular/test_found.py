"""Null vectors that nobody named: constants on closed regions, in the solve, with preconditioners and backward."""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from cells import in_turn
from gradients import gradient
from krylix import NotConverged, SingularMatrixWarning, choose_backend, linear_solve, matrix_from_function, prepare
from modes import array, compiled, library, to_numpy

SHAPE = (4, 5)
MODES = ["numpy", "jax", "jax-jit", "torch", "tf", "tf-function"]
rng = np.random.default_rng(0)


def path(n: int, ends: tuple[float, float] = (0.0, 0.0)) -> np.ndarray:
    """Second differences, closed but for what the ends add."""
    A = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    A[0, 0], A[-1, -1] = 1 + ends[0], 1 + ends[1]
    return A


def regions(dtype: str = "float64") -> np.ndarray:
    """Closed ones of 5 and 4 unknowns, an open one of 6, and 3 rows of zeros, in a random order."""
    blocks = [path(5), path(6, (1.0, 0.0)), 3 * path(4), np.zeros((3, 3))]
    A = sp.block_diag(blocks).toarray().astype(dtype)
    if dtype.startswith("complex"):
        phase = np.exp(1j * rng.random(18))
        phase[:5] = phase[0]  # constants stay what they were, up to a factor, in one of the regions
        A = phase[:, None] * A * phase.conj()
    order = np.random.default_rng(1).permutation(18)
    return A[order][:, order]


def laplacian(mode: str) -> Callable[[Any], Any]:
    """Periodic, by shifts, negative."""
    roll = import_module({"jax": "jax.numpy"}.get(library(mode), library(mode))).roll
    return lambda u: roll(u, 1, 0) + roll(u, -1, 0) + roll(u, 1, 1) + roll(u, -1, 1) - 4 * u


def matrix_of(f: Callable[[Any], Any]) -> np.ndarray:
    n = SHAPE[0] * SHAPE[1]
    return np.stack([f(e.reshape(SHAPE)).reshape(-1) for e in np.eye(n)], axis=1)


def shortest(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.linalg.pinv(A, rcond=1e-10) @ b


@pytest.mark.parametrize("method", ["auto", "CG", "biCG-stab(2)", "MINRES", "GMRES", "scipy-direct", "scipy-CG"])
@pytest.mark.parametrize("kind", [None, "jacobi", "amg"])
def test_regions(method: str, kind: str | None) -> None:
    A = regions()
    if kind and method in ("scipy-direct", "MINRES"):
        kind = None
    b = A @ rng.standard_normal(18)
    result = linear_solve(sp.csr_array(A), b, method=method, preconditioner=kind)
    np.testing.assert_allclose(result.x, shortest(A, b), atol=1e-8)


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_other_numbers(dtype: str) -> None:
    A = regions(dtype)
    b = (A @ rng.standard_normal(18)).astype(dtype)
    x = linear_solve(sp.csr_array(A), b).x
    assert x.dtype == dtype
    np.testing.assert_allclose(A @ x, b, atol=1e-4 if dtype == "float32" else 1e-9)
    if dtype == "float32":
        np.testing.assert_allclose(x, shortest(A.astype(float), b), atol=1e-4)


@pytest.mark.parametrize("method", ["auto", "CG", "scipy-direct"])
def test_what_is_outside_of_the_range_is_taken_off(method: str) -> None:
    """The solution is that of least squares; the warning names the regions."""
    A = regions()
    b = rng.standard_normal(18)
    expected, lost = shortest(A, b), np.linalg.norm(b - A @ shortest(A, b))
    with pytest.warns(SingularMatrixWarning, match="constants on 5 regions, the first is "):
        result = linear_solve(sp.csr_array(A), b, method=method)
    np.testing.assert_allclose(result.x, expected, atol=1e-8)
    assert result.residual_norm <= result.tolerance <= 1e-9 and not result.consistent
    np.testing.assert_allclose(result.null_part, lost, rtol=1e-12)
    warnings.simplefilter("ignore", SingularMatrixWarning)  # of factors
    with pytest.raises(NotConverged, match=re.escape(f"no x leaves a residual norm below {lost:.3e}")):
        linear_solve(sp.csr_array(A), b, method=method, nullspace=None)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.compiled_by_default(modes=("jax-jit",))
def test_functions(mode: str) -> None:
    f = laplacian(mode)
    b = laplacian("numpy")(rng.standard_normal(SHAPE))
    expected = shortest(matrix_of(laplacian("numpy")), b.reshape(-1)).reshape(SHAPE)
    for method in ("auto", "CG"):
        x = compiled(mode, lambda b, method=method: linear_solve(f, b, method=method).x)(array(mode, b))
        np.testing.assert_allclose(to_numpy(x), expected, atol=1e-8)


def test_functions_with_obstacles_are_traced() -> None:
    """A wall splits the grid into two closed regions, and its own rows are zero."""
    open_ = np.ones(SHAPE)
    open_[:, 3] = 0

    def f(u: np.ndarray) -> np.ndarray:
        p, k = np.pad(u, 1), np.pad(open_, 1)
        across = k[1:, 1:-1] * k[:-1, 1:-1] * np.diff(p[:, 1:-1], axis=0)
        along = k[1:-1, 1:] * k[1:-1, :-1] * np.diff(p[1:-1], axis=1)
        return -np.diff(across, axis=0) - np.diff(along, axis=1)

    A = matrix_of(f)
    b = f(rng.standard_normal(SHAPE))
    for solved in (linear_solve(f, b), linear_solve(f, b, method="CG"), prepare(f, b).solve(b)):
        np.testing.assert_allclose(solved.x.reshape(-1), shortest(A, b.reshape(-1)), atol=1e-8)


def test_rows_of_zeros_of_a_function_that_cannot_be_traced() -> None:
    """They are no part of the one region that such a function is taken for."""
    A = sp.block_diag([path(6), np.zeros((3, 3))]).toarray()
    b, x0 = A @ np.arange(9.0), np.full(9, 5.0)
    for right in (b, b + 1):
        with warnings.catch_warnings(action="ignore", category=SingularMatrixWarning):
            result = linear_solve(lambda u: A @ np.array(u.tolist()), right, x0=x0, method="CG")
        np.testing.assert_allclose(result.x, shortest(A, b), atol=1e-8)
        np.testing.assert_allclose(result.null_part, 0 if right is b else 3, atol=1e-12)


@pytest.mark.filterwarnings("ignore::krylix.SingularMatrixWarning")
@pytest.mark.parametrize("method", ["biCG-stab(2)", "scipy-direct", "auto"])
def test_where_only_columns_know_the_constants(method: str) -> None:
    """Row sums are zero, column sums are not: which part of b is outside of the range is not known."""
    n = 12
    A = np.diag(rng.random(n) + 1) @ (path(n) + np.roll(np.eye(n), 1, 0) - np.eye(n))
    assert np.abs(A.sum(1)).max() < 1e-14 < np.abs(A.sum(0)).max()
    b = A @ rng.standard_normal(n)
    result = linear_solve(sp.csr_array(A), b, method=method)
    np.testing.assert_allclose(A @ result.x, b, atol=1e-8)


def test_circulating_flow() -> None:
    """Not symmetric, but both sums are zero."""
    n = 15
    A = (
        np.eye(n)
        - np.roll(np.eye(n), 1, 0)
        + 0.3 * (2 * np.eye(n) - np.roll(np.eye(n), 1, 0) - np.roll(np.eye(n), -1, 0))
    )
    b = A @ rng.standard_normal(n)
    for method in ("auto", "biCG-stab(2)", "GMRES"):
        np.testing.assert_allclose(linear_solve(sp.csr_array(A), b, method=method).x, shortest(A, b), atol=1e-8)


@pytest.mark.parametrize("shift", [1e-3, 1e-7, 1e-11])
def test_nearly_singular_is_not_singular(shift: float) -> None:
    A = path(10) + shift * np.eye(10)
    b = np.ones(10)
    for M in (sp.csr_array(A), A):
        x = linear_solve(M, b, method="CG").x
        np.testing.assert_allclose(x, 1 / shift, rtol=1e-3)


def test_none_leaves_everything() -> None:
    A, b = sp.csr_array(path(10)), path(10) @ np.arange(10.0)
    x0 = np.arange(10.0) + 7
    np.testing.assert_array_equal(linear_solve(A, b, x0=x0).x, x0)  # exact, in no iterations
    found = linear_solve(A, b, x0=x0 + 0.1 * np.sin(x0), method="CG", nullspace=None).x
    assert abs(found.mean()) > 1


def test_prepared_solvers_look_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And `update` again: the next matrix may be regular, or the last one have been."""
    from krylix.solvers.read import system as read_system

    looked: list[int] = []
    find = read_system.find_constants

    def counted(*args: Any) -> Any:
        looked.append(1)
        return find(*args)

    monkeypatch.setattr(read_system, "find_constants", counted)
    A = regions()
    b = A @ rng.standard_normal(18)
    solver = prepare(sp.csr_array(A), b)
    for _ in range(2):
        np.testing.assert_allclose(solver.solve(b).x, shortest(A, b), atol=1e-8)
    assert len(looked) == 1
    np.testing.assert_allclose(pickle.loads(pickle.dumps(solver)).solve(b).x, shortest(A, b), atol=1e-8)
    regular = sp.csr_array(A + np.eye(18))
    np.testing.assert_allclose(regular @ solver.update(regular).solve(np.ones(18)).x, 1, atol=1e-8)
    np.testing.assert_allclose(prepare(regular, b).update(sp.csr_array(A)).solve(b).x, shortest(A, b), atol=1e-8)


# --- derivatives: a cotangent has a part in the null vectors, by rounding or by right ---


def loss_and_gradient(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of sum(sin(x)) for the shortest x."""
    return np.linalg.pinv(A, rcond=1e-10).T @ np.cos(shortest(A, b))


@pytest.mark.parametrize(
    ("form", "mode"),
    [
        *in_turn(["function", "matrix"], ["numpy", "jax", "torch", "tf"], always=["numpy", "torch"]),
        pytest.param("matrix", "tf-function", marks=pytest.mark.merge),
    ],
)
def test_gradients(mode: str, form: str) -> None:
    f = laplacian("numpy")
    A = matrix_of(f)
    b = f(rng.standard_normal(SHAPE))
    expected = loss_and_gradient(A, b.reshape(-1))
    operand: Any = laplacian(mode) if form == "function" else sp.csr_array(A)
    b = b if form == "function" else b.reshape(-1)
    given, bk = array(mode, b), choose_backend(array(mode, b))

    def loss(b: Any, method: str = "auto") -> Any:
        return bk.xp.sum(bk.xp.sin(linear_solve(operand, b, method=method).x))

    if mode == "numpy":
        result = linear_solve(operand, b, method="CG")
        found = [result.vjp(np.cos(result.x)).b]
    elif mode in ("torch", "tf"):
        found = [gradient(mode, loss, given)]
    if mode == "jax":
        import jax

        in_jit, slope = jax.jit(lambda b: (jax.grad(loss)(b), jax.jvp(loss, (b,), (b,))[1]))(given)
        np.testing.assert_allclose(slope, np.sum(expected * b.reshape(-1)), rtol=1e-7)
        found = [in_jit]
    elif mode == "torch":
        import torch

        found += [torch.func.grad(lambda b, m=method: loss(b, m))(given) for method in ("auto", "CG")]
    elif mode == "tf-function":
        found = [compiled(mode, lambda b: gradient(mode, lambda b: loss(b, "CG"), b))(given)]
    for one in found:
        np.testing.assert_allclose(to_numpy(one).reshape(-1), expected, atol=1e-8)


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_divergence_free_velocities() -> None:
    """The gradient of an energy through the projection: its cotangent is zero on constants but for rounding."""
    import jax
    import jax.numpy as jnp

    f = laplacian("jax")

    def energy(u: Any) -> Any:
        q = linear_solve(f, u - jnp.roll(u, 1, 0)).x
        return jnp.sum(jnp.sin(u - (jnp.roll(q, -1, 0) - q)))

    @jax.jit
    def derivatives(u: Any, direction: Any) -> Any:
        return energy(u), *jax.jvp(jax.grad(energy), (u,), (direction,))

    u, direction, h = rng.standard_normal(SHAPE), rng.standard_normal(SHAPE), 1e-6
    _, gradient, hessian = derivatives(u, direction)
    above, below = derivatives(u + h * direction, direction), derivatives(u - h * direction, direction)
    np.testing.assert_allclose(jnp.sum(gradient * direction), (above[0] - below[0]) / (2 * h), rtol=1e-6)
    np.testing.assert_allclose(hessian, (above[1] - below[1]) / (2 * h), atol=1e-6)


def test_a_function_that_depends_on_more_than_its_argument() -> None:
    """What was regular with one coefficient, an argument or closed over, is singular with another."""
    b = np.sin(2 * np.pi * np.arange(24) / 24)

    def shifted(u: np.ndarray, s: float) -> np.ndarray:
        return (s + 2) * u - np.roll(u, 1) - np.roll(u, -1)

    shift = [1.0]
    closed = lambda u: shifted(u, shift[0])  # noqa: E731
    start, w = np.full(24, 5.0), np.cos(b)
    linear_solve(shifted, b, args=(1.0,), method="CG")
    linear_solve(closed, b, method="CG")
    shift[0] = 0.0
    A = np.stack([shifted(e, 0.0) for e in np.eye(24)], axis=1)
    for result in (
        linear_solve(shifted, b, x0=start, args=(0.0,), method="CG"),
        linear_solve(closed, b, x0=start, method="CG"),
    ):
        np.testing.assert_allclose(result.x, shortest(A, b), atol=1e-8)
        np.testing.assert_allclose(result.vjp(w).b, shortest(A, w), atol=1e-7)


@pytest.mark.parametrize("form", ["stencil", "dense", "csr"])
def test_any_spacing(form: str) -> None:
    """Sums of rows that should be zero are all the same small number where coefficients are constant."""
    random = np.random.default_rng(0)
    for _ in range(12):
        dx, dy = random.uniform(0.01, 1, 2)
        f = lambda u, dx=dx, dy=dy: (  # noqa: E731
            (2 * u - np.roll(u, 1, 0) - np.roll(u, -1, 0)) / dx**2
            + (2 * u - np.roll(u, 1, 1) - np.roll(u, -1, 1)) / dy**2
        )
        A = matrix_of(f)
        b = A @ random.standard_normal(A.shape[0])
        stencil = matrix_from_function(f, np.zeros(SHAPE))[0]
        operand = {"stencil": stencil, "csr": sp.csr_array(A), "dense": A}[form]
        x = linear_solve(operand, b, x0=np.full(len(b), 5.0), method="CG").x
        np.testing.assert_allclose(x, shortest(A, b), atol=1e-8 * np.abs(x).max())


def test_large_numbers_in_an_open_region() -> None:
    """Their sum, which plays no role, is beyond the largest number; likewise that in a closed one."""
    n = 400
    open_ = sp.diags_array([-1.0, 3.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    A = sp.csr_array(sp.block_diag([open_, sp.csr_array((2, 2))]))
    b = np.append(open_ @ np.full(n, 1e306), [0, 0])
    np.testing.assert_allclose(linear_solve(A, b).x, np.append(np.full(n, 1e306), [0, 0]), rtol=1e-9)
    for system in (path(n), np.asarray(sp.block_diag([path(n), path(n)]).toarray())):
        wave = np.tile(np.where(np.arange(n) % 2, 1e306, -1e306), len(system) // n)
        x = linear_solve(sp.csr_array(system), system @ wave, method="scipy-direct").x
        np.testing.assert_allclose(x, wave, rtol=1e-6)


@pytest.mark.needs("jax", "torch")
@pytest.mark.parametrize("k", [1e5, pytest.param(6e5, marks=pytest.mark.merge), 1e6])
def test_regular_matrices_of_long_time_steps_in_single_precision(k: float) -> None:
    """Diffusion on a ring, whose entries are exact: x and its gradient are ones, and no gradient is zero in silence."""
    import jax

    n = 32
    A = (1 + 2 * k) * np.eye(n) - k * (np.roll(np.eye(n), 1, 0) + np.roll(np.eye(n), -1, 0))
    np.testing.assert_array_equal(A.astype(np.float32), A)
    matrix = sp.csr_array(A.astype(np.float32))
    x = linear_solve(matrix, np.ones(n, np.float32), on_failure="status").x
    np.testing.assert_allclose(x, 1, rtol=0.05)
    wave = np.cos(2 * np.pi * np.arange(n) / n).astype(np.float32)

    # From k = 3e5 rounding leaves residuals of 5 % of b: whether one is below, and accepted, is up to the processor.
    beyond = (NotConverged, jax.errors.JaxRuntimeError) if k > 1e5 else ()
    for mode in ("jax-jit", "torch"):
        by_b = compiled(mode, lambda b, mode=mode: gradient(mode, lambda b: linear_solve(matrix, b).x.sum(), b))
        try:
            found = to_numpy(by_b(array(mode, wave)))
        except beyond:
            continue
        np.testing.assert_allclose(found, 1, rtol=0.05)
