"""Irregular matrices on several devices: ghost values travel, and nothing of the size of a vector in a step."""

from __future__ import annotations

from typing import Any

import pytest

from frameworks import jax, jnp
from irregular_matrices import triangulated
from krylix import linear_solve
from krylix.sparse import as_operator, row_cut
from sharded_runs import Found, run_cases, selected_names

pytestmark = pytest.mark.needs("jax")

# In a step: reductions, exchanges of ghost values, and gathers of a number per cluster.
STEPS = {
    **dict.fromkeys(
        ("CG, by graph", "CG, by coordinates", "SciPy", "SciPy, Explicit", "uneven parts", "batch", "null space, None",
         "start"), (2, 1, 0)),
    **dict.fromkeys(("auto", "both mesh axes", "both mesh axes, other order", "half of the mesh"), (3, 1, 1)),
    **dict.fromkeys(("biCG-stab(2), schwarz", "auto, windy", "complex"), (7, 4, 4)),
    "jacobi": (3, 1, 0), "chebyshev": (3, 4, 0), "block-jacobi": (3, 1, 0), "biCG-stab(2)": (7, 4, 0),
    "GMRES(20)": (6, 1, 0), "MINRES": (4, 1, 0), "IDR(4)": (6, 1, 0), "CG-single-reduction": (1, 1, 0),
    "schwarz": (3, 1, 1), "hubs": (2, 2, 0), "null space, schwarz": (5, 1, 1), "gradient": (4, 2, 0),
    "gradient, schwarz": (6, 2, 2), "gradient, windy": (14, 8, 0),
}  # fmt: skip
OTHERS = (
    "SciPy, eager", "cut, eager", "a function as M", "auto, eager", "auto, windy, eager", "batch, eager",
    "SciPy, Explicit, eager", "batch over j", "batch over j, schwarz", "half of the mesh, eager", "several limits",
    "gradient, windy, eager",
    "a preconditioner", "prepared", "failure", "callback", "as an argument", "products",
)  # fmt: skip
VALUES = ("values, None", "values, jacobi", "values, schwarz")
MERGED = ("CG, by graph", "CG, by coordinates", "uneven parts", "schwarz", "auto, windy", "gradient, windy",
          "null space, schwarz", "auto, eager", "SciPy, Explicit, eager", "failure", "products",
          "values, schwarz")  # fmt: skip
MOST_ROUNDS = 3  # of four parts, each with at most three neighbours


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> Found:
    return run_cases("cases_rows", selected_names(request))


@pytest.fixture(scope="module")
def weak(request: pytest.FixtureRequest) -> Found:
    return run_cases("cases_rows", ["weak, 4", "weak, 8"], 8)


def tiers(names: Any) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.merge if name in MERGED else pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", tiers(STEPS))
def test_only_ghost_values_travel(name: str, found: Found) -> None:
    sums, exchanges, gathers = STEPS[name]
    one = found[name]
    assert one["error"] < 1e-8 and one["spread"], one
    step = dict(one["step"])
    assert step.pop("all-reduce") <= sums and step.pop("collective-permute") <= MOST_ROUNDS * exchanges, one
    assert step == ({"all-gather": gathers} if gathers else {}), one
    assert "all-gather" not in one["rest"] or gathers, one
    assert one["largest"] <= one["part"], one


@pytest.mark.parametrize("name", tiers(["CG, by graph", "CG, by coordinates"]))
def test_bytes_of_a_step(name: str, found: Found) -> None:
    assert sum(found[name]["step_bytes"].values()) <= 1024, found[name]


@pytest.mark.parametrize("name", tiers(OTHERS))
def test_every_way_to_ask(name: str, found: Found) -> None:
    one = found[name]
    assert one["error"] < 1e-8 and one["spread"], one
    assert max(one.get(what, 0) for what in ("symmetric", "difference", "wrong")) < 1e-12, one
    assert one.get("is_cg", True) and one.get("constant", 0) < 1024, one


@pytest.mark.slow
@pytest.mark.parametrize("name", ["single"])
def test_single_precision(name: str, found: Found) -> None:
    assert found[name]["error"] < 1e-3 and found[name]["spread"], found[name]


@pytest.mark.parametrize("name", tiers(VALUES))
def test_derivatives_by_values(name: str, found: Found) -> None:
    one = found[name]
    assert max(one["error"], one["gradient"]) < 1e-8 and one["spread"], one
    assert one["step"]["collective-permute"] <= 8 * MOST_ROUNDS, one


@pytest.mark.merge
def test_weak_scaling(weak: Found) -> None:
    """From 1 to 8 devices of equal local size: iterations with Schwarz hardly grow, nor does what a device sends."""
    A, _ = triangulated(500, seed=1)
    alone = linear_solve(A, A @ (A @ triangulated(500, seed=1)[1][:, 0]), method="CG", preconditioner="schwarz")
    four, eight = weak["weak, 4"], weak["weak, 8"]
    assert eight["iterations"] <= 1.1 * four["iterations"] <= 1.5 * alone.iterations, (alone, four, eight)
    ghosts = [one["step_bytes"]["collective-permute"] for one in (four, eight)]
    assert ghosts[1] <= 2 * ghosts[0] <= 2048, ghosts
    for one in (four, eight):
        assert one["error"] < 1e-8 and one["largest"] <= one["part"], one


def test_one_device() -> None:
    """There is nothing to cut."""
    A, _ = triangulated(60)
    mesh = jax.sharding.Mesh(jax.devices()[:1], ("i",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i"))
    assert row_cut(A, sharding=sharding).shape == row_cut(A, like=jnp.ones(60)).shape == (60, 60)
    assert type(row_cut(A, sharding=sharding)) is type(as_operator(A))
    with pytest.raises(ValueError, match="Give one of like"):
        row_cut(A)
    with pytest.raises(ValueError, match="Give one of like"):
        row_cut(A, like=jnp.ones(60), sharding=sharding)
