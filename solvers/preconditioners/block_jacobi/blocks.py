"""Partition of the unknowns into blocks: given, of equal size, or from the pattern; and where their entries are."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..checks import check_integer

_LONGEST = 128  # largest block of rows with one pattern
_COMPONENTS = 6  # most unknowns at a node
_FILLED = 0.65  # required fill of node blocks; elasticity on a regular grid has 0.7
_SAMPLE = 8000  # rows


def labels_of(n: int, block_size: Any, blocks: Any, pattern: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """`(n,)`: block label of each unknown, 0, 1, ...

    Args:
        n: number of unknowns.
        block_size: so many that follow each other, the last block may be smaller; None.
        blocks: integers, one for each unknown, or "auto".
        pattern: rows and columns of the entries, in row order.

    Raises:
        ValueError: both are given, or nothing is found.
    """
    if block_size is not None:
        if not isinstance(blocks, str):
            raise ValueError("block_size and blocks were given; expected one of them.")
        return np.arange(n) // check_integer("block_size", block_size, 1)
    if isinstance(blocks, str):
        if blocks.strip().lower() != "auto":
            raise ValueError(f"blocks={blocks!r} was given; expected 'auto' or {n} integers, one for each unknown.")
        return _found(n, *pattern)
    return given_labels("blocks", blocks, n)


def given_labels(name: str, labels: Any, n: int) -> np.ndarray:
    """Labels of a user, renumbered to 0, 1, ...

    Raises:
        ValueError: they are no integers, or not one for each unknown.
    """
    found = np.asarray(labels)
    if found.dtype.kind not in "iu" or found.size != n:
        got = f"an array of {found.dtype} of shape {found.shape}"
        raise ValueError(f"{name} is {got}; expected {n} integers, one for each unknown.")
    return np.unique(found.reshape(-1), return_inverse=True)[1].reshape(-1)


def _found(n: int, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """Detect blocks: adjacent rows with one pattern, if these are at least half of all rows.

    Else blocks of k consecutive unknowns, if the pattern is (nearly) one of k x k blocks.

    Raises:
        ValueError: there is neither.
    """
    joined = same_as_next(n, rows, cols)
    starts = np.flatnonzero(np.concatenate([[True], ~joined])[:n])
    sizes = np.diff(np.append(starts, n))
    if n < 2 or 2 * sizes[sizes > 1].sum() >= n:
        return _cut(sizes)
    k = components_per_node(n, rows, cols)
    if k == 1 and sizes.max() == 1:
        raise ValueError(
            "No blocks were found: no two neighbouring rows have entries in the same columns. Give block_size=k for "
            "k unknowns at each node, blocks=labels for others, or use 'jacobi'."
        )
    return _cut(sizes) if k == 1 else np.arange(n) // k


def components_per_node(n: int, rows: np.ndarray, cols: np.ndarray) -> int:
    """The largest k up to 6 for which k x k blocks on the pattern of entries are filled to two thirds; else 1.

    Patterns of one unknown at each node fill about 1 / k. Cost: a sort of the entries of some thousand rows.
    """
    step = -(-n // _SAMPLE)
    for k in range(_COMPONENTS, 1, -1):
        if n % k or n < 2 * k:
            continue
        seen = (rows // k) % step == 0
        blocks = np.unique(rows[seen] // k * np.int64(n // k) + cols[seen] // k)
        if np.count_nonzero(seen) >= _FILLED * k * k * len(blocks) > 0:
            return k
    return 1


def same_as_next(n: int, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """`(n - 1,)`: has row i entries in the same columns as row i + 1, among them both diagonals?"""
    lengths = np.bincount(rows, minlength=n)
    differ = np.zeros(n, bool)
    here = np.flatnonzero(np.append(lengths[:-1] == lengths[1:], False)[rows])
    differ[rows[here[cols[here] != cols[here + lengths[rows[here]]]]]] = True
    diagonal, beside = np.zeros(n, bool), np.zeros(n, bool)
    diagonal[rows[rows == cols]] = True
    beside[rows[rows + 1 == cols]] = True
    return ((lengths[:-1] == lengths[1:]) & ~differ[:-1] & diagonal[:-1] & beside[:-1]).astype(bool)


def _cut(sizes: np.ndarray) -> np.ndarray:
    """Labels of blocks of these sizes; too long ones are split evenly."""
    parts = -(-sizes // _LONGEST)
    within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    part = within * np.repeat(parts, sizes) // np.repeat(sizes, sizes)
    return np.repeat(np.cumsum(parts) - parts, sizes) + part


class Stack(NamedTuple):
    """Dense blocks of about one size, stored consecutively in a flat array.

    Attributes:
        start: where the first number is.
        blocks, size: so many blocks of `(size, size)`, filled up where they are smaller.
    """

    start: int
    blocks: int
    size: int

    @property
    def stop(self) -> int:
        return self.start + self.blocks * self.size**2


class Places(NamedTuple):
    """Positions of the entries of a block diagonal matrix in stacks of dense blocks.

    Attributes:
        stacks: of blocks, by rising size.
        members: of each stack, `(count, size)`: the unknowns of each block, -1 where it is filled up.
        block: `(n,)`: where the first number of an unknown's block is.
        size: `(n,)`: of the block.
        place: `(n,)`: of the unknown in its block.
    """

    stacks: tuple[Stack, ...]
    members: tuple[np.ndarray, ...]
    block: np.ndarray
    size: np.ndarray
    place: np.ndarray

    def of(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Flat positions of entries within blocks."""
        return self.block[rows] + self.place[rows] * self.size[rows] + self.place[cols]


def places_of(labels: np.ndarray) -> Places:
    """Group blocks by size, rounded up to powers of two."""
    n, sizes = len(labels), np.bincount(labels)
    order = np.argsort(labels, kind="stable")
    starts = np.cumsum(sizes) - sizes
    place = np.empty(n, np.int64)
    place[order] = np.arange(n) - np.repeat(starts, sizes)
    classes = np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64)
    first, padded = np.zeros(len(sizes), np.int64), np.zeros(len(sizes), np.int64)
    stacks, members, total = [], [], 0
    for kind in np.unique(classes):
        chosen = np.flatnonzero(classes == kind)
        stack = Stack(total, len(chosen), int(sizes[chosen].max()))
        first[chosen] = total + np.arange(len(chosen)) * stack.size**2
        padded[chosen] = stack.size
        within = np.arange(stack.size)
        inside = within < sizes[chosen][:, None]
        members.append(np.where(inside, order[np.minimum(starts[chosen][:, None] + within, n - 1)], -1))
        stacks.append(stack)
        total = stack.stop
    return Places(tuple(stacks), tuple(members), first[labels], padded[labels], place)
