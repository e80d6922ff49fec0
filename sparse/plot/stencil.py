"""Stencil plot: the coefficients by which a matrix on a grid couples a point to its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .colours import EntryColours, short, text_colour

_MAX_NUMBERS = 15  # cells per axis, up to which coefficients are written
_MAX_SLICES = 9
_MAX_NEIGHBOURS = 1000
_WIDTH = 650  # of a line of text that fills the picture: its characters times their size


class Neighbours(NamedTuple):
    """The entries of a row as offsets on the grid.

    Attributes:
        point: of the row, one index per axis.
        offsets: `(k, axes)`.
        coefficients: `(rows, k)` of all rows whose neighbours at these offsets are on the grid.
        complete: do these rows have entries at these offsets only, and at all of them?
    """

    point: tuple[int, ...]
    offsets: np.ndarray
    coefficients: np.ndarray
    complete: bool


class _Window:
    """Where an offset lies in the picture: slices of the first of three axes side by side, one column between them."""

    def __init__(self, offsets: np.ndarray) -> None:
        """`offsets`: `(k, 3)`."""
        self.slices = sorted({0, *(int(k) for k in offsets[:, 0])})
        self.low, self.high = offsets[:, 1:].min(0, initial=0), offsets[:, 1:].max(0, initial=0)
        self.height, self.width = (int(k) for k in self.high - self.low + 1)
        self.shape = (self.height, len(self.slices) * (self.width + 1) - 1)

    def cell(self, offset: np.ndarray) -> tuple[int, int]:
        i, j = (int(k) for k in offset[1:] - self.low)
        return i, self.slices.index(int(offset[0])) * (self.width + 1) + j


def find_neighbours(A: Any, grid: Sequence[int]) -> Neighbours:
    """Neighbours of a typical row, near the middle of the grid, of a canonical `csr_array` `(n, n)`.

    Raises:
        ValueError: too many neighbours. Cost: one pass over the entries for each.
    """
    shape = tuple(int(size) for size in grid)
    row = _typical_row(A, shape)
    columns = A.indices[A.indptr[row] : A.indptr[row + 1]]
    if len(columns) > _MAX_NEIGHBOURS:
        raise ValueError(
            f'row {row} has {len(columns)} neighbours; at most {_MAX_NEIGHBOURS} are drawn. Use kind="spy".'
        )
    point = np.stack(np.unravel_index(row, shape))
    offsets = np.stack(np.unravel_index(columns, shape), -1) - point
    low, high = offsets.min(0, initial=0), offsets.max(0, initial=0)
    inner = tuple(slice(int(-a), int(size - b)) for a, b, size in zip(low, high, shape, strict=True))
    rows = np.arange(A.shape[0]).reshape(shape)[inner].reshape(-1)
    shifts = [int(shift) for shift in columns - row]
    # the first entry of diagonal k is in row max(-k, 0)
    found = [A.diagonal(k)[rows + min(k, 0)] for k in shifts]
    coefficients = np.stack(found, -1) if found else np.zeros((len(rows), 0), A.dtype)
    complete = bool(np.all(np.diff(A.indptr)[rows] == len(shifts)) and np.all(coefficients))
    return Neighbours(tuple(int(i) for i in point), offsets, coefficients, complete)


def reach(A: Any) -> int:
    """Largest distance from the diagonal of the entries of a typical row."""
    row = _typical_row(A, (A.shape[0],))
    return int(np.max(np.abs(A.indices[A.indptr[row] : A.indptr[row + 1]] - row), initial=0))


class DrawnStencil(NamedTuple):
    """Neighbours, and where they are drawn; axes of length 1 are left out.

    Attributes:
        found: of the row.
        offsets: `(k, 3)`, zero along leading axes that are not there.
        window: the arrangement of the cells.
        axes: which axes of the grid these are.
    """

    found: Neighbours
    offsets: np.ndarray
    window: _Window
    axes: list[int]


def arrange(A: Any, grid: Sequence[int]) -> DrawnStencil:
    """Find the neighbours of a row of a canonical `csr_array` `(n, n)` and a place for each of them.

    Raises:
        ValueError: more than three axes, too many slices or neighbours.
    """
    axes = [axis for axis, size in enumerate(grid) if size > 1]
    if len(axes) > 3:
        raise ValueError(f"the stencil on a grid {tuple(grid)}: expected at most 3 axes longer than 1 to draw it.")
    found = find_neighbours(A, [grid[axis] for axis in axes] or [1])
    offsets = np.zeros((len(found.offsets), 3), np.int64)
    offsets[:, 3 - found.offsets.shape[1] :] = found.offsets
    window = _Window(offsets)
    if len(window.slices) > _MAX_SLICES:
        raise ValueError(
            f"the stencil on a grid {tuple(grid)} reaches over {len(window.slices)} slices of axis {axes[0]}; at most "
            f'{_MAX_SLICES} can be drawn. Use kind="spy".'
        )
    return DrawnStencil(found, offsets, window, axes)


def draw_stencil(stencil: DrawnStencil, ax: Any, title: str) -> None:
    """Draw the neighbours of a row with their coefficients."""
    _draw_cells(stencil.found.coefficients, stencil.offsets, stencil.window, ax)
    _label(stencil.window, stencil.axes, ax)
    ax.set_title(f"{title}\n{_explanation(stencil.found)}")


def _draw_cells(coefficients: np.ndarray, offsets: np.ndarray, window: _Window, ax: Any) -> None:
    means = coefficients.mean(0)
    colours = EntryColours(means)
    places = np.ma.array(np.zeros(window.shape), mask=True)
    cells = [window.cell(offset) for offset in offsets]
    for cell, place in zip(cells, colours.places(means), strict=True):
        places[cell] = place
    image = ax.imshow(places, interpolation="nearest", **colours.settings())
    if window.height > _MAX_NUMBERS or window.width > _MAX_NUMBERS:
        colours.add_bar(image, ax)
        return
    texts = [_range(coefficients[:, k]) for k in range(len(cells))]
    longest = max((len(line) for text in texts for line in text.split("\n")), default=1)
    size = float(np.clip(_WIDTH / max(window.shape) / longest, 4, 14))
    for (i, j), text in zip(cells, texts, strict=True):
        ax.text(j, i, text, ha="center", va="center", color=text_colour(image.to_rgba(places[i, j])), size=size)


def _label(window: _Window, axes: Sequence[int], ax: Any) -> None:
    from matplotlib.patches import Rectangle

    spread, step = window.width + 1, max(1, -(-max(window.height, window.width) // _MAX_NUMBERS))
    (top, left), (bottom, right) = ((int(k) for k in limits) for limits in (window.low, window.high))
    across = [j for j in range(left, right + 1) if j % step == 0]
    down = [i for i in range(top, bottom + 1) if i % step == 0] if len(axes) > 1 else []
    places = [p * spread + j - left for p in range(len(window.slices)) for j in across]
    ax.set_xticks(places, labels=[_signed(j) for j in across] * len(window.slices))
    ax.set_yticks([i - top for i in down], labels=[_signed(i) for i in down])
    ax.tick_params(length=0)
    ax.set_xlabel(f"offset along axis {axes[-1] if axes else 0}")
    if len(axes) > 1:
        ax.set_ylabel(f"offset along axis {axes[-2]}")
    for p, k in enumerate(window.slices):
        x = p * spread - 0.5
        ax.add_patch(Rectangle((x, -0.5), window.width, window.height, fill=False, edgecolor="0.7"))
        if len(axes) == 3:
            ax.text(x + window.width / 2, -0.6, f"axis {axes[0]}: {_signed(k)}", ha="center", va="bottom")
    i, j = window.cell(np.zeros(3, np.int64))
    ax.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, edgecolor="black", linewidth=1.5))
    ax.set_frame_on(False)
    ax.set(xlim=(-0.6, window.shape[1] - 0.4), ylim=(window.height - 0.4, -1.0 if len(axes) == 3 else -0.6))


def _signed(offset: int) -> str:
    return f"{offset:+d}" if offset else "0"


def _typical_row(A: Any, shape: tuple[int, ...]) -> int:
    """The row nearest to the middle of the grid among the half with the most entries."""
    lengths = np.diff(A.indptr)
    usual = np.partition(lengths, len(lengths) // 2)[len(lengths) // 2]
    distance = sum(np.ix_(*(np.abs(np.arange(size) - size // 2) for size in shape)))
    return int(np.argmin(np.where(lengths >= usual, np.reshape(distance, -1), len(lengths))))


def _range(values: np.ndarray) -> str:
    """One coefficient, or the smallest and the largest of many; the mean of complex ones."""
    if np.iscomplexobj(values):
        spread = np.max(np.abs(values - values[0]))
        return short(values[0]) if spread <= 1e-4 * abs(values[0]) else f"mean\n{short(values.mean(), 3)}"
    low, high = values.min(), values.max()
    return short(low) if short(low) == short(high) else f"{short(low, 3)}\nto {short(high, 3)}"


def _explanation(found: Neighbours) -> str:
    point = ", ".join(str(i) for i in found.point)
    rows = len(found.coefficients)
    if not len(found.offsets):
        return f"row at ({point}) has no entries"
    where = f"row at ({point}), coefficients of {rows:,} rows" if rows > 1 else f"row at ({point})"
    return where if found.complete else f"{where}; some have other neighbours"
