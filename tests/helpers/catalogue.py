"""Linear operators of simulations, written with the arrays of each library: what tracing and solving are tried on.

An entry of `OPERATORS` is written over a `Library`, which names the functions that users of that library call. So each
is four functions of four libraries; `dense` gives the matrix by unit vectors through the one on NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from unit_vectors import matrix_of

Function = Callable[[Any], Any]


class Library(NamedTuple):
    """Functions of a library, by what they do."""

    array: Callable[[Any], Any]
    pad: Callable[[Any, str], Any]  # by one on each side of each axis: constant, edge, wrap or reflect
    roll: Callable[[Any, int, int], Any]
    concat: Callable[[Sequence[Any], int], Any]
    where: Callable[[Any, Any, Any], Any]
    take: Callable[[Any, np.ndarray], Any]  # of the first axis
    add_at: Callable[[int, np.ndarray, Any], Any]  # sums `(n,)` of what belongs to each index
    convolve: Callable[[Any, np.ndarray], Any]  # 3 x 3 points, zero outside
    matvec: Callable[[Any, Any], Any]
    zeros_like: Callable[[Any], Any]


def _numpy() -> Library:
    def add_at(n: int, where: np.ndarray, values: Any) -> Any:
        out = np.zeros(n, values.dtype)
        np.add.at(out, where, values)
        return out

    def convolve(u: Any, kernel: np.ndarray) -> Any:
        p = np.pad(u, 1)
        return sum(kernel[i, j] * p[i : i + u.shape[0], j : j + u.shape[1]] for i in range(3) for j in range(3))

    return Library(
        np.asarray, lambda u, mode: np.pad(u, 1, mode=mode), np.roll, np.concatenate, np.where,
        lambda u, where: u[where], add_at, convolve, lambda M, u: M @ u, np.zeros_like,
    )  # fmt: skip


def _jax() -> Library:
    import jax
    import jax.numpy as jnp

    def convolve(u: Any, kernel: np.ndarray) -> Any:
        return jax.lax.conv(u[None, None], jnp.asarray(kernel, u.dtype)[None, None], (1, 1), "SAME")[0, 0]

    return Library(
        jnp.asarray, lambda u, mode: jnp.pad(u, 1, mode=mode), jnp.roll, jnp.concatenate, jnp.where,
        lambda u, where: u[where], lambda n, where, values: jnp.zeros(n, values.dtype).at[where].add(values), convolve,
        lambda M, u: M @ u, jnp.zeros_like,
    )  # fmt: skip


def _torch() -> Library:
    import torch
    from torch.nn import functional

    modes = {"edge": "replicate", "wrap": "circular", "reflect": "reflect"}

    def pad(u: Any, mode: str) -> Any:
        widths = (1, 1) * u.ndim
        if mode == "constant":
            return functional.pad(u, widths)
        return functional.pad(u[None, None], widths, mode=modes[mode])[0, 0]

    def add_at(n: int, where: np.ndarray, values: Any) -> Any:
        return torch.zeros(n, dtype=values.dtype).index_add(0, torch.as_tensor(where), values)

    def convolve(u: Any, kernel: np.ndarray) -> Any:
        return functional.conv2d(u[None, None], torch.as_tensor(kernel, dtype=u.dtype)[None, None], padding=1)[0, 0]

    return Library(
        torch.as_tensor, pad, torch.roll, torch.cat, torch.where, lambda u, where: u[torch.as_tensor(where)], add_at,
        convolve, lambda M, u: M @ u, torch.zeros_like,
    )  # fmt: skip


def _tensorflow() -> Library:
    import tensorflow as tf

    def pad(u: Any, mode: str) -> Any:
        widths = [[1, 1]] * len(u.shape)
        if mode != "wrap":
            return tf.pad(u, widths, mode={"constant": "CONSTANT", "edge": "SYMMETRIC", "reflect": "REFLECT"}[mode])
        for axis in range(len(u.shape)):
            first, last = tf.gather(u, [0], axis=axis), tf.gather(u, [-1 + u.shape[axis]], axis=axis)
            u = tf.concat([last, u, first], axis)
        return u

    def convolve(u: Any, kernel: np.ndarray) -> Any:
        weights = tf.constant(kernel, u.dtype)[:, :, None, None]
        return tf.nn.conv2d(u[None, :, :, None], weights, 1, "SAME")[0, :, :, 0]

    return Library(
        tf.constant, pad, tf.roll, tf.concat, tf.where, lambda u, where: tf.gather(u, where),
        lambda n, where, values: tf.math.unsorted_segment_sum(values, where, n), convolve, tf.linalg.matvec,
        tf.zeros_like,
    )  # fmt: skip


LIBRARIES: dict[str, Callable[[], Library]] = {"numpy": _numpy, "jax": _jax, "torch": _torch, "tf": _tensorflow}


class Operator(NamedTuple):
    """One entry."""

    name: str
    make: Callable[[Library], Function]
    shape: tuple[int, ...]
    dtype: str = "float64"
    square: bool = True


def laplace(of: Library, mode: str) -> Function:
    """2 d + 1 points, and a mass term, so that it has an inverse."""

    def apply(u: Any) -> Any:
        p, d = of.pad(u, mode), len(u.shape)
        out = (2 * d + 1) * u
        for axis in range(d):
            for shifted in (slice(2, None), slice(0, -2)):
                inside = [slice(1, -1)] * d
                inside[axis] = shifted
                out = out - p[tuple(inside)]
        return out

    return apply


def gradient(of: Library, axis: int) -> Function:
    """From points to the faces between them and at the rim, along an axis."""

    def apply(u: Any) -> Any:
        p = of.pad(u, "constant")
        inside = [slice(1, -1)] * len(u.shape)
        high, low = list(inside), list(inside)
        high[axis], low[axis] = slice(1, None), slice(0, -1)
        return p[tuple(high)] - p[tuple(low)]

    return apply


def divergence(of: Library, axis: int) -> Function:
    """From faces to the points between them."""

    def apply(flow: Any) -> Any:
        high, low = ([slice(None)] * len(flow.shape) for _ in "ab")
        high[axis], low[axis] = slice(1, None), slice(0, -1)
        return flow[tuple(high)] - flow[tuple(low)]

    return apply


def diffusion(of: Library) -> Function:
    """Divergence of conductivities times gradients: four functions in one another."""
    k = [of.array(_rng(axis).random(shape) + 0.5) for axis, shape in enumerate(((6, 4), (5, 5)))]

    def apply(u: Any) -> Any:
        return u - sum(divergence(of, axis)(k[axis] * gradient(of, axis)(u)) for axis in (0, 1))

    return apply


def obstacles(of: Library) -> Function:
    """The identity in a part of the grid, where it is also cut off from the rest."""
    fluid = np.ones((5, 5), bool)
    fluid[1:3, 2:4] = False
    known, inside = of.array(fluid), laplace(of, "constant")
    return lambda u: of.where(known, inside(of.where(known, u, of.zeros_like(u))), u)


def mesh(of: Library) -> Function:
    """Laplacian of a graph, its edges gathered and summed."""
    ends = np.array([[0, 1, 2, 3, 4, 5, 6, 0, 2, 1], [1, 2, 3, 4, 5, 6, 0, 4, 6, 5]])
    weights = of.array(_rng(5).random(10) + 0.1)

    def apply(u: Any) -> Any:
        flow = weights * (of.take(u, ends[0]) - of.take(u, ends[1]))
        return u + of.add_at(7, ends[0], flow) - of.add_at(7, ends[1], flow)

    return apply


def convolution(of: Library) -> Function:
    kernel = _rng(6).standard_normal((3, 3)) / 9
    return lambda u: u + of.convolve(u, kernel)


def upwind(of: Library) -> Function:
    """Periodic, not symmetric."""
    wind = of.array(_rng(7).random((5, 4)))
    return lambda u: 2 * u - wind * of.roll(u, 1, 0) - 0.5 * of.roll(u, -1, 1)


def affine(of: Library) -> Function:
    """With values at the rim that are not zero."""
    rim = of.array(np.linspace(1.0, 2.0, 4))[None]

    def apply(u: Any) -> Any:
        p = of.concat([rim, u, 0 * rim], 0)
        return 3 * u - p[2:] - p[:-2]

    return apply


def systems(of: Library) -> Function:
    """Three that do not know of each other, each with a coefficient."""
    k = of.array(np.array([[1.0], [2.0], [5.0]]))
    return lambda u: k * u - 0.3 * of.roll(u, 1, 1)


def dense_part(of: Library) -> Function:
    M = of.array(4 * np.eye(6) + _rng(8).standard_normal((6, 6)) / 3)
    return lambda u: of.matvec(M, u) + 0.1 * of.roll(u, 1, 0)


def wave(of: Library) -> Function:
    """Helmholtz's operator with damping."""
    inside = laplace(of, "constant")
    return lambda u: inside(u) + (0.5 - 0.4j) * u


