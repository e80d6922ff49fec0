"""Stencils on grids that are cut over a device mesh: products by one exchange along each cut axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...backends import Array, Backend, Cut
from ..errors import UnsupportedOperation
from ..operator import Operator
from .composed import Composed
from .couplings import Shift
from .halo import Axes, windows


@dataclass(eq=False, repr=False)
class CutStencil(Composed):
    """`image[x] = sum over k of values[k][x] * u[x + shifts[k]]` on a grid that is cut over a device mesh.

    Attributes:
        values: for each shift a number, an array `(*grid)`, or one for each system, `(systems, *grid)`; arrays are
            spread as the grid is. They are zero in rows whose column is not on the grid; numbers need not be.
        shifts: steps along each axis, shorter than a block.
        grid: lengths of the axes, which the parts divide.
        periodic: which of them are closed to rings.
        cut: how the grid is distributed.

    Cost: two messages for each cut axis, as wide as the longest step along it; a pass over the values.
    """

    parts = ("values",)
    keeps_grids = True
    is_container = True

    values: tuple[Array, ...]
    shifts: tuple[Shift, ...]
    grid: tuple[int, ...]
    periodic: tuple[bool, ...]
    spread: Cut
    bk: Backend
    dtype: np.dtype

    def _settle(self) -> None:
        self.shape = (math.prod(self.grid),) * 2
        self.systems = None

    @property
    def own_grid(self) -> tuple[int, ...]:
        return self.grid

    def astype(self, dtype: np.dtype) -> Operator:
        return self if dtype == self.dtype else replace(super().astype(dtype), dtype=np.dtype(dtype))  # type: ignore[type-var]

    def apply(self, x: Array) -> Array:
        bk = self.bk

        def on_block(u: Array, *values: Array) -> Array:
            around = windows(bk, u, self.shifts, self._axes)
            terms = [value * window for value, window in zip(values, around, strict=True)]
            return sum(terms[1:], start=terms[0])

        leads = [1, *map(self._lead, self.values)]
        return bk.as_rows(bk.map_parts(on_block, self.spread, [bk.cells(x, self.grid), *self.values], leads, 1), x)

    def transpose(self) -> Operator:
        """Cost: an exchange of the values, once."""
        back = tuple(tuple(-s for s in shift) for shift in self.shifts)
        arrays = [k for k, value in enumerate(self.values) if self._lead(value) is not None]
        values = list(self.values)
        if arrays:

            def on_block(*own: Array) -> tuple[Array, ...]:
                moved = []
                for k, value in zip(arrays, own, strict=True):
                    rows = value if self._lead(values[k]) else value[None]
                    (window,) = windows(self.bk, rows, [back[k]], self._axes)
                    moved.append(window if self._lead(values[k]) else window[0])
                return tuple(moved)

            given = [values[k] for k in arrays]
            leads = [self._lead(value) for value in given]
            for k, value in zip(
                arrays, self.bk.map_parts(on_block, self.spread, given, leads, tuple(leads)), strict=True
            ):
                values[k] = value
        return replace(self, values=tuple(values), shifts=back)

    def own_diagonal(self) -> CutStencil:
        """The diagonal alone."""
        here = (0,) * len(self.grid)
        if here not in self.shifts:
            return replace(self, values=(0 * self.values[0],), shifts=(here,))
        return replace(self, values=(self.values[self.shifts.index(here)],), shifts=(here,))

    @property
    def _axes(self) -> Axes:
        return self.spread.axes(self.periodic)

    def _lead(self, value: Array) -> int | None:
        axes = len(value.shape)
        return axes - len(self.grid) if axes else None

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        raise UnsupportedOperation("A stencil on a grid that is spread over devices has no form on the host.")


@dataclass(eq=False, repr=False)
class InSteps(Composed):
    """`inner`, which iterations multiply by another form of; true residuals are of `inner`."""

    parts = ("inner", "form")
    passes_grids = True

    inner: Operator
    form: Operator

    def _settle(self) -> None:
        super()._settle()
        self.products = self.inner.products  # type: ignore[misc]

    @property
    def in_steps(self) -> Operator:
        return self.form

    @property
    def own_grid(self) -> tuple[int, ...] | None:
        return self.form.own_grid

    def apply(self, x: Array) -> Array:
        return self.inner.apply(x)

    def transpose(self) -> Operator:
        transposed: Operator = self._map(lambda A: A.transpose())
        return transposed
