"""BoomerAMG of hypre as a peer: `Hypre(A, b)` is called for processor seconds of set-up and solve.

It runs through PETSc in another process, as PETSc's bindings may need another interpreter: that of the environment
variable `PETSC_PYTHON`, else this one or the system's, whichever imports petsc4py.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

_WORKER = Path(__file__).with_name("hypre_worker.py")
_SYSTEM = "/usr/bin/python3"
_COMMON = {"coarsen_type": "HMIS", "interp_type": "ext+i"}
_FILES = tempfile.TemporaryDirectory(prefix="hypre")
_numbers = iter(range(10**9))


class Hypre:
    """BoomerAMG with CG (GMRES where A is not symmetric) on one system, by the best of its usual settings.

    Args:
        A: the matrix.
        b: the right-hand side.
        symmetric: is A? Else GMRES(100) with the preconditioner on the right.
        singular: are constants the null space of A?
        three: is the problem three-dimensional? Then aggressive coarsening is tried, too.
        unknowns_per_point: functions that hypre coarsens one by one ("unknown approach").
        rtol: of the norm of the residual to that of b.

    Raises:
        RuntimeError: there is no petsc4py, or no setting has converged.
    """

    def __init__(
        self,
        A: Any,
        b: np.ndarray,
        *,
        symmetric: bool = True,
        singular: bool = False,
        three: bool = False,
        unknowns_per_point: int = 1,
        rtol: float = 1e-8,
    ) -> None:
        self._task: dict[str, Any] = {
            "file": _stored(A, b),
            "symmetric": symmetric,
            "singular": singular,
            "unknowns_per_point": unknowns_per_point,
            "rtol": rtol,
            "max_iter": 500,
        }
        tried = {name: self._run(options) for name, options in _settings(symmetric, three)}
        good = {name: run for name, run in tried.items() if run["residual"] <= 1.1 * rtol}
        if not good:
            raise RuntimeError(f"hypre did not converge: {tried}")
        self.setting = min(good, key=lambda name: good[name]["setup"] + good[name]["solve"])
        self.iterations = int(good[self.setting]["iterations"])
        self._options = dict(_settings(symmetric, three))[self.setting]

    def __call__(self) -> float:
        """Processor seconds of one set-up and solve."""
        run = self._run(self._options)
        return float(run["setup"] + run["solve"])

    def _run(self, options: dict[str, Any]) -> dict[str, Any]:
        return _ask(self._task | {"options": options})


def _settings(symmetric: bool, three: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    common = _COMMON | {
        "strong_threshold": 0.5 if three else 0.25,
        "relax_type_all": "symmetric-SOR/Jacobi" if symmetric else "SOR/Jacobi",
    }
    yield "all entries", common
    yield "4 a row", common | {"P_max": 4}
    if three:
        yield "aggressive", common | {"P_max": 4, "agg_nl": 1}


def missing_hypre() -> str:
    """Why there is no hypre; empty if there is."""
    return (
        "" if _interpreter() else "not installed (petsc4py with hypre; PETSC_PYTHON names an interpreter that has it)"
    )


@cache
def _interpreter() -> tuple[str, tuple[tuple[str, str], ...]] | None:
    """An interpreter that imports petsc4py, and the environment that it needs."""
    places = ["", *sorted(glob("/usr/lib/petscdir/*/*-real"))]  # Debian's, where no link leads to them
    for python in dict.fromkeys(filter(None, (os.environ.get("PETSC_PYTHON"), sys.executable, _SYSTEM))):
        for place in places:
            more = (("PETSC_DIR", place),) if place else ()
            check = [python, "-c", "import petsc4py; petsc4py.init([]); from petsc4py import PETSc"]
            try:
                if not subprocess.run(check, env=_environment(more), capture_output=True, timeout=60).returncode:
                    return python, more
            except (OSError, subprocess.TimeoutExpired):
                break
    return None


def _environment(more: tuple[tuple[str, str], ...]) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}  # paths of another version
    return kept | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | dict(more)


@cache
def _worker() -> subprocess.Popen[str]:
    found = _interpreter()
    if found is None:
        raise RuntimeError(f"hypre is {missing_hypre()}")
    python, more = found
    process = subprocess.Popen(
        [python, str(_WORKER)], env=_environment(more), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.kill)
    _answer(process)  # its version
    return process


def _ask(task: dict[str, Any]) -> dict[str, Any]:
    process = _worker()
    assert process.stdin is not None
    process.stdin.write(json.dumps(task) + "\n")
    process.stdin.flush()
    found = _answer(process)
    if "error" in found:
        raise RuntimeError(f"hypre: {found['error']}")
    return found


def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            return dict(json.loads(line))
    raise RuntimeError("hypre's process has ended")


def _stored(A: Any, b: np.ndarray) -> str:
    A = sp.csr_array(A)
    A.sort_indices()
    file = os.path.join(_FILES.name, f"{next(_numbers)}.npz")
    np.savez(file, indptr=A.indptr.astype(np.int32), indices=A.indices.astype(np.int32), data=A.data, b=b)
    return file
