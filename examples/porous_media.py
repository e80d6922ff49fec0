"""Flow through porous ground: conductivities that jump from cell to cell by a factor of a million, without settings.

Two grounds of 512 x 512 cells: channels of gravel that meander through sand, and a lognormal one, `exp(3 N(0, 1))`
in each cell. Water flows from the left side, where the pressure is 1, to the right one, where it is 0; the other two
are closed. krylix is given the matrix alone. It finds the grid and sets up multigrid on it, which suits smooth
coefficients and large blocks; while it does so it counts the points that the next grid would lose, and goes over to
classical algebraic multigrid. `porous_media.png` shows conductivity, pressure and flow, and the residual against
time, beside pyamg's smoothed aggregation and its method of Ruge and Stüben, which is given its second pass.

What flows in has to flow out, cell by cell: the example ends with an error if it does not.
"""

import sys
from time import process_time

import matplotlib.pyplot as plt
import numpy as np
import pyamg
import scipy.sparse as sp

from krylix import linear_solve, preconditioner, prepare

N = 128 if "--short" in sys.argv[1:] else 512
RTOL = 1e-8


def channels(contrast=1e6, count=14):
    """Meandering channels, two to five cells wide, in sand."""
    draw, x = np.random.default_rng(3), np.arange(N)
    k = np.exp(draw.standard_normal((N, N)))
    for _ in range(count):
        middle, swing, length = draw.uniform(0, N), draw.uniform(0.02, 0.08) * N, draw.uniform(0.2, 0.6) * N
        y = middle + swing * np.sin(2 * np.pi * x / length + draw.uniform(0, 6)) + draw.uniform(-0.3, 0.3) * x
        for width in range(draw.integers(2, 6)):
            k[x, (y.astype(int) + width) % N] = contrast
    return k


def lognormal(sigma=3.0):
    return np.exp(sigma * np.random.default_rng(0).standard_normal((N, N)))


def conductances(k):
    """Of the faces across x and across y: harmonic means, the two open sides at half a cell."""
    across = np.concatenate([2 * k[:1], 2 / (1 / k[1:] + 1 / k[:-1]), 2 * k[-1:]])
    return across, 2 / (1 / k[:, 1:] + 1 / k[:, :-1])


def system(k):
    """-div(k grad p) = 0 in finite volumes, and the pressure of 1 on the left side."""
    across, along = conductances(k)
    cells, diagonal = np.arange(N * N).reshape(N, N), across[1:] + across[:-1]
    diagonal[:, 1:] += along
    diagonal[:, :-1] += along
    pairs = ((across[1:-1], cells[1:], cells[:-1]), (along, cells[:, 1:], cells[:, :-1]))
    rows = np.concatenate([cells.ravel(), *(a.ravel() for _, i, j in pairs for a in (i, j))])
    cols = np.concatenate([cells.ravel(), *(a.ravel() for _, i, j in pairs for a in (j, i))])
    data = np.concatenate([diagonal.ravel(), *(-f.ravel() for f, _, _ in pairs for _ in range(2))])
    b = np.zeros((N, N))
    b[0] = across[0]
    return sp.csr_array((data, (rows, cols))), b.ravel()


def flow(k, p):
    """Through the faces across x and across y."""
    across, along = conductances(k)
    left, right = np.ones((1, N)), np.zeros((1, N))
    return -across * np.diff(np.concatenate([left, p, right]), axis=0), -along * np.diff(p, axis=1)


def timed(solve):
    """Processor seconds after each iteration, and residual norms relative to the first one."""
    begun, times, norms = process_time(), [], []

    def told(norm):
        times.append(process_time() - begun)
        norms.append(norm)

    x = solve(told)
    return x, np.array(times), np.array(norms) / norms[0]


def krylix(A, b):
    def solve(told):
        M = preconditioner(A)
        told(np.linalg.norm(b))
        solved = linear_solve(
            A, b, method="CG", preconditioner=M, rtol=RTOL, callback=lambda step: told(float(step.residual_norm))
        )
        return solved.x

    return timed(solve)


def of_pyamg(make, A, b):
    def solve(told):
        hierarchy = make(sp.csr_matrix(A))
        told(np.linalg.norm(b))
        tell = lambda x: told(np.linalg.norm(b - A @ x))  # noqa: E731
        return hierarchy.solve(b, tol=RTOL, accel="cg", maxiter=150, callback=tell)

    return timed(solve)


PEERS = {
    "pyamg, smoothed aggregation": pyamg.smoothed_aggregation_solver,
    "pyamg, Ruge-Stüben": lambda A: pyamg.ruge_stuben_solver(A, CF=("RS", {"second_pass": True})),
}


def draw(axes, name, k, p, speed, runs):
    for ax, (title, values, colours) in zip(axes, (
        ("log10 of the conductivity", np.log10(k), "cividis"),
        ("pressure", p, "RdYlBu_r"),
        ("log10 of the flow", np.log10(np.maximum(speed, speed.max() * 1e-6)), "magma"),
    )):  # fmt: skip
        image = ax.imshow(values.T, origin="lower", cmap=colours, interpolation="nearest")
        ax.set(title=f"{name}: {title}" if ax is axes[0] else title, xticks=[], yticks=[])
        plt.colorbar(image, ax=ax, fraction=0.046, pad=0.02)
    for label, (_, times, norms) in runs.items():
        axes[3].semilogy(times, norms, marker=".", label=label)
    axes[3].set(title="residual against processor time", xlabel="seconds", ylim=(RTOL / 10, 10))
    axes[3].axhline(RTOL, color="0.7", linewidth=0.8)
    axes[3].legend(fontsize=8)


def main():
    fig, axes = plt.subplots(2, 4, figsize=(17, 7.6), layout="constrained")
    for row, (name, k) in zip(axes, {"channels": channels(), "lognormal": lognormal()}.items()):
        A, b = system(k)
        print(prepare(A, b, rtol=RTOL).explain() if N > 128 else "")
        runs = {"krylix": krylix(A, b)} | {label: of_pyamg(make, A, b) for label, make in PEERS.items()}
        p = runs["krylix"][0].reshape(N, N)
        across, along = flow(k, p)
        leak = np.diff(across, axis=0)
        leak[:, :-1] += along
        leak[:, 1:] -= along
        print(f"{name}: conductivities from {k.min():.1e} to {k.max():.1e}, total flow {across[0].sum():.4e}")
        for label, (_, times, norms) in runs.items():
            print(f"  {label}: {len(norms) - 1} iterations, {times[-1]:.2f} s, residual {norms[-1]:.1e}")
        left = np.linalg.norm(leak) / np.linalg.norm(b)
        if not left <= 1.1 * RTOL or not -1e-6 < p.min() <= p.max() < 1 + 1e-6:
            raise SystemExit(f"{name}: {left:.1e} of the flow gets lost, or the pressure leaves its bounds")
        if len(runs["krylix"][2]) > 25:
            raise SystemExit(f"{name}: multigrid took {len(runs['krylix'][2])} iterations")
        speed = np.hypot((across[1:] + across[:-1]) / 2, np.pad((along[:, 1:] + along[:, :-1]) / 2, ((0, 0), (1, 1))))
        draw(row, name, k, p, speed, runs)
    fig.savefig("porous_media.png", dpi=60)


if __name__ == "__main__":
    main()
