"""What `auto` takes on grids that are spread over a known mesh moves no vector, or a warning names it."""

from __future__ import annotations

from typing import Any

import pytest

from sharded_runs import Found, run_cases

KINDS = ("constant", "known", "traced", "wind, known", "wind, traced")
MESHES = {"rows": 4, "columns": 4, "2x2": 4, "2x2x2": 8}
OTHERS = ("singular, traced, 2x2", "jacobi, traced, 2x2")
MERGED = ("constant, 2x2", "known, rows", "traced, 2x2", "jacobi, traced, 2x2")
MOST_ITERATIONS = 14


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> Found:
    """Of those solves that this run looks at."""
    here = (item for item in request.session.items if item.path == request.path)
    names = [item.callspec.params["name"] for item in here]
    results: Found = {}
    for devices in sorted({MESHES[name.rpartition(", ")[2]] for name in names}):
        own = [name for name in names if MESHES[name.rpartition(", ")[2]] == devices]
        results |= run_cases("cases_auto", own, devices)
    return results


def tiers() -> list[Any]:
    names = [*(f"{kind}, {mesh}" for mesh in MESHES for kind in KINDS), *OTHERS]
    return [pytest.param(name, marks=pytest.mark.merge if name in MERGED else pytest.mark.slow) for name in names]


@pytest.mark.needs("jax")
@pytest.mark.parametrize("name", tiers())
def test_nothing_of_the_size_of_a_vector_moves(name: str, found: Found) -> None:
    one = found[name]
    assert "raised" not in one, one["raised"]
    assert one["error"] < 1e-4 and one["spread"], one
    moves = one["largest"] >= MESHES[name.rpartition(", ")[2]] * one["part"]
    assert moves == bool(one["told"]), one  # of grids so small that they are solved as a whole
    assert not moves or name.endswith("2x2x2"), one
    assert one["iterations"] <= MOST_ITERATIONS or name.startswith("jacobi"), one
