"""Files of other programs, x on standard output, and the picture of a solve."""

import io
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from boeing_files import boeing
from command_runs import N, Run, matrix, refused, residual, rhs

B = rhs(N)


def write_archive(path: Path) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, array in (("A/A.mtx", matrix()), ("A/A_b.mtx", B[:, None])):
            stream = io.BytesIO()
            scipy.io.mmwrite(stream, array, symmetry="general", precision=17)
            info = tarfile.TarInfo(name)
            info.size = len(stream.getvalue())
            tar.addfile(info, io.BytesIO(stream.getvalue()))


WRITERS: dict[str, Callable[[Path], object]] = {
    "A.mat": lambda path: scipy.io.savemat(path, {"K": matrix(), "b": B}, oned_as="column"),
    "A.rb": lambda path: path.write_bytes(boeing(matrix(), "rua")),
    "A.hb": lambda path: path.write_bytes(boeing(matrix(), "rua", b=B[:, None])),
    "A.txt": lambda path: np.savetxt(path, matrix().toarray()),
    "A.csv": lambda path: np.savetxt(path, matrix().toarray(), delimiter=","),
    "A.tar.gz": write_archive,
}
WITH_B = {"A.mat": "b in A.mat", "A.hb": "right-hand side in A.hb", "A.tar.gz": "A/A_b.mtx in A.tar.gz"}


@pytest.mark.parametrize("name", WRITERS)
def test_every_form(name: str, run: Callable[..., Run], feed: Callable[[bytes], None]) -> None:
    """With its own right-hand side, or with another one; from standard input too."""
    WRITERS[name](Path(name))
    other = rhs(N, 2)
    np.save("b.npy", other)
    assert run("solve", name, "b.npy", "--output", "x.npy").code == 0
    assert np.all(residual(matrix(), other, np.load("x.npy")) <= 1e-10)
    alone = run("solve", name, "--output", "x.npy")
    assert alone.code == 0 and "40 x 40" in run("inspect", name).line("shape")
    if name in WITH_B:
        assert alone.line("right-hand side").startswith(WITH_B[name])
        np.testing.assert_allclose(matrix() @ np.load("x.npy").reshape(-1), B, atol=1e-8)
    else:
        assert alone.line("right-hand side").startswith("none given")
    feed(Path(name).read_bytes())
    piped = run("solve", "-", "--output", "again.npy")
    assert piped.code == 0 and "standard input" in piped.line("matrix")
    np.testing.assert_array_equal(np.load("again.npy"), np.load("x.npy"))


@pytest.mark.parametrize("name", WRITERS)
def test_right_hand_sides_of_every_form(name: str, run: Callable[..., Run]) -> None:
    np.save("A.npy", matrix().toarray())
    write: dict[str, Callable[[Path], object]] = {
        "A.rb": lambda path: path.write_bytes(boeing(sp.csc_array(B[:, None]), "rra")),
        "A.txt": lambda path: np.savetxt(path, B),
        "A.csv": lambda path: np.savetxt(path, rhs(N, 3), delimiter=","),
    }
    write.get(name, WRITERS[name])(Path(name))
    result = run("solve", "A.npy", name, "--output", "x.npy")
    assert result.code == 0, result
    wanted = rhs(N, 3) if name == "A.csv" else B[:, None]
    assert np.load("x.npy").shape == wanted.shape
    assert np.all(residual(matrix(), wanted, np.load("x.npy")) <= 1e-10)


def test_a_variable_by_name(run: Callable[..., Run]) -> None:
    scipy.io.savemat("A.mat", {"K": matrix(), "M": np.eye(N), "f": B[:, None], "g": B[:, None]})
    refused(run("solve", "A.mat"), "several that may be the matrix", "A.mat:K")
    result = run("solve", "A.mat:K", "A.mat:f", "--output", "x.npy")
    assert result.code == 0 and result.line("matrix") == "A.mat:K"
    assert result.line("right-hand side").startswith("A.mat:f")
    assert residual(matrix(), B[:, None], np.load("x.npy")) <= 1e-10
    refused(run("solve", "A.mat:K", "A.mat"), "several that may be the right-hand side")
    refused(run("solve", "A.mat:Q"), "nothing called 'Q'; it has K, M, f, g")
    before = Path("A.mat").read_bytes()
    refused(run("solve", "A.mat:K", "--output", "A.mat"), "A.mat: is the same file as A.mat:K")
    assert Path("A.mat").read_bytes() == before


