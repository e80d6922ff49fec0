"""Loops on NumPy, with numbers for the scalars of one system: the digits of every other way to run the same solve."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from cells import DTYPES, cast, cells, check_true_residual, suits
from krylix.backends import get_backend
from krylix.backends.interface.containers import tree_leaves
from krylix.backends.numpy.one_system import OneSystemBackend
from krylix.solvers import METHODS
from krylix.solvers.methods.method import Goal
from modes import Numbers as Result
from modes import array, solve
from problems import SYSTEMS, make_operator

LEAN = [name for name, method in METHODS.items() if method.takes_numbers]
ON_NUMPY = [name for name, method in METHODS.items() if method.applies_only and not method.couples_systems]
EAGER = ("numpy", "torch", "tf")
LENGTHS = (2, 30, 700, 9000, 150_000)  # each with kernels of its own, and the last with torch's loop where 8 bytes long


def numbers(n: int, dtype: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n)
    return (x + 1j * rng.standard_normal(n) if dtype.startswith("complex") else x).astype(dtype)


def diagonal(mode: str, n: int, dtype: str) -> Callable[[Any], Any]:
    """A function whose products are the same for one row and for many."""
    d = array(mode, np.random.default_rng(1).uniform(1, 3, n).astype(dtype))
    return lambda u: d * u


@pytest.mark.parametrize("preconditioned", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("method", LEAN)
def test_numbers_give_the_digits_of_arrays(method: str, dtype: str, preconditioned: bool) -> None:
    """Every value of every state, after steps from a start and from an attempt after a breakdown."""
    bk, lean, solver = get_backend("numpy"), OneSystemBackend(), METHODS[method]
    for n in LENGTHS if method == "CG" else LENGTHS[:4]:
        d, e = np.random.default_rng(1).uniform(1, 3, n), np.full(n - 1, 0.1)
        A = krylix.as_operator(sp.diags_array([d, e, e], offsets=[0, 1, -1]).astype(dtype))
        M = krylix.as_operator(sp.diags_array(1 / d).astype(dtype)) if preconditioned else None
        for attempt in (0, 1):
            r = numbers(n, dtype, attempt)[None]
            if not lean.serves(r):
                pytest.skip("NumPy 1")
            goal = Goal(np.full((1, 1), 1e-3, r.dtype), np.full((1, 1), attempt, np.int32))
            with bk.errstate():
                state = solver.init(bk, A, M, r.copy(), goal)
                other = lean.enter(solver.init(bk, A, M, r.copy(), goal))
                for _ in range(3):
                    state, other = solver.step(bk, A, M, state), solver.step(lean, A, M, other)
            assert not any(isinstance(leaf, np.ndarray) and leaf.size == 1 for leaf in tree_leaves(other))
            for one, two in zip(tree_leaves(state), tree_leaves(lean.leave(other)), strict=True):
                assert one.dtype == two.dtype and one.shape == two.shape
                np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [0.0, 1e-42, 5e-310, 3.0, 1e300, np.inf, np.nan])
def test_numbers_of_any_size(value: float, dtype: type) -> None:
    """Scales, norms and quotients as `NumpyBackend` has them, also of zero, infinity and NaN."""
    bk, lean = get_backend("numpy"), OneSystemBackend()
    with bk.errstate():
        v = np.array([[value / 2, -value, 0]]).astype(dtype)
        for ask in (lambda b: b.binary_scale(v), lambda b: b.max_abs(v), lambda b: b.norm(v)):
            np.testing.assert_array_equal(ask(bk), np.reshape(ask(lean), (1, 1)))
        for divisor in (v[:, :1], v[:, 2:], v[:, 1:2] * v[:, 1:2]):
            found = lean.safe_divide(v[0, 1], divisor[0, 0])
            assert found.dtype == dtype
            np.testing.assert_array_equal(bk.safe_divide(v[:, 1:2], divisor), [[found]])


@pytest.mark.parametrize(
    ("mode", "dtype"),
    [
        ("numpy", "float32"),
        ("torch", "float64"),
        pytest.param("numpy", "complex128", marks=pytest.mark.merge),
        pytest.param("torch", "complex64", marks=pytest.mark.merge),
        pytest.param("tf", "float64", marks=pytest.mark.merge),
    ],
)
@pytest.mark.parametrize(("method", "n"), [*((m, n) for m in ON_NUMPY for n in LENGTHS[1:4:2]), ("CG", LENGTHS[4])])
def test_one_system_has_the_digits_of_a_batch(method: str, mode: str, dtype: str, n: int) -> None:
    """Whatever ends beside it, and whether each step is looked at or not."""
    A, b = diagonal(mode, n, dtype), np.stack([numbers(n, dtype, k) * scale for k, scale in enumerate((1e6, 1, 1e-3))])
    settings = {"method": method, "on_failure": "status", "nullspace": None}
    many = solve(mode, A, b, batch_ndim=1, **settings)
    recorded = solve(mode, A, b, batch_ndim=1, history=True, **settings)
    np.testing.assert_array_equal(many.x, recorded.x)
    for k, row in enumerate(b):
        one = solve(mode, A, row, **settings)
        assert one.converged and one.iterations == many.iterations[k]
        np.testing.assert_array_equal(one.x, many.x[k])
    np.testing.assert_array_equal(one.x, solve(mode, A, b[2], history=True, **settings).x)
    if METHODS[method].can_pause:
        points = solve(mode, A, b[2], **settings | {"max_iter": (1, 3)})
        np.testing.assert_array_equal(points.x[0], solve(mode, A, b[2], **settings | {"max_iter": 1}).x)


BATCHES = [
    cell
    for cell in cells()
    if cell.values[1]
    in {"numpy": ("float64", "complex128"), "torch": ("float32", "complex64")}.get(cell.values[2], DTYPES)
    and cell.values[2] in EAGER
]


@pytest.mark.parametrize(("method", "dtype", "mode"), BATCHES)
def test_batches_against_dense_answers(method: str, mode: str, dtype: str) -> None:
    """Three right-hand sides, one of which ends before the others."""
    names = [name for name in SYSTEMS if suits(method, SYSTEMS[name], dtype) and not SYSTEMS[name].singular]
    system, kind = SYSTEMS[names[-1]], "function" if dtype in ("float64", "complex64") else "scipy"
    matrix, b = cast(system.matrix, dtype), cast(system.right_hand_side((3,), seed=4), dtype)
    b[1] = matrix @ np.eye(len(matrix), dtype=dtype)[0]
    exact = np.linalg.solve(matrix.astype(np.complex128), b.T).T
    batch = {"batch_ndim": 1} if kind == "function" else {}
    result = solve(mode, make_operator(mode, kind, matrix), b, method=method, on_failure="status", **batch)
    assert result.converged.all(), result.message
    assert result.x.dtype == np.dtype(dtype)
    check_true_residual(result, matrix, b)
    limit = 30 * np.linalg.cond(matrix) * result.tolerance / np.linalg.norm(b, axis=1)
    assert (np.linalg.norm(result.x - exact, axis=1) <= limit * np.linalg.norm(exact, axis=1)).all()


@pytest.mark.parametrize("mode", EAGER)
def test_the_function_gets_arrays_of_its_library(mode: str) -> None:
    """In each product, of the shape and dtype of b, as many times as the result says."""
    for n, batch in ((5, ()), (5, (3,)), (1, ()), (1, (3,))):
        like = array(mode, np.ones((*batch, n, 2), np.float32))
        seen: list[Any] = []

        def A(u: Any, seen: list[Any] = seen) -> Any:
            seen.append(u)
            return 2 * u

        result = krylix.linear_solve(A, like, method="CG", batch_ndim=len(batch), on_failure="status", nullspace=None)
        assert len(seen) >= int(np.max(Result(result).function_evaluations))
        assert all(type(u) is type(like) and u.shape == like.shape and u.dtype == like.dtype for u in seen)
        assert Result(result).converged.all() and (Result(result).x == 0.5).all()


@pytest.mark.parametrize("mode", EAGER)
@pytest.mark.parametrize("method", ON_NUMPY)
def test_overflow_is_said_without_warnings(method: str, mode: str) -> None:
    """NumPy would warn where torch does not; warnings are errors in these tests."""
    for matrix in (np.diag([1e300, 1e300, -1e300, 1.0]), np.diag([1.0, np.nan, 1, 1]), np.zeros((4, 4))):
        A = make_operator(mode, "function", matrix)
        for b in (np.full(4, 1e300), np.array([1.0, np.inf, 0, 0]), np.array([1e-300, 0, 0, 0])):
            result = solve(mode, A, b, method=method, on_failure="status", nullspace=None, atol=0.0)
            image = matrix @ result.x
            assert not result.converged or np.linalg.norm((b - image) / 1e300) <= result.tolerance / 1e300 * 1.01
