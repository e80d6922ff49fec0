"""`krylix.scipy_like` beside `scipy.sparse.linalg`: signatures, honest info, arrays of other libraries, one import."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import scipy
import scipy.sparse as sp
import scipy.sparse.linalg as spl
from scipy.linalg import hilbert

import krylix
from krylix import scipy_like as sla
from krylix.solvers.factors import sparse
from scipy_shipped import OURS

ITERATIVE = ("bicg", "bicgstab", "cg", "cgs", "gcrotmk", "gmres", "lgmres", "minres", "qmr", "tfqmr")
SYMMETRIC = ("cg", "minres")
NEW = {"spsolve": {"method", "rtol"}}  # arguments that SciPy's function has not
N = 30


def tridiagonal(n: int = N, skew: float = 0.0) -> sp.csr_array:
    return sp.diags_array([-1.0 - skew, 2.5, -1.0 + skew], offsets=[-1, 0, 1], shape=(n, n), format="csr")


def right_side(n: int = N) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(n)


def residual(A: Any, x: Any, b: Any) -> float:
    return float(np.linalg.norm(np.asarray(b).ravel() - A @ x))


@pytest.mark.skipif(tuple(map(int, scipy.__version__.split(".")[:2])) < (1, 17), reason="signatures of SciPy 1.17")
@pytest.mark.parametrize("name", OURS)
def test_signature(name: str) -> None:
    ours, theirs = (dict(inspect.signature(getattr(m, name)).parameters) for m in (sla, spl))
    new = NEW.get(name, {"method"} if name in ITERATIVE else set())
    assert set(ours) - set(theirs) == new
    assert all(ours.pop(extra).kind is inspect.Parameter.KEYWORD_ONLY for extra in new)
    assert [(p.name, p.kind, p.default) for p in ours.values()] == [
        (p.name, p.kind, p.default) for p in theirs.values()
    ]


def test_every_name_of_scipy_is_there() -> None:
    names = [name for name in spl.__all__ if name != "test"]
    assert set(names) <= set(dir(sla))
    assert all(getattr(sla, name) is getattr(spl, name) for name in names if name not in OURS)
    assert set(sla.__all__) == set(OURS)
    with pytest.raises(AttributeError, match=r"krylix.scipy_like.*'no_such_name', nor has scipy.sparse.linalg"):
        sla.no_such_name  # noqa: B018


TYPES: dict[str, Callable[[Any, np.ndarray], Any]] = {
    "column": lambda A, b: (A, b[:, None]),
    "int b": lambda A, b: (A, np.arange(N)),
    "list b": lambda A, b: (A, b.tolist()),
    "float32 A": lambda A, b: (A.astype(np.float32), b),
    "complex b": lambda A, b: (A, b + 1j),
    "int A": lambda A, b: ((2 * A).astype(int), b),
    "matrix": lambda A, b: (sp.csr_matrix(A).todense(), b),
    "operator": lambda A, b: (spl.aslinearoperator(A), b),
}
REFUSED_BY_SCIPY = (("tfqmr", "list b"), ("minres", "complex b"))
CASES = [(name, kind) for kind in TYPES for name in ITERATIVE if (name, kind) not in REFUSED_BY_SCIPY]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_types_are_those_of_scipy(name: str, kind: str) -> None:
    A, b = TYPES[kind](tridiagonal(), right_side())
    x, info = getattr(sla, name)(A, b)
    expected, _ = getattr(spl, name)(A, b)
    assert info == 0 and type(x) is np.ndarray
    assert (x.shape, x.dtype) == (expected.shape, expected.dtype)
    assert residual(A, x, b) <= 1e-5 * np.linalg.norm(b)


@pytest.mark.parametrize("name", ITERATIVE)
@pytest.mark.parametrize("rtol", [1e-8, 1e-12])
def test_info_0_means_the_true_residual(name: str, rtol: float) -> None:
    """Badly scaled matrices, on which the recurrences of some of SciPy's functions drift."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        A = rng.standard_normal((12, 12)) * np.logspace(0, 3, 12)
        A = A @ A.T if name in SYMMETRIC else A
        b = rng.standard_normal(12)
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore", category=RuntimeWarning):
            x, info = getattr(sla, name)(A, b, rtol=rtol)
        assert info != 0 or residual(A, x, b) <= rtol * np.linalg.norm(b)


