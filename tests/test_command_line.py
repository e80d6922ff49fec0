"""The command line: what it solves, what it says, and how it refuses."""

import gzip
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

import krylix
from frameworks import FRAMEWORKS
from krylix.__main__ import main
from krylix.command_line import picture
from krylix.command_line.arguments import BACKENDS, EXAMPLES, FORMATS
from krylix.solvers import METHODS, PRECONDITIONERS

N = 40
HEADER = "%%MatrixMarket matrix coordinate real general\n"


class Run(NamedTuple):
    code: int
    out: str
    err: str

    def line(self, label: str) -> str:
        """What the report says under this label."""
        (text,) = [line[len(label) :].strip() for line in self.out.splitlines() if line.startswith(f"{label} ")]
        return text


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    """Run a command line in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*argv: str) -> Run:
        code = main(argv)
        return Run(code, *capsys.readouterr())

    return call


def refused(result: Run, *words: str) -> None:
    """Exit code 2, and one line on stderr with these words."""
    assert result.code == 2, result
    assert result.err.startswith("krylix: ") and result.err.endswith("\n") and result.err.count("\n") == 1, result.err
    assert "Traceback" not in result.err
    for word in words:
        assert word in result.err, result.err


def matrix(dtype: type = np.float64, symmetric: bool = False) -> sp.csr_array:
    rng = np.random.default_rng(0)
    A = sp.random_array((N, N), density=0.1, rng=rng)
    if np.issubdtype(dtype, np.complexfloating):
        A = A + 1j * sp.random_array((N, N), density=0.1, rng=rng)
    A = A + A.conj().T if symmetric else A
    return (A + 8 * sp.eye_array(N)).tocsr().astype(dtype)


def rhs(*shape: int, dtype: type = np.float64) -> np.ndarray:
    rng = np.random.default_rng(1)
    real = rng.standard_normal(shape)
    return (real + 1j * rng.standard_normal(shape) if np.issubdtype(dtype, np.complexfloating) else real).astype(dtype)


def residual(A: sp.sparray | np.ndarray, b: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Relative residual norm per column in double precision."""
    A, b, x = (a.astype(np.result_type(a.dtype, np.float64)) for a in (A, b, x))
    return np.linalg.norm(b - A @ x, axis=0) / np.linalg.norm(b, axis=0)


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
    assert result.code == 0, result
    assert result.err == ""
    assert relative <= 1e-10
    assert result.line("status") == "converged"
    assert f"{len(x)} x {len(x)}, sparse" in result.line("shape")
    assert "none given; b = A x" in result.line("right-hand side")
    error = float(result.line("error").split("= ")[1].split(",")[0])
    assert error < 1e-6


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_in_single_precision(name: str, run: Callable[..., Run]) -> None:
    result, relative, x = solve_example(run, name, "--dtype", "single")
    assert result.code == 0, result
    assert x.dtype in (np.float32, np.complex64)
    assert relative <= 2e-5  # of the matrix in double precision


@pytest.mark.parametrize("backend", FRAMEWORKS)
@pytest.mark.parametrize("name", ["unit_square", "recirc_flow"])
def test_example_on_backend(name: str, backend: str, run: Callable[..., Run]) -> None:
    result, relative, _ = solve_example(run, name, "--backend", backend)
    assert result.code == 0, result
    assert relative <= 1e-10
    assert f"{backend}, float64" == result.line("backend")


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_on_every_backend(name: str, backend: str, run: Callable[..., Run]) -> None:
    result, relative, _ = solve_example(run, name, "--backend", backend)
    assert result.code == 0, result
    assert relative <= 1e-10


def test_singular_example_says_so(run: Callable[..., Run]) -> None:
    result = run("solve", "--example", "unit_square")
    assert "constants" in result.line("null space")
    assert "up to a constant" in result.line("error")
    result, relative, x = solve_example(run, "unit_square", "--nullspace", "constant")
    assert relative <= 1e-10
    assert abs(x.mean()) < 1e-12 * np.abs(x).max()


def test_example_names_in_any_case(run: Callable[..., Run]) -> None:
    assert "helmholtz_2D" in run("solve", "--example", "HELMHOLTZ_2d").line("matrix")


# ---- files


