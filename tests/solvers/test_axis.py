"""Vectors on any axis of b: NumPy's columns, the layout of results, and a square b, which can be read both ways."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from cells import METHOD_NAMES, in_turn
from frameworks import jax, tf, torch
from gradients import gradients
from krylix import Diverged, linear_solve, prepare
from krylix.solvers import METHODS
from modes import EAGER, MODES, Numbers, array, compiled, library, solve, to_numpy
from operands import operands

N = 4
RNG = np.random.default_rng(11)
SYMMETRIC = 6 * np.eye(N) + (lambda m: m + m.T)(RNG.standard_normal((N, N)))
SKEWED = 6 * np.eye(N) + RNG.standard_normal((N, N))
TALL = RNG.standard_normal((6, N))
COLUMNS = RNG.standard_normal((N, 3))
SQUARE = RNG.standard_normal((N, N))
INVERSE = np.linalg.inv(SKEWED)


def matrix_for(method: str) -> np.ndarray:
    return SYMMETRIC if METHODS[method].needs_symmetry or METHODS[method].least_squares else SKEWED


@pytest.mark.compiled_by_default("CG", modes=("jax-jit", "tf"))
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", METHOD_NAMES)
def test_columns(method: str, mode: str) -> None:
    """Square, so that rows and columns are told apart by their numbers; x0 and residual are columns too."""
    matrix, start = matrix_for(method), np.full_like(SQUARE, 0.1)
    result = solve(mode, array(mode, matrix), SQUARE, start, method=method, axis=0, rtol=1e-9)
    np.testing.assert_allclose(result.x, np.linalg.solve(matrix, SQUARE), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(result.residual, SQUARE - matrix @ result.x, atol=1e-9)
    assert result.iterations.shape == result.status.shape == (N,)


@pytest.mark.compiled_by_default
@pytest.mark.parametrize("mode", EAGER)
def test_every_operand(mode: str) -> None:
    """All but a function read columns, and must be told how to read a square b."""
    b, square = array(mode, COLUMNS), array(mode, SQUARE)
    inverse = np.linalg.inv(SYMMETRIC)  # for CG, whose programs are the smallest
    for name, A in operands(mode, SYMMETRIC).items():
        if name == "function":
            with pytest.raises(ValueError, match="batch_ndim=1"):
                linear_solve(A, b, axis=0)
            assert linear_solve(A, array(mode, COLUMNS.T), batch_ndim=1, axis=-1, method="CG").x.shape == (3, N)
            continue
        found = to_numpy(linear_solve(A, b, axis=0, method="CG", rtol=1e-10).x)
        np.testing.assert_allclose(found, inverse @ COLUMNS, rtol=1e-8, err_msg=name)
        with pytest.raises(ValueError, match=r"axis=0 for columns.*axis=-1"):
            linear_solve(A, square)
        with pytest.raises(ValueError, match=r"per column.*axis=0"):
            linear_solve(A, b)
        rows = to_numpy(linear_solve(A, square, batch_ndim=1, method="CG", rtol=1e-10).x)
        np.testing.assert_allclose(rows, SQUARE @ inverse, rtol=1e-8, err_msg=name)


@pytest.mark.parametrize(("shape", "axis"), [
    ((N, 3), 0), ((N, 3), -2), ((3, N), 1), ((3, N), -1), ((N,), 0), ((2, N, 3), 1), ((2, N, 3), -2), ((N, 2, 3), 0),
    ((N, N, N), 1), ((N, 1), 0), ((N, 0), 0),
])  # fmt: skip
def test_every_axis(shape: tuple[int, ...], axis: int) -> None:
    b = np.random.default_rng(0).standard_normal(shape)
    wanted = np.moveaxis(np.moveaxis(b, axis, -1) @ INVERSE.T, -1, axis)
    others = tuple(np.delete(shape, axis))
    for method in ("GMRES", "direct", "scipy-direct"):
        result = linear_solve(SKEWED, b, axis=axis, x0=np.ones(shape), method=method, history=True)
        np.testing.assert_allclose(result.x, wanted, rtol=1e-8)
        assert result.residual.shape == shape and result.history.shape[1:] == np.shape(result.converged) == others
        steps = linear_solve(SKEWED, b, axis=axis, method=method, max_iter=[1, 2, 9], on_failure="status")
        assert steps.x.shape == (3, *shape) and steps.status.shape == (3, *others)
        np.testing.assert_allclose(steps.x[2], wanted, rtol=1e-8)


def test_batches_of_matrices_keep_their_meaning() -> None:
    """Matrices are numbered by the other axes of b, whatever lengths agree."""
    for k in (3, N):
        A = SKEWED + np.arange(k)[:, None, None] * np.eye(N)
        b = np.random.default_rng(1).standard_normal((k, N))
        wanted = np.linalg.solve(A, b[..., None])[..., 0]
        for M in (A, [*A], [sp.csr_array(a) for a in A]):
            np.testing.assert_allclose(linear_solve(M, b).x, wanted, rtol=1e-8)
            np.testing.assert_allclose(linear_solve(M, b.T, axis=0).x, wanted.T, rtol=1e-8)
            shared = linear_solve(M, b[0], axis=0)  # one vector for all
            np.testing.assert_allclose(shared.x, np.linalg.solve(A, b[0]), rtol=1e-8)
    gradient = shared.vjp(np.ones((k, N)))
    np.testing.assert_allclose(gradient.b, np.linalg.inv(A).sum((0, 1)), rtol=1e-8)


def test_batch_axes_of_matrices_come_in_front() -> None:
    """Wherever the vector lies in b, and however the axis is counted; as `np.linalg.solve` has it for columns."""
    A = SKEWED + np.arange(8).reshape(4, 2, 1, 1) * np.eye(N)
    b = np.random.default_rng(2).standard_normal((2, N))
    expected = np.linalg.solve(A, b[..., None])[..., 0]
    for axis in (None, 1, -1):
        np.testing.assert_allclose(linear_solve(A, b, axis=axis).x, expected, rtol=1e-8)
    for axis in (0, -2):
        np.testing.assert_allclose(linear_solve(A, b.T, axis=axis).x, np.moveaxis(expected, -1, -2), rtol=1e-8)


def test_the_place_of_a_bad_number_is_that_in_b() -> None:
    b = np.ones((N, 3))
    b[1, 2] = np.nan
    for axis, given, place in ((0, b, r"\(1, 2\)"), (-1, b.T, r"\(2, 1\)")):
        with pytest.raises(Diverged, match=f"nan at {place}"):
            linear_solve(SKEWED, given, axis=axis, method="GMRES")


def test_no_ambiguity() -> None:
    """One number, other lengths, three axes, least squares that are not square."""
    assert linear_solve(np.eye(1), np.ones((1, 1))).x.shape == (1, 1)
    assert linear_solve(SKEWED, np.ones((N, N, N))).x.shape == (N, N, N)
    assert linear_solve(TALL, np.ones((N, 6)), method="LSMR").x.shape == (N, N)
    with pytest.raises(ValueError, match="axis=0"):
        linear_solve(TALL, np.ones((6, 6)), method="LSMR")
    with pytest.raises(ValueError, match="axis=0"):
        linear_solve(SKEWED, SQUARE.tolist())


@pytest.mark.compiled_by_default
@pytest.mark.parametrize("mode", EAGER)
def test_a_list_of_vectors_is_a_batch(mode: str) -> None:
    rows = [array(mode, v) for v in SQUARE]
    for b in (rows, tuple(rows), rows[:1]):
        found = to_numpy(linear_solve(array(mode, SKEWED), b).x)
        np.testing.assert_allclose(found, SQUARE[: len(b)] @ INVERSE.T, rtol=1e-6)
    columns = to_numpy(prepare(array(mode, SKEWED), rows).solve(rows, axis=0).x)
    np.testing.assert_allclose(columns, INVERSE @ SQUARE, rtol=1e-6)
    with pytest.raises(ValueError, match=r"\(4,\), \(3,\)"):
        linear_solve(SKEWED, [np.ones(4), np.ones(3)])


@pytest.mark.parametrize("axis", [5, -3, True, 1.0, "0"])
def test_refused(axis: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="axis"):
        linear_solve(SKEWED, COLUMNS, axis=axis)


@pytest.mark.compiled_by_default(modes=("jax-jit",))
@pytest.mark.parametrize("mode", MODES)
def test_prepared(mode: str) -> None:
    """`prepare` reads the shapes alone; `solve` takes the axis that it is told, or that of `prepare`."""
    A, square, inverse = array(mode, SYMMETRIC), array(mode, SQUARE), np.linalg.inv(SYMMETRIC)
    told, untold = (prepare(A, square, axis=axis, method="CG", rtol=1e-10) for axis in (0, None))

    def solves(b: Any) -> tuple[Any, ...]:
        return told.solve(b).x, told.solve(b, axis=-1).x, untold.solve(b, x0=0 * b, axis=0).x

    columns, rows, again = map(to_numpy, compiled(mode, solves)(square))
    np.testing.assert_allclose(columns, inverse @ SQUARE, rtol=1e-6)
    np.testing.assert_allclose(again, columns, rtol=1e-6)
    np.testing.assert_allclose(rows, SQUARE @ inverse, rtol=1e-6)
    with pytest.raises(ValueError, match="axis=0"):
        untold.solve(square)
    if mode in EAGER:
        tall = prepare(array(mode, TALL), array(mode, np.ones((6, 3))), axis=0, method="LSMR")
        b = np.random.default_rng(2).standard_normal((6, 5))
        found = Numbers(tall.solve(array(mode, b)))
        np.testing.assert_allclose(found.x, np.linalg.lstsq(TALL, b)[0], rtol=1e-4, atol=1e-6)
        assert found.residual.shape == (6, 5)


@pytest.mark.compiled_by_default("CG", modes=("jax-jit",))
@pytest.mark.parametrize(("method", "mode"), in_turn(["CG", "direct"], [m for m in MODES if m != "torch-compile"]))
def test_gradients(method: str, mode: str) -> None:
    w, matrix = np.random.default_rng(3).standard_normal(SQUARE.shape), matrix_for(method)
    x, y = np.linalg.solve(matrix, SQUARE), np.linalg.solve(matrix.T, w)

    def solve(A: Any, b: Any) -> Any:
        return linear_solve(A, b, axis=0, method=method, rtol=1e-12)

    if mode == "numpy":
        gradient = solve(matrix, SQUARE).vjp(w)
        A, b = gradient.A, gradient.b
    else:
        total = krylix.choose_backend(library(mode)).sum
        A, b = gradients(mode, lambda A, b: total(array(mode, w) * solve(A, b).x, (0, 1)), matrix, SQUARE)
    np.testing.assert_allclose(b, y, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(A, -y @ x.T, rtol=1e-6, atol=1e-8)


def test_directional_derivatives() -> None:
    change = np.random.default_rng(4).standard_normal((N, N))
    result = linear_solve(SKEWED, SQUARE, axis=0)
    np.testing.assert_allclose(result.jvp(b=change), INVERSE @ change, rtol=1e-8)
    np.testing.assert_allclose(result.jvp(A=change), -INVERSE @ change @ result.x, rtol=1e-8)


@pytest.mark.parametrize("mode", [pytest.param("jax", marks=pytest.mark.merge), "torch"])
def test_vectorised(mode: str) -> None:
    """Inside of vmap b has one axis less, which decides what is square."""
    A, many = array(mode, SKEWED), np.stack([COLUMNS, 2 * COLUMNS])
    vmap = jax.vmap if mode == "jax" else torch.func.vmap
    found = vmap(lambda b: linear_solve(A, b, axis=0, method="direct").x)(array(mode, many))
    np.testing.assert_allclose(found, INVERSE @ many, rtol=1e-8)


@pytest.mark.merge
@pytest.mark.needs("tensorflow")
def test_unknown_number_of_columns_in_tensorflow() -> None:
    A = tf.constant(SYMMETRIC)
    program = tf.function(
        lambda b: linear_solve(A, b, x0=0 * b, axis=0, method="CG", rtol=1e-12, nullspace=None),
        input_signature=[tf.TensorSpec([N, None], tf.float64)],
    )
    for b in (COLUMNS, SQUARE):
        found = program(tf.constant(b))
        np.testing.assert_allclose(found.x, np.linalg.solve(SYMMETRIC, b), rtol=1e-8)
        assert found.residual.shape == b.shape and found.status.shape == b.shape[1:]


@pytest.mark.compiled_by_default
@pytest.mark.parametrize("mode", EAGER)
def test_a_preconditioner_gets_arrays_shaped_as_b(mode: str) -> None:
    shapes = []

    def jacobi(r: Any) -> Any:
        shapes.append(tuple(r.shape))
        return r / array(mode, np.diag(SKEWED)[:, None])

    found = linear_solve(array(mode, SKEWED), array(mode, COLUMNS), axis=0, method="GMRES", preconditioner=jacobi)
    np.testing.assert_allclose(to_numpy(found.x), INVERSE @ COLUMNS, rtol=1e-8)
    assert set(shapes) == {COLUMNS.shape}