@pytest.mark.parametrize("name", ITERATIVE)
def test_limit_and_start(name: str) -> None:
    A, b = tridiagonal(100), right_side(100)
    settings = {"restart": 3} if name == "gmres" else {"inner_m": 2} if name == "lgmres" else {}
    settings |= {"m": 2, "k": 1} if name == "gcrotmk" else {}
    with suppress(ValueError, UnboundLocalError):  # of SciPy's GMRES
        x, info = getattr(sla, name)(A, b, maxiter=0)
        assert info != 0 and not np.any(x)
    x0 = np.zeros(100)
    x, info = getattr(sla, name)(A, b, x0, rtol=1e-14, maxiter=2, **settings)
    assert info == 2 and not x0.any()
    exact = spl.spsolve(A, b)
    before = exact.copy()
    x, info = getattr(sla, name)(A, b, exact, rtol=1e-6)
    assert info == 0 and np.array_equal(exact, before) and np.allclose(x, exact, atol=1e-6)


@pytest.mark.parametrize("name", [n for n in ITERATIVE if n not in ("bicgstab", "qmr")])
def test_products_with_a_perfect_preconditioner(name: str) -> None:
    """As SciPy's own test counts, which stops at biCG-stab."""
    A, b, count = tridiagonal(), right_side(), [0]

    def product(v: np.ndarray) -> np.ndarray:
        count[0] += 1
        return A @ v

    operator = spl.LinearOperator(A.shape, product, rmatvec=product, dtype=A.dtype)
    inverse = spl.aslinearoperator(np.linalg.inv(A.toarray()))
    x, info = getattr(sla, name)(operator, b, 0 * b, rtol=1e-8, M=inverse)
    assert info == 0 and count[0] <= 3
    assert residual(A, x, b) <= 1e-8 * np.linalg.norm(b)


@pytest.mark.parametrize("name", [n for n in ITERATIVE if n != "qmr"])
@pytest.mark.parametrize("M", ["jacobi", krylix.preconditioner(tridiagonal(), "jacobi"), lambda r: r / 2.5])
def test_preconditioners_of_krylix(name: str, M: Any) -> None:
    A, b = tridiagonal(), right_side()
    if name == "bicg" and callable(M):
        M = spl.LinearOperator(A.shape, M, rmatvec=M)
    x, info = getattr(sla, name)(A, b, M=M, rtol=1e-9)
    assert info == 0 and residual(A, x, b) <= 1e-9 * np.linalg.norm(b)


@pytest.mark.parametrize("name", ITERATIVE)
def test_method_of_krylix(name: str) -> None:
    A, b = tridiagonal(), right_side()
    x, info = getattr(sla, name)(A, b, rtol=1e-9, method="direct")
    assert info == 0 and np.allclose(x, spl.spsolve(A, b), atol=1e-12)
    with pytest.raises(ValueError, match="No method is called 'nonsense'"):
        getattr(sla, name)(A, b, method="nonsense")


@pytest.mark.parametrize("name", [n for n in ITERATIVE if n not in ("gmres", "gcrotmk", "lgmres")])
def test_callback(name: str) -> None:
    A, b, seen = tridiagonal(), right_side(), []
    _, info = getattr(sla, name)(A, b, rtol=1e-9, callback=lambda xk: seen.append(residual(A, xk, b)))
    assert info == 0 and len(seen) > 3 and seen[-1] < 1e-6 * seen[0]
    with pytest.raises(ValueError, match="of the user"):  # and no second try by SciPy's function

        def raises(xk: np.ndarray) -> None:
            seen.append(0)
            raise ValueError("of the user")

        seen.clear()
        getattr(sla, name)(A, b, callback=raises)
    assert len(seen) == 1


def test_a_matrix_that_is_not_symmetric_is_left_to_scipy() -> None:
    A, b = tridiagonal(skew=0.05), right_side()
    for name in SYMMETRIC:
        with pytest.raises(ValueError, match="symmetric"):
            getattr(sla, name)(A, b, method=name)
        x, info = getattr(sla, name)(A, b, rtol=1e-3)
        assert info != 0 or residual(A, x, b) <= 1e-3 * np.linalg.norm(b)


