"""What is said of a matrix, and its pictures."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from command_runs import HEADER, Run, matrix, refused
from frameworks import FRAMEWORKS
from krylix.command_line import picture
from krylix.command_line.arguments import EXAMPLES, FORMATS


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
    per_row = f"{min(lengths)} to {max(lengths)} non-zeros, median {np.median(lengths):g}"
    assert result.line("per row").startswith(per_row)
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


@pytest.mark.parametrize("shape", [(2, 3), (300, 7), (7, 300), (0, 0), (0, 3), (3, 0), (1, 1), (5, 5)])
def test_inspect_any_shape(shape: tuple[int, int], run: Callable[..., Run]) -> None:
    for A, plot in ((np.ones(shape), shape not in ((2, 3), (300, 7), (5, 5))), (np.zeros(shape), shape == (5, 5))):
        np.save("A.npy", A)
        result = run("inspect", "A.npy", *(("--plot", "A.png") if plot else ()))
        assert not plot or Path("A.png").stat().st_size > 1000
        assert result.code == 0 and result.err == "", result
        assert result.line("shape").startswith(f"{shape[0]} x {shape[1]}, ")
        if shape[0] != shape[1]:
            assert result.line("symmetry") == "not square" and "definite" not in result.out
        sp.save_npz("S.npz", sp.csr_array(A))
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
    np.save("A.npy", np.eye(3))
    result = run("inspect", "A.npy", "--plot", f"A.{ending}")
    assert result.code == 0 and result.line("plot") == f"written to A.{ending}"
    start = Path(f"A.{ending}").read_bytes()[:5]
    assert start == {"png": b"\x89PNG\r", "pdf": b"%PDF-", "svg": b"<?xml"}[ending.lower()]


@pytest.mark.parametrize("name", ["$\\frac$ a_b^c$.npy", "\u4e2d $x$.npy"])
def test_inspect_plots_any_name(name: str, run: Callable[..., Run]) -> None:
    """A name is no mathematics, and characters that the font lacks do no harm."""
    np.save(name, np.eye(3))
    assert run("inspect", name, "--plot", "A.png").code == 0


def test_inspect_refuses(run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    np.save("A.npy", np.eye(3))
    np.save("v.npy", np.ones(3))
    np.save("nan.npy", np.array([[np.nan, 1]]))
    n = 10**6
    sp.save_npz("big.npz", sp.coo_array((np.ones(3), (np.array([0, 5, n - 1]), np.array([7, n - 1, 0]))), (n, n)))
    for words, problem in {
        "": ("nothing to inspect",),
        "none.npy": ("none.npy: there is no such file",),
        "A.npy b.npy": ("unrecognized arguments: b.npy",),
        "A.npy --example bar": ("give one of them",),
        "A.npy --format xyz": ("xyz", "csr"),
        "none.npy --plot A.gif": ("A.gif", ".png, .pdf, .svg"),  # before the work
        "none.npy --plot no/A.png": ("there is no folder no",),
        "v.npy": ("v.npy: got an array of shape (3,)",),
        "nan.npy": ("1 of 2 entries are not finite: NaN",),
        "big.npz --format dense": ("--format dense", "8 TB"),
    }.items():
        refused(run("inspect", *words.split()), *problem)
    monkeypatch.setattr(picture, "find_spec", lambda name: None)
    refused(run("inspect", "A.npy", "--plot", "A.png"), "pip install matplotlib")
