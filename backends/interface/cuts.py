"""Block distribution of grids over a device mesh: which mesh axes cut which axes of a grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from .arrays import Array


class CutAxis(NamedTuple):
    """A grid axis that is cut into equal blocks, one for each position along some mesh axes.

    It is true, as a periodic axis is: on the block of one device the wrap-around is an exchange with its neighbours.

    Attributes:
        names: mesh axes, the first one slowest.
        parts: number of blocks.
        ring: is the axis of the whole grid periodic?
    """

    names: tuple[str, ...]
    parts: int
    ring: bool


@dataclass(frozen=True)
class Cut:
    """Distribution of arrays `(batch, *grid)` over a device mesh.

    Attributes:
        mesh: the device mesh, with its axes in the library's automatic mode; hashable.
        names: mesh axes that cut each axis of the grid; none where it is whole.
        batch: mesh axes that cut the batch axis.
    """

    mesh: Any
    names: tuple[tuple[str, ...], ...]
    batch: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[int, ...]:
        """Number of blocks of each axis of the grid."""
        return tuple(self.size_of(names) for names in self.names)

    @property
    def all_names(self) -> tuple[str, ...]:
        """Mesh axes that cut the grid: those over which a sum over all unknowns goes."""
        return tuple(name for names in self.names for name in names)

    def size_of(self, names: Sequence[str]) -> int:
        """Number of positions along some mesh axes."""
        return math.prod(self.mesh.shape[name] for name in names)

    def local(self, grid: Sequence[int]) -> tuple[int, ...]:
        """Shape of the block of each device; the parts divide the grid."""
        return tuple(n // parts for n, parts in zip(grid, self.parts, strict=True))

    def divides(self, grid: Sequence[int]) -> bool:
        """Are all blocks of one size?"""
        return all(n % parts == 0 for n, parts in zip(grid, self.parts, strict=True))

    def behind(self, count: int) -> Cut:
        """The same with `count` whole axes in front of the grid."""
        return replace(self, names=((),) * count + self.names)

    def within(self, count: int) -> Cut:
        """Inverse of `behind`."""
        return replace(self, names=self.names[count:])

    def on(self, shape: Sequence[int], grid: Sequence[int]) -> Cut | None:
        """The same distribution of the same unknowns on another grid; None where its blocks are no boxes.

        Args:
            shape: of the arrays that are cut so.
            grid: a shape of as many numbers, in the same order.
        """
        if tuple(shape) == tuple(grid):
            return self
        first, *others = self.names or ((),)
        if any(others) or not grid or grid[0] % self.size_of(first):
            return None
        return replace(self, names=(first, *((),) * (len(grid) - 1)))

    def axes(self, periodic: Sequence[bool]) -> tuple[CutAxis | bool, ...]:
        """For each axis of a block: how it is cut, or whether it is periodic where it is whole."""
        return tuple(
            CutAxis(names, parts, bool(ring)) if parts > 1 else bool(ring)
            for names, parts, ring in zip(self.names, self.parts, periodic, strict=True)
        )


class Collectives:
    """Backend methods for distributed arrays; those after `map_parts` are for use inside of it."""

    def cut_of(self, x: Array, batch_ndim: int, sharding: Any = None) -> Cut | None:
        """The distribution of `(*batch, *grid)` over several devices; None where it has none or it is not known.

        Args:
            sharding: what the caller says of `x`, in place of what `x` says itself; or the distribution, if known.

        Raises:
            TypeError: `sharding` is none, or of another library.
            ValueError: it does not fit `x`.
        """
        if sharding is not None:
            raise TypeError(
                f"sharding={sharding!r} was given for arrays of {self!r}; it is for those of JAX. Leave it out."
            )
        return None

    def sharding_of(self, x: Any) -> Any:
        """The sharding of an array over several devices, as `cut_of` takes it; None where there is none, or unknown."""
        return None

    def spread_over(self, x: Array, cut: Cut, lead: int) -> Array:
        """Spread an array over the mesh as `map_parts` takes it, so that no device holds all of it.

        Args:
            lead: as in `map_parts`; the parts divide the grid.
        """
        raise self._undistributed()

    def cells(self, x: Any, grid: Sequence[int]) -> Array:
        """Rows, also those that are kept as grids, as one array `(batch, *grid)`."""
        return self.reshape(x, (int(x.shape[0]), *grid))  # type: ignore[attr-defined]

    def as_rows(self, cells: Array, like: Any) -> Any:
        """An array `(batch, *grid)` as rows of the form of `like`."""
        return self.reshape(cells, like.shape)  # type: ignore[attr-defined]

    def map_parts(
        self,
        function: Callable[..., Any],
        cut: Cut,
        arrays: Sequence[Array],
        leads: Sequence[int | None],
        out_leads: Any,
        apart: bool = False,
    ) -> Any:
        """`function(*blocks)` on each device.

        Args:
            leads: for each array, how many axes stand in front of those of the grid; the last of them is the batch
                axis, the others are whole. Negative: so many axes, all of them whole. None: every device gets all of
                the array.
            out_leads: likewise of the results, in the container in which `function` returns them.
            apart: do the blocks tell each other nothing? Then each device may take another branch of a condition.
        """
        raise self._undistributed()

    def from_neighbour(self, u: Array, axis: CutAxis, side: int) -> Array:
        """`u` of the next block on the side -1 or 1; zeros where there is none, at the ends of an open axis."""
        raise self._undistributed()

    def permuted(self, u: Array, names: Sequence[str], pairs: Sequence[tuple[int, int]]) -> Array:
        """`u` of another device, by (source, destination); zeros where no pair has this destination."""
        raise self._undistributed()

    def all_gathered(self, u: Array, names: Sequence[str], axis: int) -> Array:
        """The blocks of all devices along some mesh axes, concatenated."""
        raise self._undistributed()

    def all_to_all(self, u: Array, names: Sequence[str], split: int, concat: int) -> Array:
        """Cut the axis `split`, send each piece to its device, and concatenate what arrives along `concat`."""
        raise self._undistributed()

    def ordered_after(self, x: Array, before: Array) -> Array:
        """`x`, computed after `before`, so that the messages that need it are sent when those before have arrived.

        XLA's runtime on the CPU mixes up messages of a loop with others that do not depend on it.
        """
        return x

    def part_index(self, names: Sequence[str]) -> Array:
        """Position of this device along some mesh axes, an int32."""
        raise self._undistributed()

    def sum_over(self, x: Array, names: Sequence[str]) -> Array:
        """Sum over the devices along some mesh axes, by one reduction."""
        raise self._undistributed()

    def max_over(self, x: Array, names: Sequence[str]) -> Array:
        """Elementwise maximum over the devices along some mesh axes, by one reduction."""
        raise self._undistributed()

    def _undistributed(self) -> TypeError:
        return TypeError(f"{self!r} has no arrays that are distributed over devices; JAX has.")
