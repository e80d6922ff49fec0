"""Whole vectors that move between devices are named: a warning for each method and preconditioner that does that."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import krylix
from krylix.solvers import METHODS, PRECONDITIONERS
from sharded_runs import Found, run_cases, selected_names

NAMES = [*(f"method {name}" for name in METHODS), *(f"preconditioner {kind}" for kind in PRECONDITIONERS), "matrix csr"]
MERGED = ("method CG", "method LSMR", "method direct", "method scipy-CG", "method fast-direct", "preconditioner jacobi",
          "preconditioner chebyshev", "preconditioner amg", "preconditioner cluster", "matrix csr")  # fmt: skip


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> Found:
    """Of those solves that this run looks at."""
    return run_cases("cases_transfers", selected_names(request))


def tiers() -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.merge if name in MERGED else pytest.mark.slow) for name in NAMES]


@pytest.mark.needs("jax")
@pytest.mark.parametrize("name", tiers())
def test_a_warning_where_a_vector_moves_and_only_there(name: str, found: Found) -> None:
    one = found[name]
    assert "raised" not in one, one["raised"]
    assert one["error"] < 1e-6, one
    vector = 4 * one["part"]
    moves = one["largest"] >= vector / 2  # along each of two axes of the mesh, one after the other
    assert bool(one["told"]) == moves, one


def test_the_warning_is_silenced_by_its_class() -> None:
    assert issubclass(krylix.GatherWarning, UserWarning) and "numpy" in sys.modules
