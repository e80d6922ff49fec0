"""Grids that are spread over several devices stay so in a solve: what the devices tell each other is counted."""

from __future__ import annotations

from typing import Any

import pytest

from sharded_runs import Found, run_cases, selected_names

# In each step: shifts from neighbour to neighbour, and sums over all devices: where the mesh is not known, one for each
# of its axes.
BY_XLA = {
    "CG, rows": (2, 2),
    "CG, columns": (2, 2),
    "CG, 2x2": (4, 4),
    "stencil, rows": (2, 2),
    "stencil, rows, known": (2, 2),
    "stencil, 2x2": (4, 4),
    "stencil of arrays, rows": (2, 2),
    "periodic stencil, rows": (4, 2),
    "diagonals, rows": (4, 2),
    "diagonals of numbers, rows": (2, 2),
    "GMRES with diagonals, rows": (4, 6),
    "GMRES with diagonals, rows, known": (4, 6),
    "biCG-stab(2), 2x2": (16, 14),
    "MINRES, 2x2": (4, 8),
    "mixed-CG, 2x2": (4, 4),
    "FGMRES(9), 2x2": (4, 12),
    "IDR(4), 2x2": (4, 10),
    "jacobi, 2x2": (4, 6),
    "a function as M, 2x2": (4, 6),
    "traced coefficients, 2x2": (4, 4),
    "traced coefficients, 2x2, known": (4, 2),
    "null space, 2x2": (4, 4),
    "null space, 2x2, known": (4, 2),
    "gradient, rows": (4, 4),
    "gradient, 2x2": (8, 8),
    "batch, systems": (0, 1),
    "batch, rows": (2, 2),
    "batch, systems and columns": (2, 3),
    "batch, systems and columns, known": (2, 3),
}
GATHERED = ("container, 2x2", "container, 2x2, eager", "several limits, 2x2", "ssor, 2x2")
# Each part of a solve that may gather, once; what is another combination of them is looked at on demand.
DEFAULT = ("CG, rows", "CG, 2x2", "stencil of arrays, rows", "periodic stencil, rows", "diagonals, rows",
           "diagonals of numbers, rows", "GMRES with diagonals, rows", "biCG-stab(2), 2x2", "jacobi, 2x2",
           "traced coefficients, 2x2", "null space, 2x2", "gradient, 2x2", "batch, systems and columns")  # fmt: skip


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> Found:
    """Of those solves that this run looks at."""
    return run_cases("cases_krylov", selected_names(request))


def tiers(names: Any, merged: Any) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.merge if name in merged else pytest.mark.slow) for name in names]


@pytest.mark.needs("jax")
@pytest.mark.parametrize("name", tiers(BY_XLA, DEFAULT))
def test_only_halos_and_sums_travel(name: str, found: Found) -> None:
    permutes, sums = BY_XLA[name]
    one = found[name]
    assert one["error"] < 1e-7 and one["spread"], one
    assert one["step"] == {k: n for k, n in (("collective-permute", permutes), ("all-reduce", sums)) if n}, one
    if "systems" not in name:  # which gathers the status of each where one fails
        assert not {"all-gather", "all-to-all"} & set(one["rest"]), one


@pytest.mark.needs("jax")
@pytest.mark.parametrize("name", tiers(GATHERED, GATHERED))
def test_what_is_gathered_is_right(name: str, found: Found) -> None:
    assert found[name]["error"] < 1e-7, found[name]
