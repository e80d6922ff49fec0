"""From a stencil to its matrix inside `jax.jit`, and derivatives through the matrix.

Heat flows through a plate of conductivity k(x, y) and leaves at its cold rim: -div(k grad T) = q. The operator is an
ordinary function of T; krylix turns it into a sparse matrix while JAX compiles, so the structure is known then and only
the values are computed at run time, from whatever k is given. The mean temperature is differentiated with respect to k
through the values of the matrix, and compared with finite differences.

`trace_stencil.png` shows the pattern of the matrix, its stencil, and where more conductivity cools the plate most.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from krylix import linear_solve, matrix_from_function

N = 48
HEATER = np.zeros((N, N))
HEATER[8:16, 8:16] = 1.0

jax.config.update("jax_enable_x64", True)


def conduction(T, k):
    """-div(k grad T) with T = 0 at the rim; between two points counts the mean of their conductivities."""
    p, q = jnp.pad(T, 1), jnp.pad(k, 1, mode="edge")
    down = 0.5 * (q[1:, 1:-1] + q[:-1, 1:-1]) * (p[1:, 1:-1] - p[:-1, 1:-1])
    right = 0.5 * (q[1:-1, 1:] + q[1:-1, :-1]) * (p[1:-1, 1:] - p[1:-1, :-1])
    return down[:-1] - down[1:] + right[:, :-1] - right[:, 1:]


def temperature(k):
    matrix, _ = matrix_from_function(conduction, HEATER, k)
    return linear_solve(matrix, jnp.asarray(HEATER.reshape(-1)), method="CG", preconditioner="jacobi").x.reshape(N, N)


@jax.jit
def mean_temperature(k):
    return jnp.mean(temperature(k))


def finite_difference(k, direction, step=1e-4):
    return (mean_temperature(k + step * direction) - mean_temperature(k - step * direction)) / (2 * step)


def draw(matrix, gradient, name):
    fig, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    matrix.plot(ax=left)
    matrix.plot(kind="stencil", ax=middle)
    largest = np.abs(gradient).max()
    image = right.imshow(gradient, cmap="RdBu_r", vmin=-largest, vmax=largest)
    right.set(title="Where more conductivity cools (blue) or warms", xlabel="axis 1 (cells)", ylabel="axis 0 (cells)")
    fig.colorbar(image, ax=right, label="d(mean temperature) / dk")
    fig.savefig(name, dpi=100)


def main():
    rng = np.random.default_rng(0)
    k = jnp.asarray(1 + rng.random((N, N)))
    matrix, bias = matrix_from_function(conduction, HEATER, k)
    print(matrix.explain())
    print(f"positive definite: {matrix.is_positive_definite()}")
    T = jax.jit(temperature)(k)
    residual = float(jnp.linalg.norm(conduction(T, k) - HEATER) / np.linalg.norm(HEATER))
    print(f"mean temperature {float(jnp.mean(T)):.6f}; relative residual by the function itself {residual:.1e}")

    gradient = jax.jit(jax.grad(mean_temperature))(k)
    direction = jnp.asarray(rng.standard_normal((N, N)))
    found, wanted = float(jnp.vdot(gradient, direction)), float(finite_difference(k, direction))
    difference = abs(found - wanted) / abs(wanted)
    print(f"derivative along a random direction {found:.10f}, by finite differences {wanted:.10f}")
    draw(matrix, np.asarray(gradient), "trace_stencil.png")
    if bias is not None and np.any(np.asarray(bias)):
        raise SystemExit("the operator has no constant part")
    if not (residual < 1e-8 and difference < 1e-6):
        raise SystemExit("the traced matrix or the derivative through it is wrong")


if __name__ == "__main__":
    main()
