"""What `auto` takes on grids that are spread over a known mesh."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import krylix
from krylix import linear_solve
from krylix.solvers.results import devices

from .cases import Case, Later, shifted

devices.LEAST = 0  # warn of small ones, too
SIDES = {2: 64, 3: 16}
MESHES = {"rows": ("i", "j"), "columns": ("i", "j"), "2x2": ("i", "j"), "2x2x2": ("i", "j", "k")}


def flow(u: Any, c: Any, wind: float = 0.0) -> Any:
    """Conduction through faces with conductivities c (an array for each axis), u = 0 around, and wind along axis 0."""
    total = 0.0
    for axis in range(u.ndim):
        ahead = [0] * u.ndim
        ahead[axis] = 1
        back = tuple(-s for s in ahead)
        there = c[axis] * (u - shifted(u, tuple(ahead)))
        total = total + there + shifted(c[axis], back) * (u - shifted(u, back))
    return total + 0.01 * u + wind * (u - shifted(u, (-1, *(0,) * (u.ndim - 1))))


def constant(u: Any) -> Any:
    steps = np.eye(u.ndim, dtype=int).tolist()
    return 0.01 * u + sum(2.0 * u - shifted(u, s) - shifted(u, tuple(-k for k in s)) for s in steps)


def ring(u: Any, c: Any) -> Any:
    """Conduction on a torus, whose null vectors are constants."""
    total = 0.0
    for axis in range(u.ndim):
        flux = c[axis] * (u - jnp.roll(u, -1, axis))
        total = total + flux - jnp.roll(flux, 1, axis)
    return total


def solved(b: Any, *arrays: Any, A: Any, **settings: Any) -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = linear_solve(A, b, args=arrays, rtol=1e-8, **settings)
    told = sum(one.category is krylix.GatherWarning for one in caught)
    return result.x, {"iterations": result.iterations, "told": told}


def cases() -> Iterator[tuple[str, Case]]:
    rng = np.random.default_rng(5)
    for mesh, names in MESHES.items():
        axes = len(names)
        shape = (SIDES[axes],) * axes
        x = rng.normal(size=shape)
        c = np.exp(rng.normal(size=(axes, *shape)))
        spec = (None, *names)
        for name, A, arrays in (
            ("constant", constant, ()),
            ("known", partial(flow, c=c), ()),
            ("traced", flow, ((c, spec),)),
            ("wind, known", partial(flow, c=c, wind=1.0), ()),
            ("wind, traced", partial(flow, wind=1.0), ((c, spec),)),
        ):
            b = Later(partial(jax.jit(A), x, *(array for array, _ in arrays)))
            yield f"{name}, {mesh}", Case(mesh, names, b, partial(solved, A=A), x, arrays, known=True)
    x = rng.normal(size=(64, 64))
    c = np.exp(0.5 * rng.normal(size=(2, 64, 64)))
    spec = (None, "i", "j")
    right, arrays = Later(partial(jax.jit(ring), x, c)), ((c, spec),)
    torus = Case("2x2", ("i", "j"), right, partial(solved, A=ring), x - x.mean(), arrays, known=True)
    yield "singular, traced, 2x2", torus
    scaled = partial(solved, A=flow, method="CG", preconditioner="jacobi")
    x = rng.normal(size=(64, 64))
    b = Later(partial(jax.jit(flow), x, c))
    yield "jacobi, traced, 2x2", Case("2x2", ("i", "j"), b, scaled, x, ((c, spec),), known=True)
