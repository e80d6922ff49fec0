"""A plate that conducts heat, cut over MPI processes: `mpirun -n 2 python examples/mpi_halo.py`.

Each process holds some rows of the grid and exchanges its border rows with its neighbours, as simulations with MPI do.
That function and `over=`, the communicator, are all that krylix needs: its methods sum over all processes whatever they
compute of whole vectors. As a preconditioner each process solves its own rows by fast transforms, without any message
(block Jacobi): fewer steps, and fewer messages. On one process it is an ordinary solve.
"""

import sys

import numpy as np

try:
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:
    print(f"{error}: `pip install mpi4py` and an MPI library, as by `apt-get install mpi-default-bin`, are needed")
    sys.exit(0)

from krylix import linear_solve, prepare

N, RTOL = 128, 1e-8
COMM = MPI.COMM_WORLD
FIRST, LAST = (N * (COMM.rank + k) // COMM.size for k in (0, 1))  # the rows of this process
ABOVE = COMM.rank - 1 if COMM.rank > 0 else MPI.PROC_NULL
BELOW = COMM.rank + 1 if COMM.rank < COMM.size - 1 else MPI.PROC_NULL
messages = 0


def with_neighbours(u):
    """The rows of this process between the last one above and the first one below; zeros at the rim."""
    global messages
    messages += (ABOVE != MPI.PROC_NULL) + (BELOW != MPI.PROC_NULL)
    wide = np.pad(u, ((1, 1), (0, 0)))
    COMM.Sendrecv(wide[1], ABOVE, recvbuf=wide[-1], source=BELOW)
    COMM.Sendrecv(wide[-2], BELOW, recvbuf=wide[0], source=ABOVE)
    return wide


def minus_laplace(u):
    """The rows of A @ u of this process."""
    return five_points(with_neighbours(u))


def own_block(u):
    """As if there were walls between the processes."""
    return five_points(np.pad(u, ((1, 1), (0, 0))))


def five_points(wide):
    wide = np.pad(wide, ((0, 0), (1, 1)))
    return 4 * wide[1:-1, 1:-1] - wide[:-2, 1:-1] - wide[2:, 1:-1] - wide[1:-1, :-2] - wide[1:-1, 2:]


def main():
    global messages
    b = np.random.default_rng(0).standard_normal((N, N))[FIRST:LAST].copy()
    block = prepare(own_block, b)
    for name, M in {"CG": None, "CG + own blocks": lambda r: block.solve(r).x}.items():
        messages = 0
        result = linear_solve(minus_laplace, b, method="CG", preconditioner=M, rtol=RTOL, over=COMM)
        rr, bb = (COMM.allreduce(np.sum(v**2)) for v in (b - minus_laplace(result.x), b))
        if COMM.rank == 0:
            print(
                f"{name}, {COMM.size} processes, {N} x {N} points: {int(result.iterations)} iterations, "
                f"{messages} border rows received by process 0, relative residual {np.sqrt(rr / bb):.1e}"
            )
        if not rr <= (1.1 * RTOL) ** 2 * bb:
            raise SystemExit(f"{name} left a larger residual than its tolerance allows")


if __name__ == "__main__":
    main()
