"""Vortices behind a cylinder: a pressure solve in every time step of a flow, all of it one compiled JAX function.

A step of an incompressible flow has two halves: advection and friction move the velocity, then the gradient of the
pressure takes its divergence away. The pressure solves `div(open * grad p) = div(velocity) / DT`, where `open` is 0
on the faces of the obstacle, of the walls and of the inflow. That operator is the function `minus_laplace`, which is
handed over as it is: no method is named, so krylix traces it while the time loop, `lax.scan` inside `jax.jit`, is
compiled, and chooses one for all steps. If one of the hundreds of solves failed, the compiled function would raise.

Lengths are in diameters, times in diameter / inflow speed. `pressure_projection.png` shows the wake. `--long`
takes cells of half the size, a longer channel and a longer time, which takes minutes.
"""

import sys

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jax.scipy.ndimage import map_coordinates

from krylix import linear_solve

LONG = "--long" in sys.argv[1:]
CELLS = (512, 160) if LONG else (192, 64)  # pressure in their centres, velocity on their faces: u has one more along x
H, DT, STEPS = (0.05, 0.04, 2500) if LONG else (0.1, 0.08, 800)
REYNOLDS, RTOL = 150, 1e-4
CENTRE = (3.5, CELLS[1] * H / 2)  # of the cylinder
PROBE = (round((CENTRE[0] + 4) / H), CELLS[1] // 2)  # the face where v is watched, 4 diameters behind the cylinder
U, V = (0.0, 0.5), (0.5, 0.0)  # where the first u and v sit, in cells


def geometry():
    """Solid cells, and the faces whose velocity the pressure may change (1) or not (0)."""
    x, y = np.meshgrid(*(H * (np.arange(n) + 0.5) for n in CELLS), indexing="ij")
    solid = np.hypot(x - CENTRE[0], y - CENTRE[1]) < 0.5
    fluid = np.where(solid, 0, 1).astype("float32")
    open_x = np.pad(np.minimum(fluid[1:], fluid[:-1]), ((1, 1), (0, 0)))
    open_x[-1] = 1  # outflow
    open_y = np.pad(np.minimum(fluid[:, 1:], fluid[:, :-1]), ((0, 0), (1, 1)))
    return solid, open_x, open_y


SOLID, OPEN_X, OPEN_Y = geometry()


def gradient(p):
    """On the open faces. The pressure behind the outflow is 0, so A has no null space."""
    p = jnp.pad(p, 1)
    return OPEN_X * jnp.diff(p[:, 1:-1], axis=0) / H, OPEN_Y * jnp.diff(p[1:-1], axis=1) / H


def divergence(u, v):
    return jnp.diff(u, axis=0) / H + jnp.diff(v, axis=1) / H


def minus_laplace(p):
    """Symmetric and positive definite; solid cells get a row of the identity."""
    return jnp.where(SOLID, p, -divergence(*gradient(p)))


def project(u, v, p):
    """The velocity without its divergence, and the pressure that took it away."""
    result = linear_solve(minus_laplace, -divergence(u, v) / DT, x0=p, rtol=RTOL)
    px, py = gradient(result.x)
    return u - DT * px, v - DT * py, result


def sample(f, origin, x, y):
    return map_coordinates(f, [x - origin[0], y - origin[1]], order=1, mode="nearest")


def advect(f, origin, u, v):
    """Carry f along the velocity, having put back half of what going there and back takes from it (BFECC)."""
    x, y = (o + c for o, c in zip(origin, jnp.indices(f.shape)))

    def carry(g, dt):
        x_half, y_half = x - dt / 2 * sample(u, U, x, y), y - dt / 2 * sample(v, V, x, y)
        return sample(g, origin, x - dt * sample(u, U, x_half, y_half), y - dt * sample(v, V, x_half, y_half))

    there_and_back = carry(carry(f, DT / H), -DT / H)
    return carry(f + (f - there_and_back) / 2, DT / H)


def friction(f):
    g = jnp.pad(f, 1, mode="edge")
    return f + DT / (REYNOLDS * H**2) * (g[2:, 1:-1] + g[:-2, 1:-1] + g[1:-1, 2:] + g[1:-1, :-2] - 4 * f)


def step(state, _):
    u, v, p = state
    u_moved = (OPEN_X * friction(advect(u, U, u, v))).at[0].set(1.0)  # inflow speed 1
    v_moved = OPEN_Y * friction(advect(v, V, u, v))
    u, v, result = project(u_moved, v_moved, p)
    before = jnp.sqrt(jnp.mean(divergence(u_moved, v_moved) ** 2))
    after = jnp.mean(jnp.abs(divergence(u, v)))
    return (u, v, result.x), (result.iterations, before, after, v[PROBE])


@jax.jit
def simulate():
    u = jnp.asarray(OPEN_X).at[0].set(1.0)
    x, y = jnp.indices(OPEN_Y.shape) * H
    v = 0.3 * OPEN_Y * jnp.exp(-((x - CENTRE[0] - 1.5) ** 2) - (y - CENTRE[1]) ** 2)  # a push breaks the symmetry
    u, v, result = project(u, v, jnp.zeros(CELLS))
    return jax.lax.scan(step, (u, v, result.x), length=STEPS)


def draw(u, v, name):
    vorticity = jnp.diff(v, axis=0)[:, 1:-1] / H - jnp.diff(u, axis=1)[1:-1] / H  # at the corners inside the domain
    length, width = CELLS[0] * H, CELLS[1] * H
    fig, ax = plt.subplots(figsize=(11, 0.9 + 9.4 * 6 / length), layout="constrained")
    image = ax.imshow(
        vorticity.T, origin="lower", extent=(H, length - H, H, width - H), cmap="RdBu_r", vmin=-2, vmax=2,
        interpolation="bicubic",
    )  # fmt: skip
    ax.add_patch(plt.Circle(CENTRE, 0.5, facecolor="0.35", edgecolor="k"))
    ax.set(xlim=(0, length), ylim=(CENTRE[1] - 3, CENTRE[1] + 3), xlabel="x / D", ylabel="y / D")
    ax.set_title(f"Vortex street behind a cylinder, Re = {REYNOLDS}, t = {STEPS * DT:.0f} D / U")
    fig.colorbar(image, label="vorticity (U / D)", extend="both", ticks=range(-2, 3), fraction=0.03, pad=0.015)
    fig.savefig(name, dpi=110)


def main():
    (u, v, _), (iterations, before, after, probe) = jax.tree.map(np.asarray, simulate())
    late = probe[STEPS // 2 :]
    upward = np.flatnonzero((late[:-1] < 0) & (late[1:] >= 0))
    strouhal = 1 / (np.diff(upward).mean() * DT) if len(upward) > 1 else 0.0
    print(f"{STEPS} steps on {CELLS[0]} x {CELLS[1]} cells")
    print(f"iterations per solve: mean {iterations.mean():.0f}, most {iterations.max()}")
    print(
        f"last step: rms divergence {before[-1]:.1e} before the projection, mean |divergence| {after[-1]:.1e} after it"
    )
    print(f"v behind the cylinder swings from {late.min():.2f} to {late.max():.2f}, Strouhal number {strouhal:.3f}")
    draw(u, v, "pressure_projection.png")
    if not (after <= 2 * RTOL * before).all():  # 2: rounding in single precision
        raise SystemExit("the projection left more divergence than its tolerance allows")
    if not 0.16 < strouhal < 0.21:  # measured behind cylinders at this Reynolds number: 0.18 to 0.19
        raise SystemExit("the wake does not shed vortices at the right frequency")


if __name__ == "__main__":
    main()
