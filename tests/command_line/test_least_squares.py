"""Rectangular systems: what LSMR and CGLS find, and what the others say."""

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp

from command_runs import Run, refused

RNG = np.random.default_rng(5)
TALL = RNG.standard_normal((30, 12))


def solved(run: Callable[..., Run], A: np.ndarray, b: np.ndarray, *options: str) -> tuple[Run, np.ndarray]:
    sp.save_npz("A.npz", sp.csr_array(A))
    np.save("b.npy", b)
    result = run("solve", "A.npz", "b.npy", "--output", "x.npy", *options)
    return result, np.load("x.npy")


@pytest.mark.parametrize(
    ("method", "wide", "columns", "dtype"),
    [
        ("LSMR", False, (), float),
        ("LSMR", True, (3,), complex),
        ("cgls", False, (3,), float),
        ("cgls", True, (), complex),
        ("LSMR", False, (3,), complex),
        ("cgls", True, (3,), float),
    ],
)
def test_least_squares(method: str, wide: bool, columns: tuple[int, ...], dtype: type, run: Callable[..., Run]) -> None:
    A = (TALL.T if wide else TALL) * (1 if dtype is float else 1 + 0.5j)
    b = RNG.standard_normal((len(A), *columns)).astype(dtype)
    result, x = solved(run, A, b, "--method", method)
    assert result.code == 0 and result.err == "", result
    assert x.shape == (A.shape[1], *columns)
    np.testing.assert_allclose(x, np.linalg.lstsq(A, b)[0], rtol=1e-7, atol=1e-9)
    assert result.line("method") == method.upper()
    assert result.line("symmetry").startswith("not square") and "diagonal" not in result.out
    assert result.line("residual").startswith("|A^H (b - A x)| = ") and "<= tolerance" in result.line("residual")
    assert result.line("check").startswith("|A^H (b - A x)| = ") and "NOT CONFIRMED" not in result.out
    left = np.linalg.norm(b - A @ x, axis=0)
    assert wide or f"{left.min():.3e}" in result.line("fit")


@pytest.mark.parametrize("backend", [pytest.param("jax", marks=pytest.mark.merge), "torch", "tensorflow"])
def test_least_squares_on_backend(backend: str, run: Callable[..., Run]) -> None:
    b = RNG.standard_normal(30)
    result, x = solved(run, TALL, b, "--method", "LSMR", "--backend", backend)
    assert result.code == 0, result
    np.testing.assert_allclose(x, np.linalg.lstsq(TALL, b)[0], rtol=1e-7)


def test_known_solution(run: Callable[..., Run]) -> None:
    np.save("tall.npy", TALL)
    np.save("wide.npy", TALL.T)
    tall, wide = run("solve", "tall.npy", "--method", "LSMR"), run("solve", "wide.npy", "--method", "LSMR")
    assert tall.code == wide.code == 0
    assert float(tall.line("error").split("= ")[1]) < 1e-8
    assert "one x of many" in wide.line("right-hand side") and "error" not in wide.out


def test_a_square_matrix_is_solved_exactly(run: Callable[..., Run]) -> None:
    np.save("A.npy", TALL[:12])
    result = run("solve", "A.npy", "--method", "LSMR")
    assert result.line("residual").startswith("|b - A x| = ") and "fit" not in result.out


def test_not_converged(run: Callable[..., Run]) -> None:
    result, _ = solved(run, TALL, RNG.standard_normal(30), "--method", "LSMR", "--max-iter", "2")
    assert result.code == 1
    assert result.line("status").startswith("NOT CONVERGED") and "least there is" not in result.out


@pytest.mark.parametrize("method", ["auto", "CG", "scipy-lsqr", "direct"])
def test_other_methods_say_what_to_do(method: str, run: Callable[..., Run]) -> None:
    np.save("A.npy", TALL)
    refused(run("solve", "A.npy", "--method", method), "(30, 12); expected a square matrix", "--method LSMR")


def test_shapes_that_do_not_fit(run: Callable[..., Run]) -> None:
    np.save("A.npy", TALL)
    np.save("b.npy", np.ones(12))
    refused(run("solve", "A.npy", "b.npy", "--method", "LSMR"), "b.npy: got the shape (12,)", "expected (30,)")
    np.save("empty.npy", np.ones((3, 0)))
    refused(run("solve", "empty.npy", "--method", "LSMR"), "empty.npy", "is empty")
