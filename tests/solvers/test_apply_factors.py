"""Small dense systems, and factors at hand, on NumPy's arrays: the short way finds what the general one does."""

from __future__ import annotations

import pickle
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp

from cells import in_turn
from krylix import SolveResult, linear_solve, precision, prepare, setup_cache
from krylix.solvers import Direct
from krylix.solvers.results.result import NUMBERS

LINEAR_SOLVE: Any = sys.modules["krylix.solvers.linear_solve"]
RNG = np.random.default_rng(0)


@contextmanager
def the_general_way() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, setup_cache(False):
        patch.setattr(LINEAR_SOLVE, "solve_small_dense", lambda request: None)
        for name in ("plan_cache", "prepared"):
            patch.setattr(sys.modules[f"krylix.solvers.{name}"], "solve_by_factors", lambda plan, request, b: None)
        yield


@contextmanager
def the_short_way() -> Iterator[None]:
    """Nothing else will do."""

    def general(*_: Any) -> None:
        raise AssertionError("the general way was taken")

    with pytest.MonkeyPatch.context() as patch, setup_cache(False):
        patch.setattr(LINEAR_SOLVE, "solve_or_recall", general)
        patch.setattr(sys.modules["krylix.solvers.prepared"], "solve_with_plan", general)
        yield


def assert_equal(found: SolveResult, expected: SolveResult) -> None:
    """To the last bit, in shape, type and word."""
    for name in ("x", "residual", "history", "checkpoints", "_background", "_why", *NUMBERS):
        a, b = getattr(found, name), getattr(expected, name)
        assert type(a) is type(b), name
        if isinstance(b, np.ndarray | np.generic):
            assert (a.dtype, a.shape) == (b.dtype, b.shape), name
            np.testing.assert_array_equal(a, b, err_msg=name)
            assert np.array_equal(np.signbit(a.real), np.signbit(b.real)), name
        else:
            assert a == b or (a != a and b != b), name  # NaN
    assert found.message == expected.message and repr(found) == repr(expected)
    assert found.x.flags.writeable


def matrix(kind: str, n: int, dtype: str) -> np.ndarray:
    A = RNG.standard_normal((n, n)) + (1j * RNG.standard_normal((n, n)) if dtype[0] == "c" else 0)
    identity = np.eye(n)
    made: dict[str, Callable[[], Any]] = {
        "general": lambda: A + n**0.5 * identity,
        "far from dominant": lambda: A,
        "definite": lambda: A @ A.conj().T + identity,
        "symmetric": lambda: A + A.conj().T,
        "symmetric, diagonal of one sign": lambda: A + A.conj().T - np.diag(np.diag(A + A.conj().T)) + 0.1 * identity,
        "negative": lambda: -(A @ A.conj().T) - identity,
        "nearly symmetric": lambda: A @ A.conj().T + identity + 1e-7 * A,
        "triangular": lambda: np.triu(A) + 5 * identity,
        "permuted": lambda: (A + 3 * n**0.5 * identity)[::-1],
        "diagonal": lambda: np.diag(RNG.uniform(1, 2, n)),
        "rows of many sizes": lambda: (A + n**0.5 * identity) * np.logspace(-3, 3, n)[:, None],
    }
    found: np.ndarray = np.ascontiguousarray(made[kind]()).astype(dtype)
    return found


KINDS = ("general", "far from dominant", "definite", "symmetric", "symmetric, diagonal of one sign", "negative",
         "nearly symmetric", "triangular", "permuted", "diagonal", "rows of many sizes")  # fmt: skip
DTYPES = ("float64", "float32", "complex128", "complex64")


