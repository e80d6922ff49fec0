"""Distributed arrays: functions of their blocks and messages between devices, on eight virtual devices of JAX."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from contract import covers
from krylix.backends import get_backend
from krylix.backends.interface.cuts import Cut, CutAxis
from modes import EAGER, library

SCRIPT = Path(__file__).parents[1] / "helpers" / "blocks_on_devices.py"


@pytest.mark.merge
@covers("cut_of", "map_parts", "from_neighbour", "permuted", "all_gathered", "all_to_all")
@covers("part_index", "ordered_after", "spread_over", "cells", "as_rows", "sum_over", "max_over")
@pytest.mark.needs("jax")
@pytest.mark.parametrize(("which", "count"), [("few", 5), pytest.param("all", 10, marks=pytest.mark.slow)])
def test_blocks_of_devices(which: str, count: int) -> None:
    """As NumPy has it on the whole grid, for Auto and Explicit mesh axes in any order; and `check_several_devices`."""
    run = subprocess.run([sys.executable, str(SCRIPT), which], env=os.environ.copy(), capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(lines) == count
    for line in lines:
        assert line["errors"] and max(line["errors"].values()) <= 1e-13, line


@covers("sharding_of", "known_cut")
@pytest.mark.parametrize("mode", EAGER)
def test_one_device_cuts_nothing(mode: str) -> None:
    bk = get_backend(library(mode))
    grid = bk.asarray(np.ones((4, 4)))
    assert bk.cut_of(grid, 0) is None and bk.sharding_of(grid) is None
    assert bk.known_cut(bk.on_grid(grid, (2, 2))) is None


@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_other_libraries_refuse(name: str) -> None:
    bk = get_backend(name)
    assert bk.cut_of(bk.asarray(np.ones(4)), 0) is None
    with pytest.raises(TypeError, match="JAX"):
        bk.sum_over(bk.asarray(np.ones(4)), ("i",))


def test_cut() -> None:
    mesh = SimpleNamespace(shape={"i": 2, "j": 4})
    cut = Cut(mesh, (("i",), (), ("j",)))
    assert cut.parts == (2, 1, 4) and cut.local((8, 3, 12)) == (4, 3, 3) and cut.all_names == ("i", "j")
    assert cut.behind(2).names == ((), (), ("i",), (), ("j",)) and cut.behind(2).within(2) == cut
    assert cut.on((8, 3, 12), (8, 3, 12)) == cut and cut.on((8, 3, 12), (24, 12)) is None
    line = Cut(mesh, (("i", "j"),), ("k",))
    assert line.on((48,), (16, 3)) == Cut(mesh, (("i", "j"), ()), ("k",)) and line.on((48,), (12, 4)) is None
    assert cut.divides((8, 3, 12)) and not cut.divides((8, 3, 10))
    assert cut.axes((True, True, False)) == (CutAxis(("i",), 2, True), True, CutAxis(("j",), 4, False))
