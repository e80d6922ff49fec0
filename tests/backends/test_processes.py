"""What only a process of its own shows: forks, threads of BLAS, the allocator, and a library that is not installed.

All programs run in children of one process that has imported krylix, because the import takes seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from krylix.backends.settings import tune_malloc

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="of systems that fork")

# Each program runs to its end, with what it has registered for that; its output and status go to standard output.
LAUNCHER = """
import json, os, sys
import krylix, numpy

assert not {"jax", "torch", "tensorflow"} & set(sys.modules)
found = {}
for name, program in json.loads(sys.argv[1]).items():
    read, write = os.pipe()
    if not os.fork():
        os.dup2(write, sys.stdout.fileno())
        exec(program, {})
        break
    os.close(write)
    output = open(read).read()
    found[name] = os.wait()[1], output
else:
    print(json.dumps(found))
"""
PROGRAMS = {
    "fork": """
import atexit, os, threading
import numpy as np
from krylix.backends.host_math import cores

assert threading.active_count() == 1
cores.use(3)

def total():
    found = np.zeros(10)
    def work(start, end):
        found[start] = 1
    cores.in_blocks(work, 10, 1)
    return found.sum()

assert total() == 10 and cores.started
child = os.fork()
if not child:
    assert not cores.started
    assert total() == 10 and cores.started
    os._exit(7)
assert os.waitpid(child, 0)[1] == 7 << 8
assert total() == 10
atexit.register(lambda: print(total()))
""",
    "small products": """
import time, numpy as np
from krylix.backends.numpy.vectors import times_each, times_rows
stack, x = np.ones((1, 31, 2000), complex), np.ones((1, 2000), complex)
square = np.ones((97, 97))
def work():
    for _ in range(300):
        times_each(stack, x), times_rows(square, square)
work()
cpu = time.process_time()
own = time.thread_time()
work()
print((time.process_time() - cpu) / (time.thread_time() - own))
""",
    "allocator": """
import resource
import numpy as np
from krylix.backends.settings import tune_malloc

done = tune_malloc()
assert done is tune_malloc()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        np.ones(8_000_000)  # 64 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(done, faults())
""",
    "missing library": """
import sys
sys.modules["torch"] = None
import krylix, numpy as np
for ask in (lambda: krylix.choose_backend("torch"), lambda: krylix.convert(np.ones(2), "pytorch")):
    try:
        ask()
    except krylix.NoBackendFound as error:
        print(error)
print(krylix.linear_solve(np.eye(2), np.ones(2)).x, "jax" in sys.modules)
""",
}


@pytest.fixture(scope="module")
def outputs() -> dict[str, list[str]]:
    """The words that each program printed; BLAS may use two threads in them."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-c", LAUNCHER, json.dumps(PROGRAMS)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    assert not any(status for status, _ in found.values()), (found, run.stderr)
    return {name: output.splitlines() for name, (_, output) in found.items()}


@pytest.mark.merge
def test_threads_after_a_fork_and_at_the_end_of_the_program(outputs: dict[str, list[str]]) -> None:
    assert outputs["fork"] == ["10.0"]


@pytest.mark.merge
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core, so BLAS has no other threads")
def test_small_products_stay_on_one_core(outputs: dict[str, list[str]]) -> None:
    """With two threads for BLAS, all CPU time is that of the calling thread: the other one would spin."""
    assert float(outputs["small products"][0]) < 1.2


def test_missing_library(outputs: dict[str, list[str]]) -> None:
    """One that is not installed is named with the way to install it; objects of the others go on working."""
    message = "torch is not installed: pip install 'krylix[torch]'."
    assert outputs["missing library"] == [message, message, "[1. 1.] False"]


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
def test_large_arrays_reuse_their_pages(outputs: dict[str, list[str]]) -> None:
    """The allocator's setting cannot be undone in a process."""
    tuned, faults = outputs["allocator"][0].split()
    assert tuned in ("True", "False")
    assert tuned == "False" or int(faults) < 1000  # of 15 000 pages per array


@pytest.mark.parametrize(("system", "library"), [("darwin", "glibc"), ("win32", ""), ("linux", ""), ("linux", "musl")])
def test_the_allocator_elsewhere_is_left_alone(system: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr("platform.libc_ver", lambda *_: (library, ""))
    monkeypatch.setattr("ctypes.CDLL", lambda *_: pytest.fail("the C library was touched"))
    assert tune_malloc() is False


@pytest.mark.merge
@pytest.mark.needs("torch")
def test_only_what_is_used_is_imported() -> None:
    """One library's standard, and no compiler of PyTorch for derivatives. PyTorch takes seconds, so one process."""
    program = """
import sys, krylix
loaded = lambda: sorted(name for name in sys.modules if "standard" in name and name.startswith("krylix"))
assert not loaded(), loaded()
krylix.choose_backend("numpy").xp
assert not {"jax", "torch", "tensorflow"} & set(sys.modules)
bk = krylix.choose_backend("torch")
bk.xp
assert not [name for name in loaded() if "tensorflow" in name or "jax" in name], loaded()
import torch
x = torch.ones(3)
bk.jacobian(lambda x: (x**2).sum())(x), bk.hessian(lambda x: (x**3).sum())(x)
assert "torch._dynamo" not in sys.modules
"""
    run = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