def test_minres_shift_and_check() -> None:
    A, b = tridiagonal(), right_side()
    shifted = A - 1.3 * sp.eye_array(N)
    for matrix in (A, A.toarray(), spl.aslinearoperator(A)):
        x, info = sla.minres(matrix, b, shift=1.3, rtol=1e-9)
        assert info == 0 and residual(shifted, x, b) <= 1e-9 * np.linalg.norm(b)
    with pytest.raises(ValueError, match="non-symmetric matrix"):
        sla.minres(tridiagonal(skew=0.5), b, check=True)
    with pytest.raises(ValueError, match="SciPy's own function"):
        sla.minres(A, b, check=True, method="CG")


@pytest.mark.parametrize("name", ["lsqr", "lsmr"])
@pytest.mark.parametrize("damp", [0.0, 0.3])
def test_least_squares_norms_are_true(name: str, damp: float) -> None:
    rng = np.random.default_rng(5)
    A, b, x0 = rng.standard_normal((20, 7)), rng.standard_normal(20), rng.standard_normal(7)
    for start in (None, x0):
        found = getattr(sla, name)(A, b, damp, 1e-12, 1e-12, x0=start)
        theirs = getattr(spl, name)(A, b, damp, 1e-12, 1e-12, x0=start)
        assert [type(f) for f in found[1:3]] == [type(t) for t in theirs[1:3]] and found[1] == theirs[1]
        assert np.allclose(found[0], theirs[0])
        norms = slice(3, 5) if name == "lsqr" else slice(3, 4)
        assert np.allclose(found[norms], theirs[norms], rtol=1e-6)
        normal = A.T @ (b - A @ found[0]) - damp**2 * (found[0] - (0 if start is None else start))
        assert np.isclose(found[7 if name == "lsqr" else 4], np.linalg.norm(normal))


