"""Set up before anything is imported: the path, threads and precision; and a skip where a framework is missing."""

import gc
import os
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != ROOT]  # the root's sparse/ is not PyData sparse

for name, value in {
    # several test processes share the cores
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    # ... and one GPU, if there is one
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "JAX_ENABLE_X64": "1",
    "MPLBACKEND": "Agg",
}.items():
    os.environ.setdefault(name, value)

import krylix
from frameworks import framework_of, missing

installed = Path(krylix.__file__).resolve().is_relative_to(Path(sysconfig.get_paths()["purelib"]).resolve())
if os.environ.get("KRYLIX_TEST_INSTALLED") and not installed:
    raise pytest.UsageError(f"the installed package was to be tested, but krylix comes from {krylix.__file__}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip a test whose `needs` marker, or whose parameter called backend or mode, names a missing framework."""
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        wanted = {framework_of(parameters[key]) for key in ("backend", "mode") if key in parameters}
        wanted.update(name for marker in item.iter_markers("needs") for name in marker.args)
        absent = sorted(name for name in wanted if name and missing(name))
        if absent:
            item.add_marker(pytest.mark.skip(reason=f"not installed: {', '.join(absent)}"))


_tests_run = 0


def pytest_runtest_teardown() -> None:
    """Compiled programs of thousands of tests would fill the memory maps of a process, so they go now and then."""
    global _tests_run
    _tests_run += 1
    if _tests_run % 200 == 0 and "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
        gc.collect()
