"""Non-linear heat conduction inside `jax.jit`, with a multigrid hierarchy that follows the coefficients.

The conductivity depends on the temperature, so that every time step has another matrix, whose values are known only
when the compiled program runs. Its pattern is known before: which unknowns are put together is decided once, when
the function is compiled, and each step computes the numbers of its own hierarchy inside of the program. A hierarchy of
the first step, kept for all, takes more and more iterations. The derivative of what is left of the heat by the peak of
the start does not see the preconditioner: `jax.grad` agrees with finite differences.
"""

import jax
import jax.numpy as jnp
import numpy as np

from krylix import linear_solve, matrix_from_function, preconditioner

jax.config.update("jax_enable_x64", True)

N, STEPS, DT, RTOL = 40, 4, 0.05, 1e-10


def conductivity(u):
    return 1 + 300 * u**2


def faces(k, axis):
    """Means of both sides on the faces across an axis, with a rim that conducts like the cell inside."""
    first, last = (jax.lax.slice_in_dim(k, *ends, axis=axis) for ends in ((0, 1), (N - 1, N)))
    wide = jnp.concatenate([first, k, last], axis)
    return (jax.lax.slice_in_dim(wide, 0, N + 1, axis=axis) + jax.lax.slice_in_dim(wide, 1, N + 2, axis=axis)) / 2


def implicit(u, k):
    """u - dt div(k grad u), zero on the rim."""
    out = u
    for axis in (0, 1):
        ends = [(1, 1) if a == axis else (0, 0) for a in (0, 1)]
        out = out - DT * N**2 * jnp.diff(faces(k, axis) * jnp.diff(jnp.pad(u, ends), axis=axis), axis=axis)
    return out


def start(peak):
    x = (jnp.arange(N) + 0.5) / N
    return peak * jnp.exp(-30 * ((x[:, None] - 0.3) ** 2 + (x - 0.4) ** 2))


def simulate(peak, kept=False):
    """The temperature after all steps, and the iterations of each."""
    u = start(peak)
    first, _ = matrix_from_function(implicit, u, conductivity(u))
    M0 = preconditioner(first, "amg")

    def step(u, _):
        A, _ = matrix_from_function(implicit, u, conductivity(u))
        M = M0 if kept else preconditioner(A, "amg")  # the numbers of this step, in the program
        result = linear_solve(A, u.ravel(), method="CG", preconditioner=M, rtol=RTOL)
        return result.x.reshape(N, N), result.iterations

    return jax.lax.scan(step, u, length=STEPS)


def heat(peak):
    return jnp.sum(simulate(peak)[0])


def main():
    counts = {kept: np.asarray(jax.jit(simulate, static_argnums=1)(1.0, kept)[1]) for kept in (False, True)}
    print("iterations of each step, hierarchy of that step: ", *counts[False])
    print("iterations of each step, that of the first one:  ", *counts[True])
    value, slope = jax.jit(jax.value_and_grad(heat))(1.0)
    h, run = 1e-4, jax.jit(heat)
    difference = (run(1 + h) - run(1 - h)) / (2 * h)
    print(f"heat {value:.6f}, its derivative by the peak {slope:.8f}, by finite differences {difference:.8f}")
    if not (counts[False].max() <= 15 and counts[True].max() >= 2 * counts[False].max()):
        raise SystemExit("hierarchies of each step should have halved the iterations")
    if abs(slope - difference) > 1e-6 * abs(slope):
        raise SystemExit("the derivative disagrees with finite differences")


if __name__ == "__main__":
    main()
