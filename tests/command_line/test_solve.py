"""Real matrices, and files of every kind: what is solved, and how x is written."""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from command_runs import WRITERS, N, Run, matrix, residual, rhs
from frameworks import FRAMEWORKS
from krylix.command_line.arguments import EXAMPLES

# ---- real matrices


def solve_example(run: Callable[..., Run], name: str, *options: str) -> tuple[Run, np.ndarray, np.ndarray]:
    """The report, the relative residual against pyamg's own file, and x."""
    from pyamg.gallery import load_example

    result = run("solve", "--example", name, "--output", "x.npy", *options)
    A, x = load_example(name)["A"], np.load("x.npy")
    return result, residual(A, A @ np.sin(np.arange(1, len(x) + 1)), x), x


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str, run: Callable[..., Run]) -> None:
    result, relative, x = solve_example(run, name)
    assert (result.code, result.err) == (0, "") and relative <= 1e-10, result
    assert result.line("status") == "converged"
    assert f"{len(x)} x {len(x)}, sparse" in result.line("shape")
    assert "none given; b = A x" in result.line("right-hand side")
    assert float(result.line("error").split("= ")[1].split(",")[0]) < 1e-6
    result, relative, x = solve_example(run, name, "--dtype", "single")
    assert result.code == 0 and x.dtype in (np.float32, np.complex64), result
    assert relative <= 2e-5  # of the matrix in double precision


BY_DEFAULT = {("unit_square", "jax"), ("unit_square", "tensorflow"), ("recirc_flow", "torch")}


@pytest.mark.parametrize(
    ("name", "backend"),
    [pytest.param(*p, marks=() if p in BY_DEFAULT else pytest.mark.slow) for p in product(EXAMPLES, FRAMEWORKS)],
)
def test_example_on_backend(name: str, backend: str, run: Callable[..., Run]) -> None:
    result, relative, _ = solve_example(run, name, "--backend", backend)
    assert result.code == 0 and relative <= 1e-10, result
    assert result.line("backend").startswith(f"{backend}, ")


def test_matrix_with_an_empty_column(run: Callable[..., Run]) -> None:
    """The residual of any x in that place is small."""
    A = sp.coo_array([[1.0, 2, 0], [3, 4, 0], [5, 6, 0]])
    sp.save_npz("A.npz", A)
    np.save("b.npy", A @ np.ones(3))
    result = run("solve", "A.npz", "b.npy", "--output", "x.npy")
    assert result.code == 0 and "orthogonal to the null vectors" in result.line("singular")
    assert "is singular" in result.line("warning") and "nullspace" in result.line("warning")
    np.testing.assert_allclose(np.load("x.npy"), [1, 1, 0], atol=1e-12)


def test_singular_example_says_so(run: Callable[..., Run]) -> None:
    result = run("solve", "--example", "unit_square")
    assert "null vectors" in result.line("singular") and "warning" not in result.out
    assert "constants" in result.line("null space")
    assert "up to a constant" in result.line("error")
    result, relative, x = solve_example(run, "unit_square", "--nullspace", "constant")
    assert relative <= 1e-10
    assert abs(x.mean()) < 1e-12 * np.abs(x).max()


def test_example_names_in_any_case(run: Callable[..., Run]) -> None:
    assert "helmholtz_2D" in run("solve", "--example", "HELMHOLTZ_2d").line("matrix")


# ---- files


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("name", WRITERS)
def test_file_formats(name: str, dtype: type, run: Callable[..., Run], feed: Callable[[bytes], None]) -> None:
    """As a file and from standard input, solved and inspected."""
    A, b = matrix(dtype), rhs(N, dtype=dtype)
    WRITERS[name](Path(name), A)
    np.save("b.npy", b)
    for source, called in ((name, name), ("-", "standard input")):
        feed(Path(name).read_bytes())
        result = run("solve", source, "b.npy", "--output", "x.npy")
        assert result.code == 0 and result.line("matrix") == called, result
        x = np.load("x.npy")
        assert (x.dtype, x.shape) == (dtype, (N,)) and residual(A, b, x) <= 1e-10
        feed(Path(name).read_bytes())
        result = run("inspect", source)
        assert f"{N} x {N}, sparse, {A.nnz} non-zeros" in result.line("shape")
        if name not in ("bsr.npz", "dense.mtx", "A.npy", "numpy.npz"):
            assert result.line("stored") == f"{A.nnz} entries, no duplicates, no explicit zeros"


@pytest.mark.parametrize("shape", [(N,), (N, 1), (N, 3), (N, N)])
@pytest.mark.parametrize(("kind_of_A", "kind_of_b"), [(float, float), (complex, float), (float, complex)])
def test_solution_is_laid_out_as_b(
    shape: tuple[int, ...], kind_of_A: type, kind_of_b: type, run: Callable[..., Run]
) -> None:
    A, b = matrix(kind_of_A), rhs(*shape, dtype=kind_of_b)
    sp.save_npz("A.npz", A)
    np.save("b.npy", b)
    result = run("solve", "A.npz", "b.npy", "--method", "biCG-stab(2)", "--output", "x.npy")
    assert result.code == 0, result
    x = np.load("x.npy")
    assert x.shape == shape
    assert np.all(residual(A, b, x) <= 1e-10)


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.mtx"])
@pytest.mark.parametrize("shape", [(N,), (N, 3)])
def test_output_can_be_read_again(shape: tuple[int, ...], name: str, run: Callable[..., Run]) -> None:
    A, b = matrix(symmetric=True), rhs(*shape)
    sp.save_npz("A.npz", A)
    np.save("b.npy", b)
    assert run("solve", "A.npz", "b.npy", "--output", name).code == 0
    assert run("solve", "A.npz", name, "--output", "again.npy").code == 0  # x as a right-hand side
    y = np.load("again.npy").reshape(shape)
    assert np.all(np.linalg.norm(A @ (A @ y) - b, axis=0) <= 1e-8 * np.linalg.norm(b, axis=0))


def test_right_hand_side_from_matrix_market_and_sparse(run: Callable[..., Run]) -> None:
    A, b = matrix(), rhs(N, 2)
    sp.save_npz("A.npz", A)
    scipy.io.mmwrite("b.mtx", b)
    sp.save_npz("b.npz", sp.csc_array(b))
    for name in ("b.mtx", "b.npz"):
        assert run("solve", "A.npz", name, "--output", "x.npy").code == 0
        assert np.all(residual(A, b, np.load("x.npy")) <= 1e-10)


@pytest.mark.parametrize(
    "dtype", [np.int8, np.bool_, np.float16, np.float32, np.longdouble, ">f4", ">i8", np.complex64]
)
def test_number_types(dtype: str, run: Callable[..., Run]) -> None:
    A = np.diag([1, 1, 1, 1]).astype(dtype)
    np.save("A.npy", A)
    assert run("solve", "A.npy", "--output", "x.npy").code == 0
    single = np.dtype(dtype).kind in "fc" and np.finfo(dtype).bits <= 32
    assert np.load("x.npy").real.dtype == (np.float32 if single else np.float64)


def test_two_precisions_meet_in_the_wider_one(run: Callable[..., Run]) -> None:
    sp.save_npz("A.npz", matrix(np.float32))
    np.save("b.npy", rhs(N))
    assert run("solve", "A.npz", "b.npy", "--output", "x.npy").code == 0
    assert residual(matrix(np.float32), rhs(N), np.load("x.npy")) <= 1e-10
