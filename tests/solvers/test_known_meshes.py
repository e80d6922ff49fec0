"""Solves that know how b is spread: a sum goes over all mesh axes at once, and x is spread as b, eagerly too."""

from __future__ import annotations

from typing import Any

import pytest

from sharded_runs import Found, run_cases, selected_names

# How many sums a step takes, on any mesh; products by neighbours are 2 messages for each axis that is cut.
SUMS = {
    "CG": 2, "CG-adaptive": 2, "CG-single-reduction": 1, "biCG-stab": 4, "biCG-stab(2)": 7, "MINRES": 4, "GMRES(9)": 6,
    "FGMRES(9)": 6, "IDR(4)": 5, "mixed-CG": 2, "COCG": 3, "COCR": 3, "block-CG": 4, "LSMR": 2, "CGLS": 2,
}  # fmt: skip
PRODUCTS = {"biCG-stab": 2, "biCG-stab(2)": 4, "LSMR": 2, "CGLS": 2}  # 1 of the others
OTHERS = {  # messages by neighbours and sums
    "CG, both mesh axes on rows": (2, 2), "CG, half of the mesh": (2, 2),
    "gradient, 2x2": (8, 4), "second derivative, 2x2": (16, 8),
    **{f"{method}, {mesh}": (2 * PRODUCTS.get(method, 1), SUMS[method])
       for mesh in ("rows", "columns", "line") for method in ("CG", "block-CG", "LSMR")},
}  # fmt: skip
EXPECTED = {f"{method}, 2x2": (4 * PRODUCTS.get(method, 1), SUMS[method]) for method in SUMS} | OTHERS
MERGED = ("CG, 2x2", "biCG-stab(2), 2x2", "GMRES(9), 2x2", "MINRES, 2x2", "IDR(4), 2x2", "block-CG, columns",
          "LSMR, 2x2", "CG-single-reduction, 2x2", "CG, both mesh axes on rows", "gradient, 2x2")  # fmt: skip
EXPLICIT = ("CG, 2x2", "gradient, 2x2")
EAGER = ("CG, 2x2", "CG, columns", "LSMR, 2x2", "GMRES(9), 2x2")


def cases(way: str, merged: Any) -> list[Any]:
    marks = {name: pytest.mark.merge if name in merged else pytest.mark.slow for name in EXPECTED}
    return [pytest.param(f"{name}, {way}", marks=mark) for name, mark in marks.items()]


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> Found:
    """Of those solves that this run looks at."""
    return run_cases("cases_krylov", selected_names(request))


@pytest.mark.needs("jax")
@pytest.mark.parametrize("name", [*cases("jit", MERGED), *cases("Explicit", EXPLICIT)])
def test_one_sum_over_all_mesh_axes(name: str, found: Found) -> None:
    one = found[name]
    permutes, sums = EXPECTED[name.rpartition(", ")[0]]
    assert one["error"] < 1e-7 and one["spread"], one
    assert one["step"] == {"collective-permute": permutes, "all-reduce": sums}, one
    assert not {"all-gather", "all-to-all", "reduce-scatter"} & set(one["rest"]), one
    assert one["largest"] < one["part"] / 4 and one["constants"] < 2 * one["part"], one  # of all of b: 4 parts


@pytest.mark.needs("jax")
@pytest.mark.parametrize("name", [*cases("eager", EAGER), *cases("Explicit, eager", ("CG, 2x2",))])
def test_eager_solutions_are_spread(name: str, found: Found) -> None:
    if name == "gradient, 2x2, Explicit, eager" or name == "second derivative, 2x2, Explicit, eager":
        pytest.skip("JAX has no eager derivative of a sum over Explicit axes outside of jax.set_mesh")
    assert found[name].get("error", 1) < 1e-7 and found[name]["spread"], found[name]


# Whether x is spread as b, None where the mesh is another one than that of `prepare`.
KINDS = {
    "null space, 2x2, eager": True, "prepared, 2x2, eager": True, "batch, systems, Explicit, eager": True,
    "b on one device, Explicit, eager": False, "prepared on another mesh": None,
}  # fmt: skip


@pytest.mark.needs("jax")
@pytest.mark.merge
@pytest.mark.parametrize("name", KINDS)
def test_eager_solutions_of_other_kinds(name: str, found: Found) -> None:
    if KINDS[name] is None:
        assert "expected the same mesh" in found[name].get("raised", ""), found[name]
        return
    assert found[name].get("error", 1) < 1e-7 and (found[name]["spread"] or not KINDS[name]), found[name]


@pytest.mark.needs("jax")
@pytest.mark.slow
def test_three_mesh_axes() -> None:
    found = run_cases("cases_krylov", ["CG, 2x2x2, jit", "CG, 2x2x2, eager"], devices=8)
    for one in found.values():
        assert one["error"] < 1e-7 and one["spread"], one
    assert found["CG, 2x2x2, jit"]["step"] == {"collective-permute": 6, "all-reduce": 2}, found
