"""The backend of any library of the array API standard, on array_api_strict, which has nothing beyond the standard."""

import ast
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp

import krylix
from called import numbers as all_numbers
from cells import in_turn
from frameworks import torch
from krylix import choose_backend, linear_solve
from krylix.backends import registry
from krylix.backends.operations.table import OPERATIONS
from krylix.solvers import METHODS
from older_library import older
from operation_samples import GROUPS, NAMES, evaluate, of_group, operands

xp = pytest.importorskip("array_api_strict")

N = 8
RNG = np.random.default_rng(3)
DIAGONALS = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(N, N)).tocsr()
OTHER = xp.Device("device1")


def scattered() -> sp.csr_array:
    """Symmetric, positive definite, with rows of few entries and one full row."""
    half = sp.random_array((N, N), density=0.1, rng=np.random.default_rng(1)).tolil()
    half[0, :] = 0.1
    return (half + half.T + 4 * sp.eye_array(N)).tocsr()


MATRICES = {"diagonals": DIAGONALS, "scattered": scattered(), "dense": DIAGONALS.toarray() + 0.01}
B = RNG.standard_normal((3, N))


def array(x: Any, device: Any = None) -> Any:
    return xp.asarray(np.asarray(x), device=device)


def numbers(x: Any) -> np.ndarray:
    return np.asarray(choose_backend(x).to_numpy(x))


BK = choose_backend(array([1.0]))


def given(kind: str, device: Any = None, dtype: Any = np.float64) -> Any:
    A = MATRICES[kind].astype(dtype)
    return array(A, device) if isinstance(A, np.ndarray) else A


def dense(kind: str) -> np.ndarray:
    A = MATRICES[kind]
    return A if isinstance(A, np.ndarray) else A.toarray()


# ---- solves


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        *in_turn([m for m in METHODS if m not in ("fast-direct", "banded-direct")], MATRICES),
        ("banded-direct", "diagonals"),
    ],
)
def test_every_method(method: str, kind: str) -> None:
    result = linear_solve(given(kind), array(B[0]), method=method, rtol=1e-9)
    assert BK.is_array(result.x) and BK.is_array(result.residual) and result.x.dtype == xp.float64
    np.testing.assert_allclose(numbers(result.x), np.linalg.solve(dense(kind), B[0]), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
@pytest.mark.parametrize("method", ["biCG-stab(2)", "direct", "scipy-direct"])
def test_dtypes(method: str, dtype: Any) -> None:
    b = (B[0] + (1j * B[1] if np.dtype(dtype).kind == "c" else 0)).astype(dtype)
    for kind in ("scattered", "dense"):
        result = linear_solve(given(kind, dtype=dtype), array(b), method=method)
        assert BK.dtype(result.x) == dtype
        tolerance = 1e-3 if np.finfo(dtype).bits == 32 else 1e-8
        np.testing.assert_allclose(numbers(result.x), np.linalg.solve(dense(kind), b), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        *(("CG", kind) for kind in ("diagonals", "scattered", "dense", "batch", "function")),
        *(("biCG-stab(2)", "scattered"), ("GMRES(4)", "scattered"), ("MINRES", "diagonals"), ("IDR(2)", "dense")),
        *(("direct", kind) for kind in ("scattered", "dense", "batch")),
    ],
)
def test_a_batch_equals_single_solves(method: str, kind: str) -> None:
    """To the last digit: also beside rows that are scaled, zero or not finite."""
    b = np.stack([B[0], 1e6 * B[1], 0 * B[2], np.where(np.arange(N) == 2, np.nan, B[0]), 1e-3 * B[2]])
    several = np.stack([dense("dense") + 0.1 * i for i in range(len(b))])
    own = array(dense("scattered"))

    def A(i: int | None) -> Any:
        if kind == "function":
            return lambda x: xp.matmul(own, x[..., None])[..., 0]
        if kind == "batch":
            return array(several if i is None else several[i])
        return given(kind)

    def solved(A: Any, b: np.ndarray, batch_ndim: int) -> Any:
        batch_ndim = batch_ndim if kind == "function" else 0
        return linear_solve(A, array(b), method=method, on_failure="status", batch_ndim=batch_ndim)

    together = solved(A(None), b, 1)
    for i, row in enumerate(b):
        alone = solved(A(i), row, 0)
        np.testing.assert_array_equal(numbers(together.x)[i], numbers(alone.x))
        assert numbers(together.iterations)[i] == numbers(alone.iterations)
        assert numbers(together.status)[i] == numbers(alone.status)


