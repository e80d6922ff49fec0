"""How much to measure, and what that is measured on."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = (
    "krylix", "numpy", "scipy", "pyamg", "jax", "torch", "tensorflow", "lineax", "phiml", "solvax", "sparsax"
)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """The sizes of the problems and the number of pairs."""

    repeats: int = 9
    grid: int = 1024  # points along each axis, for the time per iteration
    few: int = 2  # iterations of the shorter and the longer solve
    many: int = 32
    grid_to_tolerance: int = 256
    grid_of_blocks: int = 300
    grid_of_gradients: int = 512
    grid_of_arguments: int = 255  # 2^p - 1, which SOLVAX coarsens
    grid_of_masks: int = 128
    grid_of_convection: int = 100
    unknowns: int = 5000  # of a circuit
    grid_in_3d: int = 96
    grid_of_pressure: int = 512
    grid_of_waves_3d: int = 32
    grid_of_forms: int = 64  # in three dimensions
    nodes: int = 100_000
    grid_of_media: int = 512
    grid_of_media_in_3d: int = 48
    grid_of_meshes: int = 150  # a side of the quadratic triangles, by which the other meshes go
    local_grid: int = 16  # of one device, in three dimensions
    calls: int = 100  # in a row, for the overhead of one
    bar: bool = True
    backend: str = "jax"  # whose functions are traced


QUICK = Settings(
    repeats=1,
    grid=16,
    few=1,
    many=21,
    grid_to_tolerance=16,
    grid_of_blocks=16,
    grid_of_gradients=16,
    grid_of_arguments=15,
    grid_of_masks=16,
    grid_of_convection=8,
    unknowns=200,
    grid_in_3d=6,
    grid_of_pressure=16,
    grid_of_waves_3d=6,
    grid_of_forms=6,
    nodes=200,
    grid_of_media=32,
    grid_of_media_in_3d=8,
    grid_of_meshes=12,
    local_grid=4,
    calls=2,
    bar=False,
)


def missing(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return True
    return False


def use_threads(count: int) -> None:
    """Before NumPy or a framework is imported: so many threads for each of them."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    for name in (*names, "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        os.environ[name] = str(count)
    if count == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ.setdefault("JAX_ENABLE_X64", "1")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")


def machine(threads: int) -> str:
    """Processor, Python and versions, without names of the host."""
    model = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        found = re.search(r"^model name\s*:\s*(.*)$", information.read_text(), re.MULTILINE)
        model = found[1] if found else model
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES if not missing(name))
    cores = f"{os.cpu_count()} cores, {threads} thread{'s' * (threads > 1)} per library"
    return f"{model}, {cores}, {platform.system()}, Python {platform.python_version()}; {versions}."
