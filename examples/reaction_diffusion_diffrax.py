"""Rings of two chemicals that grow, by an implicit method of Diffrax whose linear systems krylix solves.

The Gray-Scott model: v eats u and grows by it, both spread, u is fed and v is removed,

    du/dt = D_u laplace u - u v² + feed (1 - u),    dv/dt = D_v laplace v + u v² - (feed + kill) v.

In each implicit step of Diffrax, Newton's method of Optimistix solves a non-linear system, and in each of its
iterations `LineaxSolver` a linear one. It multiplies by the Jacobian of the right-hand side, on the dictionary
{"u": ..., "v": ...}, and never builds it, so the 8192 unknowns of the picture are quick.

The amount of v at the end is differentiated by the rate of feeding, back through all steps, and compared with
differences. That is done on a smaller grid: in its backward steps Diffrax takes lineax' dense solver, whatever solver
it was given. `reaction_diffusion_diffrax.png` shows v.
"""

from functools import partial

import diffrax
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optimistix

from krylix.adapters.lineax import LineaxSolver

N, N_SMALL = 64, 12
D_U, D_V, FEED, KILL = 0.16, 0.08, 0.035, 0.062  # cells² per unit of time, and rates
DT, STEPS = 5.0, 120

jax.config.update("jax_enable_x64", True)


def laplace(a):
    return jnp.roll(a, 1, 0) + jnp.roll(a, -1, 0) + jnp.roll(a, 1, 1) + jnp.roll(a, -1, 1) - 4 * a


def rate(t, state, feed):
    u, v = state["u"], state["v"]
    eaten = u * v**2
    return {"u": D_U * laplace(u) - eaten + feed * (1 - u), "v": D_V * laplace(v) + eaten - (feed + KILL) * v}


def start(n):
    """u everywhere, v in two spots."""
    x, y = np.meshgrid(*2 * [np.arange(n)], indexing="ij")
    spots = sum(np.exp(-((x - i) ** 2 + (y - j) ** 2) / 10) for i, j in ((n // 3, n // 3), (2 * n // 3, n // 2)))
    return {"u": jnp.asarray(1 - 0.5 * spots), "v": jnp.asarray(0.4 * spots)}


@partial(jax.jit, static_argnums=(1, 2))
def simulate(feed, n, steps):
    """Mean of v at the end, and the fields."""
    linear_solver = LineaxSolver("biCG-stab(2)", rtol=1e-6)
    newton = optimistix.Newton(rtol=1e-8, atol=1e-8, linear_solver=linear_solver)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(rate),
        diffrax.ImplicitEuler(root_finder=newton),
        0.0,
        steps * DT,
        DT,
        start(n),
        args=feed,
        stepsize_controller=diffrax.ConstantStepSize(),
        max_steps=steps,
    )
    end = jax.tree.map(lambda a: a[-1], solution.ys)
    return jnp.mean(end["v"]), end


def draw(v, name):
    fig, ax = plt.subplots(figsize=(4.5, 3.8), layout="constrained")
    image = ax.imshow(v.T, origin="lower", cmap="magma")
    ax.set(title=f"Gray-Scott model at t = {STEPS * DT:.0f}", xlabel="x (cells)", ylabel="y (cells)")
    fig.colorbar(image, label="concentration v")
    fig.savefig(name, dpi=100)


def main():
    amount, end = simulate(FEED, N, STEPS)
    print(f"{2 * N * N} unknowns, {STEPS} steps: mean v {amount:.4f}, largest {np.max(end['v']):.2f}")
    draw(np.asarray(end["v"]), "reaction_diffusion_diffrax.png")

    def small(feed):
        return simulate(feed, N_SMALL, 16)

    slope, _ = jax.jit(jax.grad(small, has_aux=True))(FEED)
    step = 1e-5
    difference = (small(FEED + step)[0] - small(FEED - step)[0]) / (2 * step)
    print(f"{2 * N_SMALL**2} unknowns: d(mean v)/d(feed) = {slope:.6f}, by differences {difference:.6f}")
    if not abs(slope - difference) < 1e-4 * abs(difference):
        raise SystemExit("the derivative is not that of the simulation")
    if not (np.isfinite(amount) and np.max(end["v"]) > 0.2):
        raise SystemExit("the spots have died")


if __name__ == "__main__":
    main()
