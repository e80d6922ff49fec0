"""Irregular matrices on several devices: ghost values travel, and nothing of the size of a vector in a step."""

from __future__ import annotations

import pytest

from sharded_runs import Found, run_cases, selected_names

# Reductions in a step, and products with an exchange; all-to-alls and gathers there are none.
STEPS = {
    "CG, by graph": (2, 1),
    "CG, by coordinates": (2, 1),
    "SciPy": (2, 1),
    "uneven parts": (2, 1),
    "jacobi": (3, 1),
    "biCG-stab(2)": (7, 4),
}
OTHERS = ("SciPy, eager", "SciPy, Explicit", "cut, eager")
MOST_ROUNDS = 3  # of four parts, each with at most three neighbours


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> Found:
    return run_cases("cases_rows", selected_names(request))


@pytest.mark.needs("jax")
@pytest.mark.merge
@pytest.mark.parametrize("name", STEPS)
def test_only_ghost_values_travel(name: str, found: Found) -> None:
    sums, products = STEPS[name]
    one = found[name]
    assert one["error"] < 1e-8 and one["spread"], one
    assert set(one["step"]) == {"all-reduce", "collective-permute"}, one
    assert one["step"]["all-reduce"] <= sums and one["step"]["collective-permute"] <= MOST_ROUNDS * products, one
    assert "all-gather" not in one["rest"] and one["largest"] <= one["part"], one


@pytest.mark.needs("jax")
@pytest.mark.merge
@pytest.mark.parametrize("name", ["CG, by graph", "CG, by coordinates"])
def test_bytes_of_a_step(name: str, found: Found) -> None:
    assert sum(found[name]["step_bytes"].values()) <= 1024, found[name]


@pytest.mark.needs("jax")
@pytest.mark.merge
@pytest.mark.parametrize("name", OTHERS)
def test_every_way_to_ask(name: str, found: Found) -> None:
    assert found[name]["error"] < 1e-8 and found[name]["spread"], found[name]
