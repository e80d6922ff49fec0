"""Exchange plan: which values each device sends to which, in rounds without waiting or all at once.

By it ghost values are exchanged (`local_rows.py`), and vectors redistributed, from even blocks to padded ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends import Array

_FEW_ROUNDS = 8  # messages one after the other that are taken rather than one all-to-all
_PADDED = 1.5  # times what the rounds send, that an all-to-all may


@dataclass(frozen=True, eq=False)
class Exchange:
    """Messages between parts, each in possession of `size` values, after which part p has received `count` values.

    Attributes:
        parts: number of devices.
        size: values of each part before.
        count: values that each part receives; some are padding where others receive more.
        rounds: pairs (source, destination) and the length of their messages; a device sends to one and receives from
            one in a round. None: one all-to-all with messages of `count / parts` values.
        send: `(parts, count)` int32: which of its values each part sends, in the order of the messages.
    """

    parts: int
    size: int
    count: int
    rounds: tuple[tuple[tuple[tuple[int, int], ...], int], ...] | None
    send: np.ndarray

    def received(self, bk: Any, names: Sequence[str], send: Array, x: Array) -> Array:
        """`(batch, size)` -> `(batch, count)` on each device, inside `map_parts`; `send` is its row of `send`."""
        out = bk.take_in_bounds(x, send, 1)
        if self.rounds is None:
            return bk.all_to_all(out, names, 1, 1)
        return self._sent(bk, names, out, False)

    def returned(self, bk: Any, names: Sequence[str], send: Array, ghosts: Array) -> Array:
        """The transpose of `received`: `(batch, count)` -> `(batch, size)`; what is padding in `ghosts` must be 0."""
        if self.rounds is None:
            out = bk.all_to_all(ghosts, names, 1, 1)
        else:
            out = self._sent(bk, names, ghosts, True)
        return bk.sum_entries(out, send, self.size)

    def _sent(self, bk: Any, names: Sequence[str], out: Array, back: bool) -> Array:
        found, at = [], 0
        for pairs, length in self.rounds or ():
            way = [(target, source) for source, target in pairs] if back else pairs
            found.append(bk.permuted(out[:, at : at + length], names, way))
            at += length
        return found[0] if len(found) == 1 else bk.concat(found, 1)


def exchange_of(needs: Sequence[np.ndarray], size: int) -> tuple[Exchange, list[np.ndarray]]:
    """The plan by which each part gets what it needs of others, and where that then is.

    Args:
        needs: for each part the numbers of values of other parts, rising; value j of part q is `q * size + j`.

    Returns:
        The exchange; and for each part the places of its needs among what it receives.

    Source of the rounds: a greedy edge colouring of the graph of neighbouring parts, longest messages first.
    """
    parts = len(needs)
    owners = [need // size for need in needs]
    bounds = [np.searchsorted(owner, np.arange(parts + 1)) for owner in owners]
    lengths = np.array([np.diff(bound) for bound in bounds]).reshape(parts, parts)  # [target, source]
    rounds = _coloured(lengths)
    total = sum(length for _, length in rounds)
    longest = int(lengths.max(initial=0))
    if len(rounds) > _FEW_ROUNDS and parts * longest <= _PADDED * total:
        starts = {(q, p): (p * longest, q * longest) for p in range(parts) for q in range(parts)}
        kept, count = None, parts * longest
    else:
        starts, at = {}, 0
        for pairs, length in rounds:
            starts.update(dict.fromkeys(pairs, (at, at)))
            at += length
        kept, count = tuple(rounds), total
    send = np.zeros((parts, count), np.int32)
    places = []
    for p, (need, bound) in enumerate(zip(needs, bounds, strict=True)):
        place = np.zeros(len(need), np.int32)
        for q in np.flatnonzero(np.diff(bound)).tolist():
            lo, hi = bound[q], bound[q + 1]
            there, here = starts[q, p]
            send[q, there : there + hi - lo] = need[lo:hi] - q * size
            place[lo:hi] = here + np.arange(hi - lo)
        places.append(place)
    return Exchange(parts, size, count, kept, send), places


def _coloured(lengths: np.ndarray) -> list[tuple[tuple[tuple[int, int], ...], int]]:
    """Rounds of (source, destination) pairs, with the longest message of each."""
    targets, sources = np.nonzero(lengths)
    order = np.argsort(-lengths[targets, sources], kind="stable")
    rounds: list[list[tuple[int, int]]] = []
    sending: list[set[int]] = []
    receiving: list[set[int]] = []
    for q, p in zip(sources[order].tolist(), targets[order].tolist(), strict=True):
        free = (k for k in range(len(rounds)) if q not in sending[k] and p not in receiving[k])
        k = next(free, len(rounds))
        if k == len(rounds):
            rounds.append([])
            sending.append(set())
            receiving.append(set())
        rounds[k].append((q, p))
        sending[k].add(q)
        receiving[k].add(p)
    return [(tuple(pairs), int(max(lengths[p, q] for q, p in pairs))) for pairs in rounds]


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
