"""Gather, scatter, pad, permute and flip: the indexing operations of sparse matrices and traced functions.

Arrays have any number of axes and any dtype; all these are linear, and differentiable where the library differentiates.
Integer arrays are int32 or int64, of the library or of NumPy; the latter are copied to the device of the data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from .arrays import Array, Integers


class Indexing(ABC):
    """Backend methods that gather, scatter, pad and reorder entries."""

    materialize: Callable[[Array], Array]
    _composed: Callable[[str], Callable[..., Array]]

    @abstractmethod
    def take_in_bounds(self, x: Array, index: Integers, axis: int = 0) -> Array:
        """`x` at the positions `index` along an axis, which the axes of `index` replace.

        Every position must be at least 0 and below the length of the axis: this is not checked.
        """

    @abstractmethod
    def segment_sum(self, values: Array, ids: Integers, count: int, sorted: bool = False) -> Array:
        """`(nnz, ...)` -> `(count, ...)`: sum of the values with equal `ids` `(nnz,)`; 0 for empty segments.

        Every id must be at least 0 and below `count`; `sorted` promises that they do not fall. Neither is checked.
        """

    def sum_entries(self, values: Array, ids: Integers, count: int, sorted: bool = False) -> Array:
        """`segment_sum` along the last axis: `(nnz,)` -> `(count,)`, or `(batch, nnz)` -> `(batch, count)`."""
        if len(values.shape) == 1:
            return self.segment_sum(values, ids, count, sorted)
        if values.shape[0] == 1:
            return self.segment_sum(values[0, ...], ids, count, sorted)[None, :]
        return self.permute_dims(self.segment_sum(self.permute_dims(values, (1, 0)), ids, count, sorted), (1, 0))

    def pad(self, x: Array, widths: Sequence[tuple[int, int]], mode: str = "constant", value: Any = 0) -> Array:
        """`x` with zeros around it: `(before, after)` of each axis, none negative; others as in `operations.shapes`."""
        plain = mode == "constant" and type(value) is int and value == 0 and len(widths) == len(x.shape)
        for before, after in widths:
            plain = plain and before >= 0 and after >= 0
        if plain:
            return self._pad_with_zeros(x, widths)
        return self._composed("pad")(x, widths, mode, value)

    @abstractmethod
    def _pad_with_zeros(self, x: Array, widths: Sequence[tuple[int, int]]) -> Array: ...

    def pad_materialized(self, x: Array, before: int, after: int) -> Array:
        """`(rows, n)` zero-padded before and after each row, and materialized as by `Backend.materialize`."""
        return self.materialize(self.pad(x, [(0, 0), (before, after)]))

    def window(self, x: Array, start: Sequence[int], shape: Sequence[int]) -> Array:
        """The box of `shape` that begins at `start`, along the last axes of `x`; what lies outside of `x` is 0."""
        inside, widths = [], []
        for s, n, m in zip(start, shape, x.shape[len(x.shape) - len(shape) :], strict=True):
            before, first = min(max(-s, 0), n), min(max(s, 0), m)
            count = max(min(s + n, m) - first, 0)
            inside.append(slice(first, first + count))
            widths.append((before, n - before - count))
        return self.pad(x[(..., *inside)], [(0, 0)] * (len(x.shape) - len(shape)) + widths)

    @abstractmethod
    def concat(self, arrays: Sequence[Array], axis: int | None = 0) -> Array:
        """Concatenate arrays along an axis, or flat ones."""

    def add_box(self, x: Array, lo: Sequence[int], part: Array) -> Array:
        """`x` with `part`, which has as many axes, added to the box of its shape that begins at `lo`."""
        widths = [(first, int(n) - first - int(k)) for first, n, k in zip(lo, x.shape, part.shape, strict=True)]
        cut = [axis for axis, width in enumerate(widths) if width != (0, 0)]
        if len(cut) != 1:
            return x + self.pad(part, widths)
        axis, (first, last) = cut[0], widths[cut[0]]  # one pass over x, and no zeros
        bounds = (0, first, int(x.shape[axis]) - last, int(x.shape[axis]))
        pieces = [x[(slice(None),) * axis + (slice(a, b),)] for a, b in pairwise(bounds)]
        kept = [piece for piece, width in ((pieces[0], first), (pieces[1] + part, 1), (pieces[2], last)) if width]
        return self.concat(kept, axis)

    @abstractmethod
    def permute_dims(self, x: Array, axes: Sequence[int]) -> Array:
        """`x` with its axes in another order: axis i of the result is axis `axes[i]` of `x`."""

    @abstractmethod
    def flip(self, x: Array, axis: int | Sequence[int] | None = None) -> Array:
        """`x` with the order along some axes, or all, reversed."""
