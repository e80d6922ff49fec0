"""Standard input, and reports for programs."""

import gzip
import io
import json
from collections.abc import Callable

import numpy as np
import pytest
import scipy.io

from command_runs import Run, matrix, refused, residual, rhs
from krylix.command_line.arguments import FORMATS
from krylix.solvers import METHODS, OPTIONAL_METHODS, PRECONDITIONERS


@pytest.mark.parametrize("kind", ["npy", "mtx"])
def test_right_hand_side_from_standard_input(kind: str, run: Callable[..., Run], feed: Callable[[bytes], None]) -> None:
    b, stream = rhs(40, 2), io.BytesIO()
    np.save("A.npy", matrix().toarray())
    (np.save if kind == "npy" else scipy.io.mmwrite)(stream, b)
    feed(stream.getvalue())
    result = run("solve", "A.npy", "-", "--output", "x.npy")
    assert result.code == 0 and result.line("right-hand side").startswith("standard input; 2 columns")
    assert np.all(residual(matrix(), b, np.load("x.npy")) <= 1e-10)


def test_what_standard_input_should_not_give(run: Callable[..., Run], feed: Callable[[bytes], None]) -> None:
    for content, words in (
        (b"", "expected a Matrix Market"),
        (b"hello", "expected a Matrix Market"),
        (b"%%MatrixMarket nonsense", "malformed"),
        (b"%%MatrixMarket matrix coordinate real general\n2 2 9999\n1 1 1\n", "truncated"),
        (gzip.compress(b"hello"), "malformed"),
        (b"\x93NUMPY", "malformed"),
        (b"PK\x03\x04", ".npz archive"),
    ):
        feed(content)
        refused(run("solve", "-"), "standard input: ", words)


def test_json_of_a_solve(run: Callable[..., Run]) -> None:
    np.save("A.npy", np.diag([1.0, 2, 0]))
    np.save("b.npy", np.array([[1.0, 1], [1, 1], [0, 1]]))  # no x reaches a part of the second
    result = run("solve", "A.npy", "b.npy", "--json", "--output", "x.npy")
    assert result.code == 0 and result.err == "" and result.out.count("\n") == 1, result
    found = json.loads(result.out)
    assert found["command"] == "solve" and found["converged"] is found["confirmed"] is True
    assert [s["null_part"] for s in found["systems"]] == [0, 1] and "null_part" in found["warnings"][0]
    matrix_facts = {"source": "A.npy", "shape": [3, 3], "dtype": "float64", "sparse": False, "nonzeros": 2}
    assert found["matrix"] == matrix_facts
    assert [s["status"] for s in found["systems"]] == ["converged", "converged"]
    assert found["systems"][1]["norm_of_b"] == pytest.approx(np.sqrt(3))
    assert found["seconds"]["solve"] > 0 and found["output"] == "x.npy" and found["relative_error"] is None
    found = json.loads(run("solve", "--example", "bar", "--json", "--preconditioner", "jacobi").out)
    assert (found["method"], found["automatic"], found["preconditioner"]) == ("CG", True, "jacobi")
    (only,) = found["systems"]
    assert only["residual_norm"] <= only["tolerance"] and only["iterations"] > 0
    assert only["checked_residual_norm"] == pytest.approx(only["residual_norm"], rel=1e-3)
    assert found["relative_error"] < 1e-6 and found["converged"] and found["message"].startswith("CG converged")


def test_json_has_no_nan(run: Callable[..., Run]) -> None:
    np.save("A.npy", np.array([[1e300, 1e300], [1e300, -1e300]]))
    np.save("b.npy", np.array([1e308, 1e308]))
    for method in ("CGLS", "GMRES", "scipy-QMR"):
        result = run("solve", "A.npy", "b.npy", "--json", "--method", method)
        json.loads(result.out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def test_json_of_a_matrix(run: Callable[..., Run]) -> None:
    np.save("A.npy", np.array([[2.0, -1, 0], [-1, 2, -1], [0, -1, 2]]))
    found = json.loads(run("inspect", "A.npy", "--json").out)
    assert found["hermitian"] and found["positive_definite"] and found["components"] == 1
    assert found["band"] == {"below": 1, "above": 1, "diagonals": 3} and set(found["bytes"]) == set(FORMATS)
    np.save("A.npy", np.ones((2, 3)))
    assert json.loads(run("inspect", "A.npy", "--json").out)["hermitian"] is None
    np.save("A.npy", np.zeros((0, 3)))
    assert json.loads(run("inspect", "A.npy", "--json").out)["band"]["diagonals"] == 0


def test_json_of_the_methods(run: Callable[..., Run]) -> None:
    found = json.loads(run("methods", "--json").out)
    assert [m["name"] for m in found["methods"]] == ["auto", *METHODS, *OPTIONAL_METHODS]
    assert found["preconditioners"] == ["auto", *PRECONDITIONERS]


def test_quiet(run: Callable[..., Run]) -> None:
    assert run("solve", "--example", "airfoil", "--quiet", "--output", "x.npy") == (0, "", "")
    assert np.load("x.npy").shape == (260,)
    assert run("solve", "--example", "bar", "--quiet", "--method", "CG", "--max-iter", "3") == (1, "", "")
    assert run("inspect", "--example", "bar", "--quiet") == (0, "", "")
    refused(run("solve", "nothing.npy", "--quiet"), "no such file")
    refused(run("solve", "nothing.npy", "--json"), "no such file")
