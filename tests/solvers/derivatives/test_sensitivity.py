"""Derivatives of solves on NumPy arrays, `vjp` and `jvp`, against formulas with the dense inverse and differences."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from cells import METHOD_NAMES, complex_system_of
from krylix import Diverged, NotConverged, UnsupportedOperation, linear_solve, prepare, setup_cache
from krylix.solvers import METHODS
from krylix.solvers.factors import sparse
from krylix.solvers.methods import direct
from modes import array
from operands import SCIPY
from problems import SYSTEMS

REAL, COMPLEX = SYSTEMS["nonsymmetric"].matrix, SYSTEMS["complex"].matrix
TIGHT = {"rtol": 1e-13, "on_failure": "status"}


def numbers(shape: tuple[int, ...], like: np.ndarray, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng([seed, *shape])
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if like.dtype.kind == "c" else x).astype(like.dtype)


def expected(A: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """y, and - y x^H of each system."""
    x = np.linalg.solve(A, b[..., None])
    y = np.linalg.solve(np.conj(np.swapaxes(A, -1, -2)), c[..., None])
    return y[..., 0], -y @ np.conj(np.swapaxes(x, -1, -2))


def matrix_for(method: str, is_complex: bool = False) -> np.ndarray:
    hermitian = METHODS[method].needs_symmetry
    if is_complex:
        return complex_system_of(method).matrix if hermitian else COMPLEX
    return SYSTEMS["definite"].matrix if hermitian else REAL


CELLS = [(m, c) for m in METHOD_NAMES for c in (False, True) if METHODS[m].takes_complex or not c]


@pytest.mark.parametrize(("method", "is_complex"), CELLS)
@pytest.mark.parametrize("kind", ["dense", "csr", "function", "LinearOperator"])
def test_every_method(kind: str, method: str, is_complex: bool) -> None:
    A = matrix_for(method, is_complex)
    b, c, db, dA = (numbers(s, A, i) for i, s in enumerate([(12,), (12,), (12,), (12, 12)]))
    makers = {"dense": lambda: A, "csr": lambda: sp.csr_array(A), "function": lambda: lambda x: A @ x,
              "LinearOperator": lambda: spl.aslinearoperator(A)}  # fmt: skip
    M = "jacobi" if METHODS[method].takes_preconditioner and kind in ("dense", "csr") else None
    result = linear_solve(makers[kind](), b, method=method, preconditioner=M, **TIGHT)
    gradient = result.vjp(c)
    y, full = expected(A, b, c)
    np.testing.assert_allclose(gradient.b, y, rtol=1e-8, atol=1e-10)
    if kind == "dense":
        np.testing.assert_allclose(gradient.A, full, rtol=1e-8, atol=1e-10)
    elif kind == "csr":
        assert gradient.A.format == "csr" and gradient.A.nnz == np.count_nonzero(A)
        np.testing.assert_allclose(gradient.A.toarray(), np.where(A != 0, full, 0), rtol=1e-8, atol=1e-10)
    else:
        assert gradient.A is None
    dx = result.jvp(db, dA)
    np.testing.assert_allclose(dx, np.linalg.solve(A, db - dA @ np.linalg.solve(A, b)), rtol=1e-8, atol=1e-9)
    # the two are each other's transpose
    assert np.vdot(c, dx) == pytest.approx(np.vdot(y, db) + np.vdot(full, dA), rel=1e-8)


@pytest.mark.parametrize("method", ["CG", "biCG-stab(2)", "direct", "scipy-direct"])
def test_finite_differences(method: str) -> None:
    """Of a real function of a complex system, in Wirtinger's sense: dL/dRe + i dL/dIm."""
    A, h = matrix_for(method, is_complex=True), 1e-6
    b, weights = numbers((12,), A), np.arange(12.0)

    def loss(A: np.ndarray, b: np.ndarray) -> float:
        return float(weights @ np.abs(np.linalg.solve(A, b)) ** 2)

    x = linear_solve(A, b, method=method, rtol=1e-12)
    gradient = x.vjp(2 * weights * x.x)
    for step in (h, 1j * h):
        part = np.real if step == h else np.imag
        for i, j in ((0, 0), (3, 4), (7, 2)):
            dA, db = np.zeros_like(A), np.zeros_like(b)
            dA[i, j], db[i] = step, step
            by_A = (loss(A + dA, b) - loss(A - dA, b)) / (2 * h)
            by_b = (loss(A, b + db) - loss(A, b - db)) / (2 * h)
            assert part(gradient.A[i, j]) == pytest.approx(by_A, rel=1e-6, abs=1e-7)
            assert part(gradient.b[i]) == pytest.approx(by_b, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("method", ["biCG-stab(2)", "direct"])
@pytest.mark.parametrize("lead", [(), (2, 3), (3,), (1, 3), (2, 1)])
def test_batches(lead: tuple[int, ...], method: str) -> None:
    """Every system by itself; matrices that systems share have the sum."""
    A = REAL + 0.1 * numbers((*lead, 12, 12), REAL)
    b, c, dA = numbers((2, 3, 12), A, 1), numbers((2, 3, 12), A, 2), numbers((2, 3, 12, 12), A, 3)
    result = linear_solve(A, b, method=method, rtol=1e-13)
    y, full = expected(np.broadcast_to(A, (2, 3, 12, 12)), b, c)
    gradient = result.vjp(c)
    missing = (1,) * (2 - len(lead)) + lead
    shared = full.sum(axis=tuple(i for i in range(2) if missing[i] == 1), keepdims=True).reshape(A.shape)
    np.testing.assert_allclose(gradient.b, y, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(gradient.A, shared, rtol=1e-8, atol=1e-10)
    rhs = -(dA @ result.x[..., None])
    np.testing.assert_allclose(result.jvp(A=dA), np.linalg.solve(A, rhs)[..., 0], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("method", ["CG", "GMRES"])
def test_functions_of_grids(method: str) -> None:
    """A change that is a function; systems of a batch that share a function."""
    b, c, db = (numbers((2, 5, 6), REAL, i) for i in range(3))

    def A(x: np.ndarray, shift: float) -> np.ndarray:
        return shift * x - 0.5 * np.roll(x, 1, -1) - 0.5 * np.roll(x, -1, -1) - np.roll(x, 1, -2) - np.roll(x, -1, -2)

    result = linear_solve(A, b, method=method, args=(5.0,), batch_ndim=1, rtol=1e-12)
    gradient, dx = result.vjp(c), result.jvp(db, lambda x: 0.5 * x)
    np.testing.assert_allclose(A(gradient.b, 5.0), c, rtol=1e-9, atol=1e-10)  # it is symmetric
    np.testing.assert_allclose(A(dx, 5.0), db - 0.5 * result.x, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", SCIPY)
def test_each_stored_value_has_its_gradient(kind: str) -> None:
    matrix = SYSTEMS["definite"].matrix
    matrix = 4 * np.eye(12) if kind == "no entries" else matrix
    A = SCIPY[kind](matrix) if kind != "no entries" else sp.csr_array(matrix)
    b, c = numbers((2, 12), matrix), numbers((2, 12), matrix, 1)
    found = linear_solve(A, b, method="scipy-direct").vjp(c).A
    full = expected(matrix, b, c)[1].sum(axis=0)
    if A.format in ("lil", "dok"):
        assert found.format == "csr"
    else:
        assert type(found) is type(A) and found.data.shape == A.data.shape
    if A.format != "dia":
        entries = found.tocoo()
        np.testing.assert_allclose(entries.data, full[entries.row, entries.col], rtol=1e-9)
    if "untidy" not in kind:
        np.testing.assert_allclose(found.toarray()[matrix != 0], full[matrix != 0], rtol=1e-9)


def test_diagonals_that_are_zero_now_have_a_gradient() -> None:
    """They are part of the pattern; the corners that DIA stores beyond the matrix are not."""
    A = sp.dia_array((np.array([[2.0, 3, 4, 9], [0, 0, 0, 0]]), [0, 1]), shape=(4, 4))
    gradient = linear_solve(A, np.ones(4), method="direct").vjp(np.ones(4)).A
    full = expected(A.toarray(), np.ones(4), np.ones(4))[1]
    np.testing.assert_allclose(gradient.data, [np.diag(full), [0, *np.diag(full, 1)]], rtol=1e-12)


def test_dtypes() -> None:
    """Gradients are real where what they belong to is, and as precise as the solve."""
    b, c = numbers((12,), COMPLEX), numbers((12,), COMPLEX, 1)
    y, full = expected(REAL + 0j, b, c)
    gradient = linear_solve(REAL, b, method="GMRES", rtol=1e-13).vjp(c)
    np.testing.assert_allclose(gradient.A, full.real, rtol=1e-8, atol=1e-10)
    assert gradient.b.dtype == complex and gradient.A.dtype == float
    y, _ = expected(COMPLEX, b.real, c)
    gradient = linear_solve(COMPLEX, b.real, method="GMRES", rtol=1e-13).vjp(c)
    np.testing.assert_allclose(gradient.b, y.real, rtol=1e-8, atol=1e-10)
    assert gradient.b.dtype == float and gradient.A.dtype == complex
    single = linear_solve(REAL.astype("f"), b.real.astype("f"), method="direct")
    assert {g.dtype for g in (*single.vjp(c.real), single.jvp(c.real))} == {np.dtype("f")}
    whole = linear_solve([[2, 0], [1, 4]], [2, 4], method="direct").vjp([1, 0])
    assert whole.b.tolist() == [0.5, 0] and whole.A.dtype == float and whole.A.shape == (2, 2)


def test_null_spaces_and_offsets() -> None:
    path = SYSTEMS["constant null vector"].matrix
    b, c = SYSTEMS["constant null vector"].right_hand_side(), np.arange(12.0)
    for A in (path, lambda x: path @ x):
        found = linear_solve(A, b, method="CG", nullspace="constant", rtol=1e-12).vjp(c).b
        np.testing.assert_allclose(found, np.linalg.pinv(path) @ c, rtol=1e-8, atol=1e-9)
    shifted = linear_solve(sp.csr_array(path), b, method="CG", matrix_offset=0.3, rtol=1e-12).vjp(c)
    y, full = expected(path + 0.3, b, c)
    np.testing.assert_allclose(shifted.b, y, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(shifted.A.toarray(), np.where(path != 0, full, 0), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("method", ["CG", "direct"])
def test_magnitudes(method: str, dtype: str, scale: float) -> None:
    """Of cotangents; also with an absolute tolerance, which counts as the relative one that it was."""
    A = SYSTEMS["definite"].matrix.astype(dtype)
    b, c = np.ones(12, dtype), np.arange(12, dtype=dtype)
    for f in (A, lambda x: A @ x):
        found = linear_solve(f, b, method=method, rtol=0.0, atol=1e-5).vjp(np.array(scale * c, dtype))
        np.testing.assert_allclose(found.b / np.array(scale, dtype), np.linalg.solve(A, c), rtol=1e-3)


def test_zero_and_nan_systems_of_a_batch() -> None:
    A, b, c = matrix_for("CG"), numbers((3, 12), REAL), numbers((3, 12), REAL, 1)
    b[0], b[1, 4], c[2] = 0, np.nan, 0
    result = linear_solve(A, b, method="CG", on_failure="status", rtol=1e-12)
    y = result.vjp(c).b
    np.testing.assert_allclose(y[0], np.linalg.solve(A, c[0]), rtol=1e-8)
    assert np.isnan(y[1]).all() and not y[2].any() and not result.jvp(A=A)[0].any()


def test_failures() -> None:
    singular, b = np.array([[1.0, 0, 0], [0, 1, 2], [0, 2, 4]]), np.array([1.0, 1, 2])  # no null vector that is found
    result = linear_solve(singular, b, method="biCG-stab(2)")
    with pytest.raises((NotConverged, Diverged), match=r"^the backward solve of biCG-stab") as raised:
        result.vjp(np.ones(3))
    assert not raised.value.result.converged
    with pytest.raises((NotConverged, Diverged), match=r"^the solve for a derivative of biCG-stab"):
        result.jvp(np.ones(3))
    by_function = linear_solve(lambda x: singular @ x, b, method="CG")
    with pytest.raises((NotConverged, Diverged), match=r"^the backward solve of CG"):
        by_function.vjp(np.ones(3))
    with pytest.warns(RuntimeWarning, match="the backward solve of biCG-stab"):
        linear_solve(singular, b, method="biCG-stab(2)", on_failure="warn").vjp(np.ones(3))
    linear_solve(singular, b, method="biCG-stab(2)", on_failure="status").vjp(np.ones(3))


def test_automatic_choice() -> None:
    """The method that gave the result, also after another had failed."""
    A, b, c = sp.csr_array(SYSTEMS["indefinite"].matrix), np.ones(12), np.arange(12.0)
    y, _ = expected(A.toarray(), b, c)
    for matrix in (A, sp.csr_array(A + 1e-12 * sp.eye_array(12))):
        np.testing.assert_allclose(linear_solve(matrix, b).vjp(c).b, y, rtol=1e-7)


def test_a_function_taken_for_symmetric() -> None:
    """CG may converge although A is not; then A itself does not solve the transposed system."""
    skew = 1e-3 * (np.eye(12, k=1) - np.eye(12, k=-1))
    A, b = 4 * np.eye(12) + skew, np.ones(12)
    for f in (lambda x: A @ x, spl.LinearOperator((12, 12), matvec=lambda x: A @ x, dtype=float)):
        result = linear_solve(f, b, method="CG", rtol=1e-8)
        for c in (b, np.arange(12.0)):
            with pytest.raises(ValueError, match="A is not symmetric"):
                result.vjp(c)


def test_what_has_no_transpose() -> None:
    n = 5000
    followed = linear_solve(lambda x: 2 * x, np.ones(n), method="biCG-stab(2)")
    assert np.allclose(followed.vjp(np.ones(n)).b, 0.5)  # by its matrix
    result = linear_solve(lambda x: 2 * np.array(x.tolist()), np.ones(n), method="biCG-stab(2)")
    with pytest.raises(UnsupportedOperation, match="vjp needs products with the transpose"):
        result.vjp(np.ones(n))
    assert np.allclose(result.jvp(np.ones(n)), 0.5)
    assert np.allclose(linear_solve(lambda x: 2 * x, np.ones(n), method="CG").vjp(np.ones(n)).b, 0.5)
    no_rmatvec = spl.LinearOperator((3, 3), matvec=lambda x: 2 * x, dtype=float)
    with pytest.raises(UnsupportedOperation, match="rmatvec"):
        linear_solve(no_rmatvec, np.ones(3), method="GMRES").vjp(np.ones(3))


def change_A(A: np.ndarray, b: np.ndarray, result: Any) -> None:
    A[0, 0] += 1


def change_b(A: np.ndarray, b: np.ndarray, result: Any) -> None:
    b *= 2


def change_x(A: np.ndarray, b: np.ndarray, result: Any) -> None:
    result.x[3] = 0


@pytest.mark.parametrize("change", [change_A, change_b, change_x])
def test_changes_after_the_solve(change: Callable[..., None]) -> None:
    A, b = REAL.copy(), np.ones(12)
    result = linear_solve(A, b, method="GMRES")
    result.vjp(b)
    change(A, b, result)
    for derivative in (result.vjp, result.jvp):
        with pytest.raises(RuntimeError, match="was changed after the solve"):
            derivative(np.ones(12))


def test_wrong_input() -> None:
    result = linear_solve(REAL, np.ones(12), method="GMRES")
    for call, error, text in (
        (lambda: result.vjp(np.ones(11)), ValueError, r"cotangent has the shape \(11,\)"),
        (lambda: result.vjp(1j * np.ones(12)), TypeError, "cotangent is complex"),
        (lambda: result.jvp(), ValueError, "no direction"),
        (lambda: result.jvp(A=np.ones((3, 3))), ValueError, r"change of A has the shape \(3, 3\)"),
        (lambda: result.jvp(A=np.ones((2, 12, 12))), ValueError, "change of A has the shape"),
        (lambda: result.jvp(A=sp.eye_array(3)), ValueError, "change of A has the shape"),
        (lambda: result.jvp(A=1j * REAL), TypeError, "change of A is complex"),
        (lambda: result.jvp(A=lambda x: 1j * x), TypeError, "complex"),
        (lambda: result.jvp(b=np.ones(3)), ValueError, "change of b has the shape"),
    ):
        with pytest.raises(error, match=text):
            call()
    with pytest.raises(ValueError, match="several limits"):
        linear_solve(REAL, np.ones(12), method="GMRES", max_iter=(2, 50), on_failure="status").vjp(np.ones(12))
    with pytest.raises(TypeError, match="least-squares"):
        linear_solve(REAL[:, :5], np.ones(12), method="LSMR").vjp(np.ones(5))


@pytest.mark.parametrize("mode", ["jax", "torch", "tf"])
def test_other_libraries_have_their_own(mode: str) -> None:
    result = linear_solve(array(mode, REAL), array(mode, np.ones(12)), method="direct")
    for derivative in (result.vjp, result.jvp):
        with pytest.raises(TypeError, match=r"use (jax.vjp|torch.autograd|tf.GradientTape)"):
            derivative(np.ones(12))


def test_copies_of_a_result() -> None:
    result = linear_solve(lambda x: 2 * x, np.ones(3), method="CG")
    for other in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        assert np.array_equal(other.x, result.x) and other.message == result.message
        with pytest.raises(TypeError, match="copied or read from a file"):
            other.vjp(np.ones(3))


@pytest.mark.parametrize("method", ["direct", "scipy-direct"])
def test_factors(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One factorisation for all derivatives of a result; none for that of a prepared solver."""
    calls = []
    for module, name in ((direct, "factorise"), (sparse, "examined_sparse")):
        original = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, f=original, n=name: (calls.append(n), f(*a))[1])
    A = REAL if method == "direct" else sp.csc_array(REAL)
    b, c = np.ones((2, 12)), np.arange(24.0).reshape(2, 12)
    y, full = expected(REAL, b, c)
    solver = prepare(A, b, method=method)
    for solve, count in ((lambda: linear_solve(A, b, method=method), 2), (lambda: solver.solve(b), 0)):
        calls.clear()
        with setup_cache(False):
            result = solve()
            for _ in range(2):
                gradient = result.vjp(c)
                np.testing.assert_allclose(gradient.b, y, rtol=1e-8)
                found = gradient.A if method == "direct" else gradient.A.toarray()
                wanted = np.where(REAL != 0, full.sum(0), 0 if sp.issparse(A) else full.sum(0))
                np.testing.assert_allclose(found, wanted)
                result.jvp(c, A)
        assert len(calls) == count


def test_prepared_batch_of_matrices() -> None:
    A = REAL + 0.1 * numbers((2, 3, 12, 12), REAL)
    b, c = numbers((2, 3, 12), A, 1), numbers((2, 3, 12), A, 2)
    gradient = prepare(A, b, method="direct").solve(b).vjp(c)
    for found, wanted in zip(gradient, expected(A, b, c), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-10)
