"""Bad input is refused before any iteration, in words that help; good input of every form is left as it was."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spl

import krylix
from cells import METHOD_NAMES, methods_and_modes
from frameworks import tf
from krylix import linear_solve
from krylix.solvers import CG, GMRES, IDR, METHODS, BiCGStab, ScipyMethod, find_method
from modes import EAGER, MODES, array, product, solve, to_numpy
from problems import SYSTEMS, make_operator

MATRIX = SYSTEMS["definite"].matrix
SKEWED = SYSTEMS["nonsymmetric"].matrix
ONES = np.ones(12)

REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "wrong length": (lambda: linear_solve(MATRIX, np.ones(11)), ValueError, r"\(12, 12\).*\(11,\).*expected b"),
    "columns": (lambda: linear_solve(MATRIX, np.ones((12, 3))), ValueError, "give axis=0"),
    "scalar b": (lambda: linear_solve(MATRIX, 1.0), ValueError, "single number"),
    "not square": (lambda: linear_solve(np.ones((3, 4)), np.ones(4)), ValueError, "square"),
    "vector A": (lambda: linear_solve(ONES, ONES), ValueError, "expected a matrix"),
    "text A": (lambda: linear_solve("A", ONES), (ValueError, TypeError), "A must be"),
    "text b": (lambda: linear_solve(MATRIX, "b"), (ValueError, TypeError), "."),
    "SciPy's tol": (lambda: linear_solve(MATRIX, ONES, tol=1e-3), TypeError, "no argument 'tol'; here that is rtol"),
    "SciPy's maxiter": (lambda: krylix.prepare(MATRIX, ONES, maxiter=3), TypeError, "max_iter"),
    "SciPy's M": (lambda: linear_solve(MATRIX, ONES, M=MATRIX), TypeError, "preconditioner"),
    "callback is no function": (lambda: linear_solve(MATRIX, ONES, callback="print"), TypeError, "callback must be"),
    "unknown argument": (lambda: linear_solve(MATRIX, ONES, metod="CG"), TypeError, "'metod'; here that is method"),
    "b is None": (lambda: linear_solve(MATRIX, None), TypeError, "b must be an array; got NoneType"),
    "sparse b": (lambda: linear_solve(MATRIX, sp.csr_array(ONES[None])), TypeError, "toarray"),
    "args is no sequence": (lambda: linear_solve(lambda x, a: a * x, ONES, args=3), TypeError, r"a tuple: args=\(k,\)"),
    "no return": (lambda: linear_solve(lambda x: None, ONES), TypeError, "returned None"),
    "masked b": (lambda: linear_solve(MATRIX, np.ma.masked_array(ONES, np.arange(12) == 3)), TypeError, "mask.*filled"),
    "masked A": (lambda: linear_solve(np.ma.masked_array(MATRIX, MATRIX > 2), ONES), TypeError, "mask.*filled"),
    "huge max_iter": (lambda: linear_solve(MATRIX, ONES, max_iter=10**12), ValueError, "at most 2147483647"),
    "no method": (lambda: linear_solve(MATRIX, ONES, method="CGX"), ValueError, "'CGX'.*Did you mean"),
    "method type": (lambda: linear_solve(MATRIX, ONES, method=3), TypeError, "name or a method"),
    "degree zero": (lambda: linear_solve(MATRIX, ONES, method="biCG-stab(0)"), ValueError, "l >= 1"),
    "no preconditioner": (lambda: linear_solve(MATRIX, ONES, method="CG", preconditioner="x"), ValueError, "jacobi"),
    "M of another size": (
        lambda: linear_solve(MATRIX, ONES, method="CG", preconditioner=np.eye(3)), ValueError, r"\(3, 3\)"),
    "M for direct": (lambda: linear_solve(MATRIX, ONES, method="direct", preconditioner="jacobi"), ValueError, "no"),
    "policy": (lambda: linear_solve(MATRIX, ONES, on_failure="ignore"), ValueError, "'raise', 'warn', 'status'"),
    "negative rtol": (lambda: linear_solve(MATRIX, ONES, rtol=-1), ValueError, "rtol must be >= 0"),
    "NaN atol": (lambda: linear_solve(MATRIX, ONES, atol=np.nan), ValueError, "atol must be >= 0"),
    "rtol shape": (lambda: linear_solve(MATRIX, ONES, rtol=np.ones(3)), ValueError, "one per system"),
    "rtol text": (lambda: linear_solve(MATRIX, ONES, rtol="small"), TypeError, "rtol must be a number"),
    "max_iter": (lambda: linear_solve(MATRIX, ONES, max_iter=-1), ValueError, "max_iter"),
    "max_iter order": (lambda: linear_solve(MATRIX, ONES, max_iter=(5, 3)), ValueError, "increasing"),
    "max_iter text": (lambda: linear_solve(MATRIX, ONES, max_iter="many"), (TypeError, ValueError), "max_iter"),
    "batch_ndim": (lambda: linear_solve(lambda x: x, ONES, batch_ndim=-1), ValueError, "batch_ndim"),
    "batch_ndim too large": (lambda: linear_solve(lambda x: x, ONES, batch_ndim=2), ValueError, "has 1 axes"),
    "batch_ndim of a matrix": (lambda: linear_solve(MATRIX, np.ones((2, 3, 12)), batch_ndim=1), ValueError, "last"),
    "x0 shape": (lambda: linear_solve(MATRIX, ONES, x0=np.ones(3)), ValueError, r"x0 has the shape \(3,\)"),
    "complex x0": (lambda: linear_solve(MATRIX, ONES, x0=1j * ONES), TypeError, "x0 is complex"),
    "function's shape": (lambda: linear_solve(lambda x: x[:5], ONES), ValueError, r"A\(x\) has the shape \(5,\)"),
    "complex function": (lambda: linear_solve(lambda x: 1j * x, ONES), TypeError, "complex"),
    "not linear": (lambda: linear_solve(lambda x: x**3, ONES), krylix.NonlinearError, "Newton"),
    "args of a matrix": (lambda: linear_solve(MATRIX, ONES, args=(1,)), TypeError, "args"),
    "half precision": (lambda: linear_solve(MATRIX, ONES.astype(np.float16)), TypeError, "single or double"),
    "offset": (lambda: linear_solve(MATRIX, ONES, matrix_offset=np.ones(3)), ValueError, "matrix_offset"),
    "CG, not symmetric": (lambda: linear_solve(SKEWED, ONES, method="CG"), ValueError, "symmetric matrix"),
    "CG, not Hermitian": (lambda: linear_solve(1j * MATRIX, ONES + 0j, method="CG"), ValueError, "Hermitian"),
    "MINRES, complex": (lambda: linear_solve(MATRIX, ONES + 0j, method="scipy-MINRES"), TypeError, "real systems only"),
    "no rmatvec": (
        lambda: linear_solve(spl.LinearOperator((12, 12), lambda v: v, dtype=float), ONES, method="scipy-biCG"),
        krylix.UnsupportedOperation, "rmatvec"),
    "null vectors": (lambda: linear_solve(MATRIX, ONES, nullspace="constant"), ValueError, "does not map vector 0"),
    "null vectors shape": (lambda: linear_solve(MATRIX, ONES, nullspace=np.ones(5)), ValueError, "expected"),
    "null name": (lambda: linear_solve(MATRIX, ONES, nullspace="linear"), ValueError, "'constant'"),
    "batch of matrices": (lambda: linear_solve(np.ones((3, 12, 12)), np.ones((2, 12))), ValueError, "same batch axes"),
    "large function": (
        lambda: linear_solve(lambda x: 2 * np.asarray(x), np.ones(5000), method="direct"),
        krylix.UnsupportedOperation, "4096"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    call, error, words = REFUSED[case]
    with pytest.raises(error, match=words) as caught:
        call()
    assert len(str(caught.value)) > 20


@pytest.mark.needs("jax", "torch")
def test_two_frameworks() -> None:
    with pytest.raises(krylix.NoBackendFound, match=r"jax and torch|torch and jax"):
        linear_solve(array("jax", MATRIX), array("torch", ONES))


def live_inputs() -> dict[str, Any]:
    weird = sp.coo_matrix(MATRIX)
    doubled = sp.coo_matrix(
        (np.r_[weird.data / 2, weird.data / 2], (np.r_[weird.row, weird.row], np.r_[weird.col, weird.col]))
    )
    wide = sp.csr_array(MATRIX)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    zeros = sp.csr_array(MATRIX + 0)
    zeros.data[3] = zeros.data[3]
    stored_zeros = sp.csr_matrix(
        (np.r_[wide.data, 0.0], np.r_[wide.indices, 0], np.r_[wide.indptr[:-1], len(wide.data) + 1]), shape=(12, 12)
    )
    backwards = sp.csr_matrix(MATRIX)
    for i in range(12):
        row = slice(backwards.indptr[i], backwards.indptr[i + 1])
        backwards.indices[row], backwards.data[row] = (
            backwards.indices[row][::-1].copy(),
            backwards.data[row][::-1].copy(),
        )
    backwards.has_sorted_indices = False
    return {
        "csr_matrix": sp.csr_matrix(MATRIX), "csc_matrix": sp.csc_matrix(MATRIX), "csr_array": sp.csr_array(MATRIX),
        "bsr": sp.bsr_matrix(MATRIX, blocksize=(2, 2)), "dia": sp.dia_matrix(MATRIX), "lil": sp.lil_matrix(MATRIX),
        "dok": sp.dok_matrix(MATRIX), "coo": sp.coo_array(MATRIX), "int64 indices": wide,
        "explicit zeros": stored_zeros, "duplicates": doubled, "unsorted": backwards, "unsorted csc": backwards.T,
        "integers": sp.csr_array(MATRIX.astype(int)),
        "float32": sp.csr_array(MATRIX.astype(np.float32)), "list": MATRIX.tolist(),
        "Fortran": np.asfortranarray(MATRIX), "strided": np.kron(MATRIX, np.ones((2, 2)))[::2, ::2],
    }  # fmt: skip


SOONER = tuple(("auto", mode) for mode in MODES if mode != "tf-function")


@pytest.mark.compiled_by_default("auto", modes=("jax",))
@pytest.mark.parametrize("name", live_inputs())
@pytest.mark.parametrize(
    ("method", "mode"),
    [
        pytest.param(m, mode, marks=() if mode in ("numpy", "torch") or (m, mode) in SOONER else pytest.mark.slow)
        for m in ("CG", "scipy-direct", "auto")
        for mode in MODES
    ],
)
def test_what_callers_hand_over(method: str, mode: str, name: str) -> None:
    """Constants of NumPy and SciPy go with every library, and nothing is written to."""
    A, b = live_inputs()[name], np.linspace(-1, 1, 12)
    before = repr(A) + str(sp.csr_array(A).toarray() if sp.issparse(A) else A)
    parts = [
        getattr(A, part).copy()
        for part in ("data", "indices", "indptr")
        if name in ("unsorted", "unsorted csc", "duplicates") and hasattr(A, part)
    ]
    x0 = np.ones(12)
    result = solve(mode, A, b, x0, method=method, rtol=1e-8)
    np.testing.assert_allclose(result.x, np.linalg.solve(MATRIX, b), rtol=1e-6, atol=1e-8)
    assert repr(A) + str(sp.csr_array(A).toarray() if sp.issparse(A) else A) == before
    for part, old in zip(("data", "indices", "indptr"), parts, strict=False):
        np.testing.assert_array_equal(getattr(A, part), old)


@pytest.mark.parametrize(("method", "mode"), methods_and_modes(METHOD_NAMES, EAGER))
def test_inputs_are_not_modified_or_handed_out(method: str, mode: str) -> None:
    A, b, x0 = array(mode, MATRIX.copy()), array(mode, np.linspace(-1, 1, 12)), array(mode, np.full(12, 0.5))
    for start in (x0, None):
        for right in (b, 0 * b):
            kept = to_numpy(right).copy()
            result = linear_solve(A, right, x0=start, method=method)
            assert np.array_equal(to_numpy(right), kept) and np.array_equal(to_numpy(A), MATRIX)
            assert np.array_equal(to_numpy(x0), np.full(12, 0.5))
            for handed in (result.x, result.residual):
                for own in (right, x0):
                    assert not np.shares_memory(to_numpy(handed), to_numpy(own))


@pytest.mark.parametrize("mode", ["numpy", "torch"])
@pytest.mark.parametrize(
    "method", ["CG", "CG-adaptive", "biCG-stab", "biCG-stab(2)", "GMRES(5)", "FGMRES(5)", "IDR(3)", "MINRES"]
)
def test_functions_that_hand_out_their_own_memory(method: str, mode: str) -> None:
    """The identity returns its argument, others the same buffer every time."""
    b = np.linspace(1, 2, 12)
    np.testing.assert_allclose(solve(mode, lambda x: x, b, method=method).x, b, rtol=1e-9)
    buffer = array(mode, np.zeros(12))
    multiply = product(mode, array(mode, MATRIX))

    def reused(x: Any) -> Any:
        buffer[...] = multiply(x)
        return buffer

    exact = np.linalg.solve(MATRIX, b)
    np.testing.assert_allclose(solve(mode, reused, b, method=method).x, exact, rtol=1e-8)
    np.testing.assert_allclose(solve(mode, reused, b, method=method, preconditioner=lambda r: r).x, exact, rtol=1e-8)


@pytest.mark.compiled_by_default("CG", modes=("jax-jit", "tf"))
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["CG", "biCG-stab(2)", "direct", "scipy-GMres"])
def test_grid_shapes_affine_functions_args(method: str, mode: str) -> None:
    """Unknowns of any shape, batch axes in front, an affine function, further arguments."""
    multiply = product(mode, array(mode, MATRIX))
    b = np.random.default_rng(13).standard_normal((2, 3, 4))
    shift = array(mode, np.linspace(0, 1, 12).reshape(3, 4))

    def flat(x: Any) -> Any:
        return krylix.choose_backend(x).reshape(multiply(krylix.choose_backend(x).reshape(x, (2, 12))), (2, 3, 4))

    def affine(x: Any, factor: float) -> Any:
        return factor * flat(x) + shift

    result = solve(mode, affine, b, method=method, batch_ndim=1, args=(2.0,), on_failure="status")
    assert result.converged.all() and result.x.shape == (2, 3, 4) and result.iterations.shape == (2,)
    exact = np.linalg.solve(2 * MATRIX, (b - to_numpy(shift)).reshape(2, 12).T).T
    np.testing.assert_allclose(result.x.reshape(2, 12), exact, rtol=1e-6, atol=1e-8)


def test_method_names_and_objects() -> None:
    assert find_method("bicg-STAB(7)") == BiCGStab(7) and find_method("cg") == CG() and find_method(CG()) == CG()
    for name, method in {
        "gmres(7)": GMRES(7),
        "FGMRES(7)": GMRES(7, True),
        "fgmres": GMRES(30, True),
        "idr(2)": IDR(2),
    }.items():
        assert find_method(name) == method == find_method(method.name)
    assert all(find_method(name.upper()) is method for name, method in METHODS.items())
    with pytest.raises(ValueError, match="integer l"):
        BiCGStab(1.5)
    with pytest.raises(ValueError, match="wraps"):
        ScipyMethod("scipy-x")
    assert linear_solve(MATRIX, ONES, method=BiCGStab(3)).method == "biCG-stab(3)"


def test_empty_and_single() -> None:
    assert linear_solve(np.array([[2.0]]), np.array([4.0])).x == pytest.approx([2.0], rel=1e-14)
    assert linear_solve(MATRIX, np.ones((0, 12)), method="CG").x.shape == (0, 12)
    for method in METHODS:
        assert linear_solve(np.ones((0, 0)), np.ones(0), method=method).x.shape == (0,), method
    assert linear_solve(sp.csr_array((0, 0)), np.ones(0)).converged
    assert make_operator("numpy", "scipy", MATRIX).shape == (12, 12)


@pytest.mark.needs("tensorflow")
def test_results_of_unknown_rank() -> None:
    """In a graph of TensorFlow a function may not tell how many axes its result has."""

    def f(u: Any) -> Any:
        return u * tf.py_function(lambda: 2 * tf.ones(3, tf.float64), [], tf.float64)

    solve = tf.function(lambda b: krylix.linear_solve(f, b, method="CG").x, autograph=False)
    with pytest.raises(ValueError, match=r"number of axes is not known .* tf\.ensure_shape"):
        solve(tf.ones(3, tf.float64))
