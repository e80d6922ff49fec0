"""The matrix of an opaque function: a guess that costs little first, and a test of what was found last."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ...errors import NonlinearError, UnsupportedOperation
from .evaluate import MOST_EVALUATIONS, Probe
from .peeling import peeled_entries
from .stencil import Triplets, stencil_entries

_FEW = 4096  # columns that are worth an evaluation each
_SMALL = 24  # unknowns, for each axis, that are not worth a guess
_TOLERANCE = 1e3  # units of rounding


def find_entries(probe: Probe, grid: tuple[int, ...] | None) -> Triplets:
    """The entries of the function's matrix, tested by random vectors.

    Args:
        probe: the function.
        grid: the shape of its argument, where that is one array.

    Raises:
        NonlinearError: the function is neither linear nor affine.
        UnsupportedOperation: it couples too many unknowns, or does not do the same each time.
    """
    rng = np.random.default_rng(0)
    if not (probe.n and probe.m):
        return _column_by_column(probe)
    found: Triplets | None = None
    if grid is not None and probe.n > _SMALL * len(grid):
        found = stencil_entries(probe, grid, rng)
        if found is not None and _reproduces(probe, found, rng):
            return found
    _check_linear(probe, rng)  # before many evaluations
    found = peeled_entries(probe, rng, probe.count + probe.n if probe.n <= _FEW else MOST_EVALUATIONS)
    if found is None and probe.n <= _FEW:
        found = _column_by_column(probe)
    if found is None:
        raise UnsupportedOperation(
            f"{probe.count} evaluations of the function did not show its matrix: it couples too many unknowns, or "
            "rounding hides which. Solve with the function itself, or write it with NumPy's functions, which are "
            "followed."
        )
    if _reproduces(probe, found, rng):
        return found
    _check_linear(probe, rng)
    raise UnsupportedOperation(
        "The matrix that evaluations of the function showed does not reproduce it for a random vector: it couples more "
        "unknowns than were seen, rounds, or does not do the same each time. Solve with the function itself, or write "
        "it with NumPy's functions, which are followed."
    )


def _column_by_column(probe: Probe) -> Triplets:
    images = probe.images(np.eye(probe.n, dtype=probe.dtype)) if probe.n else np.zeros((0, probe.m), probe.bias.dtype)
    columns, rows = np.nonzero(images)
    return Triplets(rows, columns, images[columns, rows])


def _random(probe: Probe, rng: np.random.Generator) -> np.ndarray:
    x = rng.standard_normal(probe.n)
    return (x + 1j * rng.standard_normal(probe.n) if probe.dtype.kind == "c" else x).astype(probe.dtype)


def _reproduces(probe: Probe, found: Triplets, rng: np.random.Generator) -> bool:
    """Do two random vectors give the same by both, row by row?"""
    matrix = sp.csr_array((found.values, (found.rows, found.columns)), shape=(probe.m, probe.n))
    for scale in (1.0, -3.0):
        x = (scale * _random(probe, rng)).astype(probe.dtype)
        size = abs(matrix) @ abs(x) + np.abs(probe.bias)
        error = np.abs(matrix @ x + probe.bias - probe.evaluate(x))
        if not (error <= _TOLERANCE * probe.eps * size).all():
            return False
    return True


def _check_linear(probe: Probe, rng: np.random.Generator) -> None:
    """f(x - 2 y) = f(x) - 2 f(y), but for f(0) and rounding."""
    x, y = _random(probe, rng), _random(probe, rng)
    factor = -2j if probe.dtype.kind == "c" else -2.0
    joint = probe.image((x + factor * y).astype(probe.dtype))
    parts = probe.image(x), factor * probe.image(y)
    size = max(float(np.abs(part).max(initial=0)) for part in (*parts, probe.bias))
    if not np.abs(joint - sum(parts)).max(initial=0) <= 10 * _TOLERANCE * probe.eps * size:
        raise NonlinearError(
            "The function is not linear: f(x - 2 y) - f(0) differs from f(x) - f(0) - 2 (f(y) - f(0)) for random x and "
            "y. Expected a linear or affine function that does the same each time."
        )
