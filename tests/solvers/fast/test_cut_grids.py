"""Fast transforms on grids that are cut over devices: all-to-all exchanges are counted, and nothing is gathered."""

from __future__ import annotations

from typing import Any

import pytest

from krylix.solvers.fast.exchanges import AxisCut, exchanges, piece
from sharded_runs import Found, run_cases, selected_names

# All-to-all exchanges of an application of the inverse by itself.
EXCHANGES = {
    "slab": 2,
    "columns": 2,
    "blocks": 4,
    "blocks in other order": 4,
    "both mesh axes on rows": 2,
    "eight rows": 2,
    "pencils": 2,
    "cube": 4,
    "cube, uneven pieces": 4,
    "blocks, uneven pieces": 4,
    "slab, fewer columns than devices": 2,
    "two of three, others": 2,
    "transposed": 4,
}
EXCHANGES |= {f"kinds {k}, {mesh}": count for k in (0, 3, 6, 9) for mesh, count in (("2x2x2", 4), ("2x2", 2))}
PRECISE = {
    f"{dtype}, shift {shift}": 4
    for dtype in ("float32", "complex64", "complex128")
    for shift in (0.3, -1.3, *((0.3 + 0.2j,) if dtype[0] == "c" else ()))
}
METHODS = ("fast-direct", "CG with fast")
SOLVES = {
    f"{method}, {name}{way}": count
    for method in METHODS
    for name, count in (("slab", 2), ("columns", 2), ("blocks", 4), ("cube", 4))
    for way in ("", ", eager", ", Explicit", ", gradient")
}
SOLVES |= {f"{method}, singular, {kind}": 4 for method in METHODS for kind in ("slopes", "periodic")}
SOLVES |= {f"{method}, flat": 2 for method in METHODS}
BATCHES = {f"{method}, batch and rows": 2 for method in METHODS} | {f"{method}, batch alone": 0 for method in METHODS}
NEARBY = [f"a nearby matrix, precision {p}{way}" for p in (None, "single") for way in ("", ", eager")]
UNEVEN = ("eight rows", "cube, uneven pieces", "blocks, uneven pieces", "slab, fewer columns than devices",
          "two of three, others")  # fmt: skip
MERGED = ("slab", "blocks", "pencils", "cube, uneven pieces", "kinds 9, 2x2x2", "transposed", "float32, shift 0.3",
          "complex128, shift (0.3+0.2j)", "fast-direct, slab", "fast-direct, blocks, gradient", "CG with fast, blocks",
          "fast-direct, singular, periodic", "fast-direct, batch and rows", "CG with fast, columns, eager",
          "a nearby matrix, precision single", "CG with fast, flat")  # fmt: skip


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> Found:
    """Of those cases that this run looks at."""
    return run_cases("cases_transforms", selected_names(request), devices=8)


def tiers(names: Any) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.merge if name in MERGED else pytest.mark.slow) for name in names]


@pytest.mark.needs("jax")
@pytest.mark.parametrize("name", tiers(EXCHANGES))
def test_only_exchanges(name: str, found: Found) -> None:
    """Of a device's part each, with padding where the parts do not divide a length; no vector is a constant."""
    one = found[name]
    assert one["error"] < 1e-14 and one["spread"], one
    assert one["rest"] == {"all-to-all": EXCHANGES[name]} and not one["step"], one
    divides = one["largest"] == one["part"]
    assert divides == (name not in UNEVEN and not name.startswith("kinds")) and one["largest"] <= 1.7 * one["part"], one
    if one["part"] >= 4096:
        assert one["temporary"] <= 6 * one["part"] and one["constants"] <= one["part"] / 2, one


@pytest.mark.needs("jax")
@pytest.mark.parametrize("name", tiers(PRECISE))
def test_dtypes(name: str, found: Found) -> None:
    """Complex vectors go as two real ones at once where the matrix is real."""
    one, condition = found[name], 8.3 / 0.3 if "-1.3" not in name else 916
    eps = 6e-8 if name.startswith(("float32", "complex64")) else 1.1e-16
    assert one["error"] < 8 * condition * eps and one["spread"], one
    assert one["rest"] == {"all-to-all": PRECISE[name]}, one


@pytest.mark.needs("jax")
@pytest.mark.parametrize("name", tiers(SOLVES))
def test_solves(name: str, found: Found) -> None:
    """One application in a step, and in that of the gradient; reductions are of single numbers."""
    one, method = found[name], "CG" if name.startswith("CG") else "fast-direct"
    assert one["error"] < (1e-12 if "singular" in name else 1e-13) and one["spread"], one
    if "eager" in name:
        return
    twice = 1 + ("gradient" in name)
    assert one["step"]["all-to-all"] == twice * SOLVES[name], one
    assert one["step"]["all-reduce"] <= twice * ({"CG": 3, "fast-direct": 1}[method] + 2 * ("singular" in name)), one
    assert "all-gather" not in {*one["step"], *one["rest"]}, one
    assert one["largest"] == one["part"] and one["constants"] <= 2048, one


@pytest.mark.needs("jax")
@pytest.mark.parametrize("name", tiers(NEARBY))
def test_of_a_nearby_matrix(name: str, found: Found) -> None:
    """In single precision half as many bytes, and a reduction more: is the vector in its range?"""
    one, single = found[name], "single" in name
    assert one["error"] < 1e-11 and one["spread"] and one["iterations"] <= 10, one
    if "eager" in name:
        return
    assert one["step"]["all-to-all"] == 4 and one["step_bytes"]["all-to-all"] == (2 if single else 4) * one["part"], one
    assert one["step"]["all-reduce"] <= 3 + single and "all-gather" not in {*one["step"], *one["rest"]}, one


@pytest.mark.needs("jax")
@pytest.mark.parametrize("name", tiers(["gradient by a coefficient", "gradient by a coefficient, eager"]))
def test_gradients_by_coefficients(name: str, found: Found) -> None:
    one = found[name]
    assert one["error"] < 1e-11 and one["spread"], one
    if "eager" not in name:
        assert one["step"]["all-to-all"] == 8 and "all-gather" not in {*one["step"], *one["rest"]}, one
        assert one["largest"] == one["part"], one


@pytest.mark.needs("jax")
@pytest.mark.parametrize("name", tiers(BATCHES))
def test_batches(name: str, found: Found) -> None:
    """Spread systems exchange nothing."""
    one = found[name]
    assert one["error"] < 1e-13 and one["spread"], one
    assert one["step"].get("all-to-all", 0) == BATCHES[name] and "all-gather" not in one["step"], one


def test_plans() -> None:
    """All three axes of a cube need two exchanges; many devices exchange pencils in smaller groups."""
    i, j, k = (AxisCut((name,), 2) for name in "ijk")
    cube = exchanges(((i,), (j,), (k,)), (64, 64, 64))
    assert [len(one.whole) for one in cube] == [1, 2] and cube[0].split in cube[1].whole
    for parts, n, groups in ((4, 512, [16]), (64, 512, [64, 64])):
        plan = exchanges(((AxisCut(("i",), parts),), (AxisCut(("j",), parts),), ()), (n, n, n))
        assert [one.level.parts for one in plan] == groups


def test_pieces_are_padded() -> None:
    """Piece by piece, as each is cut again."""
    cuts = AxisCut(("i",), 4), AxisCut(("j",), 3)
    assert [piece(14, cuts[:count]) for count in range(3)] == [14, 4, 2]


@pytest.mark.parametrize("layout, whole", [((), ()), (((), ()), ())])
def test_nothing_to_exchange(layout: Any, whole: Any) -> None:
    assert exchanges(layout, (8,) * len(layout)) == whole