def twice(of: Library) -> Function:
    once = laplace(of, "wrap")
    return lambda u: once(once(u))


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _laplacians() -> list[Operator]:
    modes = {"constant": "Dirichlet", "edge": "Neumann", "wrap": "periodic", "reflect": "mirrored"}
    return [
        Operator(f"laplace-{name}-{len(shape)}d", lambda of, mode=mode: laplace(of, mode), shape)
        for mode, name in modes.items()
        for shape in ((7,), (5, 4), (3, 4, 3))
    ]


OPERATORS = [
    *_laplacians(),
    *(Operator(f"gradient-{axis}", lambda of, axis=axis: gradient(of, axis), (4, 3), square=False) for axis in (0, 1)),
    *(Operator(f"divergence-{a}", lambda of, axis=a: divergence(of, axis), (4, 3), square=False) for a in (0, 1)),
    Operator("diffusion", diffusion, (5, 4)),
    Operator("obstacles", obstacles, (5, 5)),
    Operator("mesh", mesh, (7,)),
    Operator("convolution", convolution, (5, 4)),
    Operator("upwind", upwind, (5, 4)),
    Operator("affine", affine, (5, 4)),
    Operator("systems", systems, (3, 6)),
    Operator("dense-part", dense_part, (6,)),
    Operator("wave", wave, (4, 4), "complex128"),
    Operator("twice", twice, (5, 4)),
]


def dense(operator: Operator) -> tuple[np.ndarray, np.ndarray]:
    """The matrix and the constant part, by unit vectors through the function on NumPy arrays."""
    matrix, bias = matrix_of(operator.make(_numpy()), operator.shape, operator.dtype)
    return matrix, bias.reshape(-1)
