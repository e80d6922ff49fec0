"""`krylix precondition`, `solve --preconditioner FILE` and `inspect --preconditioners`."""

import io
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyamg
import pytest
import scipy.sparse as sp

import krylix
from command_runs import N, Run, failed, matrix, no_space, refused
from krylix.__main__ import main
from krylix.command_line.arguments import EXAMPLES
from krylix.command_line.compare import compare_preconditioners
from krylix.command_line.solve import settings_of
from krylix.command_line.terminal import Activity
from krylix.solvers import PRECONDITIONERS, Preconditioner
from krylix.sparse import Operator

OTHERS = tuple(name for name in EXAMPLES if name != "unit_square")


def with_settings(A: Operator, *, shift: float = 0.0, sweeps: int = 1, name: str = "none") -> Preconditioner:
    """A kind with settings, which it tells."""
    made = PRECONDITIONERS["jacobi"](A)
    settings = (("shift", shift), ("sweeps", sweeps), ("name", name))
    return Preconditioner(made.inner, "mine", False, made.memory, made.work, made.entries, settings, "as a test")


def test_precondition_saves_what_solve_takes(run: Callable[..., Run]) -> None:
    sp.save_npz("A.npz", matrix(symmetric=True))
    made = run("precondition", "A.npz", "--kind", "Jacobi", "--output", "M.npz")
    assert made.code == 0 and made.err == ""
    M = krylix.load_preconditioner("M.npz")
    np.testing.assert_array_equal(M.diagonal(), 1 / matrix(symmetric=True).diagonal())
    assert made.line("preconditioner") == repr(M) and made.line("symmetry").startswith("symmetric")
    assert made.line("memory").startswith(f"{N} numbers ({8 * N} B)") and "written to M.npz" in made.line("output")
    assert made.line("set-up").endswith(" s")
    named = run("solve", "A.npz", "--method", "CG", "--preconditioner", "jacobi")
    from_file = run("solve", "A.npz", "--method", "CG", "--preconditioner", "M.npz")
    assert from_file.code == 0 and from_file.line("preconditioner") == "jacobi, from M.npz"
    assert from_file.line("iterations") == named.line("iterations")


@pytest.mark.parametrize("backend", ["torch", "jax", "tensorflow"])
def test_a_file_serves_every_library(backend: str, run: Callable[..., Run]) -> None:
    sp.save_npz("A.npz", matrix(symmetric=True))
    assert run("precondition", "A.npz", "--kind", "jacobi", "--output", "M.npz", "--quiet") == Run(0, "", "")
    words = ("--backend", backend, "--dtype", "single", "--method", "CG", "--preconditioner", "M.npz")
    result = run("solve", "A.npz", *words)
    assert result.code == 0 and result.line("backend") == f"{backend}, float32"


def test_settings(run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PRECONDITIONERS, "mine", with_settings)
    sp.save_npz("A.npz", matrix())
    words = ("--setting", "shift=1e-3", "--setting", "sweeps = 3", "--setting", "name=fast")
    result = run("precondition", "A.npz", "--kind", "mine", *words, "--output", "M.npz")
    assert result.line("settings") == "shift = 0.001, sweeps = 3, name = fast"
    assert result.line("note") == "as a test" and result.line("symmetry").startswith("not symmetric")
    found = json.loads(run("precondition", "A.npz", "--kind", "mine", *words, "--json").out)
    assert found["preconditioner"]["settings"] == {"shift": 0.001, "sweeps": 3, "name": "fast"}
    assert found["preconditioner"]["memory"] == N and found["output"] is None
    assert krylix.load_preconditioner("M.npz").settings == (("shift", 0.001), ("sweeps", 3), ("name", "fast"))
    assert settings_of(["a=(1, 2)", "b=None", "c=x=y"]) == {"a": (1, 2), "b": None, "c": "x=y"}
    refused(run("precondition", "A.npz", "--kind", "mine", "--setting", "size=3"), "mine has no setting size", "shift")


