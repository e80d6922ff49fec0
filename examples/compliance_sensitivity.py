"""A light and stiff cantilever: topology optimisation, its gradient by `jax.grad` through the linear solve.

A beam is held on the left and pulled down at the middle of its right end. The densities rho of its square elements
decide the stiffness, `E = rho**3`, and the displacement u solves `K(rho) u = f`. The compliance c = fᵀu is to be small
with 40 % of the material. The matrix K is a function on the displacements of the nodes, (NX + 1, NY + 1, 2); nothing is
assembled. For this c there is a formula to compare `jax.grad` with: dc/dE_e = -u_eᵀ K_e u_e, element by element.

Each step of the optimality-criteria method scales every density by the root of what a bit more of it would gain; the
densities are blurred over neighbours, as always, to keep them from forming a chessboard. That, too, is differentiated.
`compliance_sensitivity.png` shows the design.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from krylix import linear_solve

NX, NY, VOLUME, POWER, STEPS, MOVE = 60, 30, 0.4, 3, 30, 0.2
WEAKEST, POISSON = 1e-3, 0.3  # stiffness of no material at all, relative to full; Poisson's ratio
CORNERS = ((0, 0), (1, 0), (1, 1), (0, 1))

jax.config.update("jax_enable_x64", True)


def element_stiffness():
    """K_e, (8, 8), of a square bilinear element in plane stress, by four Gauss points; Young's modulus 1."""
    law = np.array([[1, POISSON, 0], [POISSON, 1, 0], [0, 0, (1 - POISSON) / 2]]) / (1 - POISSON**2)
    stiffness = np.zeros((8, 8))
    for x in (0.5 - 12**-0.5, 0.5 + 12**-0.5):
        for y in (0.5 - 12**-0.5, 0.5 + 12**-0.5):
            strain = np.zeros((3, 8))
            for corner, (i, j) in enumerate(CORNERS):
                dx, dy = (2 * i - 1) * (y if j else 1 - y), (2 * j - 1) * (x if i else 1 - x)
                strain[:, 2 * corner : 2 * corner + 2] = [[dx, 0], [0, dy], [dy, dx]]
            stiffness += strain.T @ law @ strain / 4
    return stiffness


K_E = element_stiffness()
FREE = np.ones((NX + 1, NY + 1, 2))
FREE[0] = 0  # the wall
FORCE = np.zeros((NX + 1, NY + 1, 2))
FORCE[NX, NY // 2, 1] = -1


def at_corners(u):
    """Displacements of the nodes -> of the corners of each element, (NX, NY, 8)."""
    return jnp.concatenate([u[i : i + NX, j : j + NY] for i, j in CORNERS], axis=-1)


def assemble(parts):
    """The transpose of `at_corners`: what elements do to their corners, summed at the nodes."""
    return jax.linear_transpose(at_corners, jnp.zeros_like(FORCE))(parts)[0]


def stiffness(u, modulus):
    """K u; nodes at the wall get a row of the identity."""
    return FREE * assemble(modulus[..., None] * (at_corners(FREE * u) @ K_E)) + (1 - FREE) * u


def displacement(modulus):
    diagonal = FREE * assemble(modulus[..., None] * np.diag(K_E)) + (1 - FREE)
    return linear_solve(
        stiffness, jnp.asarray(FORCE), args=(modulus,), method="CG", preconditioner=lambda r: r / diagonal, rtol=1e-8
    ).x


def compliance(modulus):
    return jnp.sum(FORCE * displacement(modulus))


def modulus_of(rho):
    return WEAKEST + (1 - WEAKEST) * rho**POWER


def blurred(rho):
    """Each density, averaged with its neighbours' (a cone over 3 x 3 elements, cut off at the rim)."""
    cone = np.array([[0.6, 1, 0.6], [1, 2, 1], [0.6, 1, 0.6]])

    def sums(a):
        return jax.scipy.signal.convolve2d(a, cone, mode="same")

    return sums(rho) / sums(jnp.ones_like(rho))


def design_compliance(rho):
    return compliance(modulus_of(blurred(rho)))


def volume(rho):
    return jnp.mean(blurred(rho))


def update(rho, gain, price):
    """The densities that optimality asks for, the multiplier of the volume found by bisection."""

    def scaled(multiplier):
        wanted = rho * jnp.sqrt(jnp.maximum(-gain, 0) / (multiplier * price))
        return jnp.clip(wanted, jnp.maximum(rho - MOVE, 1e-3), jnp.minimum(rho + MOVE, 1))

    def halve(_, bounds):
        middle = jnp.sqrt(bounds[0] * bounds[1])
        too_heavy = volume(scaled(middle)) > VOLUME
        return jnp.where(too_heavy, middle, bounds[0]), jnp.where(too_heavy, bounds[1], middle)

    bounds = jax.lax.fori_loop(0, 60, halve, (jnp.asarray(1e-6), jnp.asarray(1e12)))
    return scaled(bounds[1])


@jax.jit
def optimise(rho):
    def step(rho, _):
        c, gain = jax.value_and_grad(design_compliance)(rho)
        return update(rho, gain, jax.grad(volume)(rho)), c

    return jax.lax.scan(step, rho, length=STEPS)


@jax.jit
def both_gradients(modulus):
    """dc/dE by `jax.grad` and by the formula."""
    corners = at_corners(displacement(modulus))
    return jax.grad(compliance)(modulus), -jnp.einsum("xyi,ij,xyj->xy", corners, K_E, corners)


def draw(rho, costs, name):
    fig, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained", width_ratios=(2, 1))
    image = left.imshow(blurred(rho).T, origin="lower", cmap="Greys", vmin=0, vmax=1, extent=(0, NX, 0, NY))
    fig.colorbar(image, ax=left, label="density")
    left.annotate("", (NX, NY / 2 - 8), (NX, NY / 2), arrowprops={"color": "tab:red"})
    left.set(
        title=f"The design, {VOLUME:.0%} of the material; load in red", xlabel="x (elements)", ylabel="y (elements)"
    )
    right.plot(costs)
    right.set(title="Compliance", xlabel="step", ylabel="force · displacement", ylim=(0, None))
    right.grid(alpha=0.3)
    fig.savefig(name, dpi=100)


def main():
    start = jnp.full((NX, NY), VOLUME)
    rho, costs = optimise(start)
    costs = np.append(np.asarray(costs), jax.jit(design_compliance)(rho))
    found, wanted = both_gradients(modulus_of(blurred(rho)))
    difference = float(jnp.linalg.norm(found - wanted) / jnp.linalg.norm(wanted))
    print(f"{NX} x {NY} elements, {FORCE.size} unknowns, {STEPS} steps")
    print(f"compliance {costs[0]:.1f} -> {costs[-1]:.1f}, volume {volume(rho):.4f}")
    print(f"jax.grad differs from -u_e K_e u_e by a relative {difference:.1e}")
    draw(rho, costs, "compliance_sensitivity.png")
    if not difference < 1e-6:
        raise SystemExit("the gradient through the solve is not that of the formula")
    if not (costs[-1] < costs[0] / 2.5 and abs(volume(rho) - VOLUME) < 1e-3):
        raise SystemExit("the design is not stiffer than the uniform one, or has another weight")


if __name__ == "__main__":
    main()
