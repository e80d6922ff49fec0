"""One problem, four array libraries: NumPy, JAX in `jit`, PyTorch, and TensorFlow in `tf.function`.

A pollutant is carried by a steady wind, spreads and decays; the field that a source keeps up solves a system that is
not symmetric. The operator is written once, the array library hands in its `roll`; the answer comes back as its own
type of array. The second half shows what happens when a solve fails: an exception that holds the result so far, a
status where you ask for one, an error from within compiled functions too, and a refusal of what cannot work at all.
"""

import logging
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf
import torch

from krylix import NonlinearError, NotConverged, Status, linear_solve

jax.config.update("jax_enable_x64", True)  # double precision everywhere

WIND, SPREAD, DECAY = 2.0, 0.5, 0.01


def transport(roll):
    """The operator on the arrays of the library that `roll` belongs to; the domain is periodic."""

    def A(c):
        out = (DECAY + WIND + 4 * SPREAD) * c - WIND * roll(c, 1, 0)  # upwind
        for axis in (0, 1):
            out = out - SPREAD * (roll(c, 1, axis) + roll(c, -1, axis))
        return out

    return A


def source():
    b = np.zeros((24, 16))
    b[4, 8], b[10, 3] = 1.0, 0.5
    return b


def solve(roll, b, **settings):
    return linear_solve(transport(roll), b, method="biCG-stab(2)", **settings)


def exact(b):
    """By Fourier transform: `transport` multiplies each wave by a number."""
    unit = np.zeros_like(b)
    unit[0, 0] = 1
    return np.fft.ifft2(np.fft.fft2(b) / np.fft.fft2(transport(np.roll)(unit))).real


def agreement():
    b = source()
    solve_jax = jax.jit(lambda b: solve(jnp.roll, b))
    solve_tensorflow = tf.function(lambda b: solve(tf.roll, b))
    results = {
        "NumPy": solve(np.roll, b),
        "JAX in jit": solve_jax(jnp.asarray(b)),
        "PyTorch": solve(torch.roll, torch.tensor(b)),
        "TensorFlow in tf.function": solve_tensorflow(tf.constant(b)),
    }
    for name, result in results.items():
        error = np.max(np.abs(np.asarray(result.x) - exact(b)))
        kind = f"{type(result.x).__module__.split('.')[0]}.{type(result.x).__name__}"
        print(f"{name:26} {int(result.iterations):3d} iterations, error {error:.1e}, x is a {kind}")
        if not error < 1e-8:
            raise SystemExit(f"{name}: wrong answer")


def failures():
    b = source()
    print("\ntoo few iterations raise; the result so far is attached:")
    try:
        solve(np.roll, b, max_iter=4)
    except NotConverged as error:
        print(f"  {type(error).__name__}: {error}")
        partial = error.result
    else:
        raise SystemExit("4 iterations cannot be enough")
    further = solve(np.roll, b, x0=partial.x)
    print(f"  residual so far {partial.residual_norm:.1e}; starting from it: {further.message}")

    print("or give a status:")
    result = solve(torch.roll, torch.tensor(b), max_iter=4, on_failure="status")
    print(f"  converged {bool(result.converged)}, status {Status(int(result.status)).name}")
    if result.converged or result.status != Status.MAX_ITER:
        raise SystemExit("the status is wrong")

    print("inside jax.jit the error comes when the compiled function runs:")
    logging.getLogger("jax").setLevel(logging.CRITICAL)  # it would also print the traceback
    hopeless = jax.jit(lambda b: solve(jnp.roll, b, max_iter=4).x)
    try:
        hopeless(jnp.asarray(b)).block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        line = next(line for line in str(error).splitlines() if "limit of iterations" in line)
        print(f"  {type(error).__name__}: ... {line}")
    else:
        raise SystemExit("the failure was silent")

    print("what cannot work is refused before the first iteration:")
    try:
        linear_solve(lambda c: c + c**2, b, method="biCG-stab(2)")
    except NonlinearError as error:
        print(f"  {type(error).__name__}: {error}")
    else:
        raise SystemExit("a function that is not linear has no matrix")


def main():
    agreement()
    failures()


if __name__ == "__main__":
    main()
