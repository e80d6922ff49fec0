"""A hot plate cools down: implicit time steps of the heat equation, the matrix being a plain NumPy function.

The plate is the unit square, its rim is held at temperature 0. A Crank-Nicolson step from T to T_new,

    (1 - dt/2 laplace) T_new = (1 + dt/2 laplace) T,

is stable for steps far longer than an explicit scheme could take, at the price of one linear solve each. The matrix of
that solve is the function `left`, a stencil on the 2-D array itself: nothing is flattened or assembled. The solve
starts from the last temperature (`x0`), which is close to the answer.

The plate starts with many Fourier modes, and each decays at a rate that is known exactly, on paper and on the grid.
"""

import numpy as np

from krylix import linear_solve

N = 63  # interior points per side
H = 1 / (N + 1)
DT = 5e-4  # an explicit step could be no longer than H**2 / 4 = 6e-5
STEPS = 100


def laplace(t):
    rim = np.pad(t, 1)
    return (rim[2:, 1:-1] + rim[:-2, 1:-1] + rim[1:-1, 2:] + rim[1:-1, :-2] - 4 * t) / H**2


def left(t):
    return t - DT / 2 * laplace(t)


def right(t):
    return t + DT / 2 * laplace(t)


def modes():
    """Wave numbers and weights of the initial temperature: a uniformly hot plate, without its sharpest modes."""
    k = np.arange(1, 16, 2)
    kx, ky = (w.ravel() for w in np.meshgrid(k, k))
    return kx, ky, 16 / (np.pi**2 * kx * ky)


def temperature(decay):
    """The sum of the modes, each weakened by its own factor `decay`."""
    kx, ky, weight = modes()
    points = np.pi * H * np.arange(1, N + 1)
    return np.einsum("m,mi,mj->ij", weight * decay, np.sin(np.outer(kx, points)), np.sin(np.outer(ky, points)))


def exact(time):
    """The solution of the heat equation."""
    kx, ky, _ = modes()
    return temperature(np.exp(-(np.pi**2) * (kx**2 + ky**2) * time))


def exact_on_grid(steps):
    """What Crank-Nicolson steps on this grid give if every system is solved exactly: each mode is an eigenvector."""
    kx, ky, _ = modes()
    rate = sum((2 / H * np.sin(np.pi * k * H / 2)) ** 2 for k in (kx, ky))
    return temperature(((1 - DT / 2 * rate) / (1 + DT / 2 * rate)) ** steps)


def main():
    t = exact(0.0)
    from_zero = from_last = 0
    print("step   time  iterations (from 0)   centre  error of the solves  error of the scheme")
    for step in range(1, STEPS + 1):
        b = right(t)
        cold = linear_solve(left, b, method="CG", rtol=1e-8)
        result = linear_solve(left, b, x0=t, method="CG", rtol=1e-8)
        from_zero, from_last = from_zero + int(cold.iterations), from_last + int(result.iterations)
        t = result.x
        if step in (1, 2, 5) or step % 20 == 0:
            of_solves = np.max(np.abs(t - exact_on_grid(step)))
            of_scheme = np.max(np.abs(t - exact(step * DT)))
            print(
                f"{step:4d}  {step * DT:.4f}  {int(result.iterations):10d} {f'({int(cold.iterations)})':>8}"
                f"   {t[N // 2, N // 2]:6.4f}  {of_solves:19.1e}  {of_scheme:19.1e}"
            )
    print(f"all {STEPS} steps: {from_last} iterations, {from_zero} when starting from zero")
    if not np.max(np.abs(t - exact_on_grid(STEPS))) < 1e-6:
        raise SystemExit("the solves are less exact than their tolerance promises")
    if not np.max(np.abs(t - exact(STEPS * DT))) < 1e-3:
        raise SystemExit("the temperature is not that of the heat equation")


if __name__ == "__main__":
    main()