REFUSALS = {
    "precondition": ("nothing to precondition",),
    "precondition A.npz --kind foo": ("'foo'", *PRECONDITIONERS),
    "precondition A.npz --kind jacobi --setting a={[]:1}": ("jacobi", "has no setting a"),
    "precondition A.npz --kind jacobi --setting kind=ilu": ("--setting kind=ilu", "no setting of a preconditioner"),
    "precondition A.npz --kind jacobi --setting like=3": ("--setting like=3", "no setting of a preconditioner"),
    "precondition A.npz --setting sweeps": ("--setting sweeps", "NAME=VALUE"),
    "precondition A.npz --kind jacobi --setting sweeps=2": ("jacobi", "has no setting sweeps"),
    "precondition A.npz --output M.mtx": ("M.mtx: cannot write this kind of file", ".npz"),
    "precondition A.npz --output A.npz": ("A.npz: is the same file",),
    "precondition A.npz --output nowhere/M.npz": ("no folder nowhere",),
    "precondition wide.npz --kind jacobi": ("jacobi", f"(5, {N})", "a square one"),
    "solve A.npz --preconditioner nothing.npz": ("nothing.npz: cannot be read", "No such file"),
    "solve A.npz --preconditioner A.npz": ("A.npz: holds a matrix", "krylix.sparse.load"),
    "solve A.npz --preconditioner cut.npz": ("cut.npz: is no .npz archive",),
    "solve A.npz --preconditioner small.npz": ("(3, 3)", f"({N}, {N})"),
    "solve A.npz --method biCG-stab --preconditioner M.npz --output M.npz": ("M.npz: is the same file",),
    "inspect wide.npz --preconditioners": ("expected a square one",),
    "inspect A.npz --preconditioners --plot x.txt": ("x.txt: cannot write",),
}


@pytest.mark.parametrize("command", REFUSALS)
def test_refusals(command: str, run: Callable[..., Run]) -> None:
    sp.save_npz("A.npz", matrix())
    sp.save_npz("wide.npz", matrix()[:5])
    krylix.preconditioner(matrix(), "jacobi").save("M.npz")
    krylix.preconditioner(np.eye(3), "jacobi").save("small.npz")
    Path("cut.npz").write_bytes(Path("M.npz").read_bytes()[:200])
    before = {path.name: path.read_bytes() for path in Path().iterdir()}
    result = run(*command.split())
    refused(result, *REFUSALS[command])
    assert {path.name: path.read_bytes() for path in Path().iterdir()} == before


