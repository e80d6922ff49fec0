"""The method "petsc" with rows that are cut over the ranks of a communicator: one program of several ranks."""

from collections import defaultdict
from functools import cache
from typing import Any

import pytest

from mpi_ranks import missing_mpi, run_ranks

CASES = (
    "given_rows", "other_cut", "not_symmetric", "adjoint", "methods", "batch", "single", "negative", "singular",
    "prepared", "mat",
)  # fmt: skip
RANKS = (2, pytest.param(3, marks=pytest.mark.slow))


@cache
def ran(ranks: int) -> dict[str, list[dict[str, Any]]]:
    """What the ranks have printed, by the case."""
    if reason := missing_mpi("petsc4py.PETSc"):
        pytest.skip(reason)
    found = defaultdict(list)
    for line in run_ranks("petsc_over_ranks.py", ranks):
        found[line["case"]].append(line)
    return found


def lines(case: str, ranks: int) -> list[dict[str, Any]]:
    found = sorted(ran(ranks)[case], key=lambda line: line["rank"])
    assert [line["rank"] for line in found] == list(range(ranks))
    return found


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("case", CASES)
def test_x_is_that_of_scipy(case: str, ranks: int) -> None:
    found = lines(case, ranks)
    assert all(line["error"] < 1e-8 for line in found)
    counts = [line.get("iterations") for line in found]
    assert counts == counts[:1] * ranks


@pytest.mark.parametrize("ranks", RANKS)
def test_a_traced_function_by_hypre(ranks: int) -> None:
    for line in lines("traced", ranks):
        assert line["iterations"] <= 7 and line["true"] <= 1e-8 and line["error"] < 1e-7
        assert "KSP cg with PC hypre" in line["why"]


def test_what_is_kept_is_shared() -> None:
    assert all(line["same"] for line in lines("prepared", 2))
    assert all(line["used"] for line in lines("mat", 2))
    assert all(line["dtype"] == "float32" for line in lines("single", 2))


def test_a_singular_system_without_a_solution() -> None:
    assert all(line["inconsistent"]["raised"] == "NotConverged" for line in lines("singular", 2))


def test_a_callback_of_one_rank_ends_all() -> None:
    assert all(line["seen"] == 3 and line["status"] == "STOPPED" for line in lines("callback", 2))


@pytest.mark.parametrize(
    "case, kind, word",
    [
        ("limit", "NotConverged", "limit of iterations"),
        ("shape", "ValueError", "expected (512, 1024), its"),
        ("not finite", "ValueError", "NaN or infinity"),
        ("function", "TypeError", "matrix_from_function(f, like)[0]"),
        ("kind", "TypeError", "A is a str"),
        ("unknown", "ValueError", "KSP conjugate"),
        ("settings", "ValueError", "settings of the members of the communicator differ"),
        ("option", "ValueError", "'pc_nothing': it has read no such option"),
        ("length", "ValueError", "b has 1024 numbers for each system"),
    ],
)
def test_an_error_of_one_rank_is_raised_in_all(case: str, kind: str, word: str) -> None:
    found = [line[case] for line in lines("failures", 2)]
    assert any(one["raised"] == kind and word in one["says"] for one in found), found
    assert all(one["raised"] in (kind, "OtherMemberFailed") for one in found)
