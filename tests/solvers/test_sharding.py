"""Grids that are spread over several devices stay so in a solve: what the devices tell each other is counted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "helpers" / "sharded_solves.py"
# In each step: shifts from neighbour to neighbour, and sums over all devices, one for each axis of the mesh.
EXPECTED = {
    "CG, rows": (2, 2),
    "CG, columns": (2, 2),
    "CG, both": (4, 4),
    "stencil, rows": (2, 2),
    "stencil, both": (4, 4),
    "stencil of arrays, rows": (2, 2),
    "periodic stencil, rows": (4, 2),
    "diagonals, rows": (4, 2),
    "diagonals of numbers, rows": (2, 2),
    "GMRES with diagonals, rows": (4, 6),
    "biCG-stab(2), both": (16, 14),
    "MINRES, both": (4, 8),
    "mixed-CG, both": (4, 4),
    "FGMRES(9), both": (4, 12),
    "IDR(4), both": (4, 10),
    "jacobi, both": (4, 6),
    "a function as M, both": (4, 6),
    "traced coefficients, both": (4, 4),
    "null space, both": (4, 4),
    "gradient, rows": (4, 4),
    "gradient, both": (8, 8),
    "batch, systems": (0, 1),
    "batch, rows": (2, 2),
    "batch, systems and columns": (2, 3),
}
GATHERED = ("container, both", "several limits, both", "ssor, both")


# Each part of a solve that may gather, once; what is another combination of them is looked at on demand.
ON_DEMAND = ("CG, columns", "stencil, rows", "stencil, both", "mixed-CG, both", "FGMRES(9), both", "IDR(4), both",
             "MINRES, both", "a function as M, both", "gradient, rows", "batch, systems", "batch, rows")  # fmt: skip


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    """Of those solves that this run looks at."""
    here = (item for item in request.session.items if item.path == request.path and "found" in item.fixturenames)
    names = [item.callspec.params["name"] for item in here]
    run = subprocess.run(
        [sys.executable, str(SCRIPT), *names], env=os.environ.copy(), capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return {line.pop("name"): line for line in map(json.loads, run.stdout.splitlines())}


@pytest.mark.needs("jax")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in ON_DEMAND else pytest.mark.merge) for n in EXPECTED]
)
def test_only_halos_and_sums_travel(name: str, found: dict[str, dict[str, Any]]) -> None:
    permutes, sums = EXPECTED[name]
    one = found[name]
    assert one["error"] < 1e-7 and one["spread"], one
    assert one["step"] == {k: n for k, n in (("collective-permute", permutes), ("all-reduce", sums)) if n}, one
    if "systems" not in name:  # which gathers the status of each where one fails
        assert not {"all-gather", "all-to-all"} & set(one["rest"]), one


@pytest.mark.needs("jax")
@pytest.mark.merge
@pytest.mark.parametrize("name", GATHERED)
def test_what_is_gathered_is_right(name: str, found: dict[str, dict[str, Any]]) -> None:
    assert found[name]["error"] < 1e-7, found[name]
