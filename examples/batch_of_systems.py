"""Ground water in five soils: a batch of systems of different difficulty, on PyTorch tensors.

All soils have lenses at the same places; these conduct 1 to 10 000 times as well as what is around them. Rain falls on
four of the soils; the right-hand side of the fifth is zero. One call solves all five: the function `seepage` gets them
all at once, and `batch_ndim=1` says that the first axis counts systems. Each has its own tolerance, iterations, status
and history, and behaves as if it were alone, which is checked. `batch_of_systems.png` shows the histories.
"""

import matplotlib.pyplot as plt
import torch

from krylix import Status, linear_solve

N = 40
CONTRAST = [1.0, 10.0, 100.0, 10_000.0, 10_000.0]
NAMES = [f"contrast {c:.0f}" for c in CONTRAST[:-1]] + ["no rain"]
RTOL, LIMIT = 1e-8, 1000


def soils():
    """Conductivity and rain of all soils, (systems, N, N)."""
    torch.manual_seed(1)
    points = (torch.arange(N, dtype=torch.float64) + 0.5) / N
    x, y = torch.meshgrid(points, points, indexing="ij")
    cx, cy, size = torch.rand(3, 12, 1, 1, dtype=torch.float64)
    lenses = (torch.hypot(x - 0.1 - 0.8 * cx, y - 0.1 - 0.8 * cy) < 0.03 + 0.08 * size).any(0)
    contrast = torch.tensor(CONTRAST, dtype=torch.float64).reshape(-1, 1, 1)
    conductivity = torch.where(lenses, contrast, 1.0)
    rain = torch.ones_like(conductivity)
    rain[-1] = 0
    return conductivity, rain


def between(conductivity, axis):
    """Conductivity of the faces across an axis: harmonic means, and the cells' own on the rim."""
    first, last = conductivity.narrow(axis, 0, 1), conductivity.narrow(axis, N - 1, 1)
    padded = torch.cat([first, conductivity, last], axis)
    left, right = padded.narrow(axis, 0, N + 1), padded.narrow(axis, 1, N + 1)
    return 2 * left * right / (left + right)


def seepage(head, conductivity):
    """What flows out of each cell: minus the divergence of conductivity times the gradient; no head on the rim."""
    out = 0
    for axis in (-1, -2):
        rim = torch.zeros_like(head.narrow(axis, 0, 1))
        flow = between(conductivity, axis) * torch.diff(head, dim=axis, prepend=rim, append=rim)
        out = out - torch.diff(flow, dim=axis) * N**2
    return out


def diagonal(conductivity):
    """Of the matrix that `seepage` is: the conductivities of each cell's four faces."""
    faces = ((between(conductivity, axis), axis) for axis in (-1, -2))
    return sum(face.narrow(axis, 0, N) + face.narrow(axis, 1, N) for face, axis in faces) * N**2


def solve(conductivity, rain, jacobi=True, on_failure="raise"):
    weights = diagonal(conductivity)
    return linear_solve(
        seepage,
        rain,
        args=(conductivity,),
        batch_ndim=1,
        method="CG",
        preconditioner=(lambda r: r / weights) if jacobi else None,
        rtol=RTOL,
        max_iter=LIMIT,
        on_failure=on_failure,
        history=True,
    )


def report(title, result):
    print(title)
    for name, steps, status, norm in zip(NAMES, result.iterations, result.status, result.residual_norm):
        print(f"  {name:14} {int(steps):5d} iterations  residual {norm:.1e}  {Status(int(status)).name}")


def check_alone(result, conductivity, rain):
    for i, name in enumerate(NAMES):
        one = solve(conductivity[i : i + 1], rain[i : i + 1])
        if not (one.iterations[0] == result.iterations[i] and one.status[0] == result.status[i]):
            raise SystemExit(f"{name}: other steps in the batch than alone")
        if not torch.allclose(one.x[0], result.x[i], rtol=1e-9, atol=0):
            raise SystemExit(f"{name}: another answer in the batch than alone")


def draw(results, conductivity, name):
    fig, axes = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained", width_ratios=(1, 1.2, 1.2))
    lenses = conductivity[1] > 1
    axes[0].imshow(lenses.T, origin="lower", extent=(0, 1, 0, 1), cmap="Blues", vmax=1.4)
    axes[0].set(title="Lenses (dark) that conduct better", xlabel="x / side", ylabel="y / side")
    for ax, (title, result) in zip(axes[1:], results.items()):
        for label, line in zip(NAMES[:-1], result.history.T):
            ax.semilogy(line / line[0], label=label)
        ax.axhline(RTOL, color="0.5", linestyle=":")
        ax.set(title=title, xlabel="iteration", xlim=(0, LIMIT), ylim=(1e-9, 1e4))
    axes[1].set_ylabel("residual / first residual")
    axes[2].legend(loc="upper right")
    fig.savefig(name, dpi=100)


def main():
    conductivity, rain = soils()
    plain = solve(conductivity, rain, jacobi=False, on_failure="status")
    better = solve(conductivity, rain)  # would raise if one of the systems failed
    report(f"CG, at most {LIMIT} iterations", plain)
    report("CG with the diagonal as preconditioner", better)
    draw({"CG": plain, "CG with the diagonal as preconditioner": better}, conductivity, "batch_of_systems.png")
    if plain.converged.tolist() != [True, True, True, False, True]:
        raise SystemExit("without preconditioner, only the hardest system should have failed")
    if not (better.converged.all() and better.iterations[-1] == 0):
        raise SystemExit("with the preconditioner all systems should have converged, the last one at once")
    check_alone(better, conductivity, rain)
    print("every system takes the steps that it takes alone, to the same answer")


if __name__ == "__main__":
    main()
