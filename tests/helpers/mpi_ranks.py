"""Programs of several processes by mpirun, of which each rank prints lines of JSON; killed where they hang."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

_SECONDS = 60


@cache
def missing_mpi(*packages: str) -> str:
    """Why no such program runs; empty if one does."""
    if shutil.which("mpirun") is None:
        return "mpirun is not installed: tests/helpers/mpi_environment FOLDER makes an interpreter that has it"
    check = f"import {', '.join(('mpi4py.MPI', *packages))}"
    found = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=_SECONDS)
    return "" if not found.returncode else f"{(found.stderr.splitlines() or ['?'])[-1]}: see tests/helpers/mpi_environment"


def run_ranks(program: str, ranks: int, *arguments: str) -> list[dict[str, Any]]:
    """The lines of all ranks, each with `rank`.

    Args:
        program: a file in this folder.

    Raises:
        RuntimeError: it failed, or did not end in a minute.
    """
    here = Path(__file__).parent
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "-n", str(ranks)]
    path = os.pathsep.join(p for p in (str(here), os.environ.get("PYTHONPATH", "")) if p)
    process = subprocess.Popen(
        [*command, sys.executable, str(here / program), *arguments], text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": path}, start_new_session=True,
    )  # fmt: skip
    try:
        output, errors = process.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        raise RuntimeError(f"{program} did not end in {_SECONDS} s; it printed\n{output}\n{errors}") from None
    if process.returncode:
        raise RuntimeError(f"{program} failed:\n{output}\n{errors}")
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]
