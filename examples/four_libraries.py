"""One operator written four times: traced, solved and differentiated on NumPy, JAX, PyTorch and TensorFlow arrays.

A pollutant is carried by a steady wind, spreads with a conductivity k that differs from cell to cell, and decays; clean
air surrounds the square. Each library's users write that operator in their own way: NumPy's in place, the others by
padding and slices. krylix finds the same sparse matrix in all four, solves the same system with the function, and gives
the derivative of the mean concentration by k: by `jax.grad`, `torch.autograd`, a `GradientTape`, and on NumPy arrays,
which have no derivatives of their own, by `SolveResult.jvp`. Finite differences on NumPy arrays check them all.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf
import torch

from krylix import linear_solve, matrix_from_function

jax.config.update("jax_enable_x64", True)  # double precision everywhere

N, WIND, DECAY = 32, 2.0, 0.01
SETTINGS = {"method": "biCG-stab(2)", "rtol": 1e-12}


def numpy_transport(c, k):
    out = (DECAY + WIND) * c
    out[1:] -= WIND * c[:-1]  # upwind
    for axis in (0, 1):
        out_, c_, k_ = (np.moveaxis(a, axis, 0) for a in (out, c, k))  # views
        flow = 0.5 * (k_[1:] + k_[:-1]) * (c_[1:] - c_[:-1])
        out_[:-1] -= flow
        out_[1:] += flow
        for rim in (0, -1):
            out_[rim] += k_[rim] * c_[rim]
    return out


def jax_transport(c, k):
    p, q = jnp.pad(c, 1), jnp.pad(k, 1, mode="edge")
    down = 0.5 * (q[1:, 1:-1] + q[:-1, 1:-1]) * jnp.diff(p[:, 1:-1], axis=0)
    right = 0.5 * (q[1:-1, 1:] + q[1:-1, :-1]) * jnp.diff(p[1:-1], axis=1)
    return DECAY * c + WIND * (c - p[:-2, 1:-1]) - jnp.diff(down, axis=0) - jnp.diff(right, axis=1)


def torch_transport(c, k):
    p = torch.nn.functional.pad(c, (1, 1, 1, 1))
    q = torch.nn.functional.pad(k[None, None], (1, 1, 1, 1), mode="replicate")[0, 0]
    down = 0.5 * (q[1:, 1:-1] + q[:-1, 1:-1]) * torch.diff(p[:, 1:-1], dim=0)
    right = 0.5 * (q[1:-1, 1:] + q[1:-1, :-1]) * torch.diff(p[1:-1], dim=1)
    return DECAY * c + WIND * (c - p[:-2, 1:-1]) - torch.diff(down, dim=0) - torch.diff(right, dim=1)


def tensorflow_transport(c, k):
    p, q = tf.pad(c, [[1, 1], [1, 1]]), tf.pad(k, [[1, 1], [1, 1]], mode="SYMMETRIC")
    down = 0.5 * (q[1:, 1:-1] + q[:-1, 1:-1]) * (p[1:, 1:-1] - p[:-1, 1:-1])
    right = 0.5 * (q[1:-1, 1:] + q[1:-1, :-1]) * (p[1:-1, 1:] - p[1:-1, :-1])
    return DECAY * c + WIND * (c - p[:-2, 1:-1]) - (down[1:] - down[:-1]) - (right[:, 1:] - right[:, :-1])


LIBRARIES = {  # what makes its arrays, and the operator
    "NumPy": (np.asarray, numpy_transport),
    "JAX": (jnp.asarray, jax_transport),
    "PyTorch": (torch.as_tensor, torch_transport),
    "TensorFlow": (tf.constant, tensorflow_transport),
}


def solve(transport, b, k):
    return linear_solve(transport, b, args=(k,), **SETTINGS)


def numpy_change(b, k, dk):
    """Of the mean concentration, for a change dk of k: the matrix changes by that of dk alone."""
    matrix, _ = matrix_from_function(numpy_transport, b, k)
    change = matrix_from_function(numpy_transport, b, k + dk)[0].to_scipy() - matrix.to_scipy()
    return linear_solve(matrix, b.reshape(-1), **SETTINGS).jvp(A=change).mean()


def jax_change(b, k, dk):
    return jnp.vdot(jax.jit(jax.grad(lambda k: solve(jax_transport, b, k).x.mean()))(k), dk)


def torch_change(b, k, dk):
    k = k.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(solve(torch_transport, b, k).x.mean(), k)
    return torch.vdot(gradient.ravel(), dk.ravel())


def tensorflow_change(b, k, dk):
    with tf.GradientTape() as tape:
        tape.watch(k)
        mean = tf.reduce_mean(solve(tensorflow_transport, b, k).x)
    return tf.reduce_sum(tape.gradient(mean, k) * dk)


CHANGES = {"NumPy": numpy_change, "JAX": jax_change, "PyTorch": torch_change, "TensorFlow": tensorflow_change}


def by_differences(b, k, dk, step=1e-4):
    more, less = (solve(numpy_transport, b, k + sign * step * dk).x.mean() for sign in (1, -1))
    return (more - less) / (2 * step)


def main():
    rng = np.random.default_rng(0)
    b = np.zeros((N, N))
    b[8, 16], b[20, 6] = 1.0, 0.5  # two chimneys
    k, dk = 0.5 + rng.random((N, N)), rng.standard_normal((N, N))

    reference = matrix_from_function(numpy_transport, b, k)[0].to_scipy().toarray()
    exact = np.linalg.solve(reference, b.reshape(-1)).reshape(N, N)
    wanted = by_differences(b, k, dk)
    print(f"{'':10}  entries  difference   error of x  iterations  derivative (by differences {wanted:.9e})")
    for name, (array, transport) in LIBRARIES.items():
        of_library = [array(a) for a in (b, k, dk)]
        matrix, _ = matrix_from_function(transport, *of_library[:2])
        difference = np.abs(matrix.to_scipy().toarray() - reference).max()
        result = solve(transport, *of_library[:2])
        error = np.abs(np.asarray(result.x) - exact).max()
        found = float(CHANGES[name](*of_library))
        numbers = f"{matrix.nnz:7d}  {difference:10.1e}  {error:11.1e}  {int(result.iterations):10d}  {found:.9e}"
        print(f"{name:10}  {numbers}")
        if not (difference < 1e-14 and error < 1e-9 and abs(found - wanted) < 1e-6 * abs(wanted)):
            raise SystemExit(f"{name}: wrong matrix, solution or derivative")


if __name__ == "__main__":
    main()
