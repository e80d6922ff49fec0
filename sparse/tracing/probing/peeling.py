"""Any sparse matrix, whatever the order of its unknowns: random groups of columns, and peeling.

The columns are divided at random into groups, several times. Each group is evaluated twice: with ones, and with a
number that tells the column. Where a row meets one column only of a group, the quotient of the two says which, and the
first one its entry; it is then taken off the row's other groups, where other entries become single. So a row with d
entries needs about 2 d groups, however many columns there are. The pattern that this gives is only a proposal: the
entries are evaluated anew, by colours, and everything is tested afterwards.

Source: Li, Pawar, Ramchandran, Sub-linear time compressed sensing using sparse-graph codes, 2015 (the noiseless case).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .colouring import coloured
from .evaluate import Probe
from .stencil import Triplets

_TURNS = 3  # divisions into groups for each number of groups
_FIRST = 8  # groups
_ROUNDING = 64  # units, that taking off entries may leave
_CHANCE = 1e-7  # that a sum of several entries looks like one
_LONGEST = 100  # rounds of peeling
_MEMORY = 2**27  # numbers


class _Found(NamedTuple):
    """Entries, and the size of the numbers that they are differences of."""

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    sizes: np.ndarray

    @classmethod
    def joined(cls, parts: Sequence[_Found]) -> _Found:
        """All of them."""
        return cls(*(np.concatenate(part) for part in zip(*parts)))

    def chosen(self, which: np.ndarray) -> _Found:
        """Some of them."""
        return _Found(*(part[which] for part in self))


class _Division(NamedTuple):
    """Columns in groups, and what each row makes of them.

    Attributes:
        group: of each column.
        codes: `(digits, n)`: a number for each column.
        sums: `(1 + digits, groups, m)`, from which entries are taken off.
        taken: `(groups, m)`: the size of what was taken off.
    """

    group: np.ndarray
    codes: np.ndarray
    sums: np.ndarray
    taken: np.ndarray


class _Codes(NamedTuple):
    """Numbers in (1, 2) that tell columns: digits of their place in a random order."""

    order: np.ndarray  # column by place
    base: int
    codes: np.ndarray  # (digits, n)


def peeled_entries(probe: Probe, rng: np.random.Generator, most: int) -> Triplets | None:
    """The entries; None where `most` evaluations are too few.

    Cost: about 12 evaluations for each entry of the fullest row, and memory for as many vectors.
    """
    divisions: list[_Division] = []
    codes = _make_codes(probe, rng)
    known: list[_Found] = []
    groups = _FIRST
    while True:
        cost = _TURNS * groups * (1 + len(codes.codes))
        if probe.count + cost > most or sum(d.sums.size for d in divisions) + cost * probe.m > _MEMORY:
            return None
        for _ in range(_TURNS):
            divisions.append(_divide(probe, groups, codes, rng))
            for entries in known:
                _take_off(divisions[-1], entries, probe.eps)
        known += _peel(probe, divisions, codes)
        if not any(division.sums.any() for division in divisions):
            values = _values(probe, known)
            if values is not None:
                return values
        groups *= 2  # small entries beside large ones show up where they are alone


def _make_codes(probe: Probe, rng: np.random.Generator) -> _Codes:
    digits = 1
    while True:
        base = math.ceil(probe.n ** (1 / digits)) + 1
        if (2 * _ROUNDING * probe.eps * base) ** digits < _CHANCE or digits == 4:
            break
        digits += 1
    order = rng.permutation(probe.n)
    place = np.empty(probe.n, np.int64)
    place[order] = np.arange(probe.n)
    parts = [place // base**k % base for k in range(digits)]
    shifts = rng.uniform(0.25, 0.75, (digits, probe.n))  # else the mean of three codes is often another one
    codes = 1 + (np.stack(parts) + shifts) / base
    codes = codes.astype(np.zeros((), probe.dtype).real.dtype)
    return _Codes(order, base, codes)


def _divide(probe: Probe, groups: int, codes: _Codes, rng: np.random.Generator) -> _Division:
    group = rng.integers(0, groups, probe.n)
    weights = np.concatenate([np.ones((1, probe.n)), codes.codes])
    sums = np.empty((len(weights), groups, probe.m), probe.bias.dtype)
    for k in range(groups):
        sums[:, k] = probe.images(np.where(group == k, weights, 0).astype(probe.dtype))
    return _Division(group, codes.codes, sums, np.zeros((groups, probe.m), np.zeros((), sums.dtype).real.dtype))


def _peel(probe: Probe, divisions: list[_Division], codes: _Codes) -> list[_Found]:
    """Take single entries off until there are none."""
    found: list[_Found] = []
    for _ in range(_LONGEST):
        new = _Found.joined([_single(division, codes, probe) for division in divisions])
        if not len(new.rows):
            break
        new = new.chosen(np.argsort(new.sizes, kind="stable"))  # of the same entry the most accurate one
        new = new.chosen(np.unique(new.rows * probe.n + new.columns, return_index=True)[1])
        for division in divisions:
            _take_off(division, new, probe.eps)
        found.append(new)
    return found


def _single(division: _Division, codes: _Codes, probe: Probe) -> _Found:
    """Rows that meet one column of a group, with the column and the entry."""
    group, rows = np.nonzero(division.sums[0])
    values = division.sums[0][group, rows]
    sums = division.sums[1:, group, rows]
    with np.errstate(all="ignore"):
        quotients = sums / values
        digits = np.floor((np.real(quotients) - 1) * codes.base)
    good = ((digits >= 0) & (digits < codes.base)).all(axis=0)
    place = np.zeros(len(rows), np.int64)
    for k, digit in enumerate(digits):
        place += np.where(good, digit, 0).astype(np.int64) * codes.base**k
    good &= place < probe.n
    columns = codes.order[np.where(good, place, 0)]
    noise = _ROUNDING * probe.eps * (1 + division.taken[group, rows] / np.abs(values))
    near = np.abs(quotients - division.codes[:, columns]) <= noise
    good &= near.all(axis=0) & (noise < 0.25 / codes.base) & (division.group[columns] == group)
    sizes = np.abs(values) + division.taken[group, rows]
    return _Found(rows, columns, values, sizes).chosen(good)


def _take_off(division: _Division, entries: _Found, eps: float) -> None:
    """Subtract entries, and what rounding leaves of them."""
    rows, columns, values, sizes = entries
    group = division.group[columns]
    np.subtract.at(division.sums[0], (group, rows), values)
    for k, code in enumerate(division.codes):
        np.subtract.at(division.sums[1 + k], (group, rows), values * code[columns])
    np.add.at(division.taken, (group, rows), sizes)
    rest = division.sums[:, group, rows]
    small = (np.abs(rest) <= _ROUNDING * eps * division.taken[group, rows]).all(axis=0)
    division.sums[:, group[small], rows[small]] = 0


def _values(probe: Probe, found: list[_Found]) -> Triplets | None:
    """The entries at these places, one evaluation for each colour; None where a row is not zero that should be."""
    keys = np.unique(np.concatenate([np.zeros(0, np.int64), *(part.rows * probe.n + part.columns for part in found)]))
    rows, columns = keys // probe.n, keys % probe.n
    colours = coloured(rows, columns, (probe.m, probe.n))
    values = np.zeros(len(rows), probe.bias.dtype)
    own = colours[columns]
    for colour in range(int(colours.max(initial=-1)) + 1):
        image = probe.image((colours == colour).astype(probe.dtype))
        here = np.flatnonzero(own == colour)
        values[here] = image[rows[here]]
        image[rows[here]] = 0
        if image.any():
            return None
    kept = np.flatnonzero(values)
    return Triplets(rows[kept], columns[kept], values[kept])
