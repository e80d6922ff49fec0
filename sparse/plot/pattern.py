"""Sparsity pattern plot: one pixel per entry, or the number of entries per pixel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .colours import EntryColours, count_settings, round_numbers, short, text_colour

MAX_PIXELS = 500  # per axis
_MIN_PIXELS = 100  # also in a small subplot
_MAX_CELLS = 40  # up to here lines separate the entries
_MAX_NUMBERS = 12  # up to here the entries are written as numbers
_MAX_BLOCKS = 32
_MAX_STRETCH = 4  # of height to width, beyond which pixels are no squares


def draw_pattern(A: Any, ax: Any, title: str, grid: Sequence[int] | None) -> None:
    """Draw a canonical `csr_array`; `grid` is the shape that the columns have on a grid, if they lie on one."""
    n, m = A.shape
    _frame(A.shape, ax, title)
    if A.nnz == 0 or 0 in A.shape:
        ax.text(0.5, 0.5, "no entries", transform=ax.transAxes, ha="center", va="center", color="0.5")
    elif max(n, m) <= (pixels := _pixels(ax)):
        _draw_entries(A, ax)
    else:
        _draw_counts(A, ax, pixels)
    if max(n, m) <= _MAX_CELLS and 0 not in A.shape:
        _lines(ax, np.arange(1, n), np.arange(1, m), color="0.85", linewidth=0.5)
    blocks = _block_size(grid)
    if blocks is not None:
        rows = np.arange(blocks, n if n == m else 0, blocks)  # of a rectangular matrix only the columns' grid is known
        _lines(ax, rows, np.arange(blocks, m, blocks), color="0.6", linewidth=0.6)


def count_entries(A: Any, pixels: int = MAX_PIXELS) -> tuple[np.ndarray, tuple[int, int]]:
    """Count the entries of a `csr_array` in each pixel; returns also the rows and columns of a pixel.

    At most `pixels` per axis. Cost: two passes over the entries.
    """
    (n, m), (height, width) = A.shape, (-(-size // pixels) for size in A.shape)
    rows, columns = -(-n // height), -(-m // width)
    starts = A.indptr[np.minimum(np.arange(rows + 1) * height, n)]
    place = np.repeat(np.arange(rows, dtype=np.int64) * columns, np.diff(starts))
    place += A.indices // width
    return np.bincount(place, minlength=rows * columns).reshape(rows, columns), (height, width)


def _pixels(ax: Any) -> int:
    """Pixels of the image, as many as there are on the screen: fewer of these would leave out thin lines."""
    box = ax.get_window_extent()
    return int(np.clip(min(box.width, box.height), _MIN_PIXELS, MAX_PIXELS))


def _frame(shape: tuple[int, int], ax: Any, title: str) -> None:
    from matplotlib.ticker import FixedLocator, MaxNLocator, StrMethodFormatter

    n, m = shape
    square = 0 in shape or max(n / m, m / n) <= _MAX_STRETCH
    ax.set(title=title, xlabel="column", ylabel="row", aspect="equal" if square else "auto")
    ax.set(xlim=(-0.5, max(m, 1) - 0.5), ylim=(max(n, 1) - 0.5, -0.5))
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    for axis, size in ((ax.xaxis, m), (ax.yaxis, n)):
        few = size <= _MAX_NUMBERS
        axis.set_major_locator(FixedLocator(list(range(size))) if few else MaxNLocator(6, integer=True))
        axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _draw_entries(A: Any, ax: Any) -> None:
    colours = EntryColours(A.data)
    rows = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    places = np.ma.array(np.zeros(A.shape), mask=True)
    places[rows, A.indices] = colours.places(A.data)
    image = _show(places, ax, (1, 1), colours.settings())
    colours.add_bar(image, ax)
    if max(A.shape) <= (_MAX_NUMBERS if colours.signed else _MAX_NUMBERS // 2):
        for i, j, value, place in zip(rows, A.indices, A.data, places[rows, A.indices], strict=True):
            ax.text(j, i, short(value, 3), ha="center", va="center", color=text_colour(image.to_rgba(place)), size=8)


def _draw_counts(A: Any, ax: Any, pixels: int) -> None:
    counts, (height, width) = count_entries(A, pixels)
    largest = int(counts.max())
    image = _show(np.ma.masked_equal(counts, 0), ax, (height, width), count_settings(largest))
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.8)
    marks = round_numbers(largest)
    bar.set_ticks(marks, labels=[f"{k:,}" for k in marks])
    bar.ax.minorticks_off()
    bar.set_label(f"entries per pixel of {height:,} x {width:,}")


def _show(pixels: Any, ax: Any, size: tuple[int, int], settings: dict[str, Any]) -> Any:
    """Pixels that cover `size` rows and columns each; the last ones may stick out of the matrix."""
    limits = ax.get_xlim(), ax.get_ylim()
    bottom, right = (count * step - 0.5 for count, step in zip(pixels.shape, size, strict=True))
    image = ax.imshow(
        pixels, extent=(-0.5, right, bottom, -0.5), aspect=ax.get_aspect(), interpolation="nearest", **settings
    )
    ax.set(xlim=limits[0], ylim=limits[1])
    return image


def _block_size(grid: Sequence[int] | None) -> int | None:
    """Length of the blocks that the leading axes of a grid cut the matrix into: the finest ones that can be seen."""
    if grid is None:
        return None
    sizes = np.cumprod(np.array([1, *grid[:0:-1]], np.int64))[1:]  # of the last axis, the last two, ...
    total = int(np.prod(np.array(grid, np.int64)))
    return next((int(size) for size in sizes if size > 1 and 1 < total // size <= _MAX_BLOCKS), None)


def _lines(ax: Any, rows: np.ndarray, columns: np.ndarray, **style: Any) -> None:
    for k in rows:
        ax.axhline(k - 0.5, **style)
    for k in columns:
        ax.axvline(k - 0.5, **style)
