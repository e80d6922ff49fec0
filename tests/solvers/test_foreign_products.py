"""Products that are not ours are not believed: what they write, their size, kind and precision, and their adjoints."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse.linalg as spl

import krylix
from cells import METHOD_NAMES
from frameworks import torch
from gradients import gradients
from krylix import as_operator, linear_solve, prepare
from krylix.sparse import UnsupportedOperation
from modes import EAGER, MODES, array, compiled, library, product, to_numpy

N = 12
RNG = np.random.default_rng(0)
G = RNG.standard_normal((N, N))
GENERAL, SYMMETRIC = G + 8 * np.eye(N), G @ G.T + 3 * np.eye(N)
HERMITIAN = SYMMETRIC + 1j * (G - G.T)
B = RNG.standard_normal(N)
LEAST_SQUARES = ("LSMR", "CGLS", "scipy-lsqr", "scipy-lsmr")
TRANSPOSED = (*LEAST_SQUARES, "scipy-biCG", "scipy-QMR")


def writing(v: np.ndarray) -> np.ndarray:
    image = SYMMETRIC @ v
    v[0] = 0
    return image


def writing_unseen(v: np.ndarray) -> np.ndarray:
    """As compiled code does, which looks at no flags."""
    image = SYMMETRIC @ v
    ctypes.memmove(v.ctypes.data, np.full(1, 7, v.dtype).ctypes.data, v.itemsize)
    return image


def too_many(v: np.ndarray) -> np.ndarray:
    return np.ones(N + 1)


class Duck:
    """Of the interface of a LinearOperator, without its checks."""

    def __init__(self, matvec: Callable[..., Any], rmatvec: Any = None, dtype: Any = float, shape: Any = (N, N)):
        self.matvec, self.rmatvec, self.dtype, self.shape = matvec, rmatvec or matvec, np.dtype(dtype), shape


# what it does, the operator, what the message says
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "writes": (lambda: spl.LinearOperator((N, N), writing, writing, dtype=float), r"writes to its argument.*x\.copy"),
    "writes unseen": (
        lambda: spl.LinearOperator((N, N), writing_unseen, writing_unseen, dtype=float), "writes to its argument"
    ),
    "complex": (
        lambda: spl.LinearOperator((N, N), lambda v: HERMITIAN @ v, lambda v: HERMITIAN @ v, dtype=float),
        r"matvec of (A|preconditioner) returned complex128 for a vector of float.*dtype=complex",
    ),
    "size": (lambda: Duck(too_many), r"matvec of (A|preconditioner) returned .*\(13,\); expected"),
    "size in SciPy": (lambda: spl.LinearOperator((N, N), too_many, too_many, dtype=float), "size 13.*expected"),
    "objects": (lambda: Duck(lambda v: np.array([None] * N)), "returned object"),
}  # fmt: skip


@pytest.mark.parametrize("method", METHOD_NAMES)
@pytest.mark.parametrize("wrong", WRONG)
def test_linear_operators_of_every_method(wrong: str, method: str) -> None:
    make, message = WRONG[wrong]
    with pytest.raises((ValueError, TypeError), match=message):
        linear_solve(make(), B.copy(), method=method)


@pytest.mark.compiled_by_default(modes=("jax-jit",))
@pytest.mark.parametrize("as_", ["A", "M"])
@pytest.mark.parametrize("mode", MODES)
def test_linear_operators_of_every_library(mode: str, as_: str) -> None:
    """As A and as a preconditioner, and in a batch, which SciPy's matmat would take at once."""
    for wrong in WRONG if mode in EAGER else ("writes", "complex"):
        make, message = WRONG[wrong]
        operators = {"A": make()} if as_ == "A" else {"A": SYMMETRIC, "M": make()}

        def run(b: Any, operators: Any = operators) -> Any:
            return linear_solve(operators["A"], b, method="CG", preconditioner=operators.get("M")).x

        with pytest.raises(Exception, match=message):
            compiled(mode, run)(array(mode, np.stack([B, 2 * B]) if wrong == "writes" else B))


