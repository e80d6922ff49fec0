"""Functions on grids that are spread over a known mesh multiply by one exchange, however they are written."""

from __future__ import annotations

from typing import Any

import pytest

from sharded_runs import Found, run_cases, selected_names

FUNCTIONS = ("star", "padded", "added", "analytic", "conduction", "far", "nine", "ring", "weighted ring")
MESHES = {"rows": 2, "columns": 2, "2x2": 4}  # messages of a product
# Messages and sums of a step.
EXPECTED = {f"{name}, {mesh}": (count, 2) for name in FUNCTIONS for mesh, count in MESHES.items()} | {
    "traced coefficients, 2x2": (4, 2),
    "Explicit, 2x2": (4, 2),
    "affine, 2x2": (4, 2),
    "systems, 2x2": (4, 2),
    "spread systems, 2x2": (2, 3),
    "coefficients of each system, 2x2": (4, 2),
    "complex, 2x2": (4, 2),
    "wind, 2x2": (16, 7),
    "mixed-CG, 2x2": (4, 2),
    "CG-single-reduction, 2x2": (4, 1),
    "GMRES(9), 2x2": (4, 6),
    "half around, 2x2": (2, 2),
    "reaches over a block, rows": (4, 2),
    "gradient by b, 2x2": (8, 4),
    "gradient by coefficients, 2x2": (8, 4),
    "gradient with wind, 2x2": (32, 14),
}
MERGED = ("padded, rows", "added, 2x2", "conduction, columns", "far, 2x2", "nine, 2x2", "weighted ring, 2x2",
          "traced coefficients, 2x2", "coefficients of each system, 2x2", "wind, 2x2", "CG-single-reduction, 2x2",
          "half around, 2x2", "gradient by coefficients, 2x2", "complex, 2x2")  # fmt: skip
GATHERS = ("added",)  # the function itself, wherever it is called


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> Found:
    """Of those solves that this run looks at."""
    return run_cases("cases_cut_products", selected_names(request))


def tiers(names: Any) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.merge if name in MERGED else pytest.mark.slow) for name in names]


@pytest.mark.needs("jax")
@pytest.mark.parametrize("name", tiers(EXPECTED))
def test_one_exchange(name: str, found: Found) -> None:
    permutes, sums = EXPECTED[name]
    one = found[name]
    assert "raised" not in one, one["raised"]
    assert one["error"] < 1e-7 and one["spread"], one
    assert one["step"] == {"collective-permute": permutes, "all-reduce": sums}, one
    if not name.startswith(GATHERS):
        assert one["largest"] < one["part"], one


@pytest.mark.needs("jax")
@pytest.mark.merge
@pytest.mark.parametrize("name", ["eager, 2x2"])
def test_eager(name: str, found: Found) -> None:
    assert found[name]["error"] < 1e-7 and found[name]["spread"], found[name]
