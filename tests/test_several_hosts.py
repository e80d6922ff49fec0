"""The program for several hosts on the page about several devices: two processes of JAX, two devices each."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest

from fast_compilation import virtual_devices
from library import ROOT

N = 24
PAGE = (ROOT / "docs" / "how_to" / "several_devices.md").read_text()
PROGRAM = next(code for code in re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) if "hosts" in code)
# What the page has defined before, and what it leaves out: an eager solve, and two that fail.
GIVEN = f"""
import numpy as np, jax.numpy as jnp
N = {N}

def source(part):
    x, y = (np.arange(N)[p] / N for p in part)
    return np.sin(3 * x[:, None]) * np.cos(2 * y)

def minus_laplace(u):
    u = jnp.pad(u, 1)
    return 4 * u[1:-1, 1:-1] - u[2:, 1:-1] - u[:-2, 1:-1] - u[1:-1, 2:] - u[1:-1, :-2]
"""
MORE = """
print("eager", float(jnp.linalg.norm(linear_solve(minus_laplace, b).x)))
for name, call in {
    "eagerly": lambda: linear_solve(minus_laplace, b, method="CG", max_iter=3),
    "in jit": lambda: jax.jit(lambda b: linear_solve(minus_laplace, b, method="CG", max_iter=3).x)(b),
}.items():
    try:
        call()
    except Exception as error:
        print("raised", name, type(error).__name__, flush=True)
"""


def run_hosts() -> list[str]:
    """What each of two processes prints."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = os.environ | virtual_devices(2) | {"JAX_PLATFORMS": "cpu"}
    hosts = []
    for rank in range(2):
        begin = f"jax.distributed.initialize({address!r}, 2, {rank})\n" + GIVEN
        code = PROGRAM.replace("jax.distributed.initialize()", begin) + MORE
        hosts.append(subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE,
                     stderr=subprocess.PIPE, text=True, start_new_session=True))  # fmt: skip
    try:
        return [_printed(host) for host in hosts]
    finally:
        for host in hosts:
            if host.poll() is None:
                os.killpg(host.pid, signal.SIGKILL)


def _printed(host: subprocess.Popen[str]) -> str:
    printed, errors = host.communicate(timeout=60)
    assert host.returncode == 0, errors[-3000:]
    return printed


@pytest.mark.needs("jax")
@pytest.mark.merge
def test_two_processes_solve_and_fail_alike() -> None:
    first, second = run_hosts()
    x = np.arange(N) / N
    ring = 2 * np.eye(N) - np.eye(N, k=1) - np.eye(N, k=-1)
    A = np.kron(ring, np.eye(N)) + np.kron(np.eye(N), ring)
    expected = np.linalg.norm(np.linalg.solve(A, (np.sin(3 * x[:, None]) * np.cos(2 * x)).ravel()))
    assert float(re.search(r"\|x\| = (\S+)", first)[1]) == pytest.approx(expected, rel=1e-8)
    for printed in (first, second):
        assert float(re.search(r"eager (\S+)", printed)[1]) == pytest.approx(expected, rel=1e-8)
        assert "raised eagerly NotConverged" in printed and "raised in jit ValueError" in printed, printed
    assert "|x|" not in second
