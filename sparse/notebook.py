"""What notebooks show of an object: a table of facts, and a small picture of a sparsity pattern."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
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


def matrix_html(matrix: Any) -> str:
    """Facts of a matrix with a picture of its pattern, if it has at most `MOST_ENTRIES` entries with known values."""
    n, m = matrix.shape
    systems = matrix.systems
    per_row = f", {matrix.nnz / n:.3g} per row" if n else ""
    rows = [("shape", f"{n} x {m}"), ("entries", f"{matrix.nnz}{per_row}"), ("dtype", str(matrix.dtype))]
    rows += [("library", matrix.bk.name), ("format", matrix.format)]
    rows += [] if systems is None else [("systems", str(systems))]
    rows += [("on a grid", " x ".join(map(str, matrix.in_shape)))] if len(matrix.in_shape) > 1 else []
    small = matrix.nnz * (systems or 1) <= MOST_ENTRIES
    found = matrix.known() if small else None
    if systems is not None and found is not None:
        found = found[0] if len(found) else None
    if not small:
        rows.append(("pattern", f"not drawn, as there are more than {MOST_ENTRIES:.0e} entries; plot() draws it"))
    return html_table(f"{type(matrix).__name__} matrix", rows, "" if found is None else spy_picture(found))


def spy_picture(A: Any) -> str:
    """The pattern of a SciPy matrix or array as a small picture on a transparent ground, fainter where entries are few.

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
    steps = np.ceil(counts * ((len(_OPACITY) - 1) / max(int(counts.max(initial=0)), 1))).astype(np.uint8)
    tall = min(max(round(_SIDE * rows / columns), 20), 4 * _SIDE)
    return (
        f'<img src="data:image/png;base64,{b64encode(_png(steps)).decode()}" alt="sparsity pattern, {n} x {m}" '
        f'width="{_SIDE}" height="{tall}" style="image-rendering:pixelated;border:1px solid {_COLOUR}">'
    )


_COLOUR = "#4a86d8"  # to be seen on white and on black
_OPACITY = (0, 110, 150, 200, 255)


def _png(steps: np.ndarray) -> bytes:
    """A picture `(rows, columns)` of numbers of `_OPACITY`."""
    rows, columns = steps.shape

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    lines = np.concatenate([np.zeros((rows, 1), np.uint8), steps], 1)  # in front of each the number of a filter, none
    return b"".join((
        b"\x89PNG\r\n\x1a\n",
        chunk(b"IHDR", struct.pack(">2I5B", columns, rows, 8, 3, 0, 0, 0)),
        chunk(b"PLTE", bytes.fromhex(_COLOUR[1:]) * len(_OPACITY)),
        chunk(b"tRNS", bytes(_OPACITY)),
        chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)),
        chunk(b"IEND", b""),
    ))  # fmt: skip
