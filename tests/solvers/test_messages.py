"""What cannot be solved is refused with what was got, what was expected and what to do; or it is solved after all.

Tables of (input, words that the message must contain), one for each kind, over the libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spl

import krylix
from cells import METHOD_NAMES
from krylix import as_operator, jacobian_matrix, linear_solve, matrix_from_function, prepare
from krylix.solvers import METHODS, preconditioner
from modes import EAGER, array, native_sparse, product, to_numpy

rng = np.random.default_rng(0)
N = 12
G = rng.standard_normal((N, N))
MATRIX = G @ G.T + 3 * np.eye(N)
B = rng.standard_normal(N)
EXACT = np.linalg.solve(MATRIX, B)
NARROW = sp.csr_array(MATRIX)


def refused(call: Callable[[], Any], *words: str) -> str:
    """The text of the error, which is one of ours."""
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    text = str(caught.value)
    for word in words:
        assert word in text, text
    return text


# --- functions that write to their argument

WRITES: dict[str, Callable[[np.ndarray], Any]] = {
    "item": lambda x: x.__setitem__(0, 0.0),
    "slice": lambda x: x[2:].__setitem__(slice(None), 0.0),
    "operator": lambda x: x.__iadd__(1.0),
    "out": lambda x: np.multiply(x, 2, out=x),
    "method": lambda x: x.sort(),
    "fill": lambda x: x.fill(0.0),
    "copyto": lambda x: np.copyto(x, 0.0),
    "put": lambda x: np.put(x, [0], 0.0),
    "memoryview": lambda x: memoryview(x).__setitem__(0, 0.0),
    "add.at": lambda x: np.add.at(x, [0], 1.0),  # which does so to read-only arrays
    "made writable": lambda x: (setattr(x.flags, "writeable", True), x.__setitem__(0, 0.0)),
}


@pytest.mark.parametrize("how", WRITES)
def test_numpy_functions_that_write(how: str) -> None:
    def f(x: np.ndarray) -> np.ndarray:
        y = MATRIX @ x
        WRITES[how](x)
        return y

    for method in ("GMRES", "auto", "direct", "LSMR"):
        text = refused(lambda m=method: linear_solve(f, B, method=m), "argument", "x = x.copy()")
        assert "rectangular" not in text


@pytest.mark.needs("torch")
@pytest.mark.parametrize("method", ["GMRES", "auto", "direct"])
def test_torch_functions_that_write(method: str) -> None:
    A = array("torch", MATRIX)

    def f(x: Any) -> Any:
        y = A @ x
        x[0] = 0.0
        return y

    refused(lambda: linear_solve(f, array("torch", B), method=method), "argument", "x = x.clone()")


# --- functions that return fewer digits


def rounded(mode: str) -> Callable[[Any], Any]:
    multiply, bk = product(mode, array(mode, MATRIX)), krylix.choose_backend(array(mode, B))
    return lambda x: bk.astype(multiply(x), np.dtype(np.float32))


@pytest.mark.parametrize("method", ["CG", "auto", "direct", "LSMR"])
@pytest.mark.parametrize("mode", EAGER)
def test_functions_that_return_single_precision(mode: str, method: str) -> None:
    text = refused(lambda: linear_solve(rounded(mode), array(mode, B), method=method), "float32", "float64", "dtype")
    assert "not linear" not in text and "rectangular" not in text


@pytest.mark.parametrize("mode", EAGER)
def test_what_may_return_single_precision(mode: str) -> None:
    """A preconditioner, and a function whose matrix is asked for; a right-hand side in single precision."""
    bk = krylix.choose_backend(array(mode, B))
    diagonal = array(mode, (1 / np.diag(MATRIX)).astype(np.float32))
    M = lambda r: diagonal * bk.astype(r, np.dtype(np.float32))  # noqa: E731
    result = linear_solve(array(mode, MATRIX), array(mode, B), method="GMRES", preconditioner=M)
    np.testing.assert_allclose(to_numpy(result.x), EXACT, rtol=1e-7)
    found = matrix_from_function(rounded(mode), array(mode, B))[0].toarray()
    np.testing.assert_allclose(found, MATRIX, rtol=1e-5, atol=1e-5)
    single = product(mode, array(mode, MATRIX.astype(np.float32)))
    result = linear_solve(single, array(mode, B.astype(np.float32)), method="CG")
    np.testing.assert_allclose(to_numpy(result.x), EXACT, rtol=1e-2, atol=1e-4)


# --- right-hand sides and starts that are sparse, or have no numbers

DENSE = {"numpy": "b.toarray()", "jax": "b.todense()", "torch": "b.to_dense()", "tf": "tf.sparse.to_dense(b)"}


@pytest.mark.parametrize("mode", EAGER)
def test_sparse_right_hand_sides(mode: str) -> None:
    b, dense = native_sparse(mode, B[None]), array(mode, B)
    kinds: list[Any] = [array(mode, MATRIX), NARROW, spl.aslinearoperator(MATRIX), lambda x: 4 * x]
    for A in kinds:
        refused(lambda A=A: linear_solve(A, b), "sparse", DENSE[mode])
        refused(lambda A=A: prepare(A, b), "sparse", DENSE[mode])
    refused(lambda: prepare(array(mode, MATRIX), dense).solve(b), "sparse", DENSE[mode])
    refused(lambda: linear_solve(kinds[0], dense, x0=b, method="CG"), "x0", "sparse", DENSE[mode].replace("b", "x0", 1)
            if mode != "tf" else "tf.sparse.to_dense(x0)")  # fmt: skip
    refused(lambda: linear_solve(lambda t: t, {"u": b}), "b['u']", "sparse")
    refused(lambda: linear_solve(kinds[0], sp.csr_array(B[None])), "sparse", "b.toarray()")


@pytest.mark.needs("torch")
def test_sparse_layouts_of_torch() -> None:
    A, b = array("torch", MATRIX), array("torch", B[None])
    for convert in ("to_sparse", "to_sparse_csr", "to_sparse_csc"):
        refused(lambda c=convert: linear_solve(A, getattr(b, c)()), "sparse", "to_dense")


@pytest.mark.needs("torch")
def test_tensors_without_numbers() -> None:
    A, b = array("torch", MATRIX), array("torch", B)
    meta = b.to("meta")
    calls: list[Callable[[], Any]] = [
        lambda: linear_solve(A, meta),
        lambda: linear_solve(MATRIX, meta, method="CG"),
        lambda: linear_solve(lambda x: 2 * x, meta),
        lambda: prepare(A.to("meta"), meta),
    ]
    for call in calls:
        refused(call, "b is a tensor on the device 'meta'", "numbers", "Give")
    refused(lambda: linear_solve(A.to("meta"), b), "A is a tensor on the device 'meta'")
    refused(lambda: linear_solve(A, b, x0=b.to("meta"), method="CG"), "x0 is a tensor on the device 'meta'")
    assert matrix_from_function(lambda x: 2 * x, b.to("meta"))[0].shape == (N, N)


@pytest.mark.needs("torch")
def test_distributed_tensors() -> None:
    import torch

    class DTensor(torch.Tensor):
        """As torch.distributed.tensor.DTensor, which needs a process group."""

    A, b = array("torch", MATRIX), array("torch", B)
    refused(lambda: linear_solve(A, b.as_subclass(DTensor)), "b is a DTensor", "full_tensor()")
    refused(lambda: linear_solve(A.as_subclass(DTensor), b), "A is a DTensor", "full_tensor()")


# --- rectangular functions, null vectors, offsets, what is no function


@pytest.mark.parametrize("method", ["auto", "CG", "direct"])
@pytest.mark.parametrize("mode", EAGER)
def test_rectangular_functions(mode: str, method: str) -> None:
    bk, multiply = krylix.choose_backend(array(mode, B)), product(mode, array(mode, G[:, :5]))
    cases: list[Callable[[Any], Any]] = [lambda x: bk.concat([x, x], 0), lambda x: x[:5], multiply]
    for f in cases:
        refused(lambda f=f: linear_solve(f, array(mode, B), method=method), "LSMR", "x0")
    x0 = array(mode, np.zeros(5))
    refused(lambda: linear_solve(multiply, array(mode, B), x0=x0, method=method), "LSMR", "x0")
    found = linear_solve(multiply, array(mode, B), x0=x0, method="LSMR")
    np.testing.assert_allclose(to_numpy(found.x), np.linalg.lstsq(G[:, :5], B, rcond=None)[0], rtol=1e-6)


def test_errors_of_the_user_are_not_about_shapes() -> None:
    def broken(x: np.ndarray) -> np.ndarray:
        raise KeyError("coefficient")

    with pytest.raises(KeyError):
        linear_solve(broken, B)
    refused(lambda: linear_solve(lambda x: x[:5], B, method="LSMR"), "give x0")


NULL: dict[str, tuple[Any, tuple[str, ...]]] = {
    "NaN": (np.full((1, N), np.nan), ("Vector 0", "NaN or infinity")),
    "infinity in the second": (np.array([np.ones(N), np.full(N, np.inf)]), ("Vector 1", "NaN or infinity")),
    "none": (np.zeros((0, N)), ("no vectors", "nullspace=None")),
    "empty list": ([], ("no vectors", "nullspace=None")),
    "zeros": (np.zeros((1, N)), ("Vector 0", "zeros only")),
    "one vector": (np.ones(N), ("(12,)", "v[None]")),
    "columns": (np.ones((N, 1)), ("(12, 1)", ".T")),
    "dependent": (np.ones((2, N)), ("linearly dependent",)),
    "complex": (1j * np.ones((1, N)), ("complex", "float64")),
    "a word": ("linear", ("'auto', None, 'constant'", "'linear'")),
    "an object": (object(), ("'auto', None, 'constant'", "object")),
    "a function": (lambda x: x, ("'auto', None, 'constant'", "function")),
    "a list of None": ([None], ("'auto', None, 'constant'",)),
}


@pytest.mark.parametrize("case", NULL)
@pytest.mark.parametrize("mode", ["numpy", "torch"])
def test_null_vectors(mode: str, case: str) -> None:
    given, words = NULL[case]
    if isinstance(given, np.ndarray):
        given = array(mode, given)
    refused(lambda: linear_solve(array(mode, MATRIX), array(mode, B), nullspace=given), *words)
    refused(lambda: prepare(array(mode, MATRIX), array(mode, B), nullspace=given), *words)


OFFSETS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "text": ("1", ("one finite number", "str", "'1'")),
    "True": (True, ("one finite number", "bool")),
    "list": ([1.0], ("one finite number",)),
    "array": (np.ones(2), ("one finite number",)),
    "dictionary": ({}, ("one finite number", "dict")),
    "object": (object(), ("one finite number", "object")),
    "NaN": (np.nan, ("one finite number", "nan")),
    "infinity": (np.inf, ("one finite number", "inf")),
    "complex": (1j, ("complex", "float64")),
}


@pytest.mark.parametrize("case", OFFSETS)
def test_offsets(case: str) -> None:
    given, words = OFFSETS[case]
    refused(lambda: linear_solve(MATRIX, B, matrix_offset=given), "matrix_offset", *words)
    refused(lambda: prepare(MATRIX, B, matrix_offset=given), "matrix_offset", *words)


@pytest.mark.parametrize("mode", EAGER)
def test_numbers_that_are_offsets(mode: str) -> None:
    exact = np.linalg.solve(MATRIX + 2, B)
    for two in (2, 2.0, np.float32(2), np.array(2.0), array(mode, np.array(2.0)), 2 + 0j):
        found = linear_solve(array(mode, MATRIX), array(mode, B), matrix_offset=two, method="CG").x
        np.testing.assert_allclose(to_numpy(found), exact, rtol=1e-8)


@pytest.mark.needs("jax")
def test_an_offset_of_a_compiled_function() -> None:
    import jax

    solve = jax.jit(lambda c: linear_solve(MATRIX, jax.numpy.asarray(B), matrix_offset=c).x)
    refused(lambda: solve(1.0), "matrix_offset depends on an argument", "inside a function A")


NO_FUNCTIONS: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "matrix of None": (lambda: matrix_from_function(None, B), ("f must be a function", "NoneType")),
    "matrix of a matrix": (lambda: matrix_from_function(MATRIX, B), ("f must be a function", "as_operator")),
    "matrix of a text": (lambda: matrix_from_function("f", B), ("f must be a function", "str")),
    "like None": (lambda: matrix_from_function(lambda x: x, None), ("like is a", "NoneType")),
    "jacobian of None": (lambda: jacobian_matrix(None, B), ("f must be a function",)),
    "operator of None": (lambda: as_operator(None), ("A must be a function, a matrix or an operator", "NoneType")),
    "preconditioner of None": (lambda: preconditioner(None), ("A must be a function, a matrix", "NoneType")),
    "A is None": (lambda: linear_solve(None, B), ("A must be a function, a matrix", "NoneType")),
    "prepare None": (lambda: prepare(None, B), ("A must be a function, a matrix", "NoneType")),
}  # fmt: skip


@pytest.mark.parametrize("case", NO_FUNCTIONS)
def test_what_is_no_function(case: str) -> None:
    call, words = NO_FUNCTIONS[case]
    with pytest.raises((TypeError, krylix.UnsupportedOperation)) as caught:
        call()
    assert all(word in str(caught.value) for word in words), str(caught.value)


# --- NumPy in functions of other libraries, and ldexp


def test_ldexp() -> None:
    for powers in (2, np.arange(N), -1):
        found = matrix_from_function(lambda x, k=powers: np.ldexp(x, k), B)[0].toarray()
        np.testing.assert_array_equal(found, np.diag(np.ldexp(np.ones(N), powers)))
        single = matrix_from_function(lambda x, k=powers: np.ldexp(x, k), B.astype(np.float32))[0]
        assert single.dtype == np.float32
    np.testing.assert_allclose(linear_solve(lambda x: np.ldexp(x, 2), B).x, B / 4, rtol=1e-14)
    with pytest.raises(krylix.NonlinearError, match="exponent depends on it"):
        matrix_from_function(lambda x: np.ldexp(1.0, x), B)


@pytest.mark.parametrize("mode", ["torch", "tf"])
def test_functions_that_go_through_numpy(mode: str) -> None:
    """They are solved with; their matrix is not found, and this is not called non-linear."""
    f, b = (lambda u: array(mode, MATRIX @ u.numpy())), array(mode, B)
    for method in ("CG", "auto"):
        np.testing.assert_allclose(to_numpy(linear_solve(f, b, method=method).x), EXACT, rtol=1e-7)
    with pytest.raises(
        krylix.UnsupportedOperation, match=r"'numpy' .*hands a tensor that depends on the input to NumPy"
    ):
        matrix_from_function(f, b)


@pytest.mark.needs("torch")
def test_derivatives_of_functions_that_go_through_numpy() -> None:
    b = array("torch", B).requires_grad_()
    x = linear_solve(lambda u: array("torch", MATRIX @ u.detach().numpy()), b, method="CG").x
    with pytest.raises(TypeError, match=r"without u\.numpy\(\)"):
        x.sum().backward()


@pytest.mark.needs("jax")
@pytest.mark.parametrize("method", ["CG", "auto"])
def test_jax_functions_that_go_through_numpy(method: str) -> None:
    refused(
        lambda: linear_solve(lambda u: MATRIX @ np.asarray(u), array("jax", B), method=method), "NumPy", "jax.numpy"
    )


# --- SciPy's own errors, autocast, pyamg


@pytest.mark.parametrize("method", [name for name, m in METHODS.items() if m.on_host and m.takes_preconditioner])
@pytest.mark.parametrize("M", ["indefinite", "zero", "NaN"])
def test_errors_of_scipy_are_failures(method: str, M: str) -> None:
    """They end as a failed solve, never as another error; what A or M raise is the user's own."""
    diagonal = {"indefinite": [1.0] * 6 + [-1.0] * 6, "zero": [0.0] * N, "NaN": [np.nan] * N}[M]
    matrix = np.diag(diagonal)
    result = linear_solve(MATRIX, B, method=method, preconditioner=lambda r: matrix @ r, on_failure="status")
    if result.converged:
        np.testing.assert_allclose(result.x, EXACT, rtol=1e-6)

    def broken(r: np.ndarray) -> np.ndarray:
        raise ValueError("of the user")

    with pytest.raises(ValueError, match="of the user"):
        linear_solve(MATRIX, B, method=method, preconditioner=broken)


