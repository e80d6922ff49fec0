"""Words and settings that cannot be used, and failures on the way."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from command_runs import Run, failed, matrix, no_space, refused
from krylix.command_line.arguments import BACKENDS, EXAMPLES
from krylix.solvers import PRECONDITIONERS

WRONG: dict[str, tuple[str, tuple[str, ...]]] = {
    "": ("COMMAND", ()),
    "melt": ("melt", ("solve", "methods")),
    "solve": ("nothing to solve", ("--example",)),
    "solve --melt": ("--melt", ()),
    "solve nothing.mtx": ("nothing.mtx: there is no such file", ()),
    "solve folder.mtx": ("folder.mtx: is a folder", ()),
    "solve A.xls": ("A.xls", (".mtx, .npz, .npy, .mat, .rb", ".gz, .bz2")),
    "solve A.npz.gz": ("A.npz.gz", ("cannot read",)),
    "solve A.txt": ("A.txt: there is no such file", ()),
    "solve A.mat:K": ("A.mat: there is no such file", ()),
    "solve A.npz nothing.npy": ("nothing.npy: there is no such file", ()),
    "solve A.npz --example bar": ("give one of them", ()),
    "solve --example foo": ("'foo'", EXAMPLES),
    "solve A.npz --method foo": ("'foo'", ("biCG-stab(2)",)),
    "solve A.npz --method gmresx": ("'gmresx'", ()),
    "solve - -": ("standard input can be read once", ()),
    "solve A.npz --json --quiet": ("not allowed with", ("--json",)),
    "solve A.npz --preconditioner foo": ("'foo'", tuple(PRECONDITIONERS)),
    "solve A.npz --backend foo": ("'foo'", BACKENDS),
    "solve A.npz --dtype half": ("'half'", ()),
    "solve A.npz --rtol little": ("--rtol", ("'little'",)),
    "solve A.npz --rtol -1": ("rtol must be >= 0", ()),
    "solve A.npz --rtol inf": ("rtol must be >= 0 and below 1; got inf", ()),
    "solve A.npz --rtol 5": ("below 1; got 5.0", ()),
    "solve A.npz --atol inf": ("atol must be >= 0 and finite", ()),
    "solve A.npz --atol nan": ("atol", ()),
    "solve A.npz --max-iter -1": ("max_iter must be >= 0", ()),
    "solve A.npz --max-iter 1.5": ("--max-iter", ()),
    "solve A.npz --nullspace constant": ("nullspace", ()),
    "solve A.npz --output x.doc": ("x.doc: cannot write this kind of file", (".npy",)),
    "solve A.npz --output - --json": ("both write to standard output", ()),
    "solve A.npz --output-format csv": ("give --output FILE", ()),
    "solve A.npz --output x.npy --output-format csv": ("its name says npy", ()),
    "solve A.npz --output - --output-format gif": ("invalid choice: 'gif'", ()),
    "solve A.npz --plot x.gif": ("x.gif: cannot write", (".png",)),
    "solve A.npz --plot nowhere/x.png": ("there is no folder nowhere", ()),
    "compare": ("nothing to compare", ()),
    "compare - -": ("standard input can be read once", ()),
    "compare A.npz --method CG": ("here --method is --methods", ()),
    "compare A.npz --methods CG,foo": ("'foo'", ("biCG-stab(2)",)),
    "compare A.npz --preconditioners none,foo": ("'foo'", tuple(PRECONDITIONERS)),
    "compare A.npz --time-limit 0": ("must be above 0; got 0", ()),
    "compare A.npz --time-limit soon": ("--time-limit", ("'soon'",)),
    "compare A.npz --rtol 5": ("rtol must be >= 0 and below 1; got 5.0", ()),
    "compare A.npz --max-iter -1": ("max_iter must be >= 0", ()),
    "compare A.npz --timeout 5": ("here --timeout is --time-limit", ()),
    "compare A.npz --output x.npy": ("unrecognized arguments: --output x.npy", ()),
    "solve A.npz --output nowhere/x.npy": ("there is no folder nowhere", ()),
    "solve A.npz --method CG": ("CG needs a symmetric matrix", ("Use biCG-stab(2)",)),
    "solve A.npz --method direct --preconditioner jacobi": ("takes no preconditioner", ()),
    "solve C.npz --method CG": ("CG needs a Hermitian matrix", ()),
    "solve C.npz --method scipy-MINRES": ("real systems only", ()),
    "solve A.npz --tol 1e-3": ("here --tol is --rtol", ()),
    "solve A.npz --tol=1e-3": ("here --tol is --rtol", ()),
    "solve A.npz --maxiter 5": ("here --maxiter is --max-iter", ()),
    "solve A.npz --max_iter 5": ("here --max_iter is --max-iter", ()),
    "solve A.npz -o x.npy": ("here -o is --output", ()),
    "precondition A.npz -o x.npz": ("here -o is --output", ()),
    "inspect A.npz --tol 3": ("unrecognized arguments: --tol 3. See krylix inspect --help", ()),
    "solve A.npz --precond ilu": ("here --precond is --preconditioner", ()),
    "solve A.npz --method ilu": ("give --preconditioner ilu", ()),
    "solve A.npz --preconditioner CG": ("give --method CG", ()),
    "solve A.npz --preconditioner ichol": ("Did you mean 'ic'?", ()),
    "solve A.npz --preconditioner none": ("leave out --preconditioner", ()),
    "precondition A.npz --kind ILU(0)": ("Did you mean 'ilu'?", ()),
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


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (MemoryError("Unable to allocate\n3 TiB"), 1, "the solve failed: Unable to allocate 3 TiB"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_failures_on_the_way(
    error: BaseException, code: int, words: str, run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("krylix.command_line.solve.prepare_for_one", fail)
    failed(run("solve", "--example", "bar"), code, words)


def test_no_memory_for_facts(run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("Unable to allocate 3 TiB")

    monkeypatch.setattr("krylix.command_line.facts.component_labels", fail)
    failed(run("inspect", "--example", "bar"), 1, "there is not enough memory: Unable to allocate 3 TiB")


def test_unwritable_output(run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("krylix.command_line.files.np.save", no_space)
    result = run("solve", "--quiet", "--example", "airfoil", "--output", "x.npy")
    failed(result, 1, "x.npy: cannot be written: No space")
