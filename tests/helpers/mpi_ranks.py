"""Programs of several processes by mpirun, of which each rank tells lines of JSON; killed where they hang."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_SECONDS = 60
_FOLDER = "KRYLIX_TEST_RANKS"  # each rank has a file of its own there, as what they print may be mixed up


def tell(rank: int, **line: Any) -> None:
    """Tell a line of this rank to `run_ranks`, or print it."""
    text = json.dumps({"rank": rank, **line})
    if _FOLDER not in os.environ:
        print(text, flush=True)
        return
    with open(Path(os.environ[_FOLDER]) / str(rank), "a") as file:
        file.write(text + "\n")


@cache
def missing_mpi(*packages: str) -> str:
    """Why no such program runs; empty if one does."""
    if shutil.which("mpirun") is None:
        return "mpirun is not installed: tests/helpers/mpi_environment FOLDER makes an interpreter that has it"
    check = f"import {', '.join(('mpi4py.MPI', *packages))}"
    found = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=_SECONDS)
    problem = (found.stderr.splitlines() or ["?"])[-1]
    return f"{problem}: see tests/helpers/mpi_environment" if found.returncode else ""


def run_ranks(program: str, ranks: int, *arguments: str) -> list[dict[str, Any]]:
    """The lines of all ranks that they `tell`.

    Args:
        program: a file in this folder.

    Raises:
        RuntimeError: it failed, or did not end in a minute.
    """
    here = Path(__file__).parent
    options = ["--allow-run-as-root", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "-n", str(ranks)]
    path = os.pathsep.join(p for p in (str(here), os.environ.get("PYTHONPATH", "")) if p)
    with TemporaryDirectory() as folder:
        process = subprocess.Popen(
            ["mpirun", *options, sys.executable, str(here / program), *arguments], text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, env=os.environ | {"PYTHONPATH": path, _FOLDER: folder}, start_new_session=True,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            raise RuntimeError(f"{program} did not end in {_SECONDS} s; it printed\n{output}") from None
        if process.returncode:
            raise RuntimeError(f"{program} failed:\n{output}")
        return [json.loads(line) for file in sorted(Path(folder).iterdir()) for line in file.read_text().splitlines()]