def columns(count: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((N, count))


OF_DIRECT: dict[str, Callable[[Any, np.ndarray], Any]] = {
    "csr": lambda A, b: (A, b),
    "csc": lambda A, b: (A.tocsc(), b),
    "float32": lambda A, b: (A.astype(np.float32), b.astype(np.float32)),
    "complex b": lambda A, b: (A, b + 1j),
    "int": lambda A, b: ((2 * A).astype(int), np.arange(N)),
    "columns": lambda A, b: (A, columns(4)),
    "square": lambda A, b: (A, columns(N)),
    "one column": lambda A, b: (A, columns(1)),
    "sparse": lambda A, b: (A.tocsc(), sp.csc_array(columns(3))),
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [*(("spsolve", kind) for kind in OF_DIRECT), *(("spsolve_triangular", kind) for kind in [*OF_DIRECT][:-1])],
)
def test_direct_is_that_of_scipy(name: str, kind: str) -> None:
    A = tridiagonal(skew=0.3)
    A, b = OF_DIRECT[kind](sp.csr_array(sp.tril(A)) if name == "spsolve_triangular" else A, right_side())
    before = A.copy()
    x, expected = (getattr(m, name)(A, b) for m in (sla, spl))
    assert (type(x), x.shape, x.dtype) == (type(expected), expected.shape, expected.dtype)
    x, expected = (v.toarray() if sp.issparse(v) else v for v in (x, expected))
    assert np.allclose(x, expected, rtol=1e-4 if kind == "float32" else 1e-9)
    assert (before != A).nnz == 0


@pytest.mark.parametrize("unit", [False, True])
def test_triangular_precision_and_order_are_those_of_scipy(unit: bool) -> None:
    for dtype in ("bool", "u1", "i4", "f4", "f8", "F"):
        A = sp.csr_array(np.array([[3, 0], [1, 2]]).astype(dtype))
        for of_b in ("f4", "i4", "F"):
            b = np.ones((2, 3), of_b)
            x, expected = (m.spsolve_triangular(A, b, unit_diagonal=unit) for m in (sla, spl))
            assert x.dtype == expected.dtype and x.flags.f_contiguous == expected.flags.f_contiguous, (dtype, of_b)
            assert np.allclose(x, expected, rtol=1e-6)
            x[0, 0] = 5  # it is the caller's


def test_spsolve_keeps_the_factors_of_a_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    A = sp.csr_array(tridiagonal(60) + sp.random_array((60, 60), density=0.05, rng=np.random.default_rng(0)))
    made = []
    factors: Callable[..., Any] = sparse.sparse_factors
    monkeypatch.setattr(sparse, "sparse_factors", lambda matrix, by: made.append(matrix) or factors(matrix, by))
    krylix.clear_setup_cache()
    for seed in range(6):
        b = np.random.default_rng(seed).standard_normal(60)
        assert residual(A, sla.spsolve(A, b, method="scipy-direct"), b) < 1e-10
    assert len(made) == 1
    A.data[0] += 1
    assert residual(A, sla.spsolve(A, b, method="scipy-direct"), b) < 1e-10
    assert len(made) == 2


def test_spsolve_of_singular_matrices() -> None:
    singular = sp.csr_array(np.diag([1.0, 2.0, 0.0]))
    with pytest.warns(spl.MatrixRankWarning, match="exactly singular"):
        assert np.isnan(sla.spsolve(singular, np.ones(3))).all()
    with pytest.warns(krylix.SingularMatrixWarning, match="a pivot is zero"):
        x = sla.spsolve(singular, np.array([1.0, 2.0, 0.0]))  # it has solutions
    assert np.allclose(x, [1, 1, 0])
    for solve in (sla.cg, sla.gmres, sla.minres):  # info says that there is none, and without a warning
        assert solve(singular, np.ones(3))[1] != 0 == solve(singular, np.array([1.0, 2.0, 0.0]))[1]
    with warnings.catch_warnings(action="error"):  # regular, by its factors
        assert not sla.spsolve(sp.csc_array(hilbert(12)), np.zeros(12)).any()
    for size in (3, 80):  # dense and sparse
        with warnings.catch_warnings(record=True, action="always") as seen:
            assert np.isnan(sla.spsolve(sp.csc_array(np.ones((size, size))), np.zeros(size))).all()
        assert [w.category for w in seen] == [spl.MatrixRankWarning]
    with pytest.raises(ValueError, match="no method"):
        sla.spsolve(singular, np.zeros(3), method="no method")
    with pytest.raises(RuntimeError, match="Factor is exactly singular"):
        sla.splu(sp.csc_array((3, 3)))


def test_splu_has_less_fill_where_that_is_safe() -> None:
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(40, 40))
    A = sp.kronsum(line, line, format="csc")
    ours, theirs = sla.splu(A), spl.splu(A)
    assert type(ours) is type(theirs) and ours.nnz < 0.8 * theirs.nnz
    b = np.random.default_rng(0).standard_normal((A.shape[0], 2))
    for trans in "NTH":
        assert np.allclose(ours.solve(b, trans), theirs.solve(b, trans))
    rows = sp.csc_array((np.ones(A.shape[0]), (ours.perm_r, np.arange(A.shape[0]))))
    columns = sp.csc_array((np.ones(A.shape[0]), (np.arange(A.shape[0]), ours.perm_c)))
    assert abs(rows @ A @ columns - ours.L @ ours.U).max() < 1e-12
    assert sla.splu(A, permc_spec="COLAMD").nnz == theirs.nnz
    assert np.allclose(sla.factorized(A)(b), ours.solve(b))


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.spsolve(tridiagonal().toarray(), right_side()),
        lambda m: m.splu(tridiagonal()),
        lambda m: m.factorized(tridiagonal()),
        lambda m: m.spsolve_triangular(np.tril(tridiagonal().toarray()), right_side()),
    ],
)
def test_warnings_name_the_line_of_the_user(call: Callable[[Any], Any]) -> None:
    found = []
    for module in (sla, spl):
        with pytest.warns(sp.SparseEfficiencyWarning) as record:
            call(module)
        found.append([str(warning.message) for warning in record])
        assert module is spl or {warning.filename for warning in record} == {__file__}
    assert found[0] == found[1]


