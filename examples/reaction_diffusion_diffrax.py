"""Spots of two chemicals, by an implicit method of Diffrax whose linear systems krylix solves.

The Gray-Scott model: v eats u and grows by it, both spread, u is fed and v is removed,

    du/dt = D_u laplace u - u v² + feed (1 - u),    dv/dt = D_v laplace v + u v² - (feed + kill) v.

Diffrax' Kvaerno3 takes long steps, with a Newton-like iteration in each. `LineaxSolver` is its linear solver: it
multiplies by the Jacobian of the right-hand side, on the dictionary {"u": ..., "v": ...}, and never builds it. A solve
that fails returns a code, on which Diffrax takes a smaller step. The amount of v at the end is differentiated by the
rate of feeding, back through all steps, and compared with differences; for that Diffrax 0.7 factorises the Jacobian of
each step by itself, so the grid is a small one. `reaction_diffusion_diffrax.png` shows v.
"""

import diffrax
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from krylix.solvers.lineax_solver import LineaxSolver

N, END, KILL = 18, 300.0, 0.062
D_U, D_V = 0.16, 0.08  # cells² per unit of time
FEED = 0.035

jax.config.update("jax_enable_x64", True)


def laplace(a):
    return jnp.roll(a, 1, 0) + jnp.roll(a, -1, 0) + jnp.roll(a, 1, 1) + jnp.roll(a, -1, 1) - 4 * a


def rate(t, state, feed):
    u, v = state["u"], state["v"]
    eaten = u * v**2
    return {"u": D_U * laplace(u) - eaten + feed * (1 - u), "v": D_V * laplace(v) + eaten - (feed + KILL) * v}


def start():
    """u everywhere, v in two spots."""
    x, y = np.meshgrid(*2 * [np.arange(N)], indexing="ij")
    spots = np.exp(-((x - 6) ** 2 + (y - 7) ** 2) / 12) + np.exp(-((x - 12) ** 2 + (y - 11) ** 2) / 8)
    return {"u": jnp.asarray(1 - 0.5 * spots), "v": jnp.asarray(0.35 * spots)}


@jax.jit
def simulate(feed):
    linear_solver = LineaxSolver("biCG-stab(2)", rtol=1e-8)
    root_finder = diffrax.VeryChord(rtol=1e-5, atol=1e-5, linear_solver=linear_solver)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(rate),
        diffrax.Kvaerno3(root_finder=root_finder),
        0.0,
        END,
        1.0,
        start(),
        args=feed,
        stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-4),
        max_steps=200,
    )
    end = jax.tree.map(lambda a: a[-1], solution.ys)
    return jnp.mean(end["v"]), (end, solution.stats)


def draw(v, name):
    fig, ax = plt.subplots(figsize=(4.5, 3.8), layout="constrained")
    image = ax.imshow(v.T, origin="lower", cmap="magma")
    ax.set(title=f"v at t = {END:.0f}", xticks=(), yticks=())
    fig.colorbar(image)
    fig.savefig(name, dpi=100)


def main():
    (amount, (end, stats)), slope = jax.jit(jax.value_and_grad(simulate, has_aux=True))(FEED)
    print(f"{2 * N * N} unknowns, {int(stats['num_steps'])} steps, {int(stats['num_rejected_steps'])} of them rejected")
    step = 1e-4
    difference = (simulate(FEED + step)[0] - simulate(FEED - step)[0]) / (2 * step)
    print(f"mean v {amount:.6f}; its derivative by the feed {slope:.4f}, by differences {difference:.4f}")
    draw(np.asarray(end["v"]), "reaction_diffusion_diffrax.png")
    if not abs(slope - difference) < 1e-2 * abs(difference):
        raise SystemExit("the derivative is not that of the simulation")
    if not (np.isfinite(amount) and np.max(end["v"]) > 0.1):
        raise SystemExit("the spots have died")


if __name__ == "__main__":
    main()
