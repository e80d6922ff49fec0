"""Pictures of matrices as files."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..sparse.plot.picture import plot
from .errors import SolveFailed, UsageError
from .output import check_output

PICTURE_NAMES = (".png", ".pdf", ".svg")


def check_picture(path: Path, source: Path | None) -> None:
    """See before the work whether a picture can be drawn and written.

    Raises:
        UsageError: as `check_output`, or matplotlib is not installed.
    """
    check_output(path, PICTURE_NAMES, (source,))
    if find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib, which is not installed: pip install matplotlib.")


def draw(path: Path, A: Any, name: str) -> None:
    """Draw the entries of a matrix to a file, without pyplot and its windows.

    Raises:
        SolveFailed: it cannot be drawn or written, for lack of memory for example.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 6), dpi=150, layout="constrained")
    try:
        ax = plot(A, ax=figure.add_subplot())
        ax.set_title(f"{name}\n{ax.get_title()}", parse_math=False)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from")  # the font lacks a character of the name
            figure.savefig(path)
    except OSError as error:
        raise SolveFailed(f"{path}: cannot be written: {error.strerror or error}.") from error
    except MemoryError as error:
        raise SolveFailed(f"{path}: cannot be drawn for lack of memory.") from error
