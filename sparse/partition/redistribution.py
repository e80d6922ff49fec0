"""Static redistribution of a vector over devices: from even blocks of one order to padded blocks of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends import Array
from .exchange import Exchange, exchange_of


@dataclass(frozen=True, eq=False)
class Redistribution:
    """Each device gets the values that it will own; what is padding becomes 0.

    Attributes:
        exchange: messages between the parts.
        places: `(parts, new size)` int32: place of each new value in what a part had, received, and one zero.
    """

    exchange: Exchange
    places: np.ndarray

    @property
    def tables(self) -> tuple[np.ndarray, np.ndarray]:
        """What each device needs of the plan, by rows."""
        return self.exchange.send, self.places

    def local(self, bk: Any, names: Sequence[str], send: Array, places: Array, x: Array) -> Array:
        """`(batch, size)` -> `(batch, new size)` on each device, inside `map_parts`."""
        pieces = [x, bk.zeros((int(x.shape[0]), 1), bk.dtype(x), x)]
        if self.exchange.count:
            pieces.insert(1, self.exchange.received(bk, names, send, x))
        return bk.take_in_bounds(bk.concat(pieces, 1), places, 1)


def redistribution(sources: np.ndarray, size: int) -> Redistribution:
    """The plan by which part p gets the values `sources[p]`; -1 stands for padding.

    Args:
        sources: `(parts, new size)`: value j of part q is `q * size + j`.
    """
    parts = len(sources)
    own = sources // max(size, 1) == np.arange(parts)[:, None]
    needs = [np.unique(row[(row >= 0) & ~mine]) for row, mine in zip(sources, own, strict=True)]
    exchange, where = exchange_of(needs, size)
    places = np.full(sources.shape, size + exchange.count, np.int32)
    for p, (row, mine) in enumerate(zip(sources, own, strict=True)):
        here, there = (row >= 0) & mine, (row >= 0) & ~mine
        places[p, here] = row[here] - p * size
        places[p, there] = size + where[p][np.searchsorted(needs[p], row[there])]
    return Redistribution(exchange, places)
