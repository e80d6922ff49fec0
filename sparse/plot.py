"""Plots of matrices: sparsity pattern and stencil. Needs matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from .analysis.canonical import canonical
from .formats import Matrix

KINDS = ("spy", "stencil")
MAX_PIXELS = 500  # per axis
_MIN_PIXELS = 100  # also in a small subplot
_MAX_CELLS = 40  # up to here lines separate the entries
_MAX_NUMBERS = 12  # up to here the entries are written as numbers
_MAX_BLOCKS = 32
_MAX_STRETCH = 4  # of height to width, beyond which pixels are no squares
_MAX_REACH = 20  # neighbours in one dimension; a matrix that reaches farther comes from a grid with more axes
_MAX_COEFFICIENTS = 15  # cells of a stencil per axis, up to which its coefficients are written
_MAX_SLICES = 9
_MAX_NEIGHBOURS = 1000
_TEXT_WIDTH = 650  # of a line of text that fills the picture: its characters times their size


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
    if kind == "spy":
        ax = _new_axes() if ax is None else ax
        words = [f"{A.shape[0]:,} x {A.shape[1]:,}", f"{A.nnz:,} non-zeros"]
        name = getattr(matrix, "format", None)
        _draw_pattern(A, ax, ", ".join([*words, name] if isinstance(name, str) else words), shape)
        return ax
    on_grid = shape is not None and A.shape[0] == A.shape[1] and A.shape[0] > 0
    if shape is None or not on_grid or (grid is None and len(shape) == 1 and _reach(A) > _MAX_REACH):
        raise ValueError(  # vectors alone are no grid of one axis if their neighbours are far away
            f'kind="stencil" needs a square matrix on a known grid; got one of shape {A.shape}, grid {shape}. '
            f'Give grid=(ny, nx) with ny * nx == {A.shape[1]}, or use kind="spy".'
        )
    return _draw_stencil(A, shape, ax)


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


def _new_axes() -> Any:
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        raise ModuleNotFoundError("plot needs matplotlib: pip install matplotlib", name="matplotlib") from error
    return pyplot.subplots(figsize=(7, 6), layout="constrained")[1]


# --- the pattern: one pixel per entry, or the number of entries per pixel ---


def _draw_pattern(A: Any, ax: Any, title: str, grid: Sequence[int] | None) -> None:
    """Draw a canonical `csr_array`; `grid` is the shape that the columns have on a grid, if they lie on one."""
    from matplotlib.ticker import FixedLocator, MaxNLocator, StrMethodFormatter

    n, m = A.shape
    square = 0 in A.shape or max(n / m, m / n) <= _MAX_STRETCH
    ax.set(title=title, xlabel="column", ylabel="row", aspect="equal" if square else "auto")
    ax.set(xlim=(-0.5, max(m, 1) - 0.5), ylim=(max(n, 1) - 0.5, -0.5))
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    for axis, size in ((ax.xaxis, m), (ax.yaxis, n)):
        few = size <= _MAX_NUMBERS
        axis.set_major_locator(FixedLocator(list(range(size))) if few else MaxNLocator(6, integer=True))
        axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    box = ax.get_window_extent()  # with more pixels than the screen has it would leave out thin lines
    pixels = int(np.clip(min(box.width, box.height), _MIN_PIXELS, MAX_PIXELS))
    if A.nnz == 0 or 0 in A.shape:
        ax.text(0.5, 0.5, "no entries", transform=ax.transAxes, ha="center", va="center", color="0.5")
    elif max(n, m) <= pixels:
        rows = np.repeat(np.arange(n), np.diff(A.indptr))
        image = _show_entries(ax, A.shape, rows, A.indices, A.data, True)
        if max(n, m) <= (_MAX_NUMBERS // 2 if np.iscomplexobj(A.data) else _MAX_NUMBERS):
            _write(ax, image, rows, A.indices, [short(value, 3) for value in A.data], 8)
    else:
        _draw_counts(A, ax, pixels)
    if max(n, m) <= _MAX_CELLS and 0 not in A.shape:
        _draw_lines(ax, np.arange(1, n), np.arange(1, m), color="0.85", linewidth=0.5)
    sizes = [math.prod(grid[axis:]) for axis in range(len(grid) - 1, 0, -1)] if grid else []  # of the leading axes
    blocks = next((size for size in sizes if size > 1 and 1 < m // size <= _MAX_BLOCKS), None)  # that can be seen
    if blocks is not None:
        rows = np.arange(blocks, n if n == m else 0, blocks)  # of a rectangular matrix only the columns' grid is known
        _draw_lines(ax, rows, np.arange(blocks, m, blocks), color="0.6", linewidth=0.6)


def _draw_counts(A: Any, ax: Any, pixels: int) -> None:
    """Numbers of entries on a logarithmic scale, the darker the more."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, LogNorm

    counts, (height, width) = count_entries(A, pixels)
    largest = int(counts.max())
    cmap = ListedColormap(colormaps["YlGnBu"](np.linspace(0.4, 1, 256))).with_extremes(bad="white")
    limits = ax.get_xlim(), ax.get_ylim()  # the last pixels may stick out of the matrix
    extent = (-0.5, counts.shape[1] * width - 0.5, counts.shape[0] * height - 0.5, -0.5)
    image = ax.imshow(
        np.ma.masked_equal(counts, 0), cmap, LogNorm(1, max(largest, 2)), aspect=ax.get_aspect(),
        interpolation="nearest", extent=extent,
    )  # fmt: skip
    ax.set(xlim=limits[0], ylim=limits[1])
    bar, marks = ax.figure.colorbar(image, ax=ax, shrink=0.8), round_numbers(largest)
    bar.set_ticks(marks, labels=[f"{k:,}" for k in marks])
    bar.ax.minorticks_off()
    bar.set_label(f"entries per pixel of {height:,} x {width:,}")


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


