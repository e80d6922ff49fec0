"""Heat in a plate by PETSc, rows spread over MPI processes: `mpirun -n 2 python examples/petsc_rows.py`.

The system is a plain function on a grid. krylix traces it to a stencil, and each process makes its own rows of the
matrix for PETSc, whose hypre then preconditions CG across the processes. The tolerance holds for the true residual that
krylix computes, whatever PETSc says of its success. The adjoint, by the same hierarchy, gives the gradient of the mean
temperature by the sources; it is compared with the definition. On one process it is an ordinary solve with hypre.
"""

import sys

import numpy as np

try:
    from mpi4py import MPI
    from petsc4py import PETSc  # noqa: F401
except (ImportError, RuntimeError) as error:
    print(f"{error}: `apt-get install python3-petsc4py python3-mpi4py mpi-default-bin`, for the system's Python, or")
    print("`conda install -c conda-forge petsc4py mpi4py`")
    sys.exit(0)

from krylix import matrix_from_function, prepare
from krylix.solvers import Petsc

N, RTOL = 128, 1e-8
COMM = MPI.COMM_WORLD
ROWS = slice(N * N * COMM.rank // COMM.size, N * N * (COMM.rank + 1) // COMM.size)  # of this process
K = np.exp(3 * np.outer(np.sin(np.arange(N + 1) / 9), np.cos(np.arange(N + 1) / 7)))  # conductivities


def diffusion(u):
    """-div(k grad u) on the grid, u = 0 around."""
    across = K[:, :-1] * np.diff(np.pad(u, ((1, 1), (0, 0))), axis=0)
    along = K[:-1] * np.diff(np.pad(u, ((0, 0), (1, 1))), axis=1)
    return -np.diff(across, axis=0) - np.diff(along, axis=1)


def say(text):
    if COMM.rank == 0:
        print(text, flush=True)


def main():
    A, _ = matrix_from_function(diffusion, np.zeros((N, N)))
    b = np.random.default_rng(0).standard_normal(N * N)
    say(f"{COMM.size} processes; {A}")
    solver = prepare(A, b[ROWS], method=Petsc("cg", pc="hypre"), rtol=RTOL, over=COMM)
    result = solver.solve(b[ROWS])
    x = np.concatenate(COMM.allgather(result.x))
    residual = np.linalg.norm(b - diffusion(x.reshape(N, N)).ravel()) / np.linalg.norm(b)
    say(f"CG with hypre: {int(result.iterations)} iterations, relative residual {residual:.1e}")

    weights = np.full(b[ROWS].shape, 1 / N**2)  # the mean temperature is weights @ x, and x is linear in b
    gradient = result.vjp(weights).b
    direction = np.random.default_rng(1).standard_normal(N * N)[ROWS]
    slope, change = (COMM.allreduce(v) for v in (gradient @ direction, weights @ solver.solve(direction).x))
    say(f"the mean temperature changes by {slope:.9f} along a direction of sources, by the definition {change:.9f}")
    if not (residual <= 1.1 * RTOL and abs(slope - change) <= 1e-5 * abs(change)):
        raise SystemExit("the solution or its adjoint is wrong")


if __name__ == "__main__":
    main()
