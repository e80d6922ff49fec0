"""Batches whose systems lie on several devices: these have nothing to tell each other."""

from __future__ import annotations

import pytest

from sharded_runs import Found, run_cases, selected_names

DEFAULT = ("CG", "GMRES(9)", "CG, Explicit", "jacobi", "multigrid", "a function as M", "affine", "gradient",
           "a matrix for each", "arguments of each", "gradient with arguments of each")  # fmt: skip
ON_DEMAND = ("biCG-stab(2)", "MINRES", "IDR(4)", "mixed-CG", "LSMR", "COCR", "chebyshev", "ilu", "amg", "fast", "ssor",
             "ic", "stencil")  # fmt: skip
ASKED = ("CG, not known", "a function of all systems", "a function by place")


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> Found:
    return run_cases("cases_batches", selected_names(request))


@pytest.mark.needs("jax")
@pytest.mark.parametrize(
    "name",
    [*(pytest.param(n, marks=pytest.mark.merge) for n in DEFAULT),
     *(pytest.param(n, marks=pytest.mark.slow) for n in ON_DEMAND)],
)  # fmt: skip
def test_no_messages(name: str, found: Found) -> None:
    one = found[name]
    assert one.get("error", 1) < 1e-7 and one["spread"], one
    assert one["step"] == one["rest"] == {}, one


@pytest.mark.needs("jax")
@pytest.mark.merge
@pytest.mark.parametrize("name", ASKED)
def test_one_small_sum_a_step(name: str, found: Found) -> None:
    """Is any system running? Where it is not known how b is spread, or what a function makes of some systems."""
    one = found[name]
    assert one.get("error", 1) < 1e-7 and one["spread"], one
    assert one["step"] == {"all-reduce": 1} and one["largest"] <= 64, one


@pytest.mark.needs("jax")
@pytest.mark.merge
@pytest.mark.parametrize("name", ["CG, eager", "a function by place, eager"])
def test_eager_solutions(name: str, found: Found) -> None:
    assert found[name].get("error", 1) < 1e-7 and found[name]["spread"], found[name]


@pytest.mark.needs("jax")
@pytest.mark.merge
@pytest.mark.parametrize("name", ["a traced function by place"])
def test_what_fails_for_all_systems_is_a_failure(name: str, found: Found) -> None:
    """The first device has the systems that the function takes all others for."""
    assert found[name]["failed"] == [False] * 2 + [True] * 6, found[name]
