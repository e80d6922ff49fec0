"""`krylix compare`: what is tried, in which order it is told, and what happens to those that fail."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from command_runs import N, Run, matrix, rhs
from krylix.command_line.compare import combinations
from krylix.solvers import PRECONDITIONERS, find_method
from krylix.solvers.factors.sparse import SOLVERS


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
        assert "COCR" in methods


def test_what_is_named() -> None:
    A = matrix(symmetric=True)
    assert combinations(A, ["CG", "MINRES"], ["none", "ilu"]) == [
        ("CG", "none"), ("CG", "ilu"), ("MINRES", "none"), ("MINRES", "ilu"),
    ]  # fmt: skip
    assert combinations(A, ["auto", "scipy-direct"], ["jacobi", "ilu"]) == [("auto", "auto"), ("scipy-direct", "none")]
    assert combinations(A, ["GMRES(50)"]) == [("GMRES(50)", kind) for kind in ("none", *PRECONDITIONERS)]
    assert combinations(matrix(), [], ["ilu"]) == [(name, "ilu") for name in ("GMRES", "biCG-stab(2)", "IDR(4)")]


def test_the_fastest_first(run: Callable[..., Run]) -> None:
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


def test_only_failures(run: Callable[..., Run]) -> None:
    sp.save_npz("A.npz", matrix())
    result = run("compare", "A.npz", "--methods", "CG,GMRES(2)", "--preconditioners", "none", "--max-iter", "1")
    assert result.code == 1 and "none converged" in result.line("fastest")
    assert "CG needs a symmetric matrix" in result.out and "NOT CONVERGED: " in result.out
    words = ("compare", "A.npz", "--methods", "CG", "--preconditioners", "none")
    assert run(*words, "--quiet").out == ""
    (row,) = json.loads(run(*words, "--json").out)["rows"]
    assert row["problem"] and row["wanted"] == {"method": "CG", "preconditioner": "none"}


def test_least_squares(run: Callable[..., Run]) -> None:
    np.save("A.npy", np.random.default_rng(0).standard_normal((50, 8)))
    found = json.loads(run("compare", "A.npy", "--json").out)
    assert {row["method"] for row in found["rows"] if row["converged"]} == {"LSMR", "CGLS"}


def test_time_limit(run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    """Set-up and solve together; both rows say that time was over."""
    np.save("A.npy", np.diag([1.0, 2.0, 3.0]))
    words = ("compare", "A.npy", "--methods", "CG", "--preconditioners", "none", "--time-limit")
    result = run(*words, "1e-9")
    assert result.code == 1 and "failed: its set-up took" in result.out and "s (--time-limit 1e-09)" in result.out
    monkeypatch.setattr("krylix.solvers.run.watch.StepReport._is_late", lambda *_: True)
    (row,) = json.loads(run(*words, "60", "--json").out)["rows"]
    assert (row["status"], row["converged"], row["iterations"], row["problem"]) == ("time limit", False, 1, None)
    assert run(*words, "inf").code == 0


def test_each_set_up_starts_from_nothing(run: Callable[..., Run]) -> None:
    """Factors that one trial has made would make the set-up of the next one look quicker than it is."""
    krylix.clear_setup_cache()
    sp.save_npz("A.npz", matrix())
    assert run("compare", "A.npz", "--methods", "auto,sparse-direct,scipy-direct").code == 0
    assert len(SOLVERS) == 0


def test_memory_of_what_solves(run: Callable[..., Run]) -> None:
    sp.save_npz("A.npz", sp.csr_array(matrix(symmetric=True)))
    words = ("compare", "A.npz", "--methods", "CG,scipy-direct", "--preconditioners", "none,jacobi", "--json")
    found = {tuple(row["wanted"].values()): row["bytes"] for row in json.loads(run(*words).out)["rows"]}
    assert found[("CG", "none")] == 0 and found[("CG", "jacobi")] == 8 * N < found[("scipy-direct", "none")]
