"""Set up before anything is imported: the path, threads and precision; and a skip where a framework is missing."""

import ctypes
import gc
import os
import sys
import sysconfig
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fast_compilation import FLAGS

pytest_plugins = ["processor_time"]

ROOT = Path(__file__).resolve().parents[1]
sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != ROOT]  # the root's sparse/ is not PyData sparse

for name, value in {
    # several test processes share the cores
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "XLA_FLAGS": " ".join((*FLAGS, "--xla_cpu_multi_thread_eigen=false")),
    # ... and one GPU, if there is one
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TORCH_DYNAMO_RUN_GC_AFTER_COMPILE": "0",  # half a second for each frame, with so many objects
    "JAX_ENABLE_X64": "1",
    "MPLBACKEND": "Agg",
}.items():
    os.environ.setdefault(name, value)

# What the frameworks hold, a million objects and more with every program, would be looked through over and over.
gc.set_threshold(50_000, 20, 50)

import krylix
from frameworks import FRAMEWORKS, framework_of, missing
from krylix.solvers.adapters.first_call import forget as forget_first_solves
from modes import forget_compiled
from tiers import CELLS, IMPORTED, TWINS, Cell, cell

installed = Path(krylix.__file__).resolve().is_relative_to(Path(sysconfig.get_paths()["purelib"]).resolve())
if os.environ.get("KRYLIX_TEST_INSTALLED") and not installed:
    raise pytest.UsageError(f"the installed package was to be tested, but krylix comes from {krylix.__file__}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its tier, and skip it where a framework is missing.

    Its `needs` marker names frameworks, and so does a parameter called backend or mode.
    """
    config.stash[IMPORTED] = [name for name in FRAMEWORKS if name in sys.modules]
    found = [_cell(item) for item in items]
    tiers = {(one.mode, _but_for_its_mode(item)): one.tier for item, one in zip(items, found, strict=True)}
    for item, first in zip(items, found, strict=True):
        twin = TWINS.get(first.mode or "")
        one = first.beside_its_twin(tiers.get((twin, _but_for_its_mode(item)))) if twin else first
        config.stash.setdefault(CELLS, []).append(one)
        if one.tier != "default" and item.get_closest_marker(one.tier) is None:
            item.add_marker(one.tier)
        parameters = _parameters(item)
        wanted = {framework_of(parameters[key]) for key in ("backend", "mode") if key in parameters}
        wanted.update(name for marker in item.iter_markers("needs") for name in marker.args)
        absent = sorted(name for name in wanted if name and missing(name))
        if absent:
            item.add_marker(pytest.mark.skip(reason=f"not installed: {', '.join(absent)}"))


def _parameters(item: pytest.Item) -> dict[str, Any]:
    return getattr(getattr(item, "callspec", None), "params", {})


def _cell(item: pytest.Item) -> Cell:
    node = _below_tests(item.path) + item.nodeid[item.nodeid.index("::") :]
    markers = {marker.name: marker for marker in reversed([*item.iter_markers()])}
    return cell(node, markers, _parameters(item), item.own_markers)


@cache
def _below_tests(path: Path) -> str:
    return path.relative_to(ROOT / "tests").as_posix()


def _but_for_its_mode(item: pytest.Item) -> Any:
    """The same for tests that differ in their mode only."""
    others = frozenset((name, id(value)) for name, value in _parameters(item).items() if name != "mode")
    return item.nodeid.partition("[")[0], others


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Say how `pytest -n 2` hands out tests, unless somebody asks for another way."""
    if config.getvalue("dist") != "load":
        return None
    from scheduling import LongestFirst

    return LongestFirst(config, log)


MEGABYTES = 1600  # resident; the frameworks alone take 1100
MAPS = 20_000  # memory maps, of which a process may have 65 530


def memory() -> tuple[int, int]:
    """Resident megabytes and memory maps of this process; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") >> 20, Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        return 0, 0


def forget_programs() -> None:
    """Free the programs that frameworks have compiled, and give the memory back to the system."""
    forget_compiled()
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()
    gc.collect()
    gc.freeze()  # a million objects of the frameworks, and what they never let go of, are not looked through again
    if sys.platform == "linux":
        getattr(ctypes.CDLL(None), "malloc_trim", int)(0)


_tests_run, _most = 0, MEGABYTES


def pytest_runtest_teardown(nextitem: pytest.Item | None, item: pytest.Item) -> None:
    """No test finds the set-ups of another one. Compiled programs are freed where they fill the memory."""
    global _tests_run, _most
    krylix.clear_setup_cache()
    forget_first_solves()
    _tests_run += 1
    ends = nextitem is None or nextitem.path != item.path
    if ends:
        for value in vars(getattr(item, "module", item)).values():
            if callable(getattr(type(value), "cache_clear", None)):
                value.cache_clear()
    if ends or _tests_run % 25 == 0:
        megabytes, maps = memory()
        if maps > MAPS or megabytes > _most + (0 if ends else 400):
            forget_programs()
            _most = max(MEGABYTES, memory()[0] + 300)  # what is left stays
