"""Sparse matrices from evaluations: by impulses on a grid, by colours, or by peeling of random groups of columns."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..errors import UnsupportedOperation
from .messages import is_linear_operator

MOST_EVALUATIONS = 10_000
_COLUMNS = 32  # that are multiplied at once


class Probe:
    """`x -> f(x) - f(0)` on flat vectors.

    Attributes:
        n, m: number of unknowns, and of the elements of `f(x)`.
        dtype: of the vectors that f gets.
        bias: f(0).
        count: evaluations so far.
    """

    def __init__(
        self, function: Callable[[np.ndarray], np.ndarray], n: int, dtype: np.dtype, matmat: Any = None
    ) -> None:
        self._function, self._matmat = function, matmat
        self.n, self.dtype, self.count = n, dtype, 0
        self.bias = self.evaluate(np.zeros(n, dtype))
        self.m = self.bias.size
        self._affine = bool(self.bias.any())

    @property
    def eps(self) -> float:
        """The coarsest rounding unit of input and output."""
        return float(max(np.finfo(self.dtype).eps, np.finfo(self.bias.dtype).eps))

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        """f(x) as a flat array of its own."""
        self._spend(1)
        return self._checked(self._function(x))

    def images(self, columns: np.ndarray) -> np.ndarray:
        """The linear part of f for each row of an array `(count, n)`."""
        if self._matmat is None:
            found = np.stack([self.evaluate(np.array(x)) for x in columns])
        else:
            self._spend(len(columns))
            parts = [columns[k : k + _COLUMNS] for k in range(0, len(columns), _COLUMNS)]
            found = self._checked(np.concatenate([np.asarray(self._matmat(part.T.copy())).T for part in parts]))
        return found - self.bias if self._affine else found

    def image(self, x: np.ndarray) -> np.ndarray:
        """The linear part of f for one vector."""
        image = self.evaluate(x)
        return image - self.bias if self._affine else image

    def _spend(self, count: int) -> None:
        self.count += count
        if self.count > MOST_EVALUATIONS:
            raise UnsupportedOperation(
                f"After {MOST_EVALUATIONS} evaluations of the function its matrix was not found: it couples too many "
                "unknowns. Solve with the function itself, or write it with NumPy's functions, which are followed."
            )

    def _checked(self, image: np.ndarray) -> np.ndarray:
        if not np.isfinite(image).all():
            raise UnsupportedOperation(
                "The function returned infinity or NaN for a finite vector, so its matrix cannot be found by "
                "evaluations. Give a function that is finite everywhere."
            )
        return image


def matmat_of(f: Any) -> Any:
    """The product of a `LinearOperator` with many columns, where it has one of its own; else None."""
    if not is_linear_operator(f):
        return None
    own = getattr(type(f), "_matmat", None)  # SciPy's default joins results that may all be the same memory
    return f.matmat if hasattr(f, "A") or not str(getattr(own, "__module__", "scipy")).startswith("scipy") else None


class Triplets(NamedTuple):
    """Entries of a matrix."""

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray


# --- colouring --------------------------------------------------------------------------------------------------------

_LARGEST = 400  # modulus of a lattice


def coloured(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """A colour for each column of a pattern, so that columns of one colour have no row in common.

    >>> coloured(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2]), (3, 3))
    array([0, 1, 0])
    """
    pattern = sp.csr_array((np.ones(len(rows), np.int32), (rows, columns)), shape=shape)
    graph = sp.csr_array(pattern.T @ pattern)
    starts, neighbours = graph.indptr.tolist(), graph.indices
    colours = np.full(shape[1], -1)
    for node in np.argsort(-np.diff(graph.indptr), kind="stable").tolist():
        used = set(colours[neighbours[starts[node] : starts[node + 1]]].tolist())
        colour = 0
        while colour in used:
            colour += 1
        colours[node] = colour
    return colours


def lattice(offsets: Sequence[tuple[int, ...]], ndim: int) -> tuple[int, tuple[int, ...]] | None:
    """A modulus and weights: the offsets from a point all have different `weights . offset % modulus`.

    >>> lattice([(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)], 2)
    (5, (1, 2))
    """
    found = np.array(offsets)
    for modulus in range(len(offsets), _LARGEST):
        if modulus**ndim > 10**6:
            return None
        choices = np.array(list(itertools.product(range(modulus), repeat=ndim)))
        rest = np.sort(choices @ found.T % modulus, axis=1)
        good = np.flatnonzero((rest[:, 1:] != rest[:, :-1]).all(axis=1))
        if len(good):
            return modulus, tuple(int(w) for w in choices[good[0]])
    return None


# --- peeling ----------------------------------------------------------------------------------------------------------
# The columns are divided at random into groups, several times. Each group is evaluated twice: with ones, and with a
# number that tells the column. Where a row meets one column only of a group, the quotient of the two says which, and
# the first one its entry; it is then taken off the row's other groups, where other entries become single. So a row with
# d entries needs about 2 d groups, however many columns there are. The pattern that this gives is only a proposal: the
# entries are evaluated anew, by colours, and everything is tested afterwards.
#
# Source: Li, Pawar, Ramchandran, Sub-linear time compressed sensing using sparse-graph codes, 2015 (the noiseless
# case).

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


# --- stencils ---------------------------------------------------------------------------------------------------------
# Single impulses, far from each other, show the offsets; then columns are coloured by a lattice. The guess is dropped
# where a nonzero is found that it does not explain.
# A 5-point stencil of 10^4 unknowns takes 13 evaluations so and 158 by peeling; one of 10^6 unknowns 13, and peeling
# finds nothing within its memory.

_DISTANCE = 12  # of impulses along each axis
_ROUNDS = 4
_MOST_OFFSETS = 200


def stencil_entries(probe: Probe, grid: tuple[int, ...], rng: np.random.Generator) -> Triplets | None:
    """The entries of a matrix on a grid; None where it is no stencil."""
    if probe.m != probe.n or not grid or min(grid) < 3:
        return None
    offsets, wraps = _offsets(probe, grid, rng)
    if not offsets or len(offsets) > _MOST_OFFSETS:
        return None
    found = lattice(offsets, len(grid))
    if found is None:
        return None
    modulus, weights = found
    index = np.indices(grid).reshape(len(grid), -1)
    colours = np.asarray(weights) @ index % modulus
    for axis in np.flatnonzero(wraps):  # columns beside the seam of a periodic axis have colours of their own
        reach = max(abs(o[axis]) for o in offsets)
        colours = 2 * colours + (index[axis] < 2 * reach)
    names, colours = np.unique(colours, return_inverse=True)
    if probe.n < len(names) or not _is_proper(colours, offsets, wraps, grid):
        return None
    return _stencil_values(probe, grid, offsets, wraps, colours, len(names))


def _offsets(probe: Probe, grid: tuple[int, ...], rng: np.random.Generator) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """Offsets from row to column, and along which axes they go over the edge."""
    counts = [max(1, n // _DISTANCE) for n in grid]
    found: set[tuple[int, ...]] = set()
    wraps = np.zeros(len(grid), bool)
    for turn in range(_ROUNDS):
        places = []
        for n, count in zip(grid, counts):
            gap = n // count
            first = 0 if turn == 0 else n - 1 - (count - 1) * gap if turn == 1 else int(rng.integers(gap))
            places.append(first + np.arange(count) * gap)
        x = np.zeros(grid, probe.dtype)
        x[np.ix_(*places)] = rng.uniform(0.5, 1.5, counts)
        rows = np.unravel_index(np.flatnonzero(probe.image(x.reshape(-1))), grid)
        parts = []
        for axis, (n, row, place) in enumerate(zip(grid, rows, places)):
            last = len(place) - 1
            before = (row - place[0]) // (n // len(place))  # the impulses on both sides, and those at the ends
            near = np.stack([0 * before, before, before + 1, 0 * before + last], axis=1).clip(0, last)
            distance = (place[near] - row[:, None] + n // 2) % n - n // 2
            offset = distance[np.arange(len(row)), np.abs(distance).argmin(axis=1)]
            wraps[axis] |= bool(((row + offset < 0) | (row + offset >= n)).any())
            parts.append(offset)
        found |= {tuple(int(i) for i in o) for o in np.unique(np.stack(parts, axis=1), axis=0)}
        if len(found) > _MOST_OFFSETS:
            break
    return sorted(found), wraps


def _rows(
    columns: np.ndarray, offset: tuple[int, ...], wraps: np.ndarray, grid: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Rows that have these columns at an offset, and which of the columns there is one for."""
    index = [i - o for i, o in zip(np.unravel_index(columns, grid), offset)]
    inside = np.ones(len(columns), bool)
    for axis, n in enumerate(grid):
        if wraps[axis]:
            index[axis] = index[axis] % n
        else:
            inside &= (index[axis] >= 0) & (index[axis] < n)
    rows = np.ravel_multi_index(tuple(i[inside] for i in index), grid)
    return rows, inside


