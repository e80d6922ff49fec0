"""Numeric part of extended+i interpolation on a known pattern: gathers, products and sums of segments."""

from __future__ import annotations

from .....backends import Array, Backend
from .....sparse.formats.entries.regather import take_or_zero
from .interpolation import LARGEST_SUM
from .plan import InterpolationPlaces


def interpolation_values(bk: Backend, places: InterpolationPlaces, a: Array) -> Array:
    """Entries of the prolongation in row order from those of A, `(nnz,)` or `(systems, nnz)`.

    The formulas are those of `interpolation`; of N only the kept entries are computed, as its sums of rows are
    `t = beta + F beta`. Strong couplings that have the sign of the diagonal by now count as weak ones.

    Cost: 12 gathers and 6 sums of segments.
    """
    last, fine = len(a.shape) - 1, len(places.fine)

    def take(x: Array, at: object) -> Array:
        return bk.take_in_bounds(x, at, last)

    units, sums = _units_and_sums(bk, places, a)
    own = take(units, places.fine)
    c = _opposite(bk, take(a, places.to_coarse) * take(own, places.to_coarse_rows))
    f = _opposite(bk, take(a, places.to_fine) * take(own, places.to_fine_rows))
    back = _opposite(bk, take_or_zero(bk, a, places.back) * take(own, places.to_fine_cols))
    beta = bk.sum_entries(_coupled(bk, c), places.to_coarse_rows, fine, sorted=True)
    beside = take(beta, places.to_fine_cols)
    below = beside + _coupled(bk, back)
    total = beta + bk.sum_entries(
        _quotient(bk, _coupled(bk, f), below) * beside, places.to_fine_rows, fine, sorted=True
    )
    F = _quotient(bk, f, bk.astype(below, bk.dtype(a)))
    N = bk.sum_entries(
        take(_with_one(bk, F), places.left) * take(c, places.right), places.into, len(places.rows), sorted=True
    )
    kept = bk.sum_entries(bk.abs(N), places.rows, fine, sorted=True)
    least = -total / LARGEST_SUM
    scale = _quotient(bk, _quotient(bk, total, kept), bk.maximum(take(sums, places.fine) - total, least))
    W = N * bk.astype(take(scale, places.rows), bk.dtype(a))
    return take(_with_one(bk, W), places.source)


def _units_and_sums(bk: Backend, places: InterpolationPlaces, a: Array) -> tuple[Array, Array]:
    """Unit numbers `(n,)` that turn the diagonal positive, and real sums of the rows that are rotated by them."""
    last = len(a.shape) - 1
    diagonal = places.A.diagonal(bk, (a,), None if last == 0 else int(a.shape[0]))
    size = bk.abs(diagonal)
    unit = bk.conj(diagonal) / bk.astype(bk.where(size > 0, size, 1), bk.dtype(a))
    unit = bk.where(bk.astype(size, bk.dtype(a)) != 0, unit, 1)
    rows = places.A.rows
    if places.counted is not None:
        a, rows = bk.take_in_bounds(a, places.counted, last), rows[places.counted]
    if bk.dtype(a).kind == "c":  # `_coupled`, and the diagonal
        sums = 2 * size - bk.sum_entries(bk.abs(a), rows, places.A.shape[0], sorted=True)
    else:
        sums = unit * bk.sum_entries(a, rows, places.A.shape[0], sorted=True)
    return unit, sums


def _coupled(bk: Backend, rotated: Array) -> Array:
    """Couplings as real numbers: `-|a|` of complex ones, see `splitting.couplings`."""
    return -bk.abs(rotated) if bk.dtype(rotated).kind == "c" else rotated


def _opposite(bk: Backend, rotated: Array) -> Array:
    """Real couplings that are not negative are 0."""
    return rotated if bk.dtype(rotated).kind == "c" else bk.where(rotated < 0, rotated, 0)


def _quotient(bk: Backend, a: Array, b: Array) -> Array:
    """`a / b`, 0 where b is 0."""
    some = b != 0
    return bk.where(some, a / bk.where(some, b, 1), 0)


def _with_one(bk: Backend, x: Array) -> Array:
    """`x` with a one at its end."""
    lead = tuple(int(n) for n in x.shape[:-1])
    return bk.concat([x, bk.full((*lead, 1), 1, bk.dtype(x), x)], len(lead))
