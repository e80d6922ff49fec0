"""Systems on grids, the function handed to `linear_solve` and nothing else said, beside pyamg and a fast transform."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.fft import dstn, idstn
from scipy.sparse.linalg import cg

from krylix import linear_solve, matrix_from_function

from .measure import compare, per_call
from .settings import Settings, missing
from .table import Row

RTOL = 1e-8


def rows(settings: Settings) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    for axes, n in ((2, settings.grid), (3, settings.grid_in_3d)):
        b = rng.standard_normal((n,) * axes)
        for name, k in coefficients(n, axes).items():
            yield from of(name, k, b, settings)
        if axes == 2:
            yield transform(b, settings)


def coefficients(n: int, axes: int) -> dict[str, np.ndarray | None]:
    """Of -div k grad on cells, zero outside; None: constant."""
    rng, x = np.random.default_rng(1), np.linspace(0, 1, n)
    parts, rest = min(8, n), (1,) * (axes - 2)
    blocks = 10.0 ** np.kron(rng.uniform(-2, 2, (parts,) * axes), np.ones((n // parts,) * axes))
    wall = np.ones((n,) * axes)
    wall[n // 4 : n // 4 + max(n // 64, 1), : 3 * n // 4] = 0
    smooth = 1 + 0.9 * np.outer(np.sin(7 * x), np.cos(5 * x))
    return {
        "constant": None,
        "smooth": np.broadcast_to(smooth.reshape(n, n, *rest), (n,) * axes).copy(),
        "blocks of 1e4": blocks,
        "a wall": wall,
    }


def operator(k: np.ndarray | None, axes: int, xp: Any) -> Callable[[Any], Any]:
    """Five or seven points; harmonic means of k on the faces."""

    def cut(a: Any, axis: int, start: int | None, stop: int | None) -> Any:
        """Of an array with one more on all sides: a part of an axis, without the more of the others."""
        return a[tuple(slice(start, stop) if i == axis else slice(1, -1) for i in range(axes))]

    def ends(a: Any, axis: int) -> tuple[Any, Any]:
        return cut(a, axis, None, -1), cut(a, axis, 1, None)

    if k is None:

        def constant(u: Any) -> Any:
            p = xp.pad(u, 1)
            return 2 * axes * u - sum(cut(p, axis, None, -2) + cut(p, axis, 2, None) for axis in range(axes))

        return constant
    both = [ends(np.pad(k, 1, mode="edge"), axis) for axis in range(axes)]
    faces = [2 * a * b / np.maximum(a + b, 1e-300) for a, b in both]

    def diffusion(u: Any) -> Any:
        p, total = xp.pad(u, 1), 0.0
        for axis, face in enumerate(faces):
            low, high = ends(p, axis)
            total = total - xp.diff(face * (high - low), axis=axis)
        return total

    return diffusion


def of(name: str, k: np.ndarray | None, b: np.ndarray, settings: Settings) -> Iterator[Row]:
    import pyamg

    axes = b.ndim
    repeats, times = (settings.repeats, 8) if axes == 2 else (min(settings.repeats, 3), 20 if k is None else 3)
    f = operator(k, axes, np)
    b = np.where(k == 0, 0, b) if k is not None else b
    A = sp.csr_array(matrix_from_function(f, b)[0].to_scipy())
    if k is not None and np.any(k == 0):  # pyamg wants no rows of zeros
        A = sp.csr_array(A + sp.diags_array((k == 0).reshape(-1) * 1.0))

    def theirs() -> np.ndarray:
        solver = pyamg.ruge_stuben_solver(A)
        return solver.solve(b.reshape(-1), tol=RTOL, accel="cg")

    found = linear_solve(f, b, rtol=RTOL)
    with_what = "" if found.preconditioner is None else f" + {found.preconditioner}"
    what = f"{name} {len(b)}{'²³'[axes - 2]}: {found.method}{with_what}, {int(found.iterations)} iterations"
    pair = (per_call(lambda: linear_solve(f, b, rtol=RTOL)), per_call(theirs))
    yield Row(f"{what}, NumPy", "pyamg RS + CG", compare(*pair, repeats), budget=0.25)
    pair = (per_call(lambda: linear_solve(A, b.reshape(-1), rtol=RTOL)), pair[1])
    yield Row(f"{what}, SciPy's matrix", "pyamg RS + CG", compare(*pair, repeats), budget=0.5)
    if missing("jax"):
        yield Row(f"{what}, jax.jit", "pyamg RS + CG", missing="jax is not installed")
        return
    import jax
    import jax.numpy as jnp

    g, rhs = operator(k, axes, jnp), jnp.asarray(b)
    solve = jax.jit(lambda b: linear_solve(g, b, rtol=RTOL).x)
    pair = (per_call(lambda: solve(rhs).block_until_ready()), per_call(theirs))
    yield Row(f"{what}, jax.jit, compiled before", "pyamg RS + CG", compare(*pair, repeats), budget=1 / times)
    if axes == 3 and k is None:
        pair = (pair[0], per_call(lambda: cg(A, b.reshape(-1), rtol=RTOL)))
        yield Row(f"{what}, jax.jit, compiled before", "SciPy CG", compare(*pair, repeats), budget=1 / 60)


def transform(b: np.ndarray, settings: Settings) -> Row:
    """The recognised operator, beside a solve by somebody who knows which transform it is."""
    n = len(b)
    waves = 2 - 2 * np.cos(np.pi * np.arange(1, n + 1) / (n + 1))
    values = waves[:, None] + waves

    def theirs() -> np.ndarray:
        return idstn(dstn(b, type=1) / values, type=1)

    f = operator(None, 2, np)
    pair = (per_call(lambda: linear_solve(f, b, rtol=RTOL)), per_call(theirs))
    return Row(f"constant {n}², NumPy", "scipy.fft, which knows it", compare(*pair, settings.repeats), budget=1.5)
