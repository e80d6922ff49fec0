"""Plan of all-to-all exchanges that make each axis of a distributed grid whole in turn.

Transforms need whole lines. An exchange over some mesh axes makes the grid axes whole that are cut by these, and cuts
another one instead (the transpose of distributed Fourier transforms). For a slab that is the whole axis, for a pencil
one that was already transformed, or one that waits for its turn with shorter pieces. Each exchange sends a device's
part of a vector once for any number of axes, so a plan has few exchanges rather than small groups:

| axes that are cut | exchanges before the eigenvalues, and as many after |
|---|---|
| one of two or three | 1 |
| two of two, three of three | 2 |
| two of three | 1 among all devices, or 2 in smaller groups where there are very many or the third axis is short |

All pieces have the same size. If the parts do not divide a length, the last ones are padded with zeros, which are
removed before a line is transformed.

Source: Pekurovsky, P3DFFT, SIAM J. Sci. Comput. 34 (2012), for slabs and pencils.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

from ...backends import Array, Backend

_EXCHANGE, _MESSAGE = 4096, 64  # latency of an exchange and of a message, in numbers that could be sent meanwhile


class AxisCut(NamedTuple):
    """A cut of an axis, or of each of its pieces, into `parts` pieces along mesh axes."""

    names: tuple[str, ...]
    parts: int


Layout = tuple[tuple[AxisCut, ...], ...]
"""For each axis of the grid its cuts, the slowest first; none if it is whole."""


class AllToAll(NamedTuple):
    """One all-to-all exchange.

    Attributes:
        whole: axes of the grid that become whole.
        split: the axis that is cut instead.
        before: layout before the exchange.
    """

    whole: tuple[int, ...]
    split: int
    before: Layout

    @property
    def level(self) -> AxisCut:
        """The cut of `split`: along all mesh axes that cut the axes that become whole."""
        levels = [level for axis in self.whole for level in self.before[axis]]
        return AxisCut(tuple(name for level in levels for name in level.names), math.prod(k for _, k in levels))

    @property
    def after(self) -> Layout:
        return tuple(
            () if axis in self.whole else (*levels, self.level) if axis == self.split else levels
            for axis, levels in enumerate(self.before)
        )


def piece(n: int, levels: Sequence[AxisCut]) -> int:
    """Length of the pieces of an axis of n points, with padding."""
    for level in levels:
        n = -(-n // level.parts)
    return n


def whole_axes(layout: Layout) -> tuple[int, ...]:
    """Axes that are not cut."""
    return tuple(axis for axis, levels in enumerate(layout) if not levels)


@lru_cache(maxsize=64)
def exchanges(layout: Layout, grid: tuple[int, ...]) -> tuple[AllToAll, ...]:
    """Return the cheapest plan in which each axis is whole once, for a grid of at least two axes.

    Cost: a search over all orders of the axes.
    """
    waiting = frozenset(range(len(grid))) - set(whole_axes(layout))
    return _cheapest(layout, grid, waiting)[1]


def _cheapest(layout: Layout, grid: tuple[int, ...], waiting: frozenset[int]) -> tuple[float, tuple[AllToAll, ...]]:
    if not waiting:
        return 0, ()
    found: list[tuple[float, tuple[AllToAll, ...]]] = []
    for exchange in _next(layout, waiting):
        after = exchange.after
        cost, rest = _cheapest(after, grid, waiting - set(exchange.whole))
        found.append((cost + _cost(exchange, grid), (exchange, *rest)))
    return min(found, key=lambda one: one[0])


def _next(layout: Layout, waiting: frozenset[int]) -> Iterator[AllToAll]:
    for count in range(len(waiting), 0, -1):
        for whole in combinations(sorted(waiting), count):
            for split in reversed(range(len(layout))):
                if split not in whole:
                    yield AllToAll(whole, split, layout)


def _cost(exchange: AllToAll, grid: tuple[int, ...]) -> float:
    """Numbers that a device sends, with padding, plus the latency of the exchange in that unit."""
    parts = exchange.level.parts
    lengths = [piece(n, levels) for n, levels in zip(grid, exchange.before)]
    lengths[exchange.split] = parts * piece(lengths[exchange.split], (exchange.level,))
    return math.prod(lengths) * (1 - 1 / parts) + _EXCHANGE + _MESSAGE * (parts - 1)


def forward(bk: Backend, u: Array, exchange: AllToAll, grid: Sequence[int]) -> Array:
    """Exchange the blocks `(batch, *lengths)` of all devices."""
    split, level = exchange.split, exchange.level
    u = _in_pieces(bk, u, split + 1, level.parts)
    u = bk.permute_dims(u, _to_front(len(u.shape), (split + 1,)))
    u = bk.all_to_all(u, level.names, 0, 0)
    inner = {axis: [k.parts for k in exchange.before[axis]] for axis in exchange.whole}
    sizes = [k for parts in inner.values() for k in parts]
    u = bk.reshape(u, (*sizes, *u.shape[1:]))
    u = bk.permute_dims(u, _parts_before_pieces(len(grid), {axis: len(parts) for axis, parts in inner.items()}))
    for axis in exchange.whole:
        u = _joined(bk, u, axis + 1, grid[axis], exchange.before[axis])
    return u


def backward(bk: Backend, u: Array, exchange: AllToAll, grid: Sequence[int]) -> Array:
    """The inverse of `forward`."""
    split, level = exchange.split, exchange.level
    length = piece(grid[split], exchange.before[split])
    for axis in reversed(exchange.whole):
        for number, one in enumerate(exchange.before[axis]):
            u = _in_pieces(bk, u, axis + 1 + number, one.parts)
    counts = {axis: len(exchange.before[axis]) for axis in exchange.whole}
    order = _parts_before_pieces(len(grid), counts)
    u = bk.permute_dims(u, [order.index(k) for k in range(len(order))])
    u = bk.reshape(u, (level.parts, *u.shape[sum(counts.values()) :]))
    u = bk.all_to_all(u, level.names, 0, 0)
    order = _to_front(len(u.shape), (split + 1,))
    u = bk.permute_dims(u, [order.index(k) for k in range(len(order))])
    return _merged(bk, u, split + 1, length)


def _in_pieces(bk: Backend, u: Array, axis: int, parts: int) -> Array:
    """Pad an axis with zeros, and split it into two."""
    n = int(u.shape[axis])
    size = -(-n // parts)
    if size * parts > n:
        u = bk.pad(u, [(0, size * parts - n if k == axis else 0) for k in range(len(u.shape))])
    return bk.reshape(u, (*u.shape[:axis], parts, size, *u.shape[axis + 1 :]))


def _merged(bk: Backend, u: Array, axis: int, length: int) -> Array:
    """Inverse of `_in_pieces`."""
    u = bk.reshape(u, (*u.shape[:axis], -1, *u.shape[axis + 2 :]))
    return u if int(u.shape[axis]) == length else u[(slice(None),) * axis + (slice(length),)]


def _joined(bk: Backend, u: Array, axis: int, n: int, levels: Sequence[AxisCut]) -> Array:
    """Merge the pieces of an axis, innermost first."""
    lengths = [piece(n, levels[:count]) for count in range(len(levels))]
    for number in reversed(range(len(levels))):
        u = _merged(bk, u, axis + number, lengths[number])
    return u


def _to_front(rank: int, axes: Sequence[int]) -> list[int]:
    return [*axes, *(k for k in range(rank) if k not in axes)]


def _parts_before_pieces(rank: int, counts: dict[int, int]) -> list[int]:
    """Order of `(*parts, batch, *grid)` in which the parts of an axis precede its pieces."""
    first = sum(counts.values())
    order, taken = [first], 0
    for axis in range(rank):
        count = counts.get(axis, 0)
        order += [*range(taken, taken + count), first + 1 + axis]
        taken += count
    return order
