"""Rigid body motions, the near null space of elasticity."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np


def rigid_motions(points: Any) -> np.ndarray:
    """Translations and rotations of points, as `near_nullspace` of an "amg" preconditioner, or as a null space.

    Args:
        points: coordinates `(n, dim)` of the points, of NumPy or anything that it reads.

    Returns:
        Vectors `(k, n, dim)`, k = 1, 3 and 6 in one, two and three dimensions: orthonormal, translations first, then
        rotations about the middle of the points. Points that lie on one line or all in one place have fewer.

    Raises:
        ValueError: points are not finite numbers `(n, dim)`.

    Examples:
        >>> from krylix import rigid_motions
        >>> motions = rigid_motions([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> motions.shape
        (3, 3, 2)
    """
    found = np.asarray(points)
    if found.ndim != 2 or not found.size or found.dtype.kind not in "fiu" or not np.isfinite(found).all():
        raise ValueError(
            f"points of the shape {found.shape} and the dtype {found.dtype} were given; expected finite real "
            "coordinates (n, dim)."
        )
    n, dim = found.shape
    if dim > 3:
        raise ValueError(f"points of {dim} coordinates each were given, as (n, dim); expected 1, 2 or 3.")
    centred = found.astype(np.result_type(found.dtype, np.float32))
    centred = centred - centred.mean(axis=0)
    centred = centred / (np.abs(centred).max() or 1)
    motions = [np.broadcast_to(axis, (n, dim)) for axis in np.eye(dim, dtype=centred.dtype)]
    for i, j in combinations(range(dim), 2):
        turning = np.zeros_like(centred)
        turning[:, i], turning[:, j] = -centred[:, j], centred[:, i]
        motions.append(turning)
    return _orthonormal(np.stack(motions).reshape(len(motions), n * dim)).reshape(-1, n, dim)


def _orthonormal(rows: np.ndarray) -> np.ndarray:
    """By Gram-Schmidt, without rows that are sums of others."""
    kept: list[np.ndarray] = []
    for row in rows:
        rest = row
        for _ in range(2):  # twice is enough
            for other in kept:
                rest = rest - (other @ rest) * other
        size = np.linalg.norm(rest)
        if size > 1e3 * np.finfo(rows.dtype).eps * np.sqrt(rows.shape[1]):
            kept.append(rest / size)
    return np.array(kept, rows.dtype).reshape(-1, rows.shape[1])
