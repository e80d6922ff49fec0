"""What notebooks show of an object: a table of facts, and a small picture of a sparsity pattern."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
import scipy.sparse as sp

MOST_ENTRIES = 2_000_000  # of a matrix whose pattern is drawn: it takes a tenth of a second
_PIXELS = 64  # of the picture, per axis
_SIDE = 160  # its width on the screen


def html_table(title: str, rows: Sequence[tuple[str, str]], picture: str = "") -> str:
    """A title and rows of a name and a text, which are escaped, beside a picture. It takes the colours of the page."""
    cell = 'style="text-align:left;vertical-align:top;padding:2px 12px 2px 0"'
    lines = "".join(
        f'<tr><th {cell} scope="row">{escape(name)}</th><td {cell}>{escape(text)}</td></tr>' for name, text in rows
    )
    table = f'<table style="border:none"><caption {cell}><b>{escape(title)}</b></caption>{lines}</table>'
    beside = f'<div style="margin-right:16px">{picture}</div>' if picture else ""
    return f'<div style="display:flex;align-items:flex-start;color:inherit">{beside}{table}</div>'


def spy_svg(A: Any) -> str:
    """The pattern of a SciPy matrix as an SVG picture in the colour of the text: the more entries, the less faint.

    Cost: a pass over the entries.
    """
    n, m = A.shape
    if 0 in A.shape:
        return ""
    entries = sp.coo_array(A)
    height, width = -(-n // _PIXELS), -(-m // _PIXELS)
    rows, columns = -(-n // height), -(-m // width)
    place = (entries.row // height).astype(np.int64) * columns + entries.col // width
    counts = np.bincount(place, minlength=rows * columns).reshape(rows, columns)
    opacity = 0.35 + 0.65 * counts / max(int(counts.max(initial=0)), 1)
    boxes = "".join(
        f'<rect x="{j}" y="{i}" width="1" height="1" fill-opacity="{opacity[i, j]:.2f}"/>'
        for i, j in np.argwhere(counts).tolist()
    )
    tall = min(max(round(_SIDE * rows / columns), 20), 4 * _SIDE)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {columns} {rows}" width="{_SIDE}" height="{tall}" '
        f'preserveAspectRatio="none" shape-rendering="crispEdges" fill="currentColor" role="img" '
        f'style="border:1px solid currentColor"><title>sparsity pattern, {n} x {m}</title>{boxes}</svg>'
    )