@pytest.mark.filterwarnings("ignore:.*:krylix.SingularMatrixWarning")
@pytest.mark.parametrize(("kind", "dtype"), in_turn(KINDS, DTYPES, always=["float64"]))
def test_small_dense_systems(kind: str, dtype: str) -> None:
    """Also in other layouts, and as one of a batch."""
    for n in (2, 16, 64, 65):
        A = matrix(kind, n, dtype)
        B = RNG.standard_normal((3, n)).astype(dtype) * np.array([[1], [1e3], [1e-3]], dtype)
        with the_general_way():
            batch = linear_solve(A, B, on_failure="status", axis=-1)
        others = (np.asfortranarray(A), np.kron(A, np.ones((2, 2), dtype))[::2, ::2]) if n == 16 else ()
        for layout in (A, *others):
            for i, b in enumerate(B):
                found = linear_solve(layout, b, on_failure="status")
                with the_general_way():
                    assert_equal(found, linear_solve(layout, b, on_failure="status"))
                if layout is A and found.converged and batch.converged[i]:
                    error = np.abs(found.x - batch.x[i]).max() / np.abs(found.x).max()
                    assert error <= 1e-2 if "far" in kind or "symmetric" in kind else 1e-5


@pytest.mark.parametrize("kind", ["general", "definite", "triangular", "permuted"])
def test_the_short_way_is_taken(kind: str) -> None:
    for dtype in DTYPES:
        A, b = matrix(kind, 16, dtype), RNG.standard_normal(16).astype(dtype)
        with the_short_way():
            for settings in ({}, {"method": "direct"}, {"rtol": 1e-4, "atol": 0.1}, {"nullspace": None}, {"axis": -1}):
                assert linear_solve(A, b, **settings).converged  # type: ignore[arg-type]
    solver = prepare(sp.csr_array(A), b, method="scipy-direct")
    with the_short_way():
        solver.solve(b)


def ring(n: int) -> np.ndarray:
    return 2 * np.eye(n) - np.roll(np.eye(n), 1, 0) - np.roll(np.eye(n), -1, 0)


def nearly_singular(size: float) -> np.ndarray:
    A = matrix("general", 12, "float64")
    A[4] = A[3] + A[5] + size * A[6]
    return A


def wilkinson(n: int) -> np.ndarray:
    """All pivots of its triangle are 1."""
    return np.eye(n) - np.triu(np.ones((n, n)), 1)


ODD: dict[str, np.ndarray] = {
    "ring": ring(8),
    "two rings": np.kron(np.eye(2), ring(6)),
    "one ring of two": scipy.linalg.block_diag(ring(6), matrix("general", 6, "float64")),
    "ring in disorder": ring(12)[np.ix_(RNG.permutation(12), RNG.permutation(12))],
    "zero": np.zeros((4, 4)),
    "row of zeros": np.diag([1.0, 2, 0, 3]),
    "column of zeros": matrix("general", 5, "float64") * np.array([1.0, 1, 0, 1, 1]),
    "NaN": np.full((4, 4), np.nan),
    "one NaN": np.where(np.arange(36).reshape(6, 6) == 7, np.nan, matrix("general", 6, "float64")),
    "one infinity": np.where(np.arange(36).reshape(6, 6) == 7, np.inf, matrix("general", 6, "float64")),
    "Hilbert": scipy.linalg.hilbert(12),
    "Wilkinson": wilkinson(60),
    "Wilkinson, less": wilkinson(40),
    "Vandermonde": np.vander(np.linspace(0, 1, 16)),
    "huge": 1e200 * matrix("general", 8, "float64"),
    "tiny": 1e-200 * matrix("general", 8, "float64"),
    "beyond squares": 1e-170 * matrix("general", 8, "float64"),
    "two units": matrix("general", 8, "float64") * np.logspace(0, 14, 8),
    "rank one": np.outer(np.arange(1.0, 6), np.ones(5)),
    **{f"nearly singular, {e}": nearly_singular(10.0**e) for e in range(-17, -2, 2)},
}


