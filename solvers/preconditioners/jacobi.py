"""Jacobi and block Jacobi: the inverse of the diagonal, or of blocks on it.

Block Jacobi partitions the unknowns into blocks, gathers their entries in stacks of dense blocks, inverts these in
batches and returns a block diagonal matrix.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend, Cut, get_backend
from ...sparse import FunctionOperator, Matrix, Operator
from ...sparse.analysis.symmetry import REFUSED
from ...sparse.formats.making.build import from_entries
from ...sparse.operators.concrete import nonzero_entries
from ...sparse.operators.cut_grids import CutStencil, cut_stencil
from ..diagonal import DiagonalOperator
from .checks import check_integer
from .operators import Preconditioner, Spread
from .pipeline import Target, of_operator

_MOST = 2**31  # entries of all blocks, whose positions are 32-bit integers
_LONGEST = 128  # unknowns of a block of rows with the same pattern, at most
_COMPONENTS = 6  # most unknowns at a node
_FILLED = 0.65  # required fill of node blocks; elasticity on a regular grid has 0.7
_SAMPLE = 8000  # rows
_SINGULAR = 0.1  # over the rounding unit: the condition number from which an inverse is only rounding
_SWEEPS = 5  # of scaling, each of which halves the error in digits
_HERMITIAN = 100  # times the rounding unit: admissible asymmetry of a Hermitian matrix


@of_operator(needs_entries=False, eagerly_on_host=False)
def jacobi(own: Operator, _: Any) -> Preconditioner:
    """Inverse of the diagonal of A, with 1 for zeros. Stores n numbers, and costs one pass over the vector.

    The diagonal must be available: that of a matrix, or of a function small enough to be evaluated column by column. A
    NaN on it is a NaN in M.

    Source: Saad, Iterative Methods for Sparse Linear Systems, 2nd ed., section 10.2.
    """
    values = reciprocal(own.bk, own.diagonals())
    hermitian = True if own.dtype.kind != "c" else None  # a complex diagonal may be real, or traced
    count = int(np.prod(tuple(values.shape)))
    inner = DiagonalOperator(own.bk, values, own.systems is not None)
    return Preconditioner(inner, "jacobi", hermitian, memory=count, work=own.shape[0])


def jacobi_on_blocks(A: Operator, *, spread: Spread) -> Preconditioner | None:
    """`jacobi` of a function traced in a program, with the diagonal spread over devices; None if it is no stencil."""
    own, bk = A.without_offset, A.bk
    grid, alone = own.own_grid, Cut(spread.cut.mesh, spread.cut.names)
    if not isinstance(own, FunctionOperator) or own.systems is not None or grid != spread.shape or not alone.all_names:
        return None
    zero = bk.zeros((1, own.shape[0]), own.dtype, own.like)
    if not bk.compiled(*own.args) and not bk.compiled(zero):
        return None
    stencil = cut_stencil(own, alone, bk.on_grid(zero, grid, alone))
    if not isinstance(stencil, CutStencil):
        return None
    (diagonal,) = stencil.own_diagonal().values
    inner = replace(stencil, values=(reciprocal(bk, bk.constant(diagonal)),), shifts=((0,) * len(grid),))
    hermitian = True if own.dtype.kind != "c" else None
    return Preconditioner(inner, "jacobi", hermitian, memory=own.shape[0], work=own.shape[0])


def reciprocal(bk: Backend, diagonal: Array) -> Array:
    """1 / diagonal, with 1 for zeros."""
    one = bk.full_like(diagonal, 1)
    return one / bk.where(diagonal == 0, one, diagonal)


@of_operator()
def block_jacobi(own: Matrix, target: Target, *, block_size: int | None = None, blocks: Any = "auto") -> Preconditioner:
    """Inverses of blocks on the diagonal of A, for several unknowns at each node or in each element.

    If the values are known, null vectors of a singular block count as if their eigenvalue were its largest, and `note`
    reports it. Otherwise a singular block is replaced by its diagonal. A NaN in a block is a NaN in M.

    Args:
        A: a matrix, or a function that can be traced.
        block_size: number of consecutive unknowns in a block; the last block may be smaller.
        blocks: a label for each unknown, where equal labels form a block; "auto": up to 128 adjacent rows with entries
            in the same columns, such as the components of vectors at a node or the unknowns of a discontinuous
            element.

    Raises:
        ValueError: a setting is invalid, or no blocks are found.
        UnsupportedOperation: the entries of A are not available.

    Stores as many numbers as the sum of the squares of the block sizes, and costs as many multiplications.

    Source: Saad, Iterative Methods for Sparse Linear Systems, 2nd ed., section 12.2.
    """
    bk, rows, cols, values = nonzero_entries(own)
    labels = _labels(own.shape[0], block_size, blocks, rows, cols)
    sizes = np.bincount(labels)
    stacks = Stacks.of(labels)
    if stacks.starts[-1] * (own.systems or 1) >= _MOST:
        raise ValueError(f"Blocks of up to {sizes.max()} unknowns were requested; expected smaller ones.")
    inside = np.flatnonzero(labels[rows] == labels[cols])
    numbers = bk.sum_entries(
        bk.take_in_bounds(values, inside, 1), stacks.positions(rows[inside], cols[inside]), stacks.starts[-1]
    )
    numbers = numbers + bk.asarray(stacks.padding(), bk.dtype(values), like=values)
    results = [
        _inverted(bk, numbers[:, start:stop], *members.shape)
        for start, stop, members in zip(stacks.starts, stacks.starts[1:], stacks.members, strict=False)
    ]
    M = _block_diagonal(own, target, stacks, [inverse for inverse, _, _ in results])
    singular = sum(count for _, count, _ in results)
    facts = [hermitian for _, _, hermitian in results]
    setting = f"{len(sizes)} of {sizes.min()}" + ("" if sizes.min() == sizes.max() else f" to {sizes.max()}")
    return Preconditioner(
        M, "block-jacobi", False if False in facts else None if None in facts else True, M.nnz, M.nnz,
        settings=(("blocks", setting),), note=f"{singular} of {len(sizes)} blocks are singular" if singular else None,
    )  # fmt: skip


def _inverted(bk: Backend, numbers: Array, count: int, size: int) -> tuple[Array, int, bool | None]:
    """Inverses of a stack of blocks as flat rows, number of singular blocks, and whether all are Hermitian."""
    systems = int(numbers.shape[0])
    blocks = bk.reshape(numbers, (systems * count, size, size))
    inverse, singular = inverses(bk, blocks)
    wrong, hermitian = 0, None
    if bk.on_host:
        wrong, hermitian = replace_singular(blocks, inverse, singular), all_hermitian(blocks)
    else:
        inverse = bk.where(singular, inverse_diagonals(bk, blocks), inverse)
    return bk.reshape(inverse, (systems, count * size**2)), wrong, hermitian


def _block_diagonal(own: Matrix, target: Target, stacks: Stacks, inverse: list[Array]) -> Matrix:
    """Block diagonal matrix of the inverses, without padding."""
    rows, cols, kept = [], [], []
    for start, members in zip(stacks.starts, stacks.members, strict=False):
        shape = (*members.shape, members.shape[1])
        i, j = (np.broadcast_to(m, shape) for m in (members[:, :, None], members[:, None]))
        inside = (i >= 0) & (j >= 0)
        rows.append(i[inside])
        cols.append(j[inside])
        kept.append(start + np.flatnonzero(inside.reshape(-1)))
    numbers = inverse[0] if len(inverse) == 1 else own.bk.concat(inverse, 1)
    values = own.bk.take_in_bounds(numbers, np.concatenate(kept), 1)
    return from_entries(
        target.bk, np.concatenate(rows), np.concatenate(cols), values if own.systems is not None else values[0],
        own.shape, like=target.like, sum_duplicates=False, prune=False,
        format="csr" if target.bk.has_compiled_rows else None,  # diagonals of blocks are half empty
    )  # fmt: skip


# --- partition ---


def _labels(n: int, block_size: Any, blocks: Any, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """`(n,)`: block of each unknown, 0, 1, ...

    Blocks found in the pattern are adjacent rows with the same columns, if these are at least half of all rows; else k
    consecutive unknowns, if the pattern consists (nearly) of k x k blocks.
    """
    if block_size is not None:
        if not isinstance(blocks, str):
            raise ValueError("block_size and blocks were given; expected one of them.")
        return np.arange(n) // check_integer("block_size", block_size, 1)
    if not isinstance(blocks, str):
        return given_labels("blocks", blocks, n)
    if blocks.strip().lower() != "auto":
        raise ValueError(f"blocks={blocks!r} was given; expected 'auto' or {n} integers, one for each unknown.")
    starts = np.flatnonzero(np.concatenate([[True], ~same_as_next(n, rows, cols)])[:n])
    sizes = np.diff(np.append(starts, n))
    k = 1 if n < 2 or 2 * sizes[sizes > 1].sum() >= n else components_per_node(n, rows, cols)
    if k > 1:
        return np.arange(n) // k
    if n >= 2 and sizes.max() == 1:
        raise ValueError(
            "No blocks were found: no two neighbouring rows have entries in the same columns. Give block_size=k for "
            "k unknowns at each node, blocks=labels for others, or use 'jacobi'."
        )
    parts = -(-sizes // _LONGEST)  # long blocks are split evenly
    within = np.arange(n) - np.repeat(starts, sizes)
    part = within * np.repeat(parts, sizes) // np.repeat(sizes, sizes)
    return np.repeat(np.cumsum(parts) - parts, sizes) + part


def given_labels(name: str, labels: Any, n: int) -> np.ndarray:
    """Labels of a user, renumbered to 0, 1, ..."""
    array = np.asarray(labels)
    if array.dtype.kind not in "iu" or array.size != n:
        got = f"an array of {array.dtype} of shape {array.shape}"
        raise ValueError(f"{name} is {got}; expected {n} integers, one for each unknown.")
    return np.unique(array.reshape(-1), return_inverse=True)[1].reshape(-1)


def components_per_node(n: int, rows: np.ndarray, cols: np.ndarray) -> int:
    """Largest k up to 6 for which k x k blocks of the pattern are filled to two thirds; else 1.

    With one unknown at each node they are filled to about 1 / k. Cost: a sort of the entries of some thousand rows.
    """
    step = -(-n // _SAMPLE)
    for k in range(_COMPONENTS, 1, -1):
        if n % k or n < 2 * k:
            continue
        sampled = (rows // k) % step == 0
        blocks = np.unique(rows[sampled] // k * np.int64(n // k) + cols[sampled] // k)
        if np.count_nonzero(sampled) >= _FILLED * k * k * len(blocks) > 0:
            return k
    return 1


def same_as_next(n: int, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """`(n - 1,)`: do rows i and i + 1 have entries in the same columns, including both diagonal ones?"""
    lengths = np.bincount(rows, minlength=n)
    differ = np.zeros(n, bool)
    here = np.flatnonzero(np.append(lengths[:-1] == lengths[1:], False)[rows])
    differ[rows[here[cols[here] != cols[here + lengths[rows[here]]]]]] = True
    diagonal, next_one = np.zeros(n, bool), np.zeros(n, bool)
    diagonal[rows[rows == cols]] = True
    next_one[rows[rows + 1 == cols]] = True
    return ((lengths[:-1] == lengths[1:]) & ~differ[:-1] & diagonal[:-1] & next_one[:-1]).astype(bool)


class Stacks(NamedTuple):
    """Positions of the entries of a block diagonal matrix in stacks of dense blocks, all in one flat array.

    Blocks are grouped by size, rounded up to powers of two, and padded to the largest of their stack.

    Attributes:
        starts: first position of each stack, and the number of positions.
        members: for each stack, `(count, size)`: the unknowns of each block, -1 for padding.
        block, size, place: `(n,)`: first position of an unknown's block, padded size of that, and index in it.
    """

    starts: list[int]
    members: list[np.ndarray]
    block: np.ndarray
    size: np.ndarray
    place: np.ndarray

    @classmethod
    def of(cls, labels: np.ndarray) -> Stacks:
        n, sizes = len(labels), np.bincount(labels)
        order = np.argsort(labels, kind="stable")
        first = np.cumsum(sizes) - sizes
        place = np.empty(n, np.int64)
        place[order] = np.arange(n) - np.repeat(first, sizes)
        classes = np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64)
        block, padded = np.zeros(len(sizes), np.int64), np.zeros(len(sizes), np.int64)
        starts, members = [0], []
        for kind in np.unique(classes):
            chosen = np.flatnonzero(classes == kind)
            size = int(sizes[chosen].max())
            block[chosen] = starts[-1] + np.arange(len(chosen)) * size**2
            padded[chosen] = size
            within = np.arange(size)
            inside = within < sizes[chosen][:, None]
            members.append(np.where(inside, order[np.minimum(first[chosen][:, None] + within, n - 1)], -1))
            starts.append(starts[-1] + len(chosen) * size**2)
        return cls(starts, members, block[labels], padded[labels], place)

    def positions(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        return self.block[rows] + self.place[rows] * self.size[rows] + self.place[cols]

    def padding(self) -> np.ndarray:
        """Flat array with 1 on the diagonal of padding, else 0."""
        padding = np.zeros(self.starts[-1])
        for start, members in zip(self.starts, self.members, strict=False):
            count, size = members.shape
            diagonal = start + np.arange(count)[:, None] * size**2 + np.arange(size) * (size + 1)
            padding[diagonal[members < 0]] = 1
        return padding


# --- batched inverses of small dense matrices ---


def inverses(bk: Backend, blocks: Array) -> tuple[Array, Array]:
    """Inverses of `(m, k, k)`, and the mask `(m, 1, 1)` of numerically singular ones.

    Inverses of Hermitian matrices are Hermitian; those of singular ones are unspecified.
    """
    with bk.errstate():
        scale = _scale(bk, blocks)
        even = scale * blocks * bk.matrix_transpose(scale)  # The units of the unknowns must make nothing singular.
        inverse = bk.linalg.inverse(even)
        limit = _SINGULAR / float(np.finfo(bk.dtype(blocks)).eps)
        condition = _reduced(bk, bk.norm, even) * _reduced(bk, bk.norm, inverse)
        singular = bk.negated(condition < limit)
        adjoint = bk.conj(bk.matrix_transpose(inverse))
        inverse = bk.where(are_hermitian(bk, even), (inverse + adjoint) / 2, inverse)
        return scale * inverse * bk.matrix_transpose(scale), singular


def inverses_by_elimination(bk: Any, blocks: Array) -> tuple[Array, Array]:
    """Inverses of `(m, k, k)`, and the mask `(m, 1, 1)` of those that are numerically singular, or need pivots.

    A loop of the program, for `map_parts`: LAPACK's routines wait for threads of a pool in which other virtual devices
    of a CPU may be waiting for messages of this one.

    Source: Golub & Van Loan, Matrix Computations, 4th ed., section 3.4 (Gauss-Jordan elimination, without pivots).
    """
    k = int(blocks.shape[-1])
    numbers = bk.asarray(np.arange(k, dtype=np.int32), like=blocks)

    def step(state: tuple[Array, Array]) -> tuple[Array, Array]:
        a, i = state
        here = bk.astype(numbers == i, bk.dtype(a))
        other = 1 - here
        row, column = (bk.reshape(bk.take_in_bounds(a, i, axis), (-1, k)) for axis in (1, 2))
        pivot = bk.sum(row * here, 1)[:, None]
        row = (row * other + here) / pivot
        kept = a * other[:, None] * other[None, :]
        return kept + (here - column * other)[:, :, None] * row[:, None, :], i + 1

    inverse, _ = bk.for_loop(k, step, (blocks, bk.asarray(np.zeros(1, np.int32), like=blocks)))
    largest = [bk.max(bk.sum(bk.abs(a), -1), -1)[:, None, None] for a in (blocks, inverse)]
    condition = largest[0] * largest[1]
    limit = _SINGULAR / float(np.finfo(bk.dtype(blocks)).eps)
    return inverse, (condition >= limit) | ~bk.isfinite(condition)


def inverse_diagonals(bk: Any, blocks: Array) -> Array:
    """Diagonal matrices `(m, k, k)`: the inverses of the diagonals, with 1 for zeros."""
    return reciprocal(bk, bk.diagonal(blocks))[:, :, None] * bk.asarray(
        np.eye(int(blocks.shape[-1])), bk.dtype(blocks), like=blocks
    )


def are_hermitian(bk: Backend, blocks: Array, tolerance: float | None = None) -> Array:
    """`(m, 1, 1)` bool: which of `(m, k, k)` are Hermitian? Their entries are of about one size."""
    limit = _HERMITIAN * float(np.finfo(bk.dtype(blocks)).eps) if tolerance is None else tolerance
    difference = blocks - bk.conj(bk.matrix_transpose(blocks))
    return _reduced(bk, bk.max_abs, difference) <= limit * _reduced(bk, bk.max_abs, blocks)


def all_hermitian(blocks: np.ndarray) -> bool | None:
    """Are all known matrices `(m, k, k)` Hermitian? None: neither Hermitian nor far from it."""
    host = get_backend("numpy")
    if bool(np.all(are_hermitian(host, blocks))):
        return True
    return None if bool(np.all(are_hermitian(host, blocks, REFUSED))) else False


def replace_singular(blocks: np.ndarray, inverse: np.ndarray, singular: np.ndarray) -> int:
    """Replace the inverses of finite singular blocks by regular ones, and return their number.

    Null vectors count as if their eigenvalue were the largest of the block, so that a semi-definite block gets a
    definite inverse. A block of zeros counts as the identity.
    """
    wrong = np.flatnonzero(singular.reshape(-1) & np.isfinite(blocks).all(axis=(1, 2)))
    if len(wrong):
        scale = _scale(get_backend("numpy"), blocks[wrong])
        even = scale * blocks[wrong] * np.swapaxes(scale, -1, -2)
        regular = np.array([_regular_inverse(block) for block in even], blocks.dtype)
        inverse[wrong] = scale * regular * np.swapaxes(scale, -1, -2)
    return len(wrong)


def _regular_inverse(block: np.ndarray) -> np.ndarray:
    eps = np.finfo(block.dtype).eps
    if np.abs(block - block.conj().T).max() <= _HERMITIAN * eps * np.abs(block).max():
        values, vectors = np.linalg.eigh(block)
        left, right = vectors.conj().T, vectors
    else:
        u, values, vh = np.linalg.svd(block)
        left, right = u.conj().T, vh.conj().T
    largest = np.abs(values).max() or 1.0
    kept = np.where(np.abs(values) > np.sqrt(eps) * largest, values, largest)
    return (right / kept) @ left


def _scale(bk: Backend, blocks: Array) -> Array:
    """`(m, k, 1)`: scales s for which the largest entry in each row and column of `s_i a_ij s_j` is near 1.

    Source: Ruiz, A scaling algorithm to equilibrate both rows and columns norms in matrices, 2001.
    """
    m, k = int(blocks.shape[0]), int(blocks.shape[1])
    scale: Any = 1
    for _ in range(_SWEEPS):
        rows, columns = (bk.max_abs(bk.reshape(b, (m * k, k))) for b in (blocks, bk.matrix_transpose(blocks)))
        largest = bk.maximum(rows, columns)
        root = bk.sqrt(bk.where(largest > 0, largest, bk.full_like(largest, 1)))
        factor = bk.astype(bk.reshape(1 / root, (m, k, 1)), bk.dtype(blocks))
        blocks, scale = factor * blocks * bk.matrix_transpose(factor), scale * factor
    return scale


def _reduced(bk: Backend, reduce: Any, blocks: Array) -> Array:
    """`(m, 1, 1)`: the Frobenius norm or the largest |entry| of each block."""
    m, k = int(blocks.shape[0]), int(blocks.shape[1])
    return bk.reshape(reduce(bk.reshape(blocks, (m, k * k))), (m, 1, 1))
