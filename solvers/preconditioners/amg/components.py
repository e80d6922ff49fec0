"""Components of problems with several unknowns at each point, such as the displacements of elasticity.

The part of A within components, without entries between different ones, is coarsened: a scalar equation for each. By
Korn's inequality its eigenvalues relative to A are bounded for a body of moderate proportions, so that CG takes twice
as many steps as with all of A on all levels, of which each costs a third.

Source: Axelsson and Gustafsson, Iterative methods for the solution of the Navier equations of elasticity, Comput.
Methods Appl. Mech. Eng. 15 (1978); Blaheta, Displacement decomposition: incomplete factorization preconditioning
techniques for linear elasticity problems, Numer. Linear Algebra Appl. 1 (1994).
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....sparse import SparseMatrix
from ....sparse.formats.entries.integers import evenly_spread
from ....sparse.formats.making.build import from_entries
from .rows import reduced, repeated

_DIMENSIONS = (3, 2)  # of the space in which points are: as many displacements each
_SAMPLE = 1000  # rows
_CANCELS = 1e-6  # sum of the couplings to another component, of that of their absolute values
_DISTINCT = 0.75  # ratio of points to entries of a row: 1 / k for k components
_SHARE = 0.5  # of the rows in which they cancel: others are at the boundary
_SLENDER = 5.0  # lengths of a body relative to its other extents


def near_nullspace_columns(
    given: Any, n: int, dtype: np.dtype, block_size: int | None
) -> tuple[np.ndarray | None, int]:
    """Near null space as columns `(n, k)`, and the number of unknowns per point.

    For a real matrix complex vectors are split into real and imaginary parts.
    """
    size = block_size or 1
    if given is not None:
        try:
            given = np.asarray(given)
        except ValueError as error:  # a ragged list
            raise ValueError(f"near_nullspace is no array: {error}") from error
        if given.ndim < 2 or not len(given) or given[0].size != n:
            raise ValueError(
                f"near_nullspace has the shape {given.shape}; expected vectors of {n} numbers on its first axis, (k, "
                f"{n}), or (k, points, unknowns per point)."
            )
        if given.dtype.kind not in "fciu" or not np.isfinite(given).all():
            raise ValueError("near_nullspace holds what is no finite number; expected vectors that A nearly maps to 0.")
        if n and not given.reshape(len(given), n).any(axis=1).all():
            raise ValueError("near_nullspace holds a vector of zeros; expected vectors that A nearly maps to 0.")
        if block_size is None and given.ndim == 3 and given.shape[2] <= 8:
            size = int(given.shape[2])
        given = np.ascontiguousarray(given.reshape(len(given), n).T)
        if given.dtype.kind == "c" and dtype.kind != "c":
            parts = np.concatenate([given.real, given.imag], axis=1)
            given = np.ascontiguousarray(parts[:, parts.any(axis=0)])
    if n % size:
        raise ValueError(f"block_size={size} was given for {n} unknowns; expected a divisor of their number.")
    return given, size


def components_for(
    A: sp.csr_array, columns: np.ndarray | None, block_size: int, order: np.ndarray | None = None
) -> np.ndarray | None:
    """Component of each unknown of a Hermitian matrix, given or detected; None if there is only one.

    Args:
        columns: near-null-space vectors `(n, k)`: the result is None unless they are rigid motions of a compact body.
        order: order of the unknowns in the result and in `columns`.
    """
    diagonal = A.diagonal().real
    if not (np.all(diagonal > 0) or np.all(diagonal < 0)):
        return None
    if columns is not None and not compact_rigid_motions(columns, block_size):
        return None
    labels: np.ndarray | None = np.arange(A.shape[0], dtype=np.int32) % block_size
    if block_size == 1:
        labels = found_components(A) if columns is None else None
    return labels if labels is None or order is None else labels[order]


def found_components(A: sp.csr_array) -> np.ndarray | None:
    """Component of each unknown, `(n,)`, if A is elasticity, ordered by points or by components; else None.

    A translation causes no forces, so that couplings to each other component cancel in all rows but those at the
    boundary. In scalar equations couplings between even and odd unknowns do not.

    Cost: sums over at most 1000 rows.
    """
    n, rows = A.shape[0], evenly_spread(A.shape[0], _SAMPLE)
    sample, every = A[rows], np.arange(n, dtype=np.int32)
    for count in _DIMENSIONS:
        if n % count:
            continue
        for labels, points in ((every % count, every // count), (every // (n // count), every % (n // count))):
            places = repeated(np.arange(len(rows), dtype=np.int64), sample) * n + points[sample.indices]
            share_points = len(np.unique(places)) < _DISTINCT * sample.nnz
            if share_points and _cancel(sample, labels[rows], labels, count):
                return labels
    return None


def _cancel(sample: sp.csr_array, own: np.ndarray, labels: np.ndarray, count: int) -> bool:
    """Do couplings to other components cancel in most rows, besides couplings to their own component?"""
    kinds, rows = np.eye(count)[labels], np.arange(len(own))
    sums, sizes = np.abs(sample @ kinds), np.abs(sample) @ kinds
    others = np.arange(count) != own[:, None]
    largest = reduced(np.maximum, np.abs(sample.data), sample.indptr, 0.0)
    coupled = np.any(others & (sizes > 0), axis=1) & (sizes[rows, own] > (1 + _CANCELS) * largest)
    cancelled = np.all(~others | (sums <= _CANCELS * sizes), axis=1)
    return int(np.sum(coupled & cancelled)) > _SHARE * len(own)


def entries_within(A: SparseMatrix, labels: np.ndarray) -> SparseMatrix:
    """A without entries between different components; values may be traced."""
    rows, cols, _ = A.structure.entries()
    kept = np.flatnonzero(labels[rows] == labels[cols])
    values = A.bk.take_in_bounds(A.entry_values(), kept, 0 if A.systems is None else 1)
    return from_entries(A.bk, rows[kept], cols[kept], values, A.shape, prune=False, like=A.anchor())


def compact_rigid_motions(columns: np.ndarray, block_size: int) -> bool:
    """Are near-null-space vectors `(n, k)` rigid motions of a body that is not slender?

    Rotations measure its extents: those of a rod move it little along its axis, and much across.
    """
    n, k = columns.shape
    if block_size not in _DIMENSIONS or k <= block_size or columns.dtype.kind == "c":
        return False
    points = n // block_size
    motions = columns.reshape(points, block_size, k)
    translations = np.tile(np.eye(block_size), (points, 1))
    spanned = columns @ np.linalg.lstsq(columns, translations, rcond=None)[0]
    if not np.abs(spanned - translations).max() < 1e-6:
        return False
    turning = motions - motions.mean(axis=0)
    moments = np.linalg.eigvalsh(np.einsum("pak,pbk->ab", turning, turning))
    return bool(moments[-1] < _SLENDER**2 * moments[0])


def rigid_motions(points: Any) -> np.ndarray:
    """Translations and rotations of points, as `near_nullspace` of an "amg" preconditioner, or as a null space.

    Args:
        points: coordinates `(n, dim)` of the points, as an array or nested lists.

    Returns:
        Vectors `(k, n, dim)`, k = 1, 3 and 6 in one, two and three dimensions: orthonormal, translations first, then
        rotations about the centre of the points. Points on one line, or all at one place, have fewer.

    Raises:
        ValueError: the points are not finite numbers `(n, dim)`.

    Examples:
        >>> from krylix import rigid_motions
        >>> motions = rigid_motions([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> motions.shape
        (3, 3, 2)
    """
    given = np.asarray(points)
    if given.ndim != 2 or not given.size or given.dtype.kind not in "fiu" or not np.isfinite(given).all():
        raise ValueError(
            f"points of the shape {given.shape} and the dtype {given.dtype} were given; expected finite real "
            "coordinates (n, dim)."
        )
    n, dim = given.shape
    if dim > 3:
        raise ValueError(f"points of {dim} coordinates each were given, as (n, dim); expected 1, 2 or 3.")
    centred = given.astype(np.result_type(given.dtype, np.float32))
    centred = centred - centred.mean(axis=0)
    centred = centred / (np.abs(centred).max() or 1)
    motions = [np.broadcast_to(axis, (n, dim)) for axis in np.eye(dim, dtype=centred.dtype)]
    for i, j in combinations(range(dim), 2):
        turning = np.zeros_like(centred)
        turning[:, i], turning[:, j] = -centred[:, j], centred[:, i]
        motions.append(turning)
    return _orthonormal_basis(np.stack(motions).reshape(len(motions), n * dim)).reshape(-1, n, dim)


def _orthonormal_basis(rows: np.ndarray) -> np.ndarray:
    # Gram-Schmidt, which drops rows that depend on others.
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
