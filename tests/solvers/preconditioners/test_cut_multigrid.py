"""Multigrid on grids that are cut over a device mesh: right, as quick to converge as on one device, and by halos."""

from __future__ import annotations

from typing import Any

import pytest

from sharded_runs import Found, run_cases, selected_names

# Messages of a cycle: ten for each level and cut axis, two of the product with A for each cut axis, and one gather.
TRACED, PREPARED = "traced", "prepared"
MERGED = (
    "smooth, 2x2, known", "smooth, columns, eager", "other blocks, prepared", "wind, traced", "56x100, traced",
    "ring, both axes, prepared", "obstacles, prepared", "torus, known", "3-d, prepared", "flat, traced",
)  # fmt: skip
LEVELS = {"56x100": 3, "3-d": 1, "line": 5, "weak axis": 4, "128": 3, "112": 3, "32^3, 2x2x1": 2, "32^3, 2x2x2": 1}
AXES = {"rows": 1, "columns": 1, "two mesh axes": 1, "line": 1, "2x2x2": 3, "8 devices": 3}
PADDED = {"56x100": 6, "52x72": 0}  # messages to blocks of other lengths and back
FOUR = (
    *(f"smooth, {mesh}, {how}" for mesh in ("rows", "columns", "2x2") for how in (TRACED, "known", PREPARED, "eager")),
    *(f"{name}, {how}" for name in ("aligned blocks", "other blocks", "obstacles", "wind", "56x100", "52x72", "3-d",
        "flat", "line", "torus", "negative") for how in (TRACED, PREPARED)),
    *(f"ring, {name}, {how}" for name in ("both axes", "first axis", "last axis", "both axes, rows", "first axis, rows",
        "last axis, rows") for how in (TRACED, PREPARED)),
    "smooth, explicit, traced", "torus, known", "two mesh axes on one", "mesh axes swapped", "weak axis",
    "setting, W", "setting, single", "setting, degree", "128, 2x2", "112 blocks, 2x2", "32^3, 2x2x1",
)  # fmt: skip
BATCHES = tuple(f"batch, {name}, {how}" for name in ("whole", "spread", "alone") for how in ("known", "eager"))
DERIVATIVES = (*(f"gradient, {name}" for name in ("symmetric", "wind", "symmetric, eager", "wind, eager")),
               "second derivative, symmetric", "second derivative, wind")  # fmt: skip
EIGHT = (
    "weak scaling, 4x2",
    "128, 4x2",
    "smooth, 4x2, traced",
    "smooth, 4x2, prepared",
    "3-d, 8 devices, prepared",
    "32^3, 2x2x2",
)


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> Found:
    """Of those solves that this run looks at."""
    names = selected_names(request)
    four, eight = ([name for name in names if (name in EIGHT) is more] for more in (False, True))
    runs = [run_cases("cases_multigrid", some, devices) for some, devices in ((four, 4), (eight, 8)) if some]
    return {name: one for run in runs for name, one in run.items()}


def tiers(names: Any, merged: Any = MERGED) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.merge if name in merged else pytest.mark.slow) for name in names]


def of(name: str, table: dict[str, int], otherwise: int) -> int:
    return next((number for part, number in table.items() if part in name), otherwise)


@pytest.mark.needs("jax")
@pytest.mark.parametrize("name", tiers((*FOUR, *EIGHT, *BATCHES)))
def test_right_spread_and_as_quick_as_on_one_device(name: str, found: Found) -> None:
    one = found[name]
    assert "raised" not in one, one
    assert one["error"] < 5e-8 and one["spread"], one
    assert one["iterations"] <= one["alone"] + 1, one


@pytest.mark.needs("jax")
@pytest.mark.parametrize("name", tiers([n for n in (*FOUR, *EIGHT) if "eager" not in n and "52x72" not in n]))
def test_messages_of_a_step(name: str, found: Found) -> None:
    one, levels, axes = found[name], of(name, LEVELS, 2), of(name, AXES, 2)
    applications = 4 if "wind" in name else 1  # of biCG-stab(2)
    step = one["step"]
    visits = 4 if "W" in name else 1
    products = 14 if "degree" in name else 10
    most = (products * levels + 2) * axes * applications * (2 if visits > 1 else 1) + of(name, PADDED, 0)
    assert step.get("collective-permute", 0) <= most, (step, most)
    assert step["all-gather"] == applications * visits, step
    assert step["all-reduce"] <= of(name, {"wind": 7, "single": 4, "torus, known": 5}, 3), step
    assert one["largest"] <= 27 * 8 ** (3 if "3" in name.split(",")[0] else 2) * 8 * 8, one
    assert one["constants"] <= 2**20, one


@pytest.mark.needs("jax")
@pytest.mark.parametrize("name", tiers(DERIVATIVES, ("gradient, wind",)))
def test_derivatives_are_right_and_spread(name: str, found: Found) -> None:
    one = found[name]
    assert "raised" not in one, one
    assert one["error"] < 1e-8 and one.get("coefficients", 0) < 1e-8, one
    assert one["spread"] or "second" in name, one  # where XLA spreads it as it likes


@pytest.mark.needs("jax")
@pytest.mark.parametrize("name", tiers(("weak scaling, 4x2",), ()))
def test_with_equal_parts_messages_do_not_grow(name: str, found: Found) -> None:
    """But for the gathered grid, of as many points for each device."""
    one, other = found[name], run_cases("cases_multigrid", ["smooth, 2x2, prepared"])["smooth, 2x2, prepared"]
    assert one["step"] == other["step"] and one["part"] == other["part"]
    assert one["step_bytes"]["collective-permute"] <= 1.1 * other["step_bytes"]["collective-permute"]
    assert one["step_bytes"]["all-gather"] == 2 * other["step_bytes"]["all-gather"]
    assert one["iterations"] <= other["iterations"] + 1


@pytest.mark.needs("jax")
@pytest.mark.parametrize("name", tiers(("128, 4x2",), ()))
def test_memory_of_a_device_falls_with_their_number(name: str, found: Found) -> None:
    one, other = found[name], run_cases("cases_multigrid", ["128, 2x2"])["128, 2x2"]
    memory, more = (each["temporary"] + each["arguments"] for each in (one, other))
    assert memory <= 0.6 * more, (memory, more)


@pytest.mark.needs("jax")
@pytest.mark.parametrize("name", tiers(("128, 2x2", "112 blocks, 2x2", "32^3, 2x2x1", "32^3, 2x2x2")))
def test_memory_of_a_device_in_parts_of_a_vector(name: str, found: Found) -> None:
    """Besides the coefficients, which the product with A measures and keeps in blocks of its own."""
    one, cube = found[name], "^3" in name
    # Its gathered grid has as many points as a part: 27 coefficients on it and 1/7 of them below, 4 of interpolation,
    # 5 vectors; it is small beside a part of the others.
    gathered = 40 if name == "32^3, 2x2x2" else 2
    most = (42 + 7 if cube else 32 + 5) + gathered
    assert one["temporary"] + one["arguments"] <= most * one["part"], one