@pytest.mark.parametrize("mode", EAGER)
def test_functions(mode: str) -> None:
    """A function that returns other kinds than it is given, as A and as a preconditioner."""
    bk = krylix.choose_backend(library(mode))
    matrix, other = array(mode, SYMMETRIC), array(mode, HERMITIAN)
    A, b = product(mode, matrix), array(mode, B)

    def complex_(x: Any) -> Any:
        return product(mode, other)(bk.astype(x, np.dtype("complex128")))

    for problem in (lambda: linear_solve(complex_, b), lambda: linear_solve(A, b, preconditioner=complex_)):
        with pytest.raises(TypeError, match="complex128"):
            problem()

    def single(x: Any) -> Any:
        return bk.astype(A(x), np.dtype("float32"))

    with pytest.raises(TypeError, match=r"A\(x\) returned float32 for an argument of float64.*autocast"):
        linear_solve(single, b, method="CG")
    rounding = linear_solve(A, b, method="CG", preconditioner=lambda r: single(r) * 0 + bk.astype(r, np.dtype("f4")))
    np.testing.assert_allclose(to_numpy(rounding.x), np.linalg.solve(SYMMETRIC, B), rtol=1e-8)  # M may round


@pytest.mark.parametrize("name", ["data", "numpy", "ctypes"])
@pytest.mark.needs("torch")
def test_writes_that_the_library_does_not_see(name: str) -> None:
    def hidden(x: Any) -> Any:
        image = 3 * x
        if name == "data":
            x.data[0] = 7
        elif name == "numpy":
            x.detach().numpy()[0] = 7
        else:
            ctypes.memmove(x.data_ptr(), np.full(1, 7.0).ctypes.data, 8)
        return image

    for b in (torch.tensor(B), torch.tensor(B, requires_grad=True)):
        with pytest.raises(ValueError, match="writes to its argument"):
            linear_solve(hidden, b, method="CG")
        with pytest.raises(ValueError, match="writes to its argument"):
            linear_solve(lambda x: 2 * x, b, method="CG", preconditioner=hidden)


def test_memory_that_is_asked_for_and_not_written() -> None:
    """Compiled code that takes writable memory only: it gets copies."""
    calls = []

    def asks(v: np.ndarray) -> np.ndarray:
        if not v.flags.writeable:
            raise ValueError("buffer source array is read-only")  # as Cython says
        calls.append(v)
        return SYMMETRIC @ v

    def asks_and_writes(v: np.ndarray) -> np.ndarray:
        image = asks(v)
        v *= 0
        return image

    want = np.linalg.solve(SYMMETRIC, B)
    for A in (asks, spl.LinearOperator((N, N), asks, asks, dtype=float)):
        for method in ("CG", "scipy-CG", "scipy-biCG") if A is not asks else ("CG", "scipy-CG"):
            np.testing.assert_allclose(linear_solve(A, B, method=method).x, want, rtol=1e-7)
    for A in (asks_and_writes, spl.LinearOperator((N, N), asks_and_writes, dtype=float)):
        with pytest.raises(ValueError, match="writes to its argument"):
            linear_solve(A, B, method="CG")

    own = np.broadcast_to(1.0, N)  # memory of the function's own is no argument

    def writes_elsewhere(v: np.ndarray) -> np.ndarray:
        own[0] = 1
        return v

    with pytest.raises(ValueError, match=r"^assignment destination is read-only$"):
        linear_solve(writes_elsewhere, B, method="CG")


MIXED = {
    "complex first": (B[:5] + 1j, B[5:]),
    "real first": (B[:5], B[5:] * 1j),
    "single": (B[:5].astype("complex64"), B[5:]),
    "integers": (B[:5], np.arange(7)),
}


@pytest.mark.compiled_by_default(modes=("jax-jit", "tf"))
@pytest.mark.parametrize("mode", MODES)
def test_containers_of_several_kinds(mode: str) -> None:
    """x is complex in all arrays where it is in one; integers hold none of it."""
    bk = krylix.choose_backend(library(mode))
    for name, (u, v) in MIXED.items() if mode in EAGER else [("complex first", MIXED["complex first"])]:
        matrix = GENERAL + (1j * SYMMETRIC if name != "integers" else 0)
        native, dtype = array(mode, matrix), matrix.dtype

        def A(t: Any, native: Any = native, dtype: Any = dtype) -> Any:
            x = bk.concat([bk.astype(t["u"], dtype), bk.astype(t["v"], dtype)], 0)
            y = product(mode, native)(x)
            return {"u": y[:5], "v": y[5:]}

        found = compiled(mode, lambda u, v, A=A: linear_solve(A, {"u": u, "v": v}, method="GMRES", rtol=1e-6).x)(
            array(mode, u), array(mode, v)
        )
        x = np.concatenate([to_numpy(found["u"]), to_numpy(found["v"])])
        assert x.dtype == dtype and to_numpy(found["u"]).dtype == ("complex64" if name == "single" else dtype)
        np.testing.assert_allclose(x, np.linalg.solve(matrix, np.concatenate([u, v])), rtol=1e-4, err_msg=name)


