"""Seconds of `import krylix` in a fresh interpreter that has imported NumPy and SciPy's solvers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from .measure import Sampler, compare
from .settings import Settings, missing
from .table import Row

CODE = """
import time, numpy, scipy.sparse.linalg
start = time.process_time()
import {module}
print(time.process_time() - start)
"""
PEERS = {"lineax": "lineax (with jax)", "phiml": "phiml", "pyamg": "pyamg"}


def rows(settings: Settings) -> Iterator[Row]:
    for package, peer in PEERS.items():
        what = "import krylix, beyond NumPy and SciPy"
        if missing(package):
            yield Row(what, peer, missing="not installed", budget_seconds=0.3)
            continue
        measured = compare(importing("krylix"), importing(package), settings.repeats)
        yield Row(what, peer, measured, budget_seconds=0.3)


def importing(module: str) -> Sampler:
    command = [sys.executable, "-P", "-c", CODE.format(module=module)]
    return lambda: float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