def _is_proper(colours: np.ndarray, offsets: list[tuple[int, ...]], wraps: np.ndarray, grid: tuple[int, ...]) -> bool:
    """Does no row meet a colour twice? Without periodic axes the lattice says so."""
    if not wraps.any():
        return True
    met = np.full((len(offsets), len(colours)), -1)
    columns = np.arange(len(colours))
    for k, offset in enumerate(offsets):
        rows, inside = _rows(columns, offset, wraps, grid)
        met[k, rows] = colours[inside]
    return not any(((a == b) & (a >= 0)).any() for a, b in itertools.combinations(met, 2))


def _stencil_values(
    probe: Probe,
    grid: tuple[int, ...],
    offsets: list[tuple[int, ...]],
    wraps: np.ndarray,
    colours: np.ndarray,
    count: int,
) -> Triplets | None:
    """One evaluation for each colour; None where a row is not zero that should be."""
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for colour in range(count):
        chosen = colours == colour
        image = probe.image(chosen.astype(probe.dtype))
        columns = np.flatnonzero(chosen)
        explained = np.zeros(probe.m, bool)
        for offset in offsets:
            rows, inside = _rows(columns, offset, wraps, grid)
            explained[rows] = True
            own = image[rows]
            kept = np.flatnonzero(own)
            parts.append((rows[kept], columns[inside][kept], own[kept]))
        if image[~explained].any():
            return None
    return Triplets(*(np.concatenate(part) for part in zip(*parts)))
