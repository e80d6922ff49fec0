"""Solves inside of `jax.shard_map`: each device solves a system of its own, or all of them the same one."""

from __future__ import annotations

import pytest

from sharded_runs import Found, run_cases, selected_names

METHODS = ("CG", "biCG-stab(2)", "GMRES(5)", "MINRES", "IDR(4)", "auto")
WAYS = ("checked", "not checked")
NAMES = [f"{kind}, {method}, {way}" for kind in ("rows", "systems", "batches") for method in METHODS for way in WAYS]
NAMES += [f"{kind}, {way}" for kind in ("systems, Explicit", "gradient") for way in WAYS]
MERGED = (
    *("rows, GMRES(5), checked", "rows, auto, not checked", "systems, CG, checked", "gradient, checked"),
    *("systems, biCG-stab(2), not checked", "batches, CG, checked", "systems, Explicit, checked"),
    "gradient, not checked",
)


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> Found:
    return run_cases("cases_shard_map", selected_names(request))


@pytest.mark.needs("jax")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.merge if n in MERGED else pytest.mark.slow) for n in NAMES]
)
def test_right_on_every_device(name: str, found: Found) -> None:
    one = found[name]
    assert one.get("error", 1) < 1e-7 and one["spread"], one
    if name.startswith("batches"):
        assert one["step"] == {}, one