def _draw_lines(ax: Any, rows: np.ndarray, columns: np.ndarray, **style: Any) -> None:
    for k in rows:
        ax.axhline(k - 0.5, **style)
    for k in columns:
        ax.axvline(k - 0.5, **style)


# --- the stencil: the coefficients by which a matrix on a grid couples a point to its neighbours ---


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


def _typical_row(A: Any, shape: tuple[int, ...]) -> int:
    """The row nearest to the middle of the grid among the half with the most entries."""
    lengths = np.diff(A.indptr)
    usual = np.partition(lengths, len(lengths) // 2)[len(lengths) // 2]
    distance = sum(np.ix_(*(np.abs(np.arange(size) - size // 2) for size in shape)))
    return int(np.argmin(np.where(lengths >= usual, np.reshape(distance, -1), len(lengths))))


def _reach(A: Any) -> int:
    """Largest distance from the diagonal of the entries of a typical row."""
    row = _typical_row(A, (A.shape[0],))
    return int(np.max(np.abs(A.indices[A.indptr[row] : A.indptr[row + 1]] - row), initial=0))


def _draw_stencil(A: Any, grid: tuple[int, ...], ax: Any) -> Any:
    """Draw a typical row on new axes if none are given: slices of the first of three axes side by side.

    Raises:
        ValueError: more than three axes longer than 1, too many slices or neighbours.
    """
    axes = [axis for axis, size in enumerate(grid) if size > 1]
    if len(axes) > 3:
        raise ValueError(f"the stencil on a grid {grid}: expected at most 3 axes longer than 1 to draw it.")
    found = find_neighbours(A, [grid[axis] for axis in axes] or [1])
    offsets = np.zeros((len(found.offsets) + 1, 3), np.int64)  # the last one is the point itself
    offsets[:-1, 3 - found.offsets.shape[1] :] = found.offsets
    slices = np.unique(offsets[:, 0]).tolist()
    if len(slices) > _MAX_SLICES:
        raise ValueError(
            f"the stencil on a grid {grid} reaches over {len(slices)} slices of axis {axes[0]}; at most "
            f'{_MAX_SLICES} can be drawn. Use kind="spy".'
        )
    (top, left), (bottom, right) = offsets[:, 1:].min(0).tolist(), offsets[:, 1:].max(0).tolist()
    height, width = bottom - top + 1, right - left + 1
    *rows, i = (offsets[:, 1] - top).tolist()
    *columns, j = (np.searchsorted(slices, offsets[:, 0]) * (width + 1) + offsets[:, 2] - left).tolist()
    shape = height, len(slices) * (width + 1) - 1
    ax = _new_axes() if ax is None else ax
    ax.set_aspect("equal")
    many = max(height, width) > _MAX_COEFFICIENTS
    image = _show_entries(ax, shape, rows, columns, found.coefficients.mean(0), many)
    if not many:
        texts = [_range(values) for values in found.coefficients.T]
        characters = max((len(line) for text in texts for line in text.split("\n")), default=1)
        size = float(np.clip(_TEXT_WIDTH / max(shape) / characters, 4, 14))
        _write(ax, image, rows, columns, texts, size)
    _draw_frames((i, j), (height, width), len(slices), ax)
    step = max(1, -(-max(height, width) // _MAX_COEFFICIENTS))
    across = [j for j in range(left, right + 1) if j % step == 0]
    down = [i for i in range(top, bottom + 1) if i % step == 0] if len(axes) > 1 else []
    places = [p * (width + 1) + j - left for p in range(len(slices)) for j in across]
    ax.set_xticks(places, labels=[_signed(j) for j in across] * len(slices))
    ax.set_yticks([i - top for i in down], labels=[_signed(i) for i in down])
    ax.set_xlabel(f"offset along axis {axes[-1] if axes else 0}")
    if len(axes) > 1:
        ax.set_ylabel(f"offset along axis {axes[-2]}")
    if len(axes) == 3:
        ax.set_ylim(height - 0.4, -1.0)
        for p, k in enumerate(slices):
            ax.text(p * (width + 1) + (width - 1) / 2, -0.6, f"axis {axes[0]}: {_signed(k)}", ha="center", va="bottom")
    ax.set_title(f"stencil on a grid {' x '.join(map(str, grid))}\n{_explanation(found)}")
    return ax


def _draw_frames(centre: tuple[int, int], size: tuple[int, int], slices: int, ax: Any) -> None:
    """Frames of the slices and of the point itself."""
    from matplotlib.patches import Rectangle

    height, width = size
    for p in range(slices):
        ax.add_patch(Rectangle((p * (width + 1) - 0.5, -0.5), width, height, fill=False, edgecolor="0.7"))
    i, j = centre
    ax.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, edgecolor="black", linewidth=1.5))
    ax.set_frame_on(False)
    ax.tick_params(length=0)
    ax.set(xlim=(-0.6, slices * (width + 1) - 1.4), ylim=(height - 0.4, -0.6))


def _signed(offset: int) -> str:
    return f"{offset:+d}" if offset else "0"


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


# --- colours and numbers ---


def _show_entries(ax: Any, shape: tuple[int, int], rows: Any, cols: Any, values: np.ndarray, with_bar: bool) -> Any:
    """The image of one pixel per entry, at its place on a logarithmic scale of at most 8 decades.

    Real entries: red is positive, blue negative, the darker the larger; complex ones by their magnitude. The scale goes
    from -1 to 1: the smallest entry is at 0.3, zero at 0, in grey; NaN and infinity are at 2, in magenta.
    """
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    sizes = np.abs(values[np.isfinite(values)]).astype(float)
    sizes, signed = sizes[sizes > 0], not np.iscomplexobj(values)
    high = float(sizes.max(initial=0)) or 1.0
    low = max(float(sizes.min(initial=np.inf)), high * 1e-8) if sizes.size else 1.0

    def places_of(values: np.ndarray) -> np.ndarray:
        finite = np.isfinite(values)
        sizes = np.where(finite, np.abs(values), 0).astype(float)
        sign = np.sign(np.where(finite, values.real, 0)) if signed else np.sign(sizes)
        strength = np.full(sizes.shape, 0.75)
        if high > low:
            logarithm = np.log(np.clip(sizes, low, high) / low) / np.log(high / low)
            strength = 0.3 + 0.7 * np.minimum(logarithm, 1)  # never beyond the last colour by rounding
        return np.where(finite, sign * strength, 2.0)

    steps = np.linspace(0, 1, 255)
    colours = colormaps["RdBu_r"](steps) if signed else colormaps["viridis_r"](np.abs(2 * steps - 1))
    colours[126:129] = colormaps["Greys"](0.35)
    cmap = ListedColormap(colours).with_extremes(over="#ff00ff", bad="white")
    places = np.ma.array(np.zeros(shape), mask=True)
    places[rows, cols] = places_of(values)
    image = ax.imshow(places, cmap, aspect=ax.get_aspect(), interpolation="nearest", vmin=-1, vmax=1)
    if with_bar:  # labels: the smallest, the largest, and up to four powers of ten between
        first, last = np.log10(low), np.log10(high)
        space = (last - first) / 6
        powers = [10.0**k for k in range(math.ceil(first + space), math.floor(last - space) + 1)]
        marks = sorted({low, *(powers[:: max(1, -(-len(powers) // 4))] if space else ()), high})
        negative, positive = signed and bool(np.any(values < 0)), not signed or bool(np.any(values > 0))
        signs = [s for s, there in ((-1, negative), (1, positive)) if there] or [1]
        entries = np.array(sorted(s * mark for s in signs for mark in marks))
        bar = ax.figure.colorbar(image, ax=ax, shrink=0.8)
        bar.set_ticks(places_of(entries), labels=[f"{v:.3g}" for v in entries])
        bar.ax.set_ylim(-1 if negative else 0, 1 if positive or not negative else 0)
        bar.set_label("entry" if signed else "|entry|")
        bar.ax.minorticks_off()
    return image


def _write(ax: Any, image: Any, rows: Any, cols: Any, texts: Sequence[str], size: float) -> None:
    """Texts into pixels, black or white, whichever can be read there."""
    for i, j, text in zip(rows, cols, texts, strict=True):
        red, green, blue, _ = image.to_rgba(image.get_array()[i, j])
        colour = "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"
        ax.text(j, i, text, ha="center", va="center", color=colour, size=size)


def short(value: complex, digits: int = 4) -> str:
    """A number in few characters.

    >>> short(-0.25), short(4.0), short(1e-12), short(1 - 2j)
    ('-0.25', '4', '1e-12', '1-2j')
    """
    if np.iscomplexobj(value):
        imaginary = f"{value.imag:+.{digits}g}j"
        return imaginary.lstrip("+") if value.real == 0 else f"{value.real:.{digits}g}{imaginary}"
    return f"{value:.{digits}g}"


def round_numbers(largest: int) -> list[int]:
    """Numbers from 1 to `largest` for a logarithmic scale.

    >>> round_numbers(4), round_numbers(30), round_numbers(6000)
    ([1, 2, 4], [1, 2, 5, 10, 20, 30], [1, 10, 100, 1000, 6000])
    """
    powers = range(len(str(largest)))
    found = [k * 10**p for p in powers for k in ((1, 2, 5) if len(powers) <= 2 else (1,))]
    return [*(k for k in found if k < 0.7 * largest), largest]
