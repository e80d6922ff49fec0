"""Galerkin product `P^T A P` on grids, by shifts of whole arrays: neighbours couple to neighbours again."""

from __future__ import annotations

from dataclasses import replace

from ....backends import Array
from ....sparse.operators.couplings import (
    Couplings,
    Shift,
    accumulate,
    neighbours,
    opposite,
    shifted_array,
    sum_of_terms,
)
from .weights import Weights, coarse_grid, every, parities, without_rounding_residues


def coarse_couplings(
    A: Couplings, W: Weights, factors: tuple[int, ...], hermitian: bool, rounding: float = 0.0
) -> Couplings:
    """Galerkin product for the interpolation with real weights W; the diagonal is that of `without_rounding_residues`.

    Cost: in two dimensions 130 products of arrays of the coarse grid for a matrix of nine points and half of that for
    one of five, in three 1100 for one of 27; of a Hermitian matrix half of the second part is mirrored.
    """
    bk, grid = A.bk, coarse_grid(A.grid, factors)
    images = {p: _images(A, W, p, factors) for p in parities(factors)}
    found: dict[Shift, Array] = {}
    for S in couplings_of_coarse(grid):
        if hermitian and A.here > S:
            continue
        parts: dict[Shift, Array] = {}
        for p, own in W.items():
            for c, w in own.items():
                image = images[p].get(tuple(a + b for a, b in zip(S, c)))
                if image is not None:
                    accumulate(parts, c, w * image)
        terms = [shifted_array(bk, each, opposite(c), A.periodic) for c, each in parts.items()]
        found[S] = bk.materialize(sum_of_terms(terms)) if terms else bk.zeros_like(W[A.here][A.here])
    if hermitian:
        for S in [S for S in found if A.here != S]:
            found[opposite(S)] = bk.conj(shifted_array(bk, found[S], opposite(S), A.periodic))
    found[A.here] = bk.materialize(without_rounding_residues(bk, found[A.here], W, A.periodic, rounding))
    return replace(A, grid=grid, values=found)


def couplings_of_coarse(grid: tuple[int, ...]) -> tuple[Shift, ...]:
    """Offsets on a coarse grid, whatever those of the finer one are."""
    return tuple(s for s in neighbours(len(grid)) if all(n > 1 or not k for n, k in zip(grid, s)))


def _images(A: Couplings, W: Weights, p: Shift, factors: tuple[int, ...]) -> dict[Shift, Array]:
    """Row `factor X + p` of A P: its coefficients of the coarse points X + k, by k."""
    sums: dict[Shift, Array] = {}
    for s, a in A.values.items():
        rows = every(A.bk, a, p, factors)
        parity = tuple((x + y) % f for x, y, f in zip(p, s, factors))
        origin = tuple((x + y) // f for x, y, f in zip(p, s, factors))
        for c, w in W[parity].items():
            at = tuple(x + y for x, y in zip(origin, c))
            accumulate(sums, at, rows * shifted_array(A.bk, w, origin, A.periodic))
    return {at: A.bk.materialize(image) for at, image in sums.items()}
