"""Subdomains and clusters within the parts of a row-cut matrix, and where their entries are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ....sparse.partition.local_rows import LocalRows
from ..schwarz.aggregates import subdomains_and_clusters


@dataclass(frozen=True, eq=False)
class Subdomains:
    """Tables by parts; unknowns of padding are in none of them.

    Attributes:
        places: `(parts, s, k)` int32: unknowns of each subdomain, the number of rows of a part for none.
        back: `(parts, size)` where each unknown is among the places of its part, `s k` for padding.
        blocks: `(parts, s, k, k)` slots of the entries of their matrices among the values of a part, own and rest one
            after the other, then 0 and 1.
        clusters: `(parts, size)` cluster of each unknown, `count` for padding.
        count: clusters of a part, with padding.
        sums: `(parts, values)` to which entry of the coarse matrix `(count, parts count)`, row by row, each value of a
            part adds, own, rest and away; one more for padding.
        subdomains, in_all: how many subdomains and clusters there are, without padding.
    """

    places: np.ndarray
    back: np.ndarray
    blocks: np.ndarray
    clusters: np.ndarray
    count: int
    sums: np.ndarray
    subdomains: int
    in_all: int


@lru_cache(maxsize=8)
def subdomains_of(layout: LocalRows, size: int, most: int) -> Subdomains:
    """Subdomains of at most `size` unknowns, and at most `most` clusters in all."""
    parts, m = layout.parts, layout.size
    rows, cols, slots = layout.coordinates()
    real = layout.unknowns >= 0
    inside = np.full((parts, m), -1)
    clusters = np.full((parts, m), -1)
    within = rows // m == cols // m
    for p in range(parts):
        here = within & (rows // m == p)
        unknown = np.flatnonzero(real[p])
        local = np.full(m, -1)
        local[unknown] = np.arange(len(unknown))
        i, j = local[rows[here] % m], local[cols[here] % m]
        both = (i >= 0) & (j >= 0)
        found = subdomains_and_clusters(len(unknown), i[both], j[both], size, max(most // parts, 1))
        inside[p, unknown], clusters[p, unknown] = found
    places, back = _members(inside, m)
    count = int(clusters.max(initial=-1)) + 1
    labels = np.where(clusters < 0, count, clusters)
    s, k = places.shape[1:]
    lengths = [piece.sources[0].size for piece in (layout.own, layout.rest, layout.away)]
    slot = _local_slots(slots, lengths, parts)
    blocks = np.full((parts, s, k, k), lengths[0] + lengths[1], np.int32)
    blocks[:, :, np.arange(k), np.arange(k)] += (places == m).astype(np.int32)
    part, column = rows // m, cols // m
    of_row, of_col = inside.reshape(-1)[rows], inside.reshape(-1)[cols]
    same = (part == column) & (of_row == of_col) & (of_row >= 0)
    at = back.reshape(-1)
    blocks[part[same], of_row[same], at[rows[same]] % k, at[cols[same]] % k] = slot[same]
    sums = np.full((parts, sum(lengths)), count * parts * count, np.int32)
    row, col = labels.reshape(-1)[rows], labels.reshape(-1)[cols]
    kept = (row < count) & (col < count)
    sums[part[kept], slot[kept]] = (row * parts * count + column * count + col)[kept]
    numbers = (int(found.max(axis=1, initial=-1).sum()) + parts for found in (inside, clusters))
    return Subdomains(places, back, blocks, labels.astype(np.int32), count, sums, *numbers)


def _members(labels: np.ndarray, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Unknowns of each label, padded, and where each unknown is among them."""
    parts = len(labels)
    order = np.argsort(labels, axis=1, kind="stable")
    ordered = np.take_along_axis(labels, order, 1)
    s = int(labels.max(initial=0)) + 1
    rank = np.arange(m) - np.stack([np.searchsorted(row, row) for row in ordered])
    k = int(rank[ordered >= 0].max(initial=0)) + 1
    places, back = np.full((parts, s, k), m, np.int32), np.full((parts, m), s * k, np.int32)
    p, at = np.nonzero(ordered >= 0)
    subdomain, place, unknown = ordered[p, at], rank[p, at], order[p, at]
    places[p, subdomain, place] = unknown
    back[p, unknown] = subdomain * k + place
    return places, back


def _local_slots(slots: np.ndarray, lengths: list[int], parts: int) -> np.ndarray:
    """Slots among the values of one part, of slots among the arrays of all parts, one array after the other."""
    starts = np.cumsum([0, *(length * parts for length in lengths)])
    kind = np.searchsorted(starts, slots, side="right") - 1
    kind = np.minimum(kind, len(lengths) - 1)
    length = np.maximum(np.array(lengths)[kind], 1)
    before = np.cumsum([0, *lengths])[:-1]
    return ((slots - starts[kind]) % length + before[kind]).astype(np.int32)
