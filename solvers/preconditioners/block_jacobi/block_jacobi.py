"""The block Jacobi preconditioner: the inverse of the block diagonal."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....backends import Array, Backend
from ....sparse import Matrix
from ....sparse.formats.making.build import from_entries
from ....sparse.operators.concrete import nonzero_entries
from ..base import Preconditioner
from ..pipeline import of_operator
from ..target import Target
from .blocks import Places, Stack, labels_of, places_of
from .inverses import all_hermitian, inverses, regular_inverses

_MOST = 2**31


@of_operator()
def block_jacobi(own: Matrix, target: Target, *, block_size: int | None = None, blocks: Any = "auto") -> Preconditioner:
    """The inverses of blocks on the diagonal of A, for several unknowns at each node, or in each element.

    Where the values are known, null vectors of a singular block count as if their eigenvalue were its largest, and
    the preconditioner says so. Where they are not, such a block is replaced by its diagonal. Where a block has NaN, so
    has M.

    Args:
        A: a matrix, or a function that can be traced.
        block_size: so many unknowns that follow each other make a block; the last one may be smaller.
        blocks: a label for each unknown, those with the same one make a block; "auto": rows next to each other
            that have entries in the same columns, up to 128, as the components of vectors at a node and the unknowns
            of discontinuous elements have.

    Raises:
        ValueError: a setting, or no blocks are found.
        UnsupportedOperation: A does not show its entries.

    Stores as many numbers as the squares of the sizes of the blocks add up to, and costs as many multiplications.

    Source: Saad, Iterative Methods for Sparse Linear Systems, 2nd ed., section 12.2.
    """
    bk, rows, cols, values = nonzero_entries(own)
    labels = labels_of(own.shape[0], block_size, blocks, (rows, cols))
    places = places_of(labels)
    if sum(stack.blocks * stack.size**2 for stack in places.stacks) * (own.systems or 1) >= _MOST:
        raise ValueError(f"Blocks of up to {np.bincount(labels).max()} unknowns were asked for; expected smaller ones.")
    inside = np.flatnonzero(labels[rows] == labels[cols])
    numbers = _filled(bk, places, bk.take_in_bounds(values, inside, 1), places.of(rows[inside], cols[inside]))
    found = [_inverted(bk, stack, numbers[:, stack.start : stack.stop]) for stack in places.stacks]
    inverse = _as_matrix(own, target, places, [f[0] for f in found])
    singular = sum(f[1] for f in found)
    note = f"{singular} of {len(np.unique(labels))} blocks are singular" if singular else None
    sizes = np.bincount(labels)
    setting = f"{len(sizes)} of {sizes.min()}" + ("" if sizes.min() == sizes.max() else f" to {sizes.max()}")
    hermitian = _all([f[2] for f in found])
    cost = inverse.nnz
    return Preconditioner(inverse, "block-jacobi", hermitian, cost, cost, None, (("blocks", setting),), note)


def _filled(bk: Backend, places: Places, values: Array, at: np.ndarray) -> Array:
    """`(systems, numbers)`: entries of all blocks, padded with the identity."""
    total = places.stacks[-1].stop if places.stacks else 0
    padding = np.zeros(total)
    for stack, members in zip(places.stacks, places.members, strict=True):
        diagonal = np.arange(stack.size) * (stack.size + 1)
        first = stack.start + np.arange(stack.blocks)[:, None] * stack.size**2
        padding[(first + diagonal)[members < 0]] = 1
    numbers = bk.sum_entries(values, at, total)
    return numbers + bk.asarray(padding, bk.dtype(values), like=values)


def _inverted(bk: Backend, stack: Stack, numbers: Array) -> tuple[Array, int, bool | None]:
    """Inverses as flat rows, number of singular blocks, and whether all are Hermitian."""
    systems, size = int(numbers.shape[0]), stack.size
    blocks = bk.reshape(numbers, (systems * stack.blocks, size, size))
    found, singular = inverses(bk, blocks)
    if bk.on_host:
        count, hermitian = _mend(blocks, found, singular), all_hermitian(blocks)
    else:
        count, hermitian = 0, None
        diagonal = bk.diagonal(blocks)
        one = bk.full_like(diagonal, 1)
        alone = (one / bk.where(diagonal == 0, one, diagonal))[:, :, None]
        identity = bk.asarray(np.eye(size), bk.dtype(blocks), like=blocks)
        found = bk.where(singular, alone * identity, found)
    return bk.reshape(found, (systems, stack.blocks * size**2)), count, hermitian


def _mend(blocks: np.ndarray, found: np.ndarray, singular: np.ndarray) -> int:
    """Replace inverses of singular blocks by regular ones; returns their number."""
    wrong = np.flatnonzero(singular.reshape(-1) & np.isfinite(blocks).all(axis=(1, 2)))
    if len(wrong):
        found[wrong] = regular_inverses(blocks[wrong])
    return len(wrong)


def _all(facts: list[bool | None]) -> bool | None:
    """Three-valued `all`: False if one is False, else None if one is unknown."""
    return False if False in facts else None if None in facts else True


def _as_matrix(own: Matrix, target: Target, places: Places, inverses: list[Array]) -> Matrix:
    """The block diagonal matrix of the inverses."""
    bk = own.bk
    rows, cols, kept = [], [], []
    for stack, members in zip(places.stacks, places.members, strict=True):
        i, j = (
            np.broadcast_to(m, (stack.blocks, stack.size, stack.size)) for m in (members[:, :, None], members[:, None])
        )
        inside = (i >= 0) & (j >= 0)
        rows.append(i[inside])
        cols.append(j[inside])
        kept.append(stack.start + np.flatnonzero(inside.reshape(-1)))
    numbers = inverses[0] if len(inverses) == 1 else bk.concat(inverses, 1)
    values = bk.take_in_bounds(numbers, np.concatenate(kept), 1)
    return from_entries(
        target.bk, np.concatenate(rows), np.concatenate(cols), values if own.systems is not None else values[0],
        own.shape, like=target.like, sum_duplicates=False, prune=False,
        format="csr" if target.bk.has_compiled_rows else None,  # diagonals of blocks are half empty
    )  # fmt: skip
