"""Inverse of a Kronecker sum on grids that are cut over devices: transforms between all-to-all exchanges.

Each device transforms the lines that are whole on it, and an exchange makes others whole, see `exchanges.py`. Nothing
of the size of a vector is stored: eigenvalues are sums of one number for each axis, of which a device takes its piece.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ...backends import Array, Backend, Cut, get_backend
from ...sparse import Composed, UnsupportedOperation, storable
from .exchanges import AxisCut, Layout, backward, exchanges, forward, piece, whole_axes
from .reciprocals import Reciprocal, nearest_to_zero
from .trigonometric import KINDS, trigonometric_transform


@storable("transforms and eigenvalues of axes")
@dataclass(eq=False, repr=False)
class SpectralInverse(Composed):
    """`V diag(1 / (sum of spectra)) V^-1`, V the Kronecker product of eigenvectors along each axis.

    Cost: for one application on a cut grid the exchanges of the plan, and as many back; no reduction. Three vectors of
    temporary memory, and `2 n_k^2` numbers for each axis without a fast transform, whole on each device.

    Attributes:
        spectra: of all axes, one after the other, `(n_0 + n_1 + ...,)`.
        matrices: eigenvectors and their inverse of each axis without a fast transform, `(2 n_k^2 + ...,)`.
        grid: lengths of the axes.
        kinds: the transform of each axis, see `trigonometric.KINDS`; "matrix" for those of `matrices`.
        limit, instead, sign: of `Reciprocal`.
        complex_vectors: is it for complex vectors?
        transposed: is it the transpose?
    """

    parts = ("spectra", "matrices")
    is_container = True
    keeps_grids = True

    bk: Backend
    spectra: Array
    matrices: Array
    grid: tuple[int, ...]
    kinds: tuple[str, ...]
    limit: float
    instead: float
    sign: int
    complex_vectors: bool = False
    transposed: bool = False

    def __post_init__(self) -> None:
        dense = sum(2 * n * n for n, kind in zip(self.grid, self.kinds) if kind == "matrix")
        expected = (sum(self.grid),), (dense,)
        found = tuple(tuple(map(int, part.shape)) for part in (self.spectra, self.matrices))
        if found != expected or len(self.kinds) != len(self.grid) or not {*self.kinds} <= {"matrix", *KINDS}:
            raise ValueError(
                f"Spectra and matrices have the shapes {found} for a grid {self.grid}; expected {expected}."
            )
        super().__post_init__()

    def _settle(self) -> None:
        n = math.prod(self.grid)
        dtypes = [self._library_of(part).dtype(part) for part in (self.spectra, self.matrices)]
        self.shape, self.systems = (n, n), None
        self.dtype = np.result_type(*dtypes, *([np.complex64] if self.complex_vectors else []))

    def apply(self, x: Array) -> Array:
        bk, cut = self.bk, self.bk.known_cut(x)
        own = None if cut is None else self._on_own_grid(cut, tuple(x.cells.shape[1:]))
        return bk.as_rows(self.on_cells(bk.cells(x, self.grid), own), x)

    def _on_own_grid(self, cut: Cut, given: tuple[int, ...]) -> Cut:
        own = cut.on(given, self.grid)
        if own is None:
            raise UnsupportedOperation(
                f"Fast transforms on the grid {self.grid} were asked for vectors of {given}, cut by {cut.names}: these "
                "blocks are no boxes of the grid. Give b as arrays of the grid's shape, or spread it in parts that "
                f"divide {self.grid[0]}."
            )
        return own

    def on_cells(self, u: Array, cut: Cut | None = None) -> Array:
        """The image of `(batch, *grid)`, spread over devices as `u` is."""
        bk = self.bk
        parts = self.array("spectra"), self.array("matrices")
        kinds = [bk.dtype(part).kind for part in parts]
        if bk.dtype(u).kind == "c" and "c" not in kinds:  # messages of both parts at once
            both = self._mapped(cut, bk.stack(bk.fourier.parts(u)), parts)
            return bk.fourier.complex(both[0], both[1])
        wanted = np.result_type(self.dtype, bk.dtype(u))
        return self._mapped(cut, bk.astype(u, wanted)[None], parts)[0]

    def _mapped(self, cut: Cut | None, u: Array, parts: Sequence[Array]) -> Array:
        """For `(parts, batch, *grid)`."""
        if cut is None:
            return self._on_block(((),) * len(self.grid), u, *parts)
        function = partial(self._on_block, layout_of(cut))
        return self.bk.map_parts(function, cut, [u, *parts], [2, None, None], 2)

    def _on_block(self, layout: Layout, u: Array, spectra: Array, matrices: Array) -> Array:
        bk, shape = self.bk, tuple(u.shape)
        plan = exchanges(layout, self.grid)
        axes = (whole_axes(layout), *(one.whole for one in plan))
        u = self._transformed(bk.reshape(u, (-1, *shape[2:])), axes[0], matrices)
        for exchange, whole in zip(plan, axes[1:]):
            u = self._transformed(forward(bk, u, exchange, self.grid), whole, matrices)
        u = u * self._reciprocals(spectra, plan[-1].after if plan else layout)
        for exchange, whole in zip(reversed(plan), reversed(axes)):
            u = backward(bk, self._transformed(u, whole, matrices, back=True), exchange, self.grid)
        return bk.reshape(self._transformed(u, axes[0], matrices, back=True), shape)

    def _transformed(self, u: Array, axes: Sequence[int], matrices: Array, back: bool = False) -> Array:
        """Into the eigenvectors of these axes, or back."""
        for axis in axes:
            kind = self.kinds[axis]
            if kind == "matrix":
                u = self._times(self._matrix(matrices, axis, back), u, axis)
            else:
                u = trigonometric_transform(self.bk, KINDS[kind].inverse if back else kind, u, (axis + 1,))
        return u

    def _matrix(self, matrices: Array, axis: int, back: bool) -> Array:
        """The inverse of the eigenvectors, or to go back they themselves; the transpose has these transposed."""
        n = self.grid[axis]
        start = sum(2 * m * m for m, kind in zip(self.grid[:axis], self.kinds) if kind == "matrix")
        start += 0 if back != self.transposed else n * n
        matrix = self.bk.reshape(matrices[start : start + n * n], (n, n))
        return self.bk.matrix_transpose(matrix) if self.transposed else matrix

    def _times(self, matrix: Array, u: Array, axis: int) -> Array:
        """Multiply each line along an axis."""
        bk, order = self.bk, list(range(len(u.shape)))
        order[axis + 1], order[-1] = order[-1], order[axis + 1]  # its own inverse
        lines = bk.permute_dims(u, order)
        image = bk.product(matrix, bk.reshape(lines, (-1, lines.shape[-1])))
        return bk.permute_dims(bk.reshape(image, lines.shape), order)

    def _reciprocals(self, spectra: Array, layout: Layout) -> Array:
        bk, rank, total, start = self.bk, len(self.grid), 0, 0
        for axis, (n, levels) in enumerate(zip(self.grid, layout)):
            own = _own_piece(bk, spectra[start : start + n], levels)
            total = total + bk.reshape(own, tuple(-1 if k == axis else 1 for k in range(rank)))
            start += n
        return Reciprocal(self.limit, self.instead, self.sign).of(bk, total)

    def transpose(self) -> SpectralInverse:
        return replace(self, transposed=not self.transposed)

    def astype(self, dtype: np.dtype) -> SpectralInverse:
        is_complex = np.dtype(dtype).kind == "c"
        real = np.dtype(np.dtype(dtype).char.lower()) if is_complex else np.dtype(dtype)

        def cast(array: Array) -> Array:
            bk = self._library_of(array)
            return bk.astype(array, real if bk.dtype(array).kind == "f" else dtype)

        return replace(self._map(lambda A: A, cast), complex_vectors=is_complex)


def layout_of(cut: Cut) -> Layout:
    """How the grid of a distribution is cut."""
    return tuple((AxisCut(names, parts),) if parts > 1 else () for names, parts in zip(cut.names, cut.parts))


def spectral_inverse(
    spectra: Sequence[np.ndarray],
    total: Any,
    kinds: Sequence[str],
    matrices: Sequence[np.ndarray],
    rule: Reciprocal,
    dtype: np.dtype,
) -> SpectralInverse:
    """The inverse for vectors of `dtype`, in NumPy's arrays.

    Each spectrum is stored as differences from its part of the smallest sum, which is added to the first of them: so
    small eigenvalues keep their digits in any precision.

    Args:
        spectra: of each axis, `(n_k,)`.
        total: what is added to each of their sums.
        matrices: eigenvectors and their inverse of each axis of the kind "matrix".
    """
    least, at = nearest_to_zero(spectra, total)
    differences = [values - values[place] for values, place in zip(spectra, at)]
    differences[0] = differences[0] + least
    flat = np.concatenate([np.zeros(0), *(matrix.reshape(-1) for matrix in matrices)])
    grid = tuple(len(values) for values in spectra)
    inverse = SpectralInverse(
        get_backend("numpy"), np.concatenate(differences), flat, grid, tuple(kinds), rule.limit, rule.instead, rule.sign
    )
    return inverse.astype(dtype)


def _own_piece(bk: Backend, values: Array, levels: Sequence[AxisCut]) -> Array:
    """The piece of a device of numbers along an axis that is cut so; the last ones are repeated as padding."""
    for level in levels:
        size = piece(int(values.shape[0]), (level,))
        padding = size * level.parts - int(values.shape[0])
        if padding:
            values = bk.concat([values, bk.broadcast_to(values[-1:], (padding,))])
        values = bk.take_in_bounds(bk.reshape(values, (level.parts, size)), bk.part_index(level.names))
    return values
