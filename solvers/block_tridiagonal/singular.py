"""Singular banded matrices: told from badly scaled ones, with their null vectors."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend, get_backend
from ...sparse.fingerprint import fingerprint
from ..methods.direct.dense_singular import balanced, probe_vector
from ..methods.direct.null_vectors import Equations, both_null_vectors
from ..methods.direct.singular import Singularity, suspicious
from .cyclic_reduction import CyclicReduction, as_blocks, as_rows, block_product, reduced, shifted

_MOST, _MOST_COMPILED = 64, 2  # most null vectors: each solve in a compiled program projects out so many
_INACCURATE = 1e-4  # relative residual of a random solve above which the matrix is examined
_PARTS = CyclicReduction.parts


class BlockTridiagonal(NamedTuple):
    """Block tridiagonal matrix of `size` unknowns, with blocks `(systems or 1, width, width, count)`."""

    before: Array
    on: Array
    after: Array
    size: int

    @property
    def parts(self) -> tuple[Array, Array, Array]:
        return self.before, self.on, self.after

    def product(self, bk: Backend, x: Array) -> Array:
        """Matrix-vector product on `(batch, size)`."""
        blocks = as_blocks(bk, x, int(self.on.shape[1]))
        found = (
            block_product(self.on, blocks)
            + block_product(self.before, _later(bk, blocks))
            + block_product(self.after, _sooner(bk, blocks))
        )
        return as_rows(bk, found)[:, : self.size]

    def adjoint(self, bk: Backend) -> BlockTridiagonal:
        before, on, after = (bk.conj(bk.permute_dims(part, (0, 2, 1, 3))) for part in self.parts)
        return BlockTridiagonal(_later(bk, after), on, _sooner(bk, before), self.size)

    def sizes(self, bk: Backend) -> BlockTridiagonal:
        """The matrix of absolute values."""
        before, on, after = map(bk.abs, self.parts)
        return BlockTridiagonal(before, on, after, self.size)

    def astype(self, bk: Backend, dtype: np.dtype) -> BlockTridiagonal:
        before, on, after = (bk.astype(part, dtype) for part in self.parts)
        return BlockTridiagonal(before, on, after, self.size)


def _later(bk: Backend, blocks: Array) -> Array:
    """Shift blocks by one place."""
    return shifted(bk, blocks, int(blocks.shape[-1]))


def _sooner(bk: Backend, blocks: Array) -> Array:
    return bk.pad(blocks[..., 1:], [(0, 0)] * 3 + [(0, 1)])


def examined_blocks(
    bk: Backend, matrix: BlockTridiagonal, inverse: CyclicReduction, given: np.dtype
) -> tuple[Array, Array, Array] | None:
    """Orthonormal null vectors of A and of its adjoint, `(systems or 1, most, n)`, and numbers of `Singularity`.

    None where all systems are regular.

    Args:
        given: the precision that the entries were given in.

    Cost: a product and an application of the inverse; of what seems singular about 60 of each, for one null vector.
    """
    suspect = _seems_singular(bk, matrix, inverse, given)
    compiled = bk.compiled(matrix.on)
    if not compiled and not bool(bk.any(suspect)):
        return None
    systems, n, dtype = int(matrix.on.shape[0]), matrix.size, bk.dtype(matrix.on)
    most = min(n, _MOST_COMPILED if compiled else _MOST)
    none = bk.zeros((systems, most, n), dtype, matrix.on)
    look = partial(_look, size=n, most=most, given=given)

    def found(*_: Array) -> tuple[Array, ...]:
        """Run by NumPy where a program may call the host, which saves two thirds of the compile time."""
        arrays = [bk.constant(part) for part in (*matrix.parts, suspect)]
        returns = [((systems, most, n), dtype)] * 2
        return tuple(bk.by_host(partial(look, get_backend("numpy")), partial(look, bk), returns, *arrays, name=name))

    def name() -> str | None:
        return fingerprint("null vectors of banded matrices", n, most, given, dtype)

    right, left = bk.cond(bk.any(suspect), found, lambda *_: (none, none))
    regular = bk.zeros((systems, 1), np.dtype(np.int32), matrix.on)
    singular = bk.max_abs(bk.fold(right)) > 0
    return right, left, bk.where(singular, regular + int(Singularity.SINGULAR), regular)


def _look(
    bk: Backend, before: Array, on: Array, after: Array, suspect: Array, size: int, most: int, given: np.dtype
) -> list[Array]:
    """Null vectors of the block matrix and of its adjoint, in its dtype."""
    if bk.on_host and not suspect.any():  # of a lane of several, of which others are
        return [np.zeros((len(on), most, size), on.dtype)] * 2
    matrix = BlockTridiagonal(before, on, after, size)
    with bk.errstate():
        return [bk.astype(basis, bk.dtype(on)) for basis in _null_vectors(bk, matrix, suspect, most, given)]


def _seems_singular(bk: Backend, matrix: BlockTridiagonal, inverse: CyclicReduction, given: np.dtype) -> Array:
    """`(systems or 1, 1)`: does the inverse amplify a random vector, or lose part of it, as for a singular matrix?

    Pivots that vanish were replaced, which loses the part of a vector that is out of the range. Regular matrices lose
    some of it, too, where the elimination is not stable.
    """
    one = bk.zeros((int(matrix.on.shape[0]), matrix.size), bk.dtype(bk.abs(matrix.on)), matrix.on) + 1
    rows = matrix.sizes(bk).product(bk, one)
    rows = bk.where(rows > 0, rows, one)
    vector = rows * bk.asarray(probe_vector(matrix.size, np.dtype(bk.dtype(rows)).char), like=rows)
    image = inverse.apply(bk.astype(vector, bk.dtype(matrix.on)))
    missed = bk.max_abs((matrix.product(bk, image) - vector) / bk.astype(rows, bk.dtype(matrix.on)))
    blown = bk.max_abs(image) * (float(np.finfo(given).eps) * matrix.size**0.5)
    return ~((missed < _INACCURATE) & (blown < suspicious(given)))


def _null_vectors(
    bk: Backend, matrix: BlockTridiagonal, suspect: Array, most: int, given: np.dtype
) -> tuple[Array, Array]:
    """Null vectors in double precision where available, independent of row and column scaling."""
    n, batch = matrix.size, int(matrix.on.shape[0]) > 1
    wide = bk.stored_dtype(np.result_type(bk.dtype(matrix.on), np.float64))
    own = matrix.astype(bk, wide)
    inverse = reduced(bk, *own.parts, n, batch, wide)
    sizes = own.sizes(bk)
    adjoint_sizes = sizes.adjoint(bk)
    one = bk.zeros((int(own.on.shape[0]), n), bk.dtype(sizes.on), own.on) + 1
    rows, columns = balanced(
        bk, lambda x: sizes.product(bk, x), lambda x: adjoint_sizes.product(bk, x), one, own.on
    )  # fmt: skip
    finite = bk.isfinite(bk.max_abs(sizes.product(bk, one)))

    def turned(parts: tuple[Array, ...]) -> tuple[Array, ...]:
        matrix, inverse, rows, columns = _unflatten(parts)
        back: Any = inverse.transpose().conj()
        return *matrix.adjoint(bk).parts, *(back.array(name) for name in _PARTS), columns, rows

    def _unflatten(parts: tuple[Array, ...]) -> tuple[BlockTridiagonal, CyclicReduction, Array, Array]:
        before, on, after, *found, rows, columns = parts
        inverse = CyclicReduction(bk, **dict(zip(_PARTS, found, strict=True)), size=n, batch=batch)
        return BlockTridiagonal(before, on, after, n), inverse, rows, columns

    def equations(parts: tuple[Array, ...]) -> Equations:
        matrix, inverse, _, columns = _unflatten(parts)
        sizes = matrix.sizes(bk).product(bk, columns)
        return Equations(lambda x: matrix.product(bk, x), inverse.apply, sizes, columns)

    first = turned((*own.parts, *(inverse.array(name) for name in _PARTS), rows, columns))
    return both_null_vectors(bk, first, equations, turned, suspect & finite, most, (wide, given))
