"""Pictures of matrices and of convergence as files."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ..solvers import SolveResult
from ..sparse.plot import plot
from .compare import ComparisonRow
from .files import check_output, writing
from .terminal import SolveFailed, UsageError

PICTURE_NAMES = (".png", ".pdf", ".svg")
_MOST_ROWS = 20  # of a comparison


def check_picture(path: Path | None, sources: Sequence[Path | None]) -> None:
    """Raise UsageError unless a picture, if one is wanted, can be drawn and written."""
    if path is None:
        return
    check_output(path, PICTURE_NAMES, sources)
    if find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib, which is not installed: pip install matplotlib.")


def draw(path: Path, A: Any, name: str) -> None:
    """Draw the entries of a matrix to a file."""

    def entries(figure: Any) -> None:
        ax = plot(A, ax=figure.add_subplot())
        ax.set_title(f"{name}\n{ax.get_title()}", parse_math=False)

    _write(path, entries, (7, 6))


def draw_histories(path: Path, result: SolveResult, name: str) -> None:
    """Draw the residual of each right-hand side against iterations, and its tolerance."""

    def curves(figure: Any) -> None:
        ax = result.plot(figure.add_subplot())
        ax.set_title(f"{name}\n{ax.get_title()}", parse_math=False)
        ax.grid(alpha=0.3)
        ax.xaxis.get_major_locator().set_params(integer=True)

    _write(path, curves, (7, 5))


def draw_convergence(path: Path, rows: Sequence[ComparisonRow], name: str) -> None:
    """Draw relative residuals against iterations and against time, set-up included, of the first rows."""
    from matplotlib import colormaps

    def curves(figure: Any) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        colors = colormaps["tab20"].colors  # type: ignore[attr-defined]
        shown = [row for row in rows if row.history is not None and row.seconds is not None][:_MOST_ROWS]
        for i, row in enumerate(shown):
            history, seconds = np.asarray(row.history), row.seconds or 0.0
            steps = np.arange(len(history))
            style = {"marker": "." if len(history) < 20 else None, "color": colors[i % len(colors)]}
            left.semilogy(steps, history, label=f"{row.kind} ({row.method})", **style)
            right.semilogy((row.set_up or 0) + seconds * steps / max(len(steps) - 1, 1), history, **style)
        left.set(xlabel="iterations", ylabel="relative residual")
        right.set(xlabel="seconds, set-up first", xscale="log")
        for ax in (left, right):
            ax.grid(alpha=0.3)
        figure.legend(*left.get_legend_handles_labels(), fontsize="small", loc="outside right upper")
        figure.suptitle(name, parse_math=False)

    _write(path, curves, (11, 5))


def _write(path: Path, paint: Callable[[Any], None], size: tuple[int, int]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=150, layout="constrained")
    try:
        paint(figure)
        with writing(path), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from")  # the font lacks a character of the name
            figure.savefig(path)
    except MemoryError as error:
        raise SolveFailed(f"{path}: cannot be drawn for lack of memory.") from error
