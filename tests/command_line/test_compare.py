"""`krylix compare`: what is tried, in which order it is told, and what happens to those that fail."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from command_runs import N, Run, compare_in_this_process, matrix, rhs
from krylix.command_line.compare.combinations import combinations
from krylix.command_line.compare.comparison import Settings
from krylix.command_line.compare.trials import Trials
from krylix.solvers import METHODS, PRECONDITIONERS, find_method


def complex_symmetric() -> sp.csr_array:
    A = matrix(np.complex128)
    return sp.csr_array(A + A.T)


MATRICES: dict[str, Callable[[], Any]] = {
    "symmetric": lambda: matrix(symmetric=True),
    "indefinite": lambda: matrix(symmetric=True) - 8 * sp.eye_array(N),
    "Hermitian": lambda: matrix(np.complex128, True),
    "complex symmetric": complex_symmetric,
    "general": matrix,
    "dense": lambda: matrix().toarray(),
    "tall": lambda: sp.vstack([matrix(), matrix()]).tocsr(),
    "wide": lambda: matrix()[:7],
}


@pytest.mark.parametrize("case", MATRICES)
def test_what_suits_a_matrix(case: str) -> None:
    """No method is tried that would refuse the matrix, and none twice."""
    A = MATRICES[case]()
    pairs = combinations(A)
    assert len(set(pairs)) == len(pairs) > 1
    for method, kind in pairs:
        if method != "auto":
            found = find_method(method)
            assert found.least_squares == (A.shape[0] != A.shape[1])
            assert not found.needs_hermitian or case in ("symmetric", "indefinite", "Hermitian")
            assert kind == "none" or (found.takes_preconditioner and kind in PRECONDITIONERS)
    methods = {method for method, _ in pairs}
    assert ("CG" in methods) == (case in ("symmetric", "Hermitian"))
    if case == "complex symmetric":
        assert {"COCG", "COCR"} & set(METHODS) <= methods


def test_what_is_named() -> None:
    A = matrix(symmetric=True)
    assert combinations(A, ["CG", "MINRES"], ["none", "ilu"]) == [
        ("CG", "none"), ("CG", "ilu"), ("MINRES", "none"), ("MINRES", "ilu"),
    ]  # fmt: skip
    assert combinations(A, ["auto", "scipy-direct"], ["jacobi", "ilu"]) == [("auto", "auto"), ("scipy-direct", "none")]
    assert combinations(A, ["GMRES(50)"]) == [("GMRES(50)", kind) for kind in ("none", *PRECONDITIONERS)]
    assert combinations(matrix(), [], ["ilu"]) == [(name, "ilu") for name in ("GMRES", "biCG-stab(2)", "IDR(4)")]


@pytest.mark.parametrize("process", ["this", pytest.param("another", marks=pytest.mark.merge)])
def test_the_fastest_first(process: str, run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    if process == "this":
        compare_in_this_process(monkeypatch)
    A = matrix(symmetric=True)
    sp.save_npz("A.npz", A)
    np.save("b.npy", rhs(N, 2))
    words = ("A.npz", "b.npy", "--methods", "CG,biCG-stab(2),auto", "--preconditioners", "none,jacobi,fast")
    result = run("compare", *words, "--plot", "picture.png")
    assert result.code == 0 and result.err == "", result
    assert "the first of 2 columns" in result.line("right-hand side")
    assert result.line("fastest").startswith("krylix solve A.npz b.npy")
    assert Path("picture.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads(run("compare", *words, "--json").out)
    rows = found["rows"]
    assert len(rows) == 7 and found["time_limit"] == 30
    done = [row for row in rows if row["converged"]]
    assert done == rows[: len(done)] and {row["wanted"]["method"] for row in done} >= {"CG", "biCG-stab(2)", "auto"}
    times = [row["seconds"]["set_up"] + row["seconds"]["solve"] for row in done]
    assert times == sorted(times) and all(row["residual"] <= 1e-10 for row in done)
    for row in rows[len(done) :]:
        assert row["wanted"]["preconditioner"] == "fast" or row["problem"]


def test_only_failures(run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    compare_in_this_process(monkeypatch)
    sp.save_npz("A.npz", matrix())
    result = run("compare", "A.npz", "--methods", "CG,GMRES(2)", "--preconditioners", "none", "--max-iter", "1")
    assert result.code == 1 and "none converged" in result.line("fastest")
    assert "CG needs a symmetric matrix" in result.out and "NOT CONVERGED: " in result.out
    assert run("compare", "A.npz", "--methods", "CG", "--quiet", "--preconditioners", "none").out == ""


def test_least_squares(run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    compare_in_this_process(monkeypatch)
    np.save("A.npy", np.random.default_rng(0).standard_normal((50, 8)))
    found = json.loads(run("compare", "A.npy", "--json").out)
    assert {row["method"] for row in found["rows"] if row["converged"]} == {"LSMR", "CGLS"}


@pytest.mark.merge
def test_processes_that_are_stopped_or_end() -> None:
    """The next solve has a process of its own; one ends as here where it takes more memory than there is."""
    A = np.random.default_rng(0).standard_normal((1500, 1500))
    with Trials(A, np.ones(len(A)), Settings(), 0.05) as trials:
        row = trials.run(("scipy-lsqr", "none"), (0, 3))
        assert row.problem == "stopped after 0.05 s (--time-limit)" and not row.converged
        trials.limit = float("inf")
        row = trials.run(("direct", "none"), (1, 3))
        assert row.converged and row.method == "direct" and row.residual is not None and row.residual < 1e-10
        trials._process.kill()
        trials._process.join()
        row = trials.run(("CG", "none"), (2, 3))
        assert row.problem is not None and "ended with code -9" in row.problem
