"""Galerkin product by probing: products with vectors of ones in every third point, of the whole grid if it is cut.

For compiled programs, where a loop over few vectors is an operation and the hundred products of `galerkin` are a
hundred: they take ten seconds to compile, and the loop half a second.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....backends import Array
from ....sparse import Operator
from ....sparse.operators.couplings import Couplings, Stacked, sum_of_terms
from ....sparse.operators.halo import are_cut, length_and_ring, own_part
from ...factors.planes import scanned
from .transfer import Interpolation
from .weights import without_rounding_residues


def probed_couplings(A: Operator, P: Interpolation, rounding: float = 0.0) -> Couplings:
    """Stencil coefficients of `P^T A P`, by probing; the diagonal is that of `without_rounding_residues`.

    Cost: a product with each for every colour, 3^d on most grids.
    """
    bk, grid, rows = P.bk, P.coarse, A.systems or 1
    colours = [colours_of(*length_and_ring(n, axis)) for n, axis in zip(grid, P.periodic)]
    counts = [int(each.max()) + 1 for each in colours]
    like = P.weights
    number = bk.zeros((1,) * len(grid), np.dtype(np.int32), like)
    for axis, each in enumerate(colours):
        whole = bk.asarray(_along(each, axis, len(grid)).astype(np.int32), like=like)
        number = number * counts[axis] + own_part(bk, whole, axis, grid[axis], P.periodic[axis])
    number = bk.reshape(number, (1, math.prod(grid)))
    R, zero = P.T, bk.zeros((rows, math.prod(grid)), P.dtype, like)

    def image(colour: Any, _: Array) -> Array:
        probe = bk.where(number == colour, zero + 1, zero)
        return R.apply(bk.materialize(A.apply(bk.materialize(P.apply(probe)))))

    images = scanned(bk, image, zero, math.prod(counts))
    return _told_apart(A, P, images, colours, counts, rounding)


def colours_of(n: int, ring: bool) -> np.ndarray:
    """Colours of n points along an axis: neighbours of the same point have different ones."""
    if not ring:
        return np.arange(n) % 3
    if n < 6:
        return np.arange(n)
    fours = n % 3  # rounds of four colours, all others of three
    return np.concatenate([np.tile(np.arange(4), fours), np.tile(np.arange(3), (n - 4 * fours) // 3)])


def _told_apart(
    A: Operator, P: Interpolation, images: Array, colours: Sequence[np.ndarray], counts: Sequence[int], rounding: float
) -> Couplings:
    """Read coefficients off the images: that of x + s is the image of its colour at x, which no other neighbour has."""
    bk, grid, axes = P.bk, P.coarse, len(P.coarse)
    found = bk.reshape(images, (int(images.shape[0]), *counts, *grid))
    steps = [(0,) if len(each) == 1 else (-1, 0, 1) for each in colours]
    for axis, (each, cut) in enumerate(zip(colours, P.periodic)):
        n, ring = length_and_ring(grid[axis], cut)
        there = np.arange(n) + np.array(steps[axis])[:, None]
        colour = np.where(ring | ((there >= 0) & (there < n)), each[there % n], -1)
        shape = [1] * len(found.shape)
        shape[1 + axis], shape[1 + axes + axis] = colour.shape
        own = own_part(bk, colour.reshape(shape).astype(np.int32), 1 + axes + axis, grid[axis], cut)
        terms = []
        for c in range(counts[axis]):
            image = found[(*(slice(None),) * (1 + axis), slice(c, c + 1))]
            has_it = bk.asarray(own == c, like=found)
            terms.append(bk.where(has_it, image, bk.zeros_like(image)))
        found = sum_of_terms(terms)
    shifts = [*itertools.product(*steps)]
    found = bk.reshape(found, (int(images.shape[0]), len(shifts), *grid))
    found = bk.permute_dims(found, (1, 0, *range(2, 2 + axes)))
    here = np.array([not any(s) for s in shifts]).reshape(-1, *(1,) * (1 + axes))
    after = replace(P, weights=bk.ordered_after(P.weights, images)) if are_cut(P.periodic) else P
    diagonal = without_rounding_residues(bk, found[len(shifts) // 2], after.by_place, P.periodic, rounding)
    found = bk.materialize(bk.where(bk.asarray(here, like=found), diagonal[None], found))
    return Couplings(bk, grid, P.periodic, Stacked(shifts, found), A.systems)


def _along(values: np.ndarray, axis: int, axes: int) -> np.ndarray:
    return values.reshape([-1 if k == axis else 1 for k in range(axes)])