def write_npz_of_numpy(path: Path, A: sp.sparray) -> None:
    np.savez(path, anything=A.toarray())


def write_compressed(path: Path, A: sp.sparray) -> None:
    text = io.BytesIO()
    scipy.io.mmwrite(text, A, symmetry="general")
    path.write_bytes(gzip.compress(text.getvalue()))


WRITERS = {
    "A.mtx": lambda path, A: scipy.io.mmwrite(path, A, symmetry="general"),
    "dense.mtx": lambda path, A: scipy.io.mmwrite(path, A.toarray(), symmetry="general"),
    "A.mtx.gz": write_compressed,
    "A.MTX.GZ": write_compressed,
    "csr.npz": lambda path, A: sp.save_npz(path, A),
    "csc-matrix.npz": lambda path, A: sp.save_npz(path, sp.csc_matrix(A)),
    "coo.npz": lambda path, A: sp.save_npz(path, A.tocoo()),
    "dia.npz": lambda path, A: sp.save_npz(path, A.todia()),
    "bsr.npz": lambda path, A: sp.save_npz(path, A.tobsr((2, 2))),
    "numpy.npz": write_npz_of_numpy,
    "A.npy": lambda path, A: np.save(path, A.toarray()),
}


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("name", WRITERS)
def test_file_formats(name: str, dtype: type, run: Callable[..., Run]) -> None:
    A, b = matrix(dtype), rhs(N, dtype=dtype)
    WRITERS[name](Path(name), A)
    np.save("b.npy", b)
    result = run("solve", name, "b.npy", "--output", "x.npy")
    assert result.code == 0, result
    x = np.load("x.npy")
    assert x.dtype == dtype
    assert x.shape == (N,)
    assert residual(A, b, x) <= 1e-10
    assert result.line("matrix") == name


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
    product = "again.npy"
    assert run("solve", "A.npz", name, "--output", product).code == 0  # x as a right-hand side
    y = np.load(product).reshape(shape)
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


# ---- the report


def test_report_of_a_batch(run: Callable[..., Run]) -> None:
    sp.save_npz("A.npz", matrix(symmetric=True))
    np.save("b.npy", rhs(N, 3) * [1e6, 0, 1e-3])
    result = run("solve", "A.npz", "b.npy", "--method", "CG", "--preconditioner", "jacobi")
    assert result.code == 0
    assert result.line("method") == "CG"
    assert result.line("preconditioner") == "jacobi"
    assert result.line("status") == "converged, all 3 systems"
    assert result.line("symmetry").startswith("symmetric")
    assert result.line("diagonal").startswith("all positive")
    assert "converged, 0 iterations" in result.line("  column 1")
    assert "double precision" in result.line("check")
    assert " s to set up and solve" in result.line("time")


def test_report_of_facts(run: Callable[..., Run]) -> None:
    np.save("A.npy", np.array([[0.0, 2, 0], [1, -4, 0], [0, 0, 5]]))
    result = run("solve", "A.npy")
    assert "3 x 3, dense, 4 non-zeros" in result.line("shape")
    assert result.line("symmetry").startswith("not symmetric: relative asymmetry 2.1e-01")  # sqrt(2 / 46)
    assert result.line("diagonal") == "1 positive, 1 negative, 1 zero, from -4 to 5"
    np.save("A.npy", np.array([[1, 2j], [2j, 3]]))
    assert "complex symmetric" in run("solve", "A.npy").line("symmetry")
    np.save("A.npy", np.array([[1, 2j], [-2j, 9]]))
    assert run("solve", "A.npy").line("symmetry").startswith("Hermitian")


def test_report_of_the_automatic_choice(run: Callable[..., Run]) -> None:
    result = run("solve", "--example", "bar")
    assert result.line("method") == "CG, chosen by auto"
    assert result.line("preconditioner") == "jacobi"
    result = run("solve", "--example", "bar", "--max-iter", "3")
    assert result.line("method") == "scipy-direct (after CG had failed), chosen by auto"
    assert result.line("preconditioner") == "none"
    result = run("solve", "--example", "recirc_flow", "--preconditioner", "jacobi")
    assert result.line("method") == "biCG-stab(2), chosen by auto" and result.line("preconditioner") == "jacobi"
    result = run("solve", "--example", "bar", "--max-iter", "3", "--preconditioner", "jacobi")
    assert result.line("preconditioner").startswith("none (jacobi was given")


