"""A preconditioner is computed once, looked at, saved, and used many times: elsewhere, and by another library.

Heat flows through a ground whose layers differ a thousandfold in conductivity. One script builds the preconditioner by
NumPy and SciPy, says what it costs, and writes it to a file. Another process, which knows nothing of the first, reads
the file for JAX and solves for many sources of heat inside `jax.jit`, without a set-up. So does PyTorch here.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch

import krylix
from krylix.solvers import PRECONDITIONERS

N = 96  # points per side
SOURCES = 5
KIND = next(kind for kind in ("amg", "ic", "ssor", "jacobi") if kind in PRECONDITIONERS)


def ground():
    """-div(k grad T) with T = 0 at the rim, by finite volumes; k changes from layer to layer."""
    k = 10.0 ** (3 * (np.arange(N + 1) * 6 // (N + 1) % 2))  # of the faces between rows of points
    across = sp.diags_array([-k[1:-1], k[1:] + k[:-1], -k[1:-1]], offsets=[-1, 0, 1])
    along = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(N, N))
    return sp.csr_array(sp.kron(across, sp.eye_array(N)) + sp.kron(sp.diags_array((k[1:] + k[:-1]) / 2), along))


def sources():
    return np.random.default_rng(0).random((SOURCES, N * N))


def solve_in_jax(path):
    """Runs in a process of its own: every solve of it starts with the preconditioner in the file."""
    import jax

    jax.config.update("jax_enable_x64", True)
    A, M = ground(), krylix.load_preconditioner(path, like=jax.numpy.zeros(1))

    @jax.jit
    def temperature(q):
        result = krylix.linear_solve(A, q, method="CG", preconditioner=M)
        return result.x, result.iterations

    temperature(sources()[0])  # compiles
    started = time.perf_counter()
    found = [jax.device_get(temperature(q)) for q in sources()]
    seconds = time.perf_counter() - started
    steps = max(int(iterations) for _, iterations in found)
    print(f"another process, jax.jit: {SOURCES} solves in {1e3 * seconds:.0f} ms, at most {steps} iterations each")
    np.save(Path(path).with_name("T.npy"), [T for T, _ in found])


def main():
    A, q = ground(), sources()
    started = time.perf_counter()
    M = krylix.preconditioner(A, KIND)
    set_up = time.perf_counter() - started
    print(M)
    plain = krylix.linear_solve(A, q[0], method="CG", on_failure="status")
    with_it = krylix.linear_solve(A, q[0], method="CG", preconditioner=M)
    print(f"set up in {1e3 * set_up:.0f} ms; CG takes {with_it.iterations} iterations, without it {plain.iterations}")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "M.npz")
        M.save(path)
        print(f"saved: {path.stat().st_size / 1e3:.0f} kB")
        subprocess.run([sys.executable, __file__, str(path)], check=True)
        T = np.load(Path(folder, "T.npy"))
        tensor = torch.as_tensor(q[0])
        there = krylix.load_preconditioner(path, like=tensor)
        result = krylix.linear_solve(A, tensor, method="CG", preconditioner=there)
        print(f"{there.bk.name}: {int(result.iterations)} iterations")

    residual = max(np.linalg.norm(q.T - A @ T.T, axis=0) / np.linalg.norm(q, axis=1))
    difference = np.abs(result.x.numpy() - T[0]).max() / np.abs(T[0]).max()
    print(f"residuals at most {residual:.1e}; PyTorch and JAX differ by {difference:.1e}")
    same = np.array_equal(M @ q[0], (there @ tensor).numpy()) or np.allclose(M @ q[0], there @ tensor, rtol=1e-12)
    if not (residual < 1e-9 and difference < 1e-6 and same):
        raise SystemExit("the preconditioner that was loaded is not the one that was saved")
    if not with_it.iterations < plain.iterations:
        raise SystemExit("the preconditioner gains nothing")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        solve_in_jax(sys.argv[1])
    else:
        main()