def outcome(solve: Callable[..., Any], *given: Any, **settings: Any) -> tuple[Any, list[str]]:
    """A result or an error, and warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found: Any = solve(*given, **settings)
        except Exception as error:
            found = error
    return found, [str(one.message) for one in caught]


def assert_alike(*given: Any, solve: Callable[..., Any] = linear_solve, **settings: Any) -> None:
    found, said = outcome(solve, *given, **settings)
    with the_general_way():
        expected, expected_said = outcome(solve, *given, **settings)
    assert said == expected_said
    if isinstance(expected, Exception):
        assert (type(found), str(found)) == (type(expected), str(expected))
    else:
        assert_equal(found, expected)


@pytest.mark.parametrize("name", ODD)
def test_what_may_be_singular(name: str) -> None:
    A = ODD[name]
    n = len(A)
    with np.errstate(all="ignore"):
        single, sides = A.astype(np.float32), (A @ RNG.standard_normal(n), RNG.standard_normal(n), np.zeros(n))
        for b in (*sides, np.where(np.arange(n) == 1, np.nan, 1.0)):
            assert_alike(A, b)
        for b in sides[:2]:
            assert_alike(single, b.astype(np.float32), on_failure="status")
        assert_alike(A.T, sides[0], on_failure="status")
        assert_alike(A + 0j, sides[1] + 0j, nullspace=None)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e-7, 1e-5, 1e5, 1e7, 1e160, 1e300, np.inf])
def test_right_hand_sides_of_any_size(scale: float) -> None:
    A = matrix("general", 8, "float64")
    solver = prepare(sp.csr_array(A), A[0], method="scipy-direct")
    for b in (A[1] * scale, np.where(np.arange(8) == 2, scale, 1.0), -np.abs(A[2]) * scale):
        assert_alike(A, b, on_failure="status")
        assert_alike(b, solve=solver.solve)


def test_refusals_stay() -> None:
    A, b = matrix("general", 8, "float64"), np.ones(8)
    for settings in (
        {"rtol": 1.0}, {"rtol": -1.0}, {"rtol": float("nan")}, {"rtol": True}, {"atol": -1.0}, {"atol": float("inf")},
        {"on_failure": "never"}, {"on_failure": None}, {"method": "no such"}, {"preconditioner": "jacobi"},
        {"batch_ndim": 1}, {"batch_ndim": True}, {"axis": 1}, {"axis": True}, {"axis": 0}, {"args": (1,)},
        {"args": [1]}, {"nullspace": "no such"}, {"nullspace": np.ones((1, 8))}, {"matrix_offset": 1.0},
        {"max_iter": 0}, {"max_iter": -1}, {"max_iter": 3}, {"max_iter": 1 << 40}, {"x0": np.ones(3)},
        {"x0": np.ones(8)}, {"history": 1}, {"rtol": 1e-17},
    ):  # fmt: skip
        assert_alike(A, b, **settings)
    kinds = ("int", "float32", "complex128", ">f8", "longdouble", "object", "float16", "bool")
    shapes: tuple[Any, ...] = (np.ones(7), np.ones((8, 1)), np.ones((1, 8)), list(b), np.float64(1), np.array("a"))
    for other in (*shapes, np.ma.masked_array(b), *map(b.astype, kinds)):
        assert_alike(A, other)
    for other in (A[:7], A[0], [*map(list, A)], *map(A.astype, kinds)):
        assert_alike(other, b)
    with precision(32):
        assert linear_solve(A, b).x.dtype == np.float32
    assert linear_solve(A, b, method=Direct()).method == "direct"
    with pytest.raises(TypeError, match="no argument"):
        linear_solve(A, b, tol=1e-3)  # type: ignore[call-arg]


def test_derivatives() -> None:
    for kind in ("general", "definite", "symmetric"):
        for dtype in ("float64", "complex128"):
            A, b = matrix(kind, 12, dtype), RNG.standard_normal(12).astype(dtype)
            y = RNG.standard_normal(12).astype(dtype)
            solver = prepare(sp.csr_array(A), b, method="scipy-direct")
            for solve in (lambda A=A, b=b: linear_solve(A, b), lambda solver=solver, b=b: solver.solve(b)):
                found = solve()
                gradient, change = found.vjp(y), found.jvp(b=y, A=A)
                with the_general_way():
                    expected = solve()
                    np.testing.assert_allclose(gradient.b, expected.vjp(y).b, rtol=1e-10)
                    assert type(gradient.A) is type(expected.vjp(y).A)
                    np.testing.assert_allclose(change, expected.jvp(b=y, A=A), rtol=1e-10)
                np.testing.assert_allclose(gradient.b, np.linalg.solve(A.conj().T, y), rtol=1e-8)
    with pytest.raises(ValueError, match="no direction"):
        linear_solve(A, b).jvp()


@pytest.mark.parametrize("which", range(3))
def test_changes_after_the_solve(which: int) -> None:
    for early in (True, False):  # by a derivative before them
        A, b = matrix("general", 8, "float64"), RNG.standard_normal(8)
        result = linear_solve(A, b)
        if early:
            result.vjp(b)
        (A, b, result.x)[which].reshape(-1)[1] += 1e-6
        with pytest.raises(RuntimeError, match="was changed after the solve"):
            result.vjp(np.ones(8))


def test_a_derivative_is_of_the_precision_of_the_solve() -> None:
    A, b = matrix("general", 8, "float64"), np.ones(8)
    result = linear_solve(A, b)
    with precision(32):
        gradient = result.vjp(b).b
    np.testing.assert_allclose(gradient, np.linalg.solve(A.T, b), rtol=1e-10)


def test_results_are_their_own() -> None:
    A, b = matrix("general", 8, "float64"), np.ones(8)
    before = A.copy(), b.copy()
    first, second = linear_solve(A, b), linear_solve(A, b)
    first.x[:] = 0
    first.residual[:] = 7
    np.testing.assert_array_equal(second.x, linear_solve(A, b).x)
    assert second.residual_norm < 1 and np.abs(second.residual).max() < 1
    np.testing.assert_array_equal(A, before[0])
    np.testing.assert_array_equal(b, before[1])
    copy = pickle.loads(pickle.dumps(second))
    np.testing.assert_array_equal(copy.x, second.x)
    assert repr(copy) == repr(second)
    with pytest.raises(TypeError, match="copied"):
        copy.vjp(b)
    frozen = np.ones(8)
    frozen.flags.writeable = False
    assert linear_solve(A, frozen).converged


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["general", "definite", "triangular", "diagonal"])
def test_prepared_solvers(kind: str, dtype: str) -> None:
    A, B = matrix(kind, 30, dtype), RNG.standard_normal((4, 30)).astype(dtype)
    band = sp.csr_array(np.triu(np.tril(A, 1), -1) + 4 * np.eye(30, dtype=dtype))
    for made in (A, sp.csr_array(A), band, sp.dia_array(band)):
        for method in ("direct", "scipy-direct"):
            solver = prepare(made, B[0], method=method)
            with the_general_way():
                batch = solver.solve(B)
            for i, b in enumerate(B):
                found = solver.solve(b)
                with the_general_way():
                    assert_equal(found, solver.solve(b))
                np.testing.assert_allclose(found.x, batch.x[i], rtol=1e-3, atol=1e-6)
            again = pickle.loads(pickle.dumps(solver))
            np.testing.assert_array_equal(again.solve(B[0]).x, solver.solve(B[0]).x)
            np.testing.assert_allclose(solver.update(2 * made).solve(B[0]).x, solver.solve(B[0]).x / 2, rtol=1e-4)


def test_prepared_solvers_of_other_kinds() -> None:
    """Settings that change what is found, and matrices with null vectors."""
    A, b = sp.csr_array(matrix("definite", 12, "float64")), np.ones(12)
    rings = sp.csr_array(ring(12))
    many: list[tuple[Any, dict[str, Any]]] = [
        (A, {"matrix_offset": 0.5}), (A, {"rtol": 1e-3}), (A, {"atol": 10.0}), (A, {"max_iter": 1}),
        (A, {"max_iter": [1, 2]}), (A, {"rtol": 1e-17}), (A, {"on_failure": "status", "rtol": 1e-16}),
        (rings, {}), (rings, {"nullspace": "constant"}), (rings, {"nullspace": None}),
        (sp.csr_array(ODD["rank one"]), {}),
    ]  # fmt: skip
    for matrix_, settings in many:
        given = matrix_ @ np.arange(1.0, matrix_.shape[0] + 1)
        assert_alike(given, solve=prepare(matrix_, given, method="scipy-direct", **settings).solve)
    solver = prepare(A, b, method="scipy-direct")
    for bad in (np.ones(11), np.ones(12, np.float32), np.ones((2, 12)), 1j * b, list(b)):
        assert_alike(bad, solve=solver.solve)