def counted(matrix: np.ndarray, adjoint: np.ndarray) -> tuple[Any, list[int]]:
    """A LinearOperator, and how often each product was made."""
    counts = [0, 0]

    def times(which: int, m: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        def product(v: np.ndarray) -> np.ndarray:
            counts[which] += 1
            return m @ v

        return product

    return spl.LinearOperator(matrix.shape, times(0, matrix), times(1, adjoint), dtype=matrix.dtype), counts


ADJOINTS = {  # what it returns for A^H
    "A": (GENERAL, GENERAL),
    "the transpose": (GENERAL + 1j * G, (GENERAL + 1j * G).T),
    "a part": (GENERAL, np.tril(GENERAL.T)),
    "a factor": (GENERAL, (1 + 1e-6) * GENERAL.T),
    "rectangular": (GENERAL[:, :8], 2 * GENERAL[:, :8].T),
}


@pytest.mark.parametrize("method", TRANSPOSED)
@pytest.mark.parametrize("wrong", ADJOINTS)
def test_wrong_adjoints(wrong: str, method: str) -> None:
    matrix, adjoint = ADJOINTS[wrong]
    A, _ = counted(matrix, adjoint)
    if wrong == "rectangular" and method not in LEAST_SQUARES[:2]:
        pytest.skip("of square systems only")
    with pytest.raises(ValueError, match=r"rmatvec of A is not the adjoint.*conjugate transpose"):
        linear_solve(A, B + 0j if matrix.dtype.kind == "c" else B, method=method)


@pytest.mark.compiled_by_default(modes=("jax-jit", "tf"))
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "torch-compile"])  # where Dynamo raises its own
def test_wrong_adjoints_of_derivatives(mode: str) -> None:
    """The solve needs none; its reverse derivative does, once a solve for it begins."""
    A, _ = counted(GENERAL, GENERAL)
    solve = lambda b: linear_solve(A, b, method="biCG-stab").x  # noqa: E731
    np.testing.assert_allclose(to_numpy(compiled(mode, solve)(array(mode, B))), np.linalg.solve(GENERAL, B), rtol=1e-7)
    with pytest.raises(Exception, match="rmatvec of A is not the adjoint"):
        if mode == "numpy":
            linear_solve(A, B, method="biCG-stab").vjp(B)
        else:
            gradients(mode, lambda b: krylix.choose_backend(b).sum(solve(b), 0), B)


def test_adjoints_are_compared_once() -> None:
    """By a product each; also those of the preconditioner, which may compute in single precision."""
    A, counts = counted(GENERAL, GENERAL.T)
    solver = prepare(A, B, method="LSMR")
    first = solver.solve(B)
    before = list(counts)
    again = solver.solve(B)
    assert [c - b for c, b in zip(counts, before, strict=True)] == [before[0] - 1, before[1] - 2]  # and rmatvec(0)
    np.testing.assert_array_equal(first.x, again.x)
    before = list(counts)
    linear_solve(A, B, method="LSMR")
    assert counts[0] - before[0] <= before[0] - 1

    M, _ = counted(np.linalg.inv(GENERAL), np.linalg.inv(GENERAL))
    with pytest.raises(ValueError, match="rmatvec of preconditioner is not the adjoint"):
        linear_solve(GENERAL, B, method="scipy-biCG", preconditioner=M)
    single = np.linalg.inv(GENERAL).astype("float32")
    M = spl.LinearOperator((N, N), lambda v: single @ v.astype("f4"), lambda v: single.T @ v.astype("f4"), dtype="f4")
    np.testing.assert_allclose(
        linear_solve(GENERAL, B, method="scipy-biCG", preconditioner=M).x, np.linalg.solve(GENERAL, B), rtol=1e-7
    )


def test_precision_of_linear_operators() -> None:
    """A result of less precision than the system is refused: its rounding would be taken for a part of A."""
    A = spl.LinearOperator((N, N), lambda v: (SYMMETRIC @ v).astype("f4"), dtype=float)
    with pytest.raises(TypeError, match=r"returned float32 for a vector of float64.*give b in that dtype"):
        linear_solve(A, B, method="CG")


