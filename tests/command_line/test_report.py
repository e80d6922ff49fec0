"""What a solve says, also where it does not converge, and what there is to ask for."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from best_factors import BEST_FACTORS
from command_runs import N, Run, matrix, residual, rhs
from krylix.command_line.solve import unreachable
from krylix.solvers import METHODS, PRECONDITIONERS

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
    assert result.line("method") == f"{BEST_FACTORS}, chosen by auto"
    assert result.line("preconditioner") == "none"
    result = run("solve", "--example", "recirc_flow", "--preconditioner", "jacobi")
    assert result.line("method") == "biCG-stab(2), chosen by auto" and result.line("preconditioner") == "jacobi"
    result = run("solve", "--example", "bar", "--max-iter", "3", "--preconditioner", "jacobi")
    assert result.line("method") == f"{BEST_FACTORS} (after CG had failed), chosen by auto"
    assert result.line("preconditioner").startswith("none (jacobi was given")


def test_explain(run: Callable[..., Run]) -> None:
    text = run("solve", "--example", "bar", "--explain").out
    assert "\n  no   a dense matrix" in text and f"\n-> {BEST_FACTORS}: sparse factors cost no more" in text
    assert "the method was given" in run("solve", "--example", "bar", "--explain", "--method", "CG").out
    assert "->" not in run("solve", "--example", "bar", "--explain", "--quiet").out


def test_large_entries_do_not_overflow(run: Callable[..., Run]) -> None:
    np.save("A.npy", np.array([[1e200, 1e199], [1e199, 1e200]]))
    result = run("solve", "A.npy", "--method", "CG")
    assert result.code == 0, result
    assert "norm 1.3" in result.line("right-hand side") and "e+200" in result.line("right-hand side")


def test_a_false_success_would_be_seen(run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from krylix.command_line import solve

    honest = solve.PreparedSolver.solve

    def false(*args: Any, **settings: Any) -> Any:
        result = honest(*args, **settings)
        return replace(result, x=result.x * (1 + 1e-6))

    monkeypatch.setattr(solve.PreparedSolver, "solve", false)
    result = run("solve", "--example", "airfoil")
    assert result.code == 1
    assert "NOT CONFIRMED" in result.line("check")


def test_methods(run: Callable[..., Run]) -> None:
    result = run("methods")
    assert result.code == 0
    lines = result.out.splitlines()
    assert [line.split()[0] for line in lines[1 : 2 + len(METHODS)]] == ["auto", *METHODS]
    assert all(name in lines[-1] for name in ("auto", *PRECONDITIONERS))
    rows = {line.split()[0]: line.split(maxsplit=5) for line in lines[1 : 2 + len(METHODS)]}
    about = "Conjugate gradients with an optional preconditioner"
    assert rows["CG"][1:] == ["symmetric", "any", "symmetric", "no", about]
    assert rows["LSMR"][1:5] == ["any", "any", "none", "yes"]
    assert rows["scipy-MINRES"][1:5] == ["symmetric", "real", "symmetric", "no"]
    assert rows["scipy-lsqr"][1] == rows["GMRES"][1] == "square"
    summaries = [row[5] for row in rows.values()]
    assert all(len(text) > 20 and "`" not in text for text in summaries)
    assert len(set(summaries)) == len(rows) - 2  # of three biCG-stab(l)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_by_name(name: str, run: Callable[..., Run]) -> None:
    A, b = matrix(symmetric=True), rhs(N)
    if METHODS[name].needs_band:
        A = sp.diags_array([-1.0, 4, -1], offsets=[-1, 0, 1], shape=(N, N), format="csr")
    if METHODS[name].needs_grid:
        A = sp.kronsum(*(sp.diags_array([-1.0, 2, -1], offsets=[-1, 0, 1], shape=(k, k)) for k in (8, 5)), format="csr")
    sp.save_npz("A.npz", A)
    np.save("b.npy", b)
    result = run("solve", "A.npz", "b.npy", "--method", name.upper(), "--rtol", "1e-7", "--output", "x.npy")
    assert result.code == 0, result
    assert result.line("method") == name
    assert residual(A, b, np.load("x.npy")) <= 1e-7


# ---- not converged


def test_not_converged(run: Callable[..., Run]) -> None:
    result = run("solve", "--example", "bar", "--method", "CG", "--max-iter", "5", "--output", "x.npy")
    assert result.code == 1
    assert result.line("status").startswith("NOT CONVERGED: CG reached the limit of iterations after 5")
    assert result.line("iterations") == "5"
    assert "against tolerance" in result.line("residual")
    assert np.load("x.npy").shape == (600,)


ZERO_ROW = [[2.0, 1, 0], [0, 0, 0], [0, 1, 2]]
NO_SOLUTION = [
    (ZERO_ROW, np.ones(3), "GMRES", "Cause: A is singular: row 1 is zero, while b is 1 in row 1."),
    (ZERO_ROW, np.ones(3), "direct", "Cause: A is singular: row 1 is zero, while b is 1 in row 1."),
]


@pytest.mark.parametrize(("A", "b", "method", "words"), NO_SOLUTION)
def test_no_solution(A: Any, b: np.ndarray, method: str, words: str, run: Callable[..., Run]) -> None:
    np.save("A.npy", A)
    np.save("b.npy", b)
    result = run("solve", "A.npy", "b.npy", "--method", method)
    assert result.code == 1 and words in result.line("status")
    assert b.ndim == 1 or result.line("  column 0").startswith("converged")


REACHED_BUT_FOR_A_PART = [
    (
        [[1.0, -1, 0], [-1, 2, -1], [0, -1, 1]],
        np.ones(3),
        "MINRES",
        "to least squares: no x reaches a part of b of norm 1.732",
    ),
    (np.diag([1.0, 2, 0]), np.array([[1.0, 1], [1, 1], [0, 1]]), "auto", "part of b of norm 1.000"),  # of the second
]


@pytest.mark.parametrize(("A", "b", "method", "words"), REACHED_BUT_FOR_A_PART)
def test_least_squares_where_null_vectors_are_known(
    A: Any, b: np.ndarray, method: str, words: str, run: Callable[..., Run]
) -> None:
    np.save("A.npy", A)
    np.save("b.npy", b)
    result = run("solve", "A.npy", "b.npy", "--method", method)
    assert result.code == 0 and words in result.line("status") and "null_part" in result.line("warning")
    assert "no x reaches" in result.line("check")


def test_a_part_that_some_x_reaches_stays_in_the_residual() -> None:
    A, null = sp.csr_array([[1.0, -1, 0], [-1, 2, -1], [0, -1, 1]]), np.ones(3)
    parts = np.stack([null, null + np.array([1e-5, 0, 0]), np.zeros(3)], 1)
    np.testing.assert_array_equal(unreachable(A, parts, np.dtype(float)), np.stack([null, 0 * null, 0 * null], 1))


def test_tolerances(run: Callable[..., Run]) -> None:
    few = run("solve", "--example", "bar", "--method", "CG", "--rtol", "1e-2")
    by_atol = run("solve", "--example", "bar", "--method", "CG", "--rtol", "0", "--atol", "1e-3")
    assert few.code == by_atol.code == 0
    assert by_atol.line("residual").endswith("tolerance 1.000e-03")
    assert int(few.line("iterations")) < int(by_atol.line("iterations"))
