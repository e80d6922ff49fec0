"""Solves whose vectors are cut over the members of a communicator, on devices and in processes of their own.

Mesh axes inside `jax.shard_map` on four virtual devices; two processes with torch.distributed (gloo), and with MPI
where that is. Everything is compared with NumPy's dense solution of the whole, and no test waits longer than `LIMIT`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import krylix
from mpi_ranks import missing_mpi, run_ranks
from sharded_runs import Found, selected_names

HELPERS = Path(__file__).parents[1] / "helpers"
LIMIT = 60  # seconds for a process that may wait for another one; a machine that is busy takes a few of them
# all-reduces and messages to neighbours along two axes in a step
STEPS = {
    "CG": (2, 4), "CG-adaptive": (2, 4), "CG-single-reduction": (1, 4), "block-CG": (4, 4),
    "COCR": (3, 4), "biCG-stab": (4, 8), "biCG-stab(2)": (7, 16), "biCG-stab(4)": (14, 32), "GMRES": (6, 4),
    "FGMRES": (6, 4), "IDR(4)": (5, 4), "MINRES": (4, 4), "LSMR": (2, 8), "CGLS": (2, 8), "mixed-CG": (2, 4),
    "mixed-biCG-stab(2)": (7, 16), "auto": (7, 16), "CG without types": (2, 4), "GMRES without types": (6, 4),
}  # fmt: skip
DEFAULT = ("CG",)
MERGED = ("GMRES", "biCG-stab(2)")
SETTINGS = {
    "eager": "slow", "function as M": "", "chebyshev": "slow", "constant": "merge", "null vectors": "slow",
    "affine": "slow", "complex": "slow", "batch": "slow", "vmap": "", "start and limits": "slow", "prepared": "slow",
    "one axis, CG": "slow", "one axis, GMRES(5)": "slow", "gradient outside": "slow",
    "gradient outside without types": "slow", "gradient inside": "", "second derivative": "slow",
}  # fmt: skip
REFUSED = {
    "limit": ("JaxRuntimeError", "NotConverged: CG reached the limit of iterations"),
    "nan in a part": ("JaxRuntimeError", "Diverged: CG produced NaN or infinity"),
    "unknown axis": ("ValueError", "the axes here are ('i', 'j')"),
    "outside": ("ValueError", "this is outside of it"),
    "no axis": ("TypeError", "expected the name of a mesh axis"),
    "direct": ("UnsupportedOperation", "Use a Krylov method"),
    "ilu": ("UnsupportedOperation", "krylix.preconditioner(A_here, 'ilu')"),
    "matrix": ("TypeError", "expected a function of this member's part"),
    "callback": ("ValueError", "inside shard_map cannot"),
    "status": ("", "5 nan"),
}
RAISED = {  # in the first and in the second of two processes
    "limit": ("NotConverged", "NotConverged"),
    "nan in a part": ("Diverged", "Diverged"),
    "status": ("", ""),
    "inconsistent": ("NotConverged", "NotConverged"),
    "shape": ("OtherMemberFailed", "ValueError"),
    "x0": ("OtherMemberFailed", "ValueError"),
    "settings differ": ("ValueError", "ValueError"),
    "start differs": ("ValueError", "ValueError"),
    "no vector": ("OtherMemberFailed", "TypeError"),
    "null vectors": ("ValueError", "ValueError"),
    "direct": ("UnsupportedOperation", "UnsupportedOperation"),
    "scipy": ("UnsupportedOperation", "UnsupportedOperation"),
    "amg": ("UnsupportedOperation", "UnsupportedOperation"),
    "matrix": ("TypeError", "TypeError"),
    "matrix_offset": ("ValueError", "ValueError"),
    "kind": ("TypeError", "TypeError"),
    "callback": ("", ""),
    "broken callback": ("OtherMemberFailed", "KeyError"),
    "time": ("NotConverged", "NotConverged"),
    "good": ("", ""),
}


def lines_of(command: Sequence[str], **changes: str) -> list[dict[str, Any]]:
    run = subprocess.run(
        [*command], env={**os.environ, **changes}, cwd=HELPERS, capture_output=True, text=True, timeout=10 * LIMIT
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> Found:
    """Of the cases on devices that this run looks at."""
    names = selected_names(request)
    lines = {line.pop("name"): line for line in lines_of([sys.executable, "over_mesh.py", *names])}
    assert lines.keys() >= set(names)
    return lines


def in_tiers(names: dict[str, str]) -> list[Any]:
    return [pytest.param(name, marks=[getattr(pytest.mark, tier)] if tier else []) for name, tier in names.items()]


TIERS = {name: "" if name in DEFAULT else "merge" if name in MERGED else "slow" for name in STEPS}


@pytest.mark.merge
@pytest.mark.needs("jax")
@pytest.mark.parametrize("name", in_tiers(TIERS))
def test_methods_on_devices(name: str, found: Found) -> None:
    """One reduction takes the place of one for each mesh axis."""
    one = found[name]
    assert one["error"] <= 1e-9 and one["converged"] and one["spread"], one
    sums, messages = STEPS[name]
    assert one["step"] == {"all-reduce": sums, "collective-permute": messages}, one
    assert not {"all-gather", "all-to-all"} & set(one["rest"]), one


@pytest.mark.merge
@pytest.mark.needs("jax")
@pytest.mark.parametrize("name", in_tiers(SETTINGS))
def test_settings_and_derivatives_on_devices(name: str, found: Found) -> None:
    assert found[name]["error"] <= 1e-8, found[name]


@pytest.mark.needs("jax")
@pytest.mark.parametrize("name", REFUSED)
def test_failures_on_devices(name: str, found: Found) -> None:
    raised, message = REFUSED[name]
    assert found[name]["raised"] == raised and message in found[name]["message"], found[name]


def by_torch(arguments: Sequence[str]) -> list[dict[str, Any]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    processes = [
        subprocess.Popen(
            [sys.executable, "over_processes.py", "torch", *arguments],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port},
            cwd=HELPERS, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        told = [process.communicate(timeout=5 * LIMIT) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], "\n".join(map("".join, told))
    return [json.loads(line) for output, _ in told for line in output.splitlines()]


LIBRARIES = [pytest.param("torch", marks=pytest.mark.needs("torch")), "mpi"]
IN_DEFAULT = {"torch": ("CG", "derivatives", "failures"), "mpi": ("CG", "choices", "empty", "failures")}


@pytest.fixture(scope="module")
def told() -> Any:
    """Lines of both processes, for each library once."""
    kept: dict[tuple[str, ...], list[dict[str, Any]]] = {}

    def run(library: str, *names: str) -> list[dict[str, Any]]:
        if library == "mpi" and (missing := missing_mpi()):
            pytest.skip(missing)
        if (library, *names) not in kept:
            of_mpi = partial(run_ranks, "over_processes.py", 2, "mpi")
            kept[library, *names] = by_torch(names) if library == "torch" else of_mpi(*names)
        return kept[library, *names]

    return run


@pytest.mark.merge
@pytest.mark.parametrize("library", LIBRARIES)
def test_processes_find_what_one_finds(library: str, told: Any) -> None:
    right = [line for line in told(library, *IN_DEFAULT[library]) if line["group"] != "failures"]
    wrong = [line for line in right if not line["error"] <= 1e-8]
    assert right and not wrong, wrong
    many = [line for line in right if "sums" in line and line["sums"] > line["expected"] + 1]
    assert not many, many


@pytest.mark.merge
@pytest.mark.parametrize("library", LIBRARIES)
def test_failures_end_all_processes(library: str, told: Any) -> None:
    lines = [line for line in told(library, *IN_DEFAULT[library]) if line["group"] == "failures"]
    found = {(line["name"], line["rank"]): line["raised"] for line in lines}
    if library == "torch":
        assert {found.pop(("recorded in one", rank)) for rank in (0, 1)} == {"ValueError"}
    assert found == {(name, rank): raised[rank] for name, raised in RAISED.items() for rank in (0, 1)}
    said = {line["name"]: line["message"] for line in lines if line["rank"] == 1}
    assert "stopped by the callback after 5" in said["callback"] and "expected (" in said["shape"]
    assert "converged in" in said["good"]


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_every_case_in_processes(library: str, told: Any) -> None:
    right = [line for line in told(library) if line["group"] != "failures"]
    assert not [line for line in right if not line["error"] <= 1e-8], right
    assert not [line for line in right if "sums" in line and line["sums"] > line["expected"] + 1], right
    chosen = {line["name"]: line["method"] for line in right if "method" in line}
    assert chosen == {"not symmetric": "biCG-stab(2)", "indefinite": "MINRES"}


def test_communicators_of_other_libraries_are_refused() -> None:
    with pytest.raises(TypeError, match=r"over='i' .* arrays of numpy; expected an intracommunicator of mpi4py"):
        krylix.linear_solve(lambda x: 2 * x, np.ones(3), over="i")
    with pytest.raises(TypeError, match="expected an intracommunicator"):
        krylix.prepare(lambda x: 2 * x, np.ones(3), over=object())


@pytest.mark.needs("tensorflow")
def test_tensorflow_has_no_communicators() -> None:
    b = krylix.choose_backend("tensorflow").asarray(np.ones(3))
    with pytest.raises(TypeError, match="tensorflow, which has no communicators; expected arrays of NumPy"):
        krylix.linear_solve(lambda x: 2 * x, b, over="i")