def test_indefinite_preconditioner_of_scipy_minres() -> None:
    M = np.diag([1.0] * 6 + [-1.0] * 6)
    with pytest.raises(krylix.NotConverged, match=r"(?s)scipy-MINRES.*preconditioner.*definite"):
        linear_solve(MATRIX, B, method="scipy-MINRES", preconditioner=M)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("method", ["CG", "auto", "direct", "scipy-direct", "GMRES", "biCG-stab(2)"])
def test_autocast_is_left_off(method: str) -> None:
    import torch

    A, b = array("torch", MATRIX.astype(np.float32)), array("torch", B.astype(np.float32)).requires_grad_()
    kinds: list[Any] = [A, A.to_sparse_csr(), lambda x: A @ x]
    for operator in kinds:
        b.grad = None
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = linear_solve(operator, b, method=method).x
            x.sum().backward()
        assert x.dtype == torch.float32
        np.testing.assert_allclose(to_numpy(x), EXACT, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(b.grad.numpy(), np.linalg.solve(MATRIX, np.ones(N)), rtol=1e-3, atol=1e-4)


@pytest.mark.needs("torch")
def test_autocast_in_a_function() -> None:
    import torch

    A, b = array("torch", MATRIX.astype(np.float32)), array("torch", B.astype(np.float32))
    inside = torch.autocast("cpu", dtype=torch.bfloat16)(lambda x: A @ x)
    refused(lambda: linear_solve(inside, b, method="CG"), "bfloat16", "autocast off", "float32")


@pytest.mark.needs("torch")
@pytest.mark.parametrize("mode", ["numpy", "torch"])
def test_a_failure_that_a_function_of_the_user_raises(mode: str) -> None:
    """As it is, with no result of ours."""

    def M(r: Any) -> Any:
        raise krylix.NotConverged("the inner solve failed")

    with pytest.raises(krylix.NotConverged, match="the inner solve failed"):
        linear_solve(array(mode, 2 * np.eye(30)), np.ones(30), method="CG", preconditioner=M)


@pytest.mark.parametrize("method", [m for m in METHOD_NAMES if not m.startswith("mixed") and not m.endswith("direct")])
def test_errors_of_the_users_function_in_the_steps_are_raised(method: str) -> None:
    """An error of one product only; mixed precision calls the function again, with another dtype."""

    def solve(fails: int) -> int:
        count = [0]

        def A(x: np.ndarray) -> np.ndarray:
            count[0] += 1
            if count[0] == fails:
                raise RuntimeError("of the user")
            return MATRIX @ x

        assert linear_solve(A, B, method=method).converged
        return count[0]

    count = solve(-1)
    with pytest.raises(RuntimeError, match="of the user"):
        solve(count // 2)