def test_real_products_of_complex_vectors() -> None:
    A = spl.LinearOperator((N, N), lambda v: (HERMITIAN @ v).real, dtype=complex)
    with pytest.raises(TypeError, match="returned float64 for a vector of complex128: the imaginary part"):
        linear_solve(A, B * 1j, method="CG")


class Blocks(spl.LinearOperator):
    """With a product of its own for many columns, which is that of another matrix."""

    def __init__(self, block: np.ndarray) -> None:
        super().__init__(np.dtype(float), (N, N))
        self.block = block

    def _matvec(self, v: np.ndarray) -> np.ndarray:
        return SYMMETRIC @ v.reshape(-1)

    def _matmat(self, v: np.ndarray) -> np.ndarray:
        return self.block @ v

    def _rmatvec(self, v: np.ndarray) -> np.ndarray:
        return SYMMETRIC @ v.reshape(-1)

    def _rmatmat(self, v: np.ndarray) -> np.ndarray:
        return self.block.T @ v


@pytest.mark.parametrize("mode", ["numpy", "torch"])
def test_products_with_many_columns(mode: str) -> None:
    b = array(mode, np.stack([B, 2 * B, B[::-1]]))
    want = np.linalg.solve(SYMMETRIC, to_numpy(b).T).T
    np.testing.assert_allclose(to_numpy(linear_solve(Blocks(SYMMETRIC), b, method="CG").x), want, rtol=1e-7)
    with pytest.raises(ValueError, match="matmat and matvec of A differ"):
        linear_solve(Blocks(GENERAL), b, method="CG")
    with pytest.raises(ValueError, match="rmatmat and rmatvec of A differ"):
        as_operator(Blocks(GENERAL), b[0]).T(b)
    with pytest.raises(ValueError, match=r"matmat of A returned an array of shape \(5, 3\); expected \(12, 3\)"):
        linear_solve(Blocks(SYMMETRIC[:5]), b, method="CG")
    for wrapped in (Blocks(SYMMETRIC).T, 2 * Blocks(SYMMETRIC), spl.aslinearoperator(SYMMETRIC)):
        assert linear_solve(wrapped, b, method="CG").converged.all()


def test_an_operator_without_adjoint_is_still_named() -> None:
    for method in ("scipy-biCG", "LSMR"):
        with pytest.raises(UnsupportedOperation, match="no rmatvec"):
            linear_solve(spl.LinearOperator((N, N), lambda v: GENERAL @ v, dtype=float), B, method=method)


class Rounding:
    """`shape` and `matvec`, as a user's class has them."""

    shape, dtype = (4, 4), np.dtype(float)

    def matvec(self, x: np.ndarray) -> np.ndarray:
        return np.round(3 * x.real).astype(np.int32)


INTEGERS: dict[str, tuple[Any, str]] = {
    "function": (lambda x: np.round(3 * x.real).astype(np.int64), "int64"),
    "booleans": (lambda x: x.real > 0, "bool"),
    "matvec": (
        spl.LinearOperator((4, 4), lambda x: np.round(3 * x.real).astype(np.int64), dtype=float), "int64",
    ),
    "object": (Rounding(), "int32"),
}  # fmt: skip


@pytest.mark.parametrize("b", [np.array([3.0, 6.0, 9.0, 12.0]), np.array([3, 6, 9, 12]), np.array([1 + 2j, 1, 1, 1])])
@pytest.mark.parametrize("kind", INTEGERS)
def test_integers_for_a_vector_of_numbers_are_refused(kind: str, b: np.ndarray) -> None:
    """As single precision is, though some x would be right: fractions are lost in the others."""
    A, dtype = INTEGERS[kind]
    with pytest.raises(
        TypeError, match=rf"returned {dtype} for .* of (float64|complex128), in which fractions are lost"
    ):
        linear_solve(A, b)


@pytest.mark.merge
def test_preconditioners_may_round_to_integers() -> None:
    A = np.diag([1.0, 2.0, 3.0, 4.0])
    result = linear_solve(A, np.ones(4), method="FGMRES", preconditioner=lambda r: np.round(1e6 * r).astype(np.int64))
    np.testing.assert_allclose(result.x, 1 / np.diag(A), rtol=1e-8)