def test_what_cannot_be_written(run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    sp.save_npz("A.npz", matrix())
    monkeypatch.setattr(np, "savez", no_space)
    result = run("precondition", "A.npz", "--kind", "jacobi", "--output", "M.npz")
    assert result.code == 1 and "M.npz: cannot be written: No space left" in result.err and not Path("M.npz").exists()


def no_way(A: Operator) -> Preconditioner:
    raise ValueError("This kind needs\na symmetric matrix; got another one. Use 'jacobi'.")


def no_memory(A: Operator) -> Preconditioner:
    raise MemoryError("Unable to allocate 3 TiB")


@pytest.mark.parametrize("case", ["symmetric", "general", "complex"])
def test_comparison(case: str, run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind has a row, also one that cannot be built; CG where A and M are symmetric."""
    monkeypatch.setitem(PRECONDITIONERS, "no way", no_way)
    monkeypatch.setitem(PRECONDITIONERS, "too large", no_memory)
    monkeypatch.setitem(PRECONDITIONERS, "mine", with_settings)  # which says that it is not symmetric
    A = matrix(np.complex128 if case == "complex" else np.float64, case == "symmetric")
    sp.save_npz("A.npz", A)
    result = run("inspect", "A.npz", "--preconditioners")
    assert result.code == 0 and result.err == ""
    method = "CG" if case == "symmetric" else "biCG-stab(2)"
    for kind in ("none", "jacobi"):
        assert method in result.line(kind).split() and result.line(kind).endswith(" converged")
    assert "biCG-stab(2)" in result.line("mine")
    assert "cannot be used: This kind needs a symmetric matrix; got another one." in result.line("no")
    assert "cannot be used: the set-up failed: Unable to allocate 3 TiB" in result.line("too")
    found = json.loads(run("inspect", "A.npz", "--preconditioners", "--json").out)
    rows = {row["kind"]: row for row in found["preconditioners"]}
    assert list(rows) == ["none", *PRECONDITIONERS]
    assert rows["jacobi"]["memory"] == N and rows["jacobi"]["converged"] and rows["jacobi"]["method"] == method
    assert rows["no way"]["problem"].startswith("This kind needs") and rows["no way"]["seconds"]["solve"] is None
    b = np.random.default_rng(5).standard_normal(N).astype(A.dtype)
    alone = krylix.linear_solve(A, b, method=method, preconditioner="jacobi")
    assert abs(rows["jacobi"]["iterations"] - int(alone.iterations)) <= 2


@pytest.mark.needs("matplotlib")
def test_picture_of_the_comparison(run: Callable[..., Run]) -> None:
    sp.save_npz("A.npz", matrix(symmetric=True))
    result = run("inspect", "A.npz", "--preconditioners", "--plot")
    assert result.code == 0 and result.line("plot") == "written to krylix.png"
    assert Path("krylix.png").read_bytes().startswith(b"\x89PNG")
    assert run("inspect", "A.npz", "--plot", "--quiet").code == 0
    assert run("inspect", "A.npz", "--preconditioners", "--plot", "picture.svg", "--quiet").code == 0
    assert Path("picture.svg").stat().st_size > 1000


@pytest.mark.parametrize("name", ["unit_square", *(pytest.param(n, marks=pytest.mark.merge) for n in OTHERS)])
def test_comparison_of_examples(name: str, run: Callable[..., Run]) -> None:
    """Also of a singular matrix and of an indefinite one; who does not converge says so."""
    result = run("inspect", "--example", name, "--preconditioners", "--json")
    assert result.code == 0
    rows = json.loads(result.out)["preconditioners"]
    for row in rows:
        assert row["problem"] or row["converged"] == (row["status"] == "converged")
    assert name == "helmholtz_2D" or any(row["converged"] for row in rows)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal only, only where it takes its time, and nothing is left of it."""
    monkeypatch.setattr("krylix.command_line.terminal._PATIENCE", 0.02)
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        monkeypatch.setattr("sys.stderr", stream)
        with Activity("amg: setting up"):
            time.sleep(0.15)
    assert pipe.getvalue() == "" and "\ramg: setting up ... 0 s" in terminal.getvalue()
    shown = terminal.getvalue().split("\r")
    assert shown[-1] == "" and shown[-2].strip() == "" and len(shown[-2]) >= len(shown[-3])
    monkeypatch.setattr("krylix.command_line.terminal._PATIENCE", 60)
    quick = Terminal()
    monkeypatch.setattr("sys.stderr", quick)
    with Activity("jacobi"):
        pass
    assert quick.getvalue() == ""


def test_a_bar_over_several_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(A: Operator) -> Preconditioner:
        time.sleep(0.1)
        return jacobi(A)

    jacobi, terminal = PRECONDITIONERS["jacobi"], Terminal()
    monkeypatch.setattr("krylix.command_line.terminal._PATIENCE", 0.02)
    monkeypatch.setitem(PRECONDITIONERS, "ssor", slow)
    monkeypatch.setattr("sys.stderr", terminal)
    rows = [row.kind for row in compare_preconditioners(pyamg.gallery.poisson((10, 10), format="csr"))]
    at, whole = rows.index("ssor"), len(rows)
    bar = "#" * (24 * at // whole)
    assert rows == ["none", *PRECONDITIONERS] and 0 < len(bar) < 24
    assert f"\r[{bar:<24}] {at}/{whole} ssor: setting up ... 0 s" in terminal.getvalue()


def test_interrupted_set_up(run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(A: Operator) -> Preconditioner:
        raise KeyboardInterrupt

    monkeypatch.setitem(PRECONDITIONERS, "mine", interrupt)
    failed(run("precondition", "--example", "bar", "--kind", "mine"), 130, "interrupted")
    assert main(["precondition", "--example", "bar", "--kind", "mine", "--quiet"]) == 130
