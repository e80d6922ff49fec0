"""Plots of matrices: sparsity pattern and stencil. Needs matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..analysis.canonical import canonical
from ..formats import Matrix
from .pattern import draw_pattern
from .stencil import arrange, draw_stencil, reach

KINDS = ("spy", "stencil")
_MAX_REACH = 20  # neighbours in one dimension; a matrix that reaches farther comes from a grid with more axes


def plot(matrix: Any, kind: str = "spy", ax: Any = None, *, grid: Sequence[int] | None = None) -> Any:
    """Draw a matrix and return the matplotlib `Axes`.

    `kind="spy"`: one pixel per entry, coloured by sign and magnitude (of complex entries: by magnitude), written as
    numbers if there are few; from 500 rows or columns on the number of entries that fall into each pixel. Where the
    matrix acts on a grid, lines separate the blocks of its leading axes.

    `kind="stencil"`: the neighbours of a row in the middle of the grid as offsets, with their coefficients, or the
    range that these have over all rows whose neighbours are on the grid; of a 3-d grid as slices side by side.

    Args:
        matrix: a sparse matrix of krylix whose entries are known, of SciPy, or a NumPy array `(n, m)`.
        kind: "spy" or "stencil".
        ax: where to draw; default: a new figure of pyplot.
        grid: shape of the grid that the columns lie on, last axis fastest; default: the `in_shape` of the matrix.

    Raises:
        ValueError: another kind, no grid for a stencil or one that does not fit, or entries that are not known because
            a program is being compiled.
        ModuleNotFoundError: matplotlib is not installed.

    Cost: a few passes over the entries; no dense matrix is made.
    """
    if kind not in KINDS:
        raise ValueError(f"got kind={kind!r}; expected one of {', '.join(KINDS)}.")
    A = _known(matrix)
    shape = _grid_of(matrix, A, grid)
    if kind == "stencil" and not _is_on_grid(A, shape, grid is not None):
        raise ValueError(
            f'kind="stencil" needs a square matrix on a known grid; got one of shape {A.shape}, grid {shape}. '
            f'Give grid=(ny, nx) with ny * nx == {A.shape[1]}, or use kind="spy".'
        )
    stencil = arrange(A, shape) if kind == "stencil" and shape is not None else None
    ax = _new_axes() if ax is None else ax
    if stencil is None:
        draw_pattern(A, ax, _title(matrix, A), shape)
    else:
        draw_stencil(stencil, ax, f"stencil on a grid {' x '.join(str(k) for k in shape or ())}")
    return ax


Matrix.picture = staticmethod(plot)


def _known(matrix: Any) -> Any:
    """The entries as a canonical `csr_array`."""
    if hasattr(matrix, "to_scipy"):
        found = matrix.to_scipy()
    else:
        found = matrix.known() if hasattr(matrix, "known") else matrix
    if found is None:
        raise ValueError("the entries of this matrix are not known while a program is compiled; plot it outside.")
    if not sp.issparse(found):
        found = np.asarray(found)
    if len(found.shape) != 2:
        raise ValueError(f"got an array of shape {found.shape}; expected a matrix (n, m).")
    return canonical(found)


def _grid_of(matrix: Any, A: Any, grid: Sequence[int] | None) -> tuple[int, ...] | None:
    """The grid that was given, or the shape of the arrays that the matrix acts on."""
    if grid is not None:
        given = tuple(int(size) for size in grid)
        if math.prod(given) != A.shape[1] or any(size < 1 for size in given):
            raise ValueError(f"got grid={given}, {math.prod(given)} points, for a matrix with {A.shape[1]} columns.")
        return given
    found = getattr(matrix, "in_shape", None)
    if not isinstance(found, tuple) or not found or not all(isinstance(size, int) for size in found):
        return None
    return found if math.prod(found) == A.shape[1] and 0 not in found else None


def _is_on_grid(A: Any, grid: tuple[int, ...] | None, certain: bool) -> bool:
    """Vectors alone are no grid of one axis if their neighbours are far away."""
    if grid is None or A.shape[0] != A.shape[1] or not A.shape[0]:
        return False
    return certain or len(grid) > 1 or reach(A) <= _MAX_REACH


def _title(matrix: Any, A: Any) -> str:
    words = [f"{A.shape[0]:,} x {A.shape[1]:,}", f"{A.nnz:,} non-zeros"]
    name = getattr(matrix, "format", None)
    return ", ".join([*words, name] if isinstance(name, str) else words)


def _new_axes() -> Any:
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        raise ModuleNotFoundError("plot needs matplotlib: pip install matplotlib", name="matplotlib") from error
    return pyplot.subplots(figsize=(7, 6), layout="constrained")[1]
