"""Cases of `sharded` that the tests of a file ask for, run in one process with virtual devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

Found = dict[str, dict[str, Any]]


def run_cases(module: str, names: Sequence[str], devices: int = 4) -> Found:
    """What `look` tells of the named cases of a module of `sharded`; none: of all."""
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    run = subprocess.run(
        [sys.executable, "-m", "sharded.run", str(devices), module, *names],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    found = {line.pop("name"): line for line in map(json.loads, run.stdout.splitlines())}
    assert found.keys() >= set(names), f"there is no case {sorted(set(names) - found.keys())}"
    return found


def selected_names(request: pytest.FixtureRequest, fixture: str = "found") -> list[str]:
    """The values of the parameter `name` in the tests of this file that were selected and use the fixture."""
    here = (item for item in request.session.items if item.path == request.path and fixture in item.fixturenames)
    return list(dict.fromkeys(item.callspec.params["name"] for item in here))