BAD: dict[str, dict[str, Any]] = {
    "shape": {"b": right_side()[:-1]},
    "not square": {"A": tridiagonal()[:, :4]},
    "x0": {"x0": np.ones(3)},
    "M": {"M": sp.eye_array(3)},
    "old tol": {"tol": 1e-5},
    "atol": {"atol": -1.0},  # MINRES has none
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", ITERATIVE)
def test_errors_are_those_of_scipy(name: str, bad: str) -> None:
    given, kinds = {"A": tridiagonal(), "b": right_side()} | BAD[bad], []
    for module in (spl, sla):
        with pytest.raises((ValueError, TypeError)) as error:
            getattr(module, name)(**given)
        kinds.append(error.type)
    assert kinds[0] is kinds[1]


@pytest.mark.parametrize("library", [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("torch", "jax")])
@pytest.mark.parametrize("name", ["cg", "gmres", "spsolve", "lgmres"])
def test_arrays_of_other_libraries(library: str, name: str) -> None:
    A, b = tridiagonal(), right_side().astype(np.float32)
    found = getattr(sla, name)(A.astype(np.float32), krylix.convert(b, library))
    x = found if name == "spsolve" else found[0]
    assert krylix.choose_backend(x).name == library
    assert residual(A, np.asarray(x), b) < 1e-4
    assert name == "spsolve" or found[1] == 0


@pytest.mark.needs("jax")
def test_inside_jit() -> None:
    import jax

    A, b = tridiagonal().astype(np.float32), right_side().astype(np.float32)
    x, info = jax.jit(lambda b: sla.cg(A, b, maxiter=200))(b)
    assert int(info) == 0 and residual(A, np.asarray(x), b) < 1e-4
    assert int(jax.jit(lambda b: sla.cg(A, b, maxiter=2))(b)[1]) == 2


@pytest.mark.needs("torch")
def test_derivatives() -> None:
    import torch

    A = tridiagonal(skew=0.3)
    inverse = np.linalg.inv(A.toarray())
    for solve in (sla.spsolve, lambda A, b: sla.bicgstab(A, b, rtol=1e-12)[0]):
        b = torch.tensor(right_side(), requires_grad=True)
        solve(A, b)[3].backward()
        assert np.allclose(b.grad.numpy(), inverse[3], atol=1e-9)


def test_functions_and_operators_of_krylix() -> None:
    A, b = tridiagonal(), right_side()
    operator = krylix.as_operator(A)
    of_functions = [(name, lambda v: A @ v) for name in ("cg", "gmres", "cgs")]
    for name, given in [*of_functions, *((name, operator) for name in ("cg", "gmres", "bicg", "lgmres"))]:
        x, info = getattr(sla, name)(given, b, rtol=1e-9)
        assert info == 0 and residual(A, x, b) <= 1e-9 * np.linalg.norm(b)
    assert residual(A, sla.spsolve(operator, b), b) < 1e-9


@pytest.mark.needs("torch")
def test_gmres_calls_back_with_numpy_only() -> None:
    import torch

    with pytest.raises(TypeError, match="takes arrays of NumPy; got Tensor"):
        sla.gmres(tridiagonal(), torch.ones(N), callback=print, callback_type="x")


def test_gmres_with_a_singular_preconditioner() -> None:
    """As SciPy's test of a defective one, but for rounding: the solution is right outside of the null space of M."""
    A, M, b = np.diag([2.0, 3.0, 4.0]), np.diag([1.0, 1.0, 0.0]), np.array([0.0, 1.0, 1.0])
    x, info = sla.gmres(A, b, x0=np.array([1.0, 0.0, 0.0]), M=M, rtol=1e-15, atol=0)
    assert np.isfinite(x).all() and (info != 0 or np.linalg.norm(A @ x - b) <= 1e-15 * np.linalg.norm(b))
    np.testing.assert_allclose(M @ (A @ x), M @ b, atol=1e-15)


def test_minres_says_what_it_takes() -> None:
    """In our words, where SciPy's own function only says that a preconditioner is indefinite."""
    A, b = np.diag([1.0, 2.0, 4.0]), np.ones(3)
    with pytest.raises(TypeError, match=r"shift=0.5j; expected a real number"):
        sla.minres(A, b, shift=0.5j)
    with pytest.raises(TypeError, match="A of type function; expected a matrix or LinearOperator"):
        sla.minres(lambda x: A @ x, b, shift=0.5)
    with pytest.raises(ValueError, match=r"MINRES needs a Hermitian matrix.*takes real numbers only"):
        sla.minres((1 + 1j) * A, b)

    class WithoutDtype:
        shape, matvec = (3, 3), staticmethod(lambda x: A @ x)

    for given in (A.tolist(), WithoutDtype()):
        np.testing.assert_allclose(sla.minres(given, b, shift=0.5, rtol=1e-12)[0], 1 / (np.diag(A) - 0.5))
