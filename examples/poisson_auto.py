"""Five operators on a grid, each solved by one call that is told nothing: krylix looks at the function and chooses.

A plate conducts heat: with constant conductivity, a smooth one, blocks that differ by a factor of 10 000, one that
conducts a hundred times better along one axis, and one with a hole and a wall. All of them are functions on arrays, as
a simulation has them. `linear_solve(f, b)` traces them, sees which of them transforms along the axes solve at once, and
gives the others a multigrid preconditioner that follows the coefficients. Beside it are conjugate gradients of SciPy
and a hierarchy of pyamg, which get the matrix. `poisson_auto.png` shows residuals
against processor time.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
import pyamg
import scipy.sparse as sp
from scipy.sparse.linalg import cg

from krylix import linear_solve, matrix_from_function, prepare

N, RTOL = 256, 1e-8


def conductivities():
    """Of the faces across each axis of N x N cells, the rim included: (N + 1, N) and (N, N + 1)."""
    x = (np.arange(N) + 0.5) / N
    one = np.ones((N, N))
    blocks = 10.0 ** np.kron(np.random.default_rng(0).uniform(-2, 2, (8, 8)), np.ones((N // 8, N // 8)))
    hole = np.where(np.hypot(x[:, None] - 0.7, x - 0.5) < 0.15, 0.0, 1.0)
    hole[N // 4, : 3 * N // 4] = 0
    cells = {
        "constant": (one, one),
        "smooth": (1 + 0.9 * np.outer(np.sin(7 * x), np.cos(5 * x)),) * 2,
        "blocks": (blocks, blocks),
        "anisotropic": (one, 100 * (1 + 0.5 * np.outer(x, x))),
        "hole and wall": (hole, hole),
    }
    return {name: (faces(kx, 0), faces(ky, 1)) for name, (kx, ky) in cells.items()}


def faces(k, axis):
    """Harmonic means of the cells on both sides; the rim conducts as the cell inside."""
    wide = np.pad(k, [(1, 1) if a == axis else (0, 0) for a in (0, 1)], mode="edge")
    left, right = (wide.take(range(first, first + N + 1), axis) for first in (0, 1))
    return 2 * left * right / np.where(left + right > 0, left + right, 1)


def diffusion(kx, ky):
    """u -> -div k grad u in units of the cells, u = 0 on the rim; nothing flows in a hole."""

    def f(u):
        across = kx * np.diff(np.pad(u, ((1, 1), (0, 0))), axis=0)
        along = ky * np.diff(np.pad(u, ((0, 0), (1, 1))), axis=1)
        return -np.diff(across, axis=0) - np.diff(along, axis=1)

    return f


def krylix_line(f, b):
    """Time and relative residual at each iteration, as far as there are several."""
    began, points = time.process_time(), []
    result = linear_solve(
        f,
        b,
        rtol=RTOL,
        progress=lambda _, norm, goal: points.append((time.process_time() - began, float(np.max(norm)))),
    )
    end = time.process_time() - began
    return result, [*points, (end, float(result.residual_norm))]


def scipy_line(A, b):
    began, points, x = time.process_time(), [], np.zeros_like(b)
    cg(A, b, x0=x, rtol=RTOL, maxiter=300, callback=lambda x: points.append((time.process_time() - began, x.copy())))
    return [(t, float(np.linalg.norm(b - A @ x))) for t, x in points[::10]]


def pyamg_line(A, b):
    began, norms = time.process_time(), []
    solver = pyamg.ruge_stuben_solver(A)
    ready = time.process_time() - began
    solver.solve(b, tol=RTOL, accel="cg", residuals=norms)
    each = (time.process_time() - began - ready) / max(len(norms) - 1, 1)
    return [(ready + i * each, float(norm)) for i, norm in enumerate(norms)]


def main():
    rng = np.random.default_rng(1)
    fig, axes = plt.subplots(2, 3, figsize=(10, 6), sharey=True, layout="constrained")
    for ax, (name, (kx, ky)) in zip(axes.flat, conductivities().items()):
        f = diffusion(kx, ky)
        b = rng.standard_normal((N, N))
        b[f(np.ones((N, N)) * rng.standard_normal((N, N))) == 0] = 0  # in a hole nothing is asked for
        result, line = krylix_line(f, b)
        residual = np.linalg.norm(f(result.x) - b) / np.linalg.norm(b)
        print(f"{name}: {result.method}, {int(result.iterations)} iterations, {line[-1][0]:.3f} s, {residual:.1e}")
        assert result.converged and residual <= RTOL
        A = sp.csr_array(matrix_from_function(f, b)[0].to_scipy())
        empty = A.diagonal() == 0
        A = sp.csr_array(A + sp.diags_array(empty.astype(float)))  # pyamg wants no rows of zeros
        size = np.linalg.norm(b)
        peers = {"SciPy CG": scipy_line(A, b.ravel()), "pyamg + CG": pyamg_line(A, b.ravel())}
        for label, points in {f"krylix: {result.method}": line, **peers}.items():
            times, norms = np.array(points).T
            ax.loglog(times, norms / size, ".-" if label.startswith("krylix") else "-", label=label)
        ax.set(title=name, xlabel="processor time (s), set-up first", ylim=(1e-15, 30))
        ax.grid(alpha=0.3)
        ax.legend(fontsize="small")
    for ax in axes[:, 0]:
        ax.set_ylabel("|b - A x| / |b|")
    axes[-1, -1].axis("off")
    fig.savefig("poisson_auto.png", dpi=110)
    kx, ky = conductivities()["blocks"]
    print(prepare(diffusion(kx, ky), np.ones((N, N))).explain())
    print("written to poisson_auto.png")


if __name__ == "__main__":
    main()
