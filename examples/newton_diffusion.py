"""Newton's method on a non-linear diffusion problem, with the sparse Jacobian of the residual.

The conductivity grows with the temperature, -div((1 + u^2) grad u) = f on a square, u = 0 at its rim. `jacobian_matrix`
linearises the residual at the present u and makes of it a sparse matrix, exactly; the whole Newton step, with its
Jacobian and its linear solve, is one `jax.jit` function. The source f is chosen so that the solution of the discrete
equations is known. Newton's method doubles the number of right digits in every step, if the Jacobian is right.

`newton_diffusion.png` shows the solution and the residual of each step.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from krylix import jacobian_matrix, linear_solve

N, STEPS = 64, 8
H = 1 / (N + 1)

jax.config.update("jax_enable_x64", True)


def diffusion(u):
    """-div((1 + u^2) grad u) on the inner points of the grid; between two points counts the mean conductivity."""
    p = jnp.pad(u, 1)
    k = 1 + p**2
    down = 0.5 * (k[1:, 1:-1] + k[:-1, 1:-1]) * (p[1:, 1:-1] - p[:-1, 1:-1])
    right = 0.5 * (k[1:-1, 1:] + k[1:-1, :-1]) * (p[1:-1, 1:] - p[1:-1, :-1])
    return (down[:-1] - down[1:] + right[:, :-1] - right[:, 1:]) / H**2


def exact_solution():
    x, y = np.meshgrid(*[np.linspace(H, 1 - H, N)] * 2, indexing="ij")
    return 2 * np.sin(np.pi * x) * np.sin(2 * np.pi * y) ** 2


@jax.jit
def newton_step(u, source):
    residual = diffusion(u) - source
    jacobian = jacobian_matrix(diffusion, u)
    # not symmetric: the conductivity depends on u, too
    change = linear_solve(jacobian, residual.reshape(-1), method="biCG-stab(2)", preconditioner="jacobi").x
    return u - change.reshape(u.shape), jnp.linalg.norm(residual)


def draw(u, residuals, name):
    fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    fig.colorbar(left.imshow(u.T, origin="lower", extent=(0, 1, 0, 1)), ax=left, label="u")
    left.set(title="Temperature", xlabel="x / side", ylabel="y / side")
    right.semilogy(residuals, "o-")
    right.grid(alpha=0.3)
    right.set(title="Newton's method", xlabel="Newton step", ylabel="‖F(u)‖ / ‖f‖")
    fig.savefig(name, dpi=100)


def main():
    wanted = exact_solution()
    source = diffusion(jnp.asarray(wanted))
    u, residuals = jnp.zeros((N, N)), []
    print(jacobian_matrix(diffusion, jnp.asarray(wanted)))
    for step in range(STEPS):
        u, residual = newton_step(u, source)
        residuals.append(float(residual / jnp.linalg.norm(source)))
        print(f"step {step}: relative residual {residuals[-1]:.2e}")
    error = float(np.max(np.abs(u - wanted)))
    print(f"largest error of u: {error:.1e}")
    draw(np.asarray(u), residuals, "newton_diffusion.png")
    if not (residuals[-1] < 1e-10 and error < 1e-8):
        raise SystemExit("Newton's method has not found the solution")


if __name__ == "__main__":
    main()
