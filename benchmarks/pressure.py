"""The pressure of a flow in a closed box, beside PhiML's default solve: `-div grad p = b`, with closed walls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from krylix import linear_solve

from .measure import compare, per_call
from .settings import Settings, missing
from .table import Row

RTOL = 1e-8
_LEAST = 50  # times as fast as the peer


def rows(settings: Settings) -> Iterator[Row]:
    n = settings.grid_of_pressure
    for name, fluid in {"an empty box": np.ones((n, n)), "a box with two pillars": pillars(n)}.items():
        yield beside_phiml(f"pressure {n}², {name}", fluid, settings)


def pillars(n: int) -> np.ndarray:
    """1 where there is fluid, 0 in two round pillars."""
    x, y = np.meshgrid(*[(np.arange(n) + 0.5) / n] * 2, indexing="ij")
    solid = [(x - a) ** 2 + (y - b) ** 2 < 0.01 for a, b in ((0.3, 0.4), (0.7, 0.6))]
    return np.where(solid[0] | solid[1], 0.0, 1.0)


def operator(fluid: np.ndarray, xp: Any) -> Callable[[Any], Any]:
    """Differences of the pressure over the faces between two cells of fluid."""
    across, along = fluid[1:] * fluid[:-1], fluid[:, 1:] * fluid[:, :-1]

    def laplace(p: Any) -> Any:
        flow_x = xp.pad(across * xp.diff(p, axis=0), ((1, 1), (0, 0)))
        flow_y = xp.pad(along * xp.diff(p, axis=1), ((0, 0), (1, 1)))
        return -xp.diff(flow_x, axis=0) - xp.diff(flow_y, axis=1)

    return laplace


def beside_phiml(what: str, fluid: np.ndarray, settings: Settings) -> Row:
    """Both in a compiled function, to the same residual, which is checked.

    Raises:
        RuntimeError: one of them did not get there.
    """
    peer = "PhiML's default solve"
    for package in ("jax", "phiml"):
        if missing(package):
            return Row(what, peer, missing=f"{package} is not installed", budget=1 / _LEAST)
    import jax
    import jax.numpy as jnp

    from .peers_jax import phiml_by_default

    b = np.random.default_rng(0).standard_normal(fluid.shape) * fluid
    b -= fluid * (b.sum() / fluid.sum())  # what flows in flows out
    laplace, host, rhs = operator(fluid, jnp), operator(fluid, np), jnp.asarray(b)
    program, theirs = jax.jit(lambda b: linear_solve(laplace, b, rtol=RTOL).x), phiml_by_default(laplace, RTOL)
    for name, solve in (("krylix", program), (peer, theirs)):
        relative = float(np.linalg.norm(b - host(np.asarray(solve(rhs)))) / np.linalg.norm(b))
        if not relative <= 1.1 * RTOL:
            raise RuntimeError(f"{name} left a residual of {relative:.1e} in {what}; expected {RTOL:.0e}.")
    pair = (per_call(lambda: program(rhs).block_until_ready()), per_call(lambda: theirs(rhs).block_until_ready()))
    return Row(f"{what}, jax.jit", peer, compare(*pair, min(settings.repeats, 3)), budget=1 / _LEAST)
