"""Twenty projections in a row: after the first, right-hand sides are rounding, and so are their means.

A velocity on the faces of a grid (16, 8), periodic along the first axis; and along the second one, or with walls there
and an immersed obstacle.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from frameworks import lazy
from krylix import SingularMatrixWarning, linear_solve
from modes import array, to_numpy

jax = lazy("jax")

SHAPE, STEPS = (16, 8), 20


def fluid(kind: str) -> np.ndarray:
    inside = np.ones(SHAPE, bool)
    if kind == "obstacle":
        inside[4:7, 2:5] = inside[:, -1] = False
    return inside


def faces(inside: np.ndarray) -> np.ndarray:
    """Ones on faces between two cells of the fluid, for each axis; periodic."""
    return np.stack([inside & np.roll(inside, 1, k) for k in range(2)]).astype(float)


def divergence(u: Any, roll: Callable[..., Any]) -> Any:
    return sum(roll(u[k], -1, k) - u[k] for k in range(2))


def projected(
    u: Any, p: Any, open_faces: Any, stack: Callable[..., Any], roll: Callable[..., Any], **settings: Any
) -> tuple[Any, Any]:
    """u without its divergence, and the pressure, from which the solve starts."""

    def gradient(p: Any) -> Any:
        return open_faces * stack([p - roll(p, 1, k) for k in range(2)])

    result = linear_solve(lambda p: -divergence(gradient(p), roll), -divergence(u, roll), x0=p, **settings)
    return u - gradient(result.x), result.x


@pytest.mark.filterwarnings("ignore::krylix.SingularMatrixWarning")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", ["periodic", "obstacle"])
@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize("method", ["auto", "CG", pytest.param("scipy-direct", marks=pytest.mark.merge)])
def test_in_numpy(method: str, start: bool, kind: str, dtype: str) -> None:
    opened = faces(fluid(kind)).astype(dtype)
    first = u = opened * np.random.default_rng(5).standard_normal((2, *SHAPE)).astype(dtype)
    p = np.zeros(SHAPE, dtype)
    for _ in range(STEPS):
        u, p = projected(u, p if start else None, opened, np.stack, np.roll, method=method)
    check(first, u, dtype)


@pytest.mark.needs("jax")
@pytest.mark.parametrize(
    ("kind", "dtype", "method"),
    [("periodic", "float64", "CG"), ("obstacle", "float32", "CG")]
    + [pytest.param("obstacle", dtype, "auto", marks=pytest.mark.merge) for dtype in ("float32", "float64")],
)
def test_in_scan(kind: str, dtype: str, method: str) -> None:
    """In one program, which warns and does not fail; "auto" looks for null vectors when it runs."""
    import jax.numpy as jnp

    known = faces(fluid(kind)).astype(dtype)
    first = known * np.random.default_rng(5).standard_normal((2, *SHAPE)).astype(dtype)

    @jax.jit
    def run(u: Any, opened: Any) -> Any:
        opened = opened if method == "auto" else known
        step = partial(projected, open_faces=opened, stack=jnp.stack, roll=jnp.roll, method=method)
        return jax.lax.scan(lambda c, _: (step(*c), None), (u, 0 * u[0]), length=STEPS)[0][0]

    with warnings.catch_warnings(action="ignore", category=SingularMatrixWarning):
        check(first, to_numpy(run(array("jax", first), array("jax", known))), dtype)


def check(first: np.ndarray, u: np.ndarray, dtype: str) -> None:
    """No divergence but rounding, and the change is a gradient: orthogonal to what is left."""
    eps, size = np.finfo(dtype).eps, np.linalg.norm(first)
    assert u.dtype == dtype and np.linalg.norm(divergence(u, np.roll)) <= 50 * eps * size
    assert 0.1 * size < np.linalg.norm(u) < size
    assert abs(np.sum(u.astype(float) * (first - u))) <= (1e-4 if dtype == "float32" else 1e-9) * size**2
