"""The allocator's setting, in a process of its own: it cannot be undone."""

import subprocess
import sys

import pytest

from krylix.backends.malloc import tune_malloc

PROGRAM = """
import resource
import sys
import numpy as np
from krylix.backends.malloc import tune_malloc

done = tune_malloc()
assert done is tune_malloc()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        np.ones(8_000_000)  # 64 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(done, faults())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
def test_large_arrays_reuse_their_pages() -> None:
    answer = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout.split()
    if answer[0] == "True":
        assert int(answer[1]) < 1000  # of 15 000 pages per array
    else:
        assert answer[0] == "False"


@pytest.mark.parametrize(("system", "library"), [("darwin", "glibc"), ("win32", ""), ("linux", ""), ("linux", "musl")])
def test_elsewhere_nothing_happens(system: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr("platform.libc_ver", lambda *_: (library, ""))
    monkeypatch.setattr("ctypes.CDLL", lambda *_: pytest.fail("the C library was touched"))
    assert tune_malloc() is False
