"""Solves on meshes that are known while a program is compiled: which messages a step sends, and how x is spread."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from sharded_runs import Found, run_cases, selected_names

pytestmark = pytest.mark.needs("jax")


def tiers(names: Iterable[str], merged: Iterable[str], way: str = "") -> list[Any]:
    """The cases, those of `merged` before a merge, and the others on demand."""
    merged = tuple(merged)
    return [pytest.param(name + way, marks=pytest.mark.merge if name in merged else pytest.mark.slow) for name in names]


def solves(module: str) -> Any:
    """A fixture, called as the module: those of its solves that this run looks at."""

    @pytest.fixture(scope="module", name=module)
    def found(request: pytest.FixtureRequest) -> Found:
        return run_cases(module, selected_names(request, module))

    return found


krylov, products, shard_map = map(solves, ("cases_krylov", "cases_cut_products", "cases_shard_map"))

# --- b is spread: a sum goes over all mesh axes at once, and x is spread as b, eagerly too ---

# How many sums a step takes, on any mesh; products by neighbours are 2 messages for each axis that is cut.
SUMS = {
    "CG": 2, "CG-adaptive": 2, "CG-single-reduction": 1, "biCG-stab": 4, "biCG-stab(2)": 7, "MINRES": 4, "GMRES(9)": 6,
    "FGMRES(9)": 6, "IDR(4)": 5, "mixed-CG": 2, "COCR": 3, "block-CG": 4, "LSMR": 2, "CGLS": 2,
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
EAGER = ("CG, 2x2", "CG, columns", "LSMR, 2x2", "GMRES(9), 2x2")
# JAX has no eager derivative of a sum over Explicit axes outside of jax.set_mesh.
EXPLICIT_EAGER = [name for name in EXPECTED if "derivative" not in name and "gradient" not in name]


@pytest.mark.parametrize(
    "name", [*tiers(EXPECTED, MERGED, ", jit"), *tiers(EXPECTED, ("CG, 2x2", "gradient, 2x2"), ", Explicit")]
)
def test_one_sum_over_all_mesh_axes(name: str, cases_krylov: Found) -> None:
    one = cases_krylov[name]
    permutes, sums = EXPECTED[name.rpartition(", ")[0]]
    assert one["error"] < 1e-7 and one["spread"], one
    assert one["step"] == {"collective-permute": permutes, "all-reduce": sums}, one
    assert not {"all-gather", "all-to-all", "reduce-scatter"} & set(one["rest"]), one
    assert one["largest"] < one["part"] / 4 and one["constants"] < 2 * one["part"], one  # of all of b: 4 parts


@pytest.mark.parametrize(
    "name", [*tiers(EXPECTED, EAGER, ", eager"), *tiers(EXPLICIT_EAGER, ("CG, 2x2",), ", Explicit, eager")]
)
def test_eager_solutions_are_spread(name: str, cases_krylov: Found) -> None:
    assert cases_krylov[name].get("error", 1) < 1e-7 and cases_krylov[name]["spread"], cases_krylov[name]


# Whether x is spread as b, None where the mesh is another one than that of `prepare`.
KINDS = {
    "null space, 2x2, eager": True, "prepared, 2x2, eager": True, "batch, systems, Explicit, eager": True,
    "b on one device, Explicit, eager": False, "prepared on another mesh": None,
}  # fmt: skip


@pytest.mark.merge
@pytest.mark.parametrize("name", KINDS)
def test_eager_solutions_of_other_kinds(name: str, cases_krylov: Found) -> None:
    one = cases_krylov[name]
    if KINDS[name] is None:
        assert "expected the same mesh" in one.get("raised", ""), one
    else:
        assert one.get("error", 1) < 1e-7 and (one["spread"] or not KINDS[name]), one


@pytest.mark.slow
def test_three_mesh_axes() -> None:
    found = run_cases("cases_krylov", ["CG, 2x2x2, jit", "CG, 2x2x2, eager"], devices=8)
    for one in found.values():
        assert one["error"] < 1e-7 and one["spread"], one
    assert found["CG, 2x2x2, jit"]["step"] == {"collective-permute": 6, "all-reduce": 2}, found


# --- functions on grids multiply by one exchange, however they are written ---

FUNCTIONS = ("star", "padded", "added", "analytic", "conduction", "far", "nine", "ring", "weighted ring")
# Messages and sums of a step.
EXCHANGES = {
    **{f"{name}, {mesh}": (n, 2) for name in FUNCTIONS for mesh, n in (("rows", 2), ("columns", 2), ("2x2", 4))},
    **{f"{name}, 2x2": (4, 2) for name in (
        "traced coefficients", "Explicit", "affine", "systems", "coefficients of each system", "complex", "mixed-CG")},
    "spread systems, 2x2": (2, 3), "wind, 2x2": (16, 7), "CG-single-reduction, 2x2": (4, 1), "GMRES(9), 2x2": (4, 6),
    "half around, 2x2": (2, 2), "reaches over a block, rows": (4, 2), "gradient by b, 2x2": (8, 4),
    "gradient by coefficients, 2x2": (8, 4), "gradient with wind, 2x2": (32, 14),
}  # fmt: skip
EXCHANGES_MERGED = (
    "padded, rows", "added, 2x2", "conduction, columns", "far, 2x2", "nine, 2x2", "weighted ring, 2x2",
    "traced coefficients, 2x2", "coefficients of each system, 2x2", "wind, 2x2", "CG-single-reduction, 2x2",
    "half around, 2x2", "gradient by coefficients, 2x2", "complex, 2x2",
)  # fmt: skip


@pytest.mark.parametrize("name", [*tiers(EXCHANGES, EXCHANGES_MERGED), *tiers(["eager, 2x2"], ["eager, 2x2"])])
def test_one_exchange(name: str, cases_cut_products: Found) -> None:
    one = cases_cut_products[name]
    assert "raised" not in one, one["raised"]
    assert one["error"] < 1e-7 and one["spread"], one
    if name in EXCHANGES:
        permutes, sums = EXCHANGES[name]
        assert one["step"] == {"collective-permute": permutes, "all-reduce": sums}, one
        assert one["largest"] < one["part"] or name.startswith("added"), one  # which gathers wherever it is called


# --- inside of `jax.shard_map` each device solves a system of its own, or all of them the same one ---

METHODS = ("CG", "biCG-stab(2)", "GMRES(5)", "MINRES", "IDR(4)", "auto")
WHERE = [*(f"{kind}, {method}" for kind in ("rows", "systems", "batches") for method in METHODS),
         "systems, Explicit", "gradient"]  # fmt: skip
WHERE_MERGED = (
    "rows, GMRES(5), checked", "rows, auto, not checked", "systems, CG, checked", "gradient, checked",
    "systems, biCG-stab(2), not checked", "batches, CG, checked", "systems, Explicit, checked", "gradient, not checked",
)  # fmt: skip


@pytest.mark.parametrize(
    "name", tiers([f"{name}, {way}" for name in WHERE for way in ("checked", "not checked")], WHERE_MERGED)
)
def test_right_on_every_device(name: str, cases_shard_map: Found) -> None:
    one = cases_shard_map[name]
    assert one.get("error", 1) < 1e-7 and one["spread"], one
    assert one["step"] == {} or not name.startswith("batches"), one


# --- what `auto` takes moves no vector, or a warning names it ---

AUTO_KINDS = ("constant", "known", "traced", "wind, known", "wind, traced")
MESHES = {"rows": 4, "columns": 4, "2x2": 4, "2x2x2": 8}  # devices
AUTO = [*(f"{kind}, {mesh}" for mesh in MESHES for kind in AUTO_KINDS), "singular, traced, 2x2", "jacobi, traced, 2x2"]
AUTO_MERGED = ("constant, 2x2", "known, rows", "traced, 2x2", "jacobi, traced, 2x2")


@pytest.fixture(scope="module")
def auto(request: pytest.FixtureRequest) -> Found:
    results: Found = {}
    for devices in (4, 8):
        names = [name for name in selected_names(request, "auto") if MESHES[name.rpartition(", ")[2]] == devices]
        results |= run_cases("cases_auto", names, devices) if names else {}
    return results


@pytest.mark.parametrize("name", tiers(AUTO, AUTO_MERGED))
def test_nothing_of_the_size_of_a_vector_moves(name: str, auto: Found) -> None:
    one = auto[name]
    assert "raised" not in one, one["raised"]
    assert one["error"] < 1e-4 and one["spread"], one
    moves = one["largest"] >= MESHES[name.rpartition(", ")[2]] * one["part"]
    assert moves == bool(one["told"]), one  # of grids so small that they are solved as a whole
    assert not moves or name.endswith("2x2x2"), one
    assert one["iterations"] <= 14 or name.startswith("jacobi"), one