def test_large_entries_do_not_overflow(run: Callable[..., Run]) -> None:
    np.save("A.npy", np.array([[1e200, 1e199], [1e199, 1e200]]))
    result = run("solve", "A.npy", "--method", "CG")
    assert result.code == 0, result
    assert "norm 1.3" in result.line("right-hand side") and "e+200" in result.line("right-hand side")


def test_a_false_success_would_be_seen(run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from krylix.command_line import solve

    honest = solve.linear_solve
    monkeypatch.setattr(solve, "linear_solve", lambda *a, **k: replace(r := honest(*a, **k), x=r.x * (1 + 1e-6)))
    result = run("solve", "--example", "airfoil")
    assert result.code == 1
    assert "NOT CONFIRMED" in result.line("check")


def test_methods(run: Callable[..., Run]) -> None:
    result = run("methods")
    assert result.code == 0
    first = [line.split()[0] for line in result.out.splitlines()]
    assert first[1 : 2 + len(METHODS)] == ["auto", *METHODS]
    assert all(name in result.out.splitlines()[-1] for name in ("auto", *PRECONDITIONERS))


@pytest.mark.parametrize("name", METHODS)
def test_every_method_by_name(name: str, run: Callable[..., Run]) -> None:
    A, b = matrix(symmetric=True), rhs(N)
    sp.save_npz("A.npz", A)
    np.save("b.npy", b)
    result = run("solve", "A.npz", "b.npy", "--method", name.upper(), "--rtol", "1e-7", "--output", "x.npy")
    assert result.code == 0, result
    assert result.line("method") == name
    assert residual(A, b, np.load("x.npy")) <= 1e-7


# ---- inspect


@pytest.mark.parametrize("name", EXAMPLES)
def test_inspect_example(name: str, run: Callable[..., Run]) -> None:
    from pyamg.gallery import load_example

    A = sp.csr_array(load_example(name)["A"])
    result = run("inspect", "--example", name)
    assert result.code == 0 and result.err == "", result
    dense = A.toarray()
    assert result.line("matrix") == f"example {name} (pyamg)"
    assert result.line("shape").startswith(f"{A.shape[0]} x {A.shape[1]}, sparse, {np.count_nonzero(dense)} non-zeros")
    lengths = np.count_nonzero(dense, axis=1)
    assert result.line("per row").startswith(
        f"{min(lengths)} to {max(lengths)} non-zeros, median {np.median(lengths):g}"
    )
    i, j = np.nonzero(dense)
    occupied = len(set((j - i).tolist()))
    band = f"{max(i - j)} below and {max(j - i)} above the diagonal; {occupied} of {2 * len(dense) - 1} diagonals"
    assert result.line("band").startswith(band)
    assert (result.line("pattern") == "symmetric") == np.array_equal(dense != 0, dense.T != 0)
    hermitian = np.allclose(dense, dense.conj().T, rtol=0, atol=1e-14 * abs(dense).max())
    assert result.line("symmetry").startswith(("symmetric", "Hermitian")) == hermitian
    if "definite: " in result.line("definite"):
        assert np.linalg.eigvalsh(dense)[0] > -1e-12 * np.linalg.norm(dense)
    bytes_of_csr = A.nnz * (A.dtype.itemsize + 4) + 4 * (len(dense) + 1)
    unit = "kB" if bytes_of_csr < 10**6 else "MB"
    size = f"{bytes_of_csr / {'kB': 1e3, 'MB': 1e6}[unit]:.3g}"
    assert result.line("memory").startswith(f"csr {size} {unit}, csc {size} {unit}")
    assert "chosen for numpy: " in result.line("format")


SMALL = {
    "definite": ([[2, -1, 0], [-1, 2, -1], [0, -1, 2]], "positive definite: diagonally dominant"),
    "negative": ([[-2, 1], [1, -2]], "negative definite: diagonally dominant"),
    "singular": ([[1, -1], [-1, 1]], "positive semi-definite: diagonally dominant"),
    "indefinite": ([[1, 5], [5, -1]], "indefinite: the diagonal has both signs"),
    "unknown": ([[1, 0.9, 0.9], [0.9, 1, 0.9], [0.9, 0.9, 1]], "not proven"),
    "not symmetric": ([[2, 1], [0, 2]], "not symmetric"),
    "not Hermitian": ([[2, 1j], [1j, 2]], "not Hermitian"),
    "Hermitian": ([[2, 1j], [-1j, 2]], "positive definite: diagonally dominant"),
}


@pytest.mark.parametrize("case", SMALL)
def test_inspect_definite(case: str, run: Callable[..., Run]) -> None:
    A, words = SMALL[case]
    np.save("A.npy", np.array(A))
    result = run("inspect", "A.npy")
    assert result.code == 0 and result.line("definite").startswith(words), result
    assert result.line("stored").startswith("dense, ")
    assert ("null space" in result.out) == (case == "singular")


def test_inspect_facts(run: Callable[..., Run]) -> None:
    np.save("A.npy", np.array([[4.0, -1, 0, 0], [-1, 1, 0, 0], [0, 0, 1, -3], [0, 0, -3, 0]], np.float32))
    result = run("inspect", "A.npy")
    assert result.line("shape") == "4 x 4, sparse, 7 non-zeros (1.8 per row), float32"
    assert result.line("stored") == "dense, 16 numbers, of which 9 zeros"
    assert result.line("per row") == "1 to 2 non-zeros, median 2; no empty rows, no empty columns"
    assert result.line("band") == "1 below and 1 above the diagonal; 3 of 7 diagonals occupied"
    assert result.line("diagonal") == "3 positive, 1 zero, from 0 to 4"
    assert result.line("dominance").startswith("2 of 4 rows are not diagonally dominant; worst row 3: |a_ii| is 0 of")
    assert result.line("components") == "2 that are not connected, of 2 to 2 rows"
    assert "csr 76 B, csc 76 B, coo 84 B, dia 60 B, ell 64 B" in result.line("memory")
    assert result.line("memory").endswith("dense 64 B")


def test_inspect_duplicates_and_zeros(run: Callable[..., Run]) -> None:
    Path("A.mtx").write_text(HEADER + "2 2 5\n1 1 1.5\n1 1 1.5\n1 2 0\n2 2 2.5\n2 2 -2.5\n")
    result = run("inspect", "A.mtx")
    assert result.line("stored") == "5 entries, 2 duplicates (added up), 1 explicit zero"
    assert "1 non-zeros" in result.line("shape")  # the last two cancel
    assert "1 empty row, 1 empty column" in result.line("per row")
    sp.save_npz("B.npz", sp.csr_array((np.ones(3), np.array([1, 1, 0]), np.array([0, 2, 3]))))
    assert run("inspect", "B.npz").line("stored") == "3 entries, 1 duplicate (added up), no explicit zeros"


@pytest.mark.parametrize("name", WRITERS)
def test_inspect_file_formats(name: str, run: Callable[..., Run]) -> None:
    A = matrix(np.complex128)
    WRITERS[name](Path(name), A)
    result = run("inspect", name)
    assert result.code == 0, result
    assert f"{N} x {N}, sparse, {A.nnz} non-zeros" in result.line("shape")
    if name not in ("bsr.npz", "dense.mtx", "A.npy", "numpy.npz"):
        assert result.line("stored") == f"{A.nnz} entries, no duplicates, no explicit zeros"


@pytest.mark.parametrize("shape", [(2, 3), (300, 7), (7, 300), (0, 0), (0, 3), (3, 0), (1, 1), (5, 5)])
@pytest.mark.parametrize("zero", [False, True])
def test_inspect_any_shape(shape: tuple[int, int], zero: bool, run: Callable[..., Run]) -> None:
    np.save("A.npy", np.zeros(shape) if zero else np.ones(shape))
    result = run("inspect", "A.npy", "--plot", "A.png")
    assert result.code == 0 and result.err == "", result
    assert result.line("shape").startswith(f"{shape[0]} x {shape[1]}, ")
    assert Path("A.png").stat().st_size > 1000
    if shape[0] != shape[1]:
        assert result.line("symmetry") == "not square" and "definite" not in result.out
    sp.save_npz("S.npz", sp.csr_array(np.load("A.npy")))
    assert run("inspect", "S.npz").code == 0


@pytest.mark.parametrize("form", FORMATS)
def test_inspect_format(form: str, run: Callable[..., Run]) -> None:
    for A in (matrix(), sp.csr_array((4, 0)), sp.csr_array((3, 5)), sp.csr_array([[2.0]])):
        sp.save_npz("A.npz", A)
        result = run("inspect", "A.npz", "--format", form.upper())
        assert result.code == 0, result
        assert result.line("format").startswith(f"{form}, asked for: ")
        assert "chosen for numpy" in result.line("otherwise")


@pytest.mark.parametrize("backend", FRAMEWORKS)
def test_inspect_for_a_backend(backend: str, run: Callable[..., Run]) -> None:
    result = run("inspect", "--example", "bar", "--backend", backend)
    assert result.code == 0 and f"chosen for {backend}: " in result.line("format")


@pytest.mark.parametrize("ending", ["png", "PNG", "pdf", "svg"])
def test_inspect_plot(ending: str, run: Callable[..., Run]) -> None:
    result = run("inspect", "--example", "airfoil", "--plot", f"A.{ending}")
    assert result.code == 0 and result.line("plot") == f"written to A.{ending}"
    start = Path(f"A.{ending}").read_bytes()[:5]
    assert start == {"png": b"\x89PNG\r", "pdf": b"%PDF-", "svg": b"<?xml"}[ending.lower()]


@pytest.mark.parametrize("name", ["$x$.npy", "$\\frac$.npy", "a_b^c$.npy", "\u4e2d.npy"])
def test_inspect_plots_any_name(name: str, run: Callable[..., Run]) -> None:
    """A name is no mathematics, and characters that the font lacks do no harm."""
    np.save(name, np.eye(3))
    assert run("inspect", name, "--plot", "A.png").code == 0


def test_inspect_refuses(run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    np.save("A.npy", np.eye(3))
    refused(run("inspect"), "nothing to inspect")
    refused(run("inspect", "none.npy"), "none.npy: there is no such file")
    refused(run("inspect", "A.npy", "b.npy"), "unrecognized arguments: b.npy")
    refused(run("inspect", "A.npy", "--example", "bar"), "give one of them")
    refused(run("inspect", "A.npy", "--format", "xyz"), "xyz", "csr")
    refused(run("inspect", "none.npy", "--plot", "A.gif"), "A.gif", ".png, .pdf, .svg")  # before the work
    refused(run("inspect", "none.npy", "--plot", "no/A.png"), "there is no folder no")
    np.save("v.npy", np.ones(3))
    refused(run("inspect", "v.npy"), "v.npy: got an array of shape (3,)")
    np.save("nan.npy", np.array([[np.nan, 1]]))
    refused(run("inspect", "nan.npy"), "1 of 2 entries are not finite: NaN")
    n = 10**6
    sp.save_npz("big.npz", sp.coo_array((np.ones(3), (np.array([0, 5, n - 1]), np.array([7, n - 1, 0]))), (n, n)))
    refused(run("inspect", "big.npz", "--format", "dense"), "--format dense", "8 TB")
    monkeypatch.setattr(picture, "find_spec", lambda name: None)
    refused(run("inspect", "A.npy", "--plot", "A.png"), "pip install matplotlib")


# ---- not converged


def test_not_converged(run: Callable[..., Run]) -> None:
    result = run("solve", "--example", "bar", "--method", "CG", "--max-iter", "5", "--output", "x.npy")
    assert result.code == 1
    assert result.line("status").startswith("NOT CONVERGED: CG reached the limit of iterations after 5")
    assert result.line("iterations") == "5"
    assert "against tolerance" in result.line("residual")
    assert np.load("x.npy").shape == (600,)


def test_one_of_several_not_converged(run: Callable[..., Run]) -> None:
    np.save("A.npy", np.diag([1.0, 2, 0]))
    np.save("b.npy", np.array([[1.0, 1], [1, 1], [0, 1]]))  # the second has no solution
    result = run("solve", "A.npy", "b.npy")
    assert result.code == 1
    assert "1 of 2 systems" in result.line("status")
    assert result.line("  column 0").startswith("converged")


def test_tolerances(run: Callable[..., Run]) -> None:
    few = run("solve", "--example", "bar", "--method", "CG", "--rtol", "1e-2")
    by_atol = run("solve", "--example", "bar", "--method", "CG", "--rtol", "0", "--atol", "1e-3")
    assert few.code == by_atol.code == 0
    assert by_atol.line("residual").endswith("tolerance 1.000e-03")
    assert int(few.line("iterations")) < int(by_atol.line("iterations"))


# ---- malformed files

GOOD = HEADER + "2 2 2\n1 1 1.5\n2 2 2.5\n"
MALFORMED: dict[str, tuple[str, bytes, str]] = {
    "empty": ("A.mtx", b"", "A.mtx"),
    "garbage": ("A.mtx", b"hello\nworld\n", "Missing banner"),
    "binary": ("A.mtx", bytes(range(256)), "A.mtx"),
    "half a header": ("A.mtx", HEADER[:30].encode(), "A.mtx"),
    "wrong header": ("A.mtx", GOOD.replace("real", "quaternion").encode(), "quaternion"),
    "no size": ("A.mtx", HEADER.encode(), "A.mtx"),
    "truncated": ("A.mtx", GOOD[:-8].encode(), "runcated"),
    "truncated in a line": ("A.mtx", GOOD[:-6].encode(), "A.mtx"),
    "announces too much": ("A.mtx", GOOD.replace("2 2 2\n", "2 2 99999999999999\n").encode(), "truncated"),
    "goes on": ("A.mtx", (GOOD + "1 2 3\n").encode(), "Line 5"),
    "a word": ("A.mtx", GOOD.replace("2.5", "two").encode(), "Line 4"),
    "index too large": ("A.mtx", GOOD.replace("2 2 2.5", "3 2 2.5").encode(), "out of bounds"),
    "index zero": ("A.mtx", GOOD.replace("2 2 2.5", "0 2 2.5").encode(), "out of bounds"),
    "negative size": ("A.mtx", GOOD.replace("2 2 2\n", "-2 -2 2\n").encode(), "negative"),
    "NaN": ("A.mtx", GOOD.replace("2.5", "nan").encode(), "1 of 2 entries are not finite: NaN"),
    "infinity": ("A.mtx", GOOD.replace("2.5", "1e999").encode(), "infinity"),
    "not square": ("A.mtx", GOOD.replace("2 2 2\n", "2 3 2\n").encode(), "(2, 3); expected a square"),
    "far too large": ("A.mtx", GOOD.replace("2 2 2\n", "9000000000000 9000000000000 2\n").encode(), "memory"),
    "no gzip": ("A.mtx.gz", b"hello", "gzip"),
    "truncated gzip": ("A.mtx.gz", gzip.compress(GOOD.encode())[:40], "A.mtx.gz"),
    "text as npy": ("A.npy", b"1 2\n3 4\n", "is no .npy file"),
    "empty npy": ("A.npy", b"", "is no .npy file"),
    "text as npz": ("A.npz", b"1 2\n3 4\n", "is no .npz archive"),
}


@pytest.mark.parametrize("case", MALFORMED)
@pytest.mark.parametrize("place", ["matrix", "right-hand side"])
def test_malformed_text(case: str, place: str, run: Callable[..., Run]) -> None:
    name, content, words = MALFORMED[case]
    Path(name).write_bytes(content)
    np.save("good.npy", np.eye(2))
    if place == "matrix":
        refused(run("solve", name), name, words)
    elif case == "not square":  # three right-hand sides
        assert run("solve", "good.npy", name).code == 0
    else:
        refused(run("solve", "good.npy", name), name, "to fit the matrix" if case == "far too large" else words)


@pytest.mark.parametrize("case", MALFORMED)
def test_inspect_malformed(case: str, run: Callable[..., Run]) -> None:
    name, content, words = MALFORMED[case]
    Path(name).write_bytes(content)
    if case == "not square":
        assert run("inspect", name).code == 0
    else:
        refused(run("inspect", name), name, words)


def arrays_of(A: sp.sparray) -> dict[str, np.ndarray]:
    stream = io.BytesIO()
    sp.save_npz(stream, A)
    stream.seek(0)
    return dict(np.load(stream))


BROKEN_NPZ: dict[str, Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]] = {
    "index outside": lambda a: a | {"indices": a["indices"] + 10**6},
    "negative index": lambda a: a | {"indices": a["indices"] - 10**6},
    "bad pointers": lambda a: a | {"indptr": a["indptr"][::-1].copy()},
    "too little data": lambda a: a | {"data": a["data"][:-1]},
    "no pointers": lambda a: {k: v for k, v in a.items() if k != "indptr"},
    "unknown format": lambda a: a | {"format": np.array("xyz")},
    "objects": lambda a: a | {"data": np.array([None] * len(a["data"]))},
    "words": lambda a: a | {"data": a["data"].astype(str)},
    "two arrays": lambda a: {"a": np.eye(2), "b": np.eye(2)},
    "none": lambda a: {},
}


@pytest.mark.parametrize("case", BROKEN_NPZ)
@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_broken_npz(case: str, kind: str, run: Callable[..., Run]) -> None:
    np.savez("A.npz", **BROKEN_NPZ[case](arrays_of(matrix().asformat(kind))))
    refused(run("solve", "A.npz"), "A.npz")


def test_truncated_binary_files(run: Callable[..., Run]) -> None:
    np.save("A.npy", np.eye(9))
    sp.save_npz("A.npz", matrix())
    for name in ("A.npy", "A.npz"):
        Path(name).write_bytes(Path(name).read_bytes()[:200])
        refused(run("solve", name), name)


BAD_ARRAYS = {
    "words": np.array([["a", "b"], ["c", "d"]]),
    "objects": np.array([[1, None], [2, 3]], object),
    "dates": np.zeros((2, 2), "M8[s]"),
    "records": np.zeros((2, 2), [("re", float), ("im", float)]),
    "NaN": np.array([[1, np.nan], [0, 1]]),
    "vector": np.ones(3),
    "three axes": np.ones((2, 2, 2)),
    "number": np.array(3.0),
    "not square": np.ones((2, 3)),
    "nothing": np.ones((0, 0)),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_arrays_that_are_no_matrix(case: str, run: Callable[..., Run]) -> None:
    np.save("A.npy", BAD_ARRAYS[case])
    refused(run("solve", "A.npy"), "A.npy")


@pytest.mark.parametrize(
    "b", [np.ones(5), np.ones((1, N)), np.ones((3, N)), np.ones((N, 2, 2)), np.ones((N, 0)), np.array(1.0)]
)
def test_right_hand_side_of_wrong_shape(b: np.ndarray, run: Callable[..., Run]) -> None:
    sp.save_npz("A.npz", matrix())
    np.save("b.npy", b)
    result = run("solve", "A.npz", "b.npy")
    refused(result, f"b.npy: got the shape {b.shape}", f"expected ({N},)")
    assert ("Transpose it" in result.err) == (b.shape[1:] == (N,))


def test_nan_in_right_hand_side(run: Callable[..., Run]) -> None:
    sp.save_npz("A.npz", matrix())
    np.save("b.npy", np.where(np.arange(N) == 3, np.nan, 1))
    refused(run("solve", "A.npz", "b.npy"), "b.npy", "NaN")


# ---- wrong words

WRONG: dict[str, tuple[str, tuple[str, ...]]] = {
    "": ("COMMAND", ()),
    "melt": ("melt", ("solve", "methods")),
    "solve": ("nothing to solve", ("--example",)),
    "solve --melt": ("--melt", ()),
    "solve nothing.mtx": ("nothing.mtx: there is no such file", ()),
    "solve folder.mtx": ("folder.mtx: is a folder", ()),
    "solve A.txt": ("A.txt", (".mtx, .mtx.gz, .npz, .npy",)),
    "solve A.npz nothing.npy": ("nothing.npy: there is no such file", ()),
    "solve A.npz --example bar": ("give one of them", ()),
    "solve --example foo": ("'foo'", EXAMPLES),
    "solve A.npz --method foo": ("'foo'", ("biCG-stab(2)",)),
    "solve A.npz --method gmresx": ("'gmresx'", ()),
    "solve A.npz --preconditioner foo": ("'foo'", tuple(PRECONDITIONERS)),
    "solve A.npz --backend foo": ("'foo'", BACKENDS),
    "solve A.npz --dtype half": ("'half'", ()),
    "solve A.npz --rtol little": ("--rtol", ("'little'",)),
    "solve A.npz --rtol -1": ("rtol must be >= 0", ()),
    "solve A.npz --atol nan": ("atol", ()),
    "solve A.npz --max-iter -1": ("max_iter must be >= 0", ()),
    "solve A.npz --max-iter 1.5": ("--max-iter", ()),
    "solve A.npz --nullspace constant": ("nullspace", ()),
    "solve A.npz --output x.txt": ("x.txt: cannot write this kind of file", (".npy",)),
    "solve A.npz --output nowhere/x.npy": ("there is no folder nowhere", ()),
    "solve A.npz --method CG": ("CG needs a symmetric matrix", ("Use biCG-stab(2)",)),
    "solve A.npz --method direct --preconditioner jacobi": ("takes no preconditioner", ()),
    "solve C.npz --method CG": ("CG needs a Hermitian matrix", ()),
    "solve C.npz --method scipy-MINRES": ("real systems only", ()),
    "solve big.npy --dtype single": ("too large for float32", ()),
}


@pytest.mark.parametrize("command", WRONG)
def test_refusals(command: str, run: Callable[..., Run]) -> None:
    sp.save_npz("A.npz", matrix())
    sp.save_npz("C.npz", matrix(np.complex128))
    np.save("big.npy", np.diag([1e300, 1.0]))
    Path("folder.mtx").mkdir()
    words, more = WRONG[command]
    refused(run(*command.split()), words, *more)


def test_missing_framework(run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise krylix.NoBackendFound(f"{name} is not installed: pip install 'krylix[{name}]'.")

    monkeypatch.setattr("krylix.command_line.solve.get_backend", absent)
    refused(run("solve", "--example", "bar", "--backend", "torch"), "pip install 'krylix[torch]'")


def test_failures_other_than_convergence_have_code_1(run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 3 TiB\nfor the factors")

    monkeypatch.setattr("krylix.command_line.solve.linear_solve", fail)
    result = run("solve", "--example", "bar")
    assert result.code == 1
    assert result.err == "krylix: the solve failed: Unable to allocate 3 TiB for the factors\n"


def test_unwritable_output(run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("krylix.command_line.files.np.save", full)
    refused(run("solve", "--example", "airfoil", "--output", "x.npy"), "x.npy: cannot be written: No space left")


def test_interrupt(run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("krylix.command_line.solve.linear_solve", interrupt)
    result = run("solve", "--example", "bar")
    assert (result.code, result.err) == (130, "krylix: interrupted\n")


# ---- as a process


def process(*argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "krylix", *argv]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_as_a_process(tmp_path: Path) -> None:
    good = process("solve", "--example", "bar", cwd=tmp_path)
    assert (good.returncode, good.stderr) == (0, "")
    assert process("solve", "--example", "bar", "--method", "CG", "--max-iter", "5", cwd=tmp_path).returncode == 1
    bad = process("solve", "nothing.mtx", cwd=tmp_path)
    assert (bad.returncode, bad.stdout, bad.stderr) == (2, "", "krylix: nothing.mtx: there is no such file.\n")


def test_version_and_help(tmp_path: Path) -> None:
    assert process("--version", cwd=tmp_path).stdout == f"krylix {krylix.__version__}\n"
    text = process("solve", "--help", cwd=tmp_path).stdout
    assert all(word in text for word in ("--example", "--method", "--output", "helmholtz_2D"))


@pytest.mark.skipif(sys.platform == "win32", reason="pipes close differently")
def test_reader_that_goes_away(tmp_path: Path) -> None:
    command = f'"{sys.executable}" -m krylix methods | head -n 1'
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.skipif(sys.platform != "linux", reason="file names are Unicode elsewhere")
def test_file_name_that_cannot_be_printed(tmp_path: Path) -> None:
    np.save(tmp_path / "A.npy", np.eye(2))
    name = b"\xff\n.npy".decode("utf-8", "surrogateescape")
    (tmp_path / "A.npy").rename(tmp_path / name)
    assert process("solve", name, cwd=tmp_path).returncode == 0
    (tmp_path / name).write_bytes(b"")
    bad = process("solve", name, cwd=tmp_path)
    assert bad.returncode == 2
    assert bad.stderr.count("\n") == 1