def test_a_right_hand_side_that_cannot_be_used(run: Callable[..., Run]) -> None:
    """It is refused where it is needed."""
    scipy.io.savemat("A.mat", {"A": matrix(), "b": np.full((N, 1), np.nan)})
    refused(run("solve", "A.mat"), "b in A.mat: 40 of 40 entries are not finite")
    np.save("b.npy", B)
    assert run("solve", "A.mat", "b.npy").code == 0 and run("inspect", "A.mat").code == 0


def test_files_are_called_as_they_are_called(run: Callable[..., Run]) -> None:
    scipy.io.savemat("A.mat", {"A": matrix()})
    Path("A.mat").rename("B.mat:A.mat")
    assert run("inspect", "B.mat:A.mat").code == 0


# ---- x on standard output


class Stdout(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.buffer = io.BytesIO()


@pytest.mark.parametrize("form", [None, "txt", "csv", "npy", "npz", "mtx", "mat"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128])
def test_x_to_standard_output(
    form: str | None,
    dtype: type,
    run: Callable[..., Run],
    feed: Callable[[bytes], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The report goes to stderr, and what is piped is the x of a file, with every digit."""
    sp.save_npz("A.npz", matrix(dtype))
    np.save("b.npy", rhs(N, 2, dtype=dtype))
    assert run("solve", "A.npz", "b.npy", "--output", "x.npy").code == 0
    stdout = Stdout()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stdout)
        result = run("solve", "A.npz", "b.npy", "--output", "-", *([] if form is None else ["--output-format", form]))
    assert (result.code, stdout.getvalue()) == (0, "") and "written to standard output" in result.err
    Path(f"piped.{form or 'txt'}").write_bytes(stdout.buffer.getvalue())
    np.save("I.npy", np.eye(N, dtype=dtype))
    feed(stdout.buffer.getvalue())
    assert run("solve", "I.npy", "-", "--output", "again.npy").code == 0
    np.testing.assert_allclose(np.load("again.npy"), np.load("x.npy"), rtol=1e-6 if dtype is np.float32 else 1e-15)


@pytest.mark.parametrize("form", ["txt", "csv", "mat"])
def test_x_as_a_file(form: str, run: Callable[..., Run]) -> None:
    np.save("A.npy", matrix().toarray())
    np.save("b.npy", B)
    assert run("solve", "A.npy", "b.npy", "--output", f"x.{form}").code == 0
    found = scipy.io.loadmat("x.mat")["x"] if form == "mat" else np.loadtxt(f"x.{form}", delimiter=",", ndmin=2)
    assert found.shape == (N, 1) and residual(matrix(), B[:, None], found) <= 1e-10
    assert run("solve", "A.npy", "b.npy", "--output", "x", "--output-format", form).code == 0
    assert Path("x").stat().st_size == Path(f"x.{form}").stat().st_size
    assert run("solve", "A.npy", "b.npy", "--output", "-", "--quiet").err == ""


# ---- the picture


@pytest.mark.needs("matplotlib")
@pytest.mark.parametrize(
    ("options", "b"),
    [
        ("", rhs(N)),
        ("", np.zeros(N)),
        ("--method CG --preconditioner jacobi", rhs(N, 12)),
        ("--method LSMR", rhs(N)),
        ("--max-iter 0 --method CG", rhs(N, 12)),
        ("--max-iter 0 --method CG", np.zeros(N)),
    ],
)
def test_plot(options: str, b: np.ndarray, run: Callable[..., Run]) -> None:
    sp.save_npz("A.npz", matrix(symmetric=True))
    np.save("b.npy", b)
    result = run("solve", "A.npz", "b.npy", "--plot", "x.png", *options.split())
    assert result.line("plot") == "written to x.png" and result.code == (b.any() and "0" in options.split())
    assert Path("x.png").read_bytes().startswith(b"\x89PNG")