@pytest.mark.parametrize("preconditioner", ["jacobi", "ssor", "chebyshev", "ilu", "ic", "cluster", "auto"])
def test_preconditioners(preconditioner: str) -> None:
    for kind in ("diagonals", "scattered"):
        result = linear_solve(given(kind), array(B), method="CG", preconditioner=preconditioner, rtol=1e-9)
        np.testing.assert_allclose(numbers(result.x), np.linalg.solve(dense(kind), B.T).T, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("method", ["direct", "scipy-direct", "MINRES", "GMRES"])
def test_singular_systems(method: str) -> None:
    A = DIAGONALS.toarray() - 0.5 * np.eye(N)
    A[0, 0] = A[-1, -1] = 1
    b = B[0] - B[0].mean()
    for matrix in (sp.csr_array(A), array(A)):
        x = numbers(linear_solve(matrix, array(b), method=method).x)
        np.testing.assert_allclose(x - x.mean(), np.linalg.lstsq(A, b)[0], atol=1e-7)


def test_functions_and_containers() -> None:
    def laplace(u: Any) -> Any:
        row = xp.zeros((1, 5), dtype=u.dtype, device=u.device)
        return 2.5 * u - xp.concat([u[1:, :], row], axis=0) - xp.concat([row, u[:-1, :]], axis=0)

    b = RNG.standard_normal((N, 5))
    for method in ("auto", "CG", "direct"):
        x = numbers(linear_solve(laplace, array(b), method=method).x)
        np.testing.assert_allclose(x, np.linalg.solve(DIAGONALS.toarray(), b), atol=1e-7)
    coupled = {"u": array(B[0]), "v": array(B[1])}
    x = linear_solve(lambda w: {"u": 2 * w["u"] + w["v"], "v": 3 * w["v"]}, coupled, method="GMRES").x
    np.testing.assert_allclose(numbers(x["v"]), B[1] / 3, atol=1e-8)


def test_a_function_may_write_to_its_argument() -> None:
    """The standard has no arrays that refuse it, so it gets a copy."""

    def A(x: Any) -> Any:
        x *= 3
        return x

    np.testing.assert_allclose(numbers(linear_solve(A, array(B[0]), method="CG").x), B[0] / 3)


def test_failures_are_not_silent() -> None:
    with pytest.raises(krylix.NotConverged) as caught:
        linear_solve(DIAGONALS, array(B), method="CG", max_iter=2)
    assert BK.is_array(caught.value.result.x)
    x = linear_solve(DIAGONALS, array(B), method="CG", max_iter=2, on_failure="nan").x
    assert np.isnan(numbers(x)).all()
    broken = array(np.where(DIAGONALS.toarray() == 2.5, np.inf, DIAGONALS.toarray()))
    with pytest.raises((ValueError, krylix.ConvergenceError), match=r"finite|infinit|NaN"):
        linear_solve(broken, array(B[0]), method="CG")


def test_prepared_solvers_history_and_checkpoints() -> None:
    solver = krylix.prepare(DIAGONALS, array(B[0]), method="CG", preconditioner="jacobi")
    np.testing.assert_allclose(numbers(solver.solve(array(B[0])).x), np.linalg.solve(DIAGONALS.toarray(), B[0]))
    kept = linear_solve(DIAGONALS, array(B[0]), method="CG", history=True, max_iter=[1, 5, 100])
    assert tuple(kept.x.shape) == (3, N) and kept.history is not None


# ---- matrices


@pytest.mark.parametrize("format", ["csr", "csc", "coo", "dia", "ell", "hyb", "dense"])
def test_products_of_every_format(format: str) -> None:
    A = krylix.as_operator(MATRICES["scattered"], array(B[0])).to(format)
    own = dense("scattered")
    np.testing.assert_allclose(numbers(A @ array(B[0])), own @ B[0], atol=1e-13)
    np.testing.assert_allclose(numbers(A.T.apply(array(B))), B @ own, atol=1e-13)
    np.testing.assert_array_equal(A.toarray(), own)
    np.testing.assert_array_equal((A.native("numpy") @ np.eye(N)), own)


def test_segment_sums_follow_their_indices() -> None:
    ids, values = RNG.integers(0, 40, 900), RNG.standard_normal((900, 2))
    for _ in range(2):  # written to in between
        expected = np.zeros((50, 2))
        np.add.at(expected, ids, values)
        found = BK.segment_sum(array(values), ids, 50)
        np.testing.assert_allclose(numbers(found), expected, atol=1e-13)
        np.testing.assert_array_equal(numbers(BK.take_in_bounds(array(np.arange(40.0)), ids)), ids)
        ids[::3] = 7
    assert tuple(BK.segment_sum(array(np.ones((0, 2))), np.zeros(0, int), 3).shape) == (3, 2)
    assert numbers(BK.segment_sum(array([np.nan, 1.0, 2.0]), np.array([0, 1, 1]), 2))[1] == 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("shape", [(1, 1), (7, 7), (3, 16, 16)])
def test_factors(shape: tuple[int, ...], dtype: Any) -> None:
    M = (RNG.standard_normal(shape) + (1j * RNG.standard_normal(shape) if dtype == np.complex128 else 0)).astype(dtype)
    b = RNG.standard_normal((3, shape[-1])).astype(dtype)
    eps = float(np.finfo(dtype).eps) * 1e4
    linalg, factors = BK.linalg, BK.linalg.lu_factor(array(M))
    for transposed in (False, True):
        x = numbers(linalg.lu_solve(factors, array(b), transposed))
        of = np.swapaxes(M, -1, -2) if transposed else M
        np.testing.assert_allclose((of @ x[..., None])[..., 0], b, atol=eps)
    H = M @ np.swapaxes(M, -1, -2).conj() + np.eye(shape[-1], dtype=dtype)
    factor = linalg.cholesky(array(H))
    np.testing.assert_allclose(numbers(factor), np.linalg.cholesky(H), atol=eps * 10)
    np.testing.assert_allclose((H @ numbers(linalg.cholesky_solve(factor, array(b)))[..., None])[..., 0], b, atol=eps)
    assert linalg.cholesky(array(-H)) is None
    if len(shape) == 2 and dtype == np.float64:  # of complex numbers, LAPACK compares other sizes
        np.testing.assert_allclose(numbers(factors[0]), scipy.linalg.lu_factor(M)[0], atol=eps)


def test_factors_of_singular_matrices_do_not_raise() -> None:
    for M in (np.zeros((4, 4)), np.ones((4, 4)), np.full((4, 4), np.nan)):
        lu, _ = BK.linalg.lu_factor(array(M))
        assert not (np.abs(np.diag(numbers(lu)))[1:] > 0).any()
        BK.linalg.inverse(array(M)[None, ...])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_powers_of_two(dtype: Any) -> None:
    f = np.finfo(dtype)
    x = np.array([0, 1, 3, 0.25, 0.3, f.tiny, 1.5 * f.tiny, f.max, np.inf, 1 - f.eps / 2, 4 - 4 * f.eps, 1e-30], dtype)
    np.testing.assert_array_equal(
        numbers(BK.unit_in_first_place(array(x))), choose_backend("numpy").unit_in_first_place(x)
    )


# ---- devices


@pytest.mark.parametrize("method", ["CG", "direct", "scipy-direct"])
def test_nothing_leaves_its_device(method: str) -> None:
    for kind in MATRICES:
        result = linear_solve(given(kind, OTHER), array(B, OTHER), method=method)
        assert result.x.device == result.residual.device == OTHER
        np.testing.assert_allclose(numbers(result.x), np.linalg.solve(dense(kind), B.T).T, atol=1e-7)
    own = array(dense("scattered"), OTHER)
    assert linear_solve(lambda x: xp.matmul(own, x), array(B[0], OTHER), method=method).x.device == OTHER
    assert linear_solve(DIAGONALS, array(B[0], OTHER), method=method, matrix_offset=0.01).x.device == OTHER


def test_two_devices_are_refused() -> None:
    with pytest.raises(ValueError, match=r"device1.*CPU_DEVICE.*move"):
        linear_solve(array(dense("dense"), OTHER), array(B[0]))
    with pytest.raises(ValueError, match="x0 is on"):
        linear_solve(DIAGONALS, array(B[0]), x0=array(B[0], OTHER))


def test_devices_of_new_arrays() -> None:
    names = [device.name for device in BK.list_devices()]
    assert names[:2] == ["CPU_DEVICE", "device1"] and BK.default_device.name == "CPU_DEVICE"
    with BK.on_device("device1") as device:
        assert BK.default_device == device and BK.xp.zeros(2).device == OTHER
        assert krylix.convert([1.0], BK).device == OTHER
        assert BK.xp.asarray(array([1.0])).device == xp.Device("CPU_DEVICE")
    assert BK.get_device(BK.to_device(array([1.0]), device)) == device
    assert krylix.convert(array([1.0, 2.0], OTHER), "numpy").tolist() == [1, 2]


# ---- its place among the backends


def test_first_sight_and_names() -> None:
    assert choose_backend("array_api_strict") is choose_backend([array([1])], np.ones(2)) is BK
    assert BK.name == "array_api_strict" and pickle.loads(pickle.dumps(BK)) is BK
    assert choose_backend(np.ones(2), DIAGONALS).name == "numpy"
    with BK:
        assert krylix.context_backend() is BK and BK.is_array(krylix.convert([1.0, 2.0]))
        assert choose_backend(np.ones(2), prefer_default=True) is BK
        assert choose_backend(np.ones(2)).name == "numpy"
    assert krylix.context_backend() is None


@pytest.mark.needs("torch")
def test_libraries_do_not_mix() -> None:
    with pytest.raises(krylix.NoBackendFound, match=r"array_api_strict and torch.*convert"):
        linear_solve(DIAGONALS, array(B[0]), x0=torch.ones(N, dtype=torch.float64))
    x = krylix.convert(array(B), "torch")
    np.testing.assert_array_equal(x.numpy(), B)
    np.testing.assert_array_equal(numbers(krylix.convert(x, BK)), B)


TWICE = (lambda x: 2 * x, array(B[0]))
REFUSED = {
    "matrix_from_function": (lambda: krylix.matrix_from_function(*TWICE), "array_api_strict.*traced"),
    "jacobian_matrix": (lambda: krylix.jacobian_matrix(*TWICE), "array_api_strict.*traced"),
    "fast": (lambda: linear_solve(*TWICE, method="fast-direct"), "two axes|array_api_strict.*traced"),
    "vjp": (lambda: linear_solve(DIAGONALS, array(B[0])).vjp(array(B[0])), "array_api_strict.*no derivatives"),
    "jacobian": (lambda: BK.jacobian(lambda x: x)(array(B[0])), "array_api_strict has no derivatives"),
    "native": (lambda: krylix.as_operator(DIAGONALS, array(B[0])).native(), "no sparse.*array_api_strict"),
    "sparse": (lambda: krylix.convert(DIAGONALS, BK), "no sparse.*array_api_strict"),
    "dtype": (lambda: krylix.convert(np.ones(2, np.float16), BK), "array_api_strict has no.*float16"),
    "minimize": (lambda: krylix.minimize(lambda x: BK.sum(x * x, 0), array(B[0])), "array_api_strict.*no derivatives"),
    "solve_nonlinear": (lambda: krylix.solve_nonlinear(*TWICE), "array_api_strict.*no derivatives"),
    "erf": (lambda: BK.erf(array(B[0])), "array_api_strict has no erf.*supports"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_the_standard_has_not_is_refused_by_name(what: str) -> None:
    call, message = REFUSED[what]
    with pytest.raises((TypeError, AttributeError, krylix.UnsupportedOperation), match=message):
        call()


def test_supports() -> None:
    lacking = {name for name in OPERATIONS if not BK.supports(name)}
    assert {"erf", "jacobian", "hessian"} <= lacking and not lacking & set(dir(xp))
    assert BK.supports("arcsin") and BK.supports("linalg.eigh") and BK.supports("fft.rfft") and BK.supports("product")
    assert not BK.supports("linalg.nothing") and not BK.supports("nothing") and not BK.supports("_reference")
    numpy = choose_backend("numpy")
    assert numpy.supports("erf") and not numpy.supports("jacobian")
    with krylix.profile():  # in which something stands for each name
        assert {name for name in OPERATIONS if not BK.supports(name)} == lacking
        assert BK.supports("linalg.eigh") and BK.supports("product") and not BK.supports("linalg.nothing")
        assert numpy.supports("erf") and not numpy.supports("jacobian")


def test_the_standard_with_the_promotion_rule() -> None:
    own = BK.xp
    assert own.add(array(np.ones(2, np.int32)), array(np.ones(2, np.float32))).dtype == xp.float32
    assert own.add(array(np.ones(2, np.float32)), array(1.0)).dtype == xp.float64
    assert own.sqrt(array([1, 4])).dtype == own.mean(array([1, 2])).dtype == xp.float64
    assert own.sum(array(np.ones(300, np.int8))).dtype == xp.int64
    np.testing.assert_array_equal(numbers(own.multiply(array([1.0, 2.0]), np.array([3.0, 4.0]))), [3, 8])
    with krylix.precision(32):
        assert own.zeros(2).dtype == xp.float32 and own.asarray([1, 2]).dtype == xp.int64
    np.testing.assert_allclose(numbers(own.linalg.svdvals(array(np.diag([3.0, 1.0])))), [3, 1])
    np.testing.assert_allclose(numbers(BK.sigmoid(array([0.0]))), [0.5])


def test_an_older_standard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `linalg`, `maximum` and facts about itself it solves, too."""
    loaded = {name: backend for name, backend in registry._loaded.items() if backend is not BK}
    monkeypatch.setattr(registry, "_loaded", loaded)
    monkeypatch.setattr(registry, "_known_types", {})
    bk = krylix.register_backend(older(xp))
    assert bk.default_device.name == "CPU_DEVICE" and not bk.supports("linalg.eigh") and bk.supports("sin")
    factors = bk.linalg.lu_factor(array(dense("dense")))
    np.testing.assert_allclose(
        bk.to_numpy(bk.linalg.lu_solve(factors, array(B))), np.linalg.solve(dense("dense"), B.T).T, atol=1e-12
    )
    for kind, method in (("diagonals", "CG"), ("dense", "CG"), ("scattered", "MINRES"), ("dense", "direct")):
        x = linear_solve(given(kind), array(B[0]), method=method).x
        assert choose_backend(x) is bk
        np.testing.assert_allclose(bk.to_numpy(x), np.linalg.solve(dense(kind), B[0]), atol=1e-7)
    y = np.array([2.0, np.nan, 3.0])
    real = array(y)
    assert all(part(real) is real for part in (bk.real, bk.conj, bk.xp.real, bk.xp.conj))  # and not a copy
    np.testing.assert_array_equal(bk.to_numpy(bk.conj(array([1j, 2]))), [-1j, 2])
    for found in (bk.maximum(array(y), array(y[::-1])), bk.maximum(array(y), 2.5), bk.xp.maximum(y, array(y) - 1)):
        assert bk.is_array(found)
    np.testing.assert_array_equal(bk.to_numpy(bk.maximum(array(y), array(y[[1, 0, 0]]))), [np.nan, np.nan, 3])


# ---- operations


class _Converted(ast.NodeTransformer):
    """Parts of operands are taken in NumPy: brackets of the standard name all axes."""

    def __init__(self, own: dict[str, Any]) -> None:
        self.own = own

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        if not isinstance(node.value, ast.Name) or node.value.id not in NAMES:
            return self.generic_visit(node)
        name = f"part{len(self.own)}"
        self.own[name] = evaluate(ast.unparse(node), **self.own)
        return ast.Name(name)


DTYPES_OF = {"f": ("float32", "float64"), "c": ("complex64", "complex128"), "i": ("int32",), "b": ("bool",)}


@pytest.mark.parametrize("group", GROUPS)
def test_operations(group: str) -> None:
    """In each dtype, which is that of the same call in NumPy."""
    numpy = choose_backend("numpy")
    for sample in of_group(group):
        for dtype in (dtype for kind in sample.kinds for dtype in DTYPES_OF[kind]):
            own = dict(operands(dtype))
            expected = evaluate(sample.expected, bk=numpy, **own)
            like = evaluate(sample.call, bk=numpy, **own)
            call = ast.unparse(_Converted(own).visit(ast.parse(sample.call)))
            arrays = {name: x if np.ndim(x) == 0 and name not in NAMES else array(x) for name, x in own.items()}
            if not BK.supports(sample.name) or sample.call == "bk.factorial(positive)":  # by lgamma
                with pytest.raises(AttributeError, match=r"array_api_strict has no .*supports"):
                    evaluate(call, bk=BK, **arrays)
                continue
            eps = 1e-3 if dtype in ("float32", "complex64") else 1e-9
            found = evaluate(call, bk=BK, **arrays)
            for x, y, z in zip(*(all_numbers(BK, result) for result in (found, expected, like)), strict=True):
                np.testing.assert_allclose(x, y, eps, eps, err_msg=f"{sample.call} {dtype}")
                assert x.dtype == z.dtype, f"{sample.call} {dtype}"
