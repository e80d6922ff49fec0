"""Layout of unknowns: flattening of users' arrays to rows `(batch, n)`, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..backends import Array, Backend, Cut


@dataclass(frozen=True)
class Layout:
    """Shapes of one unknown: one array, or the leaves of a container (JAX).

    Attributes:
        batch: shape of the batch axes, which stand in front of every array.
        shapes: shape of each array without the batch axes.
        dtypes: dtype in which each array is handed out.
        structure: what the backend needs to put the arrays into their container again; None for a single array.
        axis: where one axis is one system's array (the vectors of a matrix), the axis of the user's array that it is,
            counted as by NumPy; None where it is the last, as that of all others is.
    """

    batch: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype, ...]
    structure: Any = None
    axis: int | None = None

    @classmethod
    def of(cls, bk: Backend, tree: Any, batch_ndim: int, what: str = "b") -> Layout:
        """The layout of `tree`, whose arrays have `batch_ndim` batch axes.

        Raises:
            ValueError: an array has fewer axes, or the batch axes differ between arrays.
        """
        leaves, structure = bk.leaves(tree)
        shapes = tuple([tuple(leaf.shape) for leaf in leaves])
        return cls.of_shapes(shapes, tuple(map(bk.dtype, leaves)), structure, batch_ndim, what)

    @classmethod
    def of_shapes(
        cls,
        shapes: tuple[tuple[int, ...], ...],
        dtypes: tuple[np.dtype, ...],
        structure: Any,
        batch_ndim: int,
        what: str,
    ) -> Layout:
        """The same for arrays of these shapes and dtypes."""
        for shape in shapes:
            if None in shape:
                raise ValueError(
                    f"{what} has the shape {shape}; expected one that is known when the function is traced. Give "
                    "the sizes in its TensorSpec, or solve one system after the other: tf.map_fn(lambda b: "
                    "linear_solve(A, b).x, b)."
                )
            if len(shape) < batch_ndim:
                raise ValueError(
                    f"batch_ndim={batch_ndim} was given for {what} of shape {shape}, which has {len(shape)} axes."
                )
            if shape[:batch_ndim] != shapes[0][:batch_ndim]:
                first, other = shapes[0][:batch_ndim], shape[:batch_ndim]
                raise ValueError(f"The arrays of {what} have different batch axes: {first} and {other}.")
        if not shapes:
            raise ValueError(f"{what} is an empty container; expected at least one array.")
        return cls(shapes[0][:batch_ndim], tuple([shape[batch_ndim:] for shape in shapes]), dtypes, structure)

    @cached_property
    def systems(self) -> int:
        """Number of independent systems."""
        return math.prod(self.batch)

    @cached_property
    def size(self) -> int:
        """Number of unknowns of one system."""
        return sum(map(math.prod, self.shapes))

    @property
    def shape(self) -> Any:
        """Shape of one system's array; a tuple of shapes for a container."""
        return self.shapes[0] if self.structure is None else self.shapes

    def with_dtype(self, dtype: np.dtype) -> Layout:
        """The same shapes, handed out in `dtype`."""
        dtypes = (dtype,) * len(self.shapes)
        return self if dtypes == self.dtypes else Layout(self.batch, self.shapes, dtypes, self.structure, self.axis)

    def along(self, axis: int | None) -> Layout:
        """The same, with the vector on another axis of the user's array."""
        return self if axis in (None, -1, len(self.batch)) else replace(self, axis=axis)

    def whole(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a user's array that has `shape` for one system."""
        if self.axis is None:
            return self.batch + shape
        position = self.axis % (len(self.batch) + 1)
        return (*self.batch[:position], *shape, *self.batch[position:])

    def placed(self, bk: Backend, array: Array, lead: int = 0) -> Array:
        """`array`, whose vector is its last axis, with it where the user has it; `lead` axes stay in front."""
        if self.axis is None:
            return array
        return moved_axis(bk, array, -1, lead + self.axis % (len(array.shape) - lead))

    def in_kind_of(self, dtype: np.dtype) -> Layout:
        """As `with_dtype`, but that arrays of a container keep their own precision."""
        if len(self.dtypes) == 1:
            return self.with_dtype(dtype)
        own = (np.result_type(d, np.complex64) if d.kind == "f" and dtype.kind == "c" else d for d in self.dtypes)
        dtypes = tuple(d if d.kind == dtype.kind else dtype for d in own)
        return Layout(self.batch, self.shapes, dtypes, self.structure)

    def flatten(
        self, bk: Backend, tree: Any, dtype: np.dtype, what: str, exact: bool = False, cut: Cut | None = None
    ) -> Array:
        """The arrays of `tree` as `(systems, size)` of `dtype`.

        Args:
            cut: how the array is distributed over devices, which it is to stay: as a grid, see `Backend.on_grid`.

        Raises:
            ValueError: the arrays have other shapes than this layout, or another container.
            TypeError: they are complex and `dtype` is not; with `exact`, they have less precision.
        """
        alone = self.structure is None and bk.is_array(tree)
        leaves, structure = ([tree], None) if alone else bk.leaves(tree)
        if len(leaves) != len(self.shapes) or (self.structure is not None and structure != self.structure):
            raise ValueError(f"{what} has the structure {structure}; expected {self.structure}, that of b.")
        rows = []
        for leaf, shape in zip(leaves, self.shapes, strict=True):
            array = leaf if alone else _array(bk, leaf, what)
            try:
                own = tuple(array.shape)
            except ValueError as error:  # of TensorFlow, while a graph is made
                raise ValueError(
                    f"{what} returned an array whose number of axes is not known while the function is compiled; tell "
                    "its shape by tf.ensure_shape."
                ) from error
            if own != (self.batch + shape if self.axis is None else self.whole(shape)):
                raise ValueError(f"{what} has the shape {own}; expected {self.whole(shape)}, that of b.")
            found = bk.dtype(array)
            if found.kind == "c" and dtype.kind != "c":
                raise TypeError(f"{what} is complex ({found}) while b is real; give b as a complex array.")
            if found != dtype:
                if exact and is_coarser(found, dtype):
                    raise TypeError(coarse(f"{what} returned {found} for an argument of {dtype}", found))
                array = bk.astype(array, dtype)
            array = array if self.axis is None else moved_axis(bk, array, self.axis, -1)
            if cut is not None:
                return bk.on_grid(bk.reshape(array, (self.systems, *shape)), shape, cut)
            rows.append(bk.reshape(array, (self.systems, math.prod(shape))))
        return rows[0] if len(rows) == 1 else bk.concat(rows, 1)

    def difference(self, bk: Backend, rows: Array, others: Array) -> Array:
        """`rows - others`, of grids where they are these: flat ones that are spread over devices would be gathered."""
        if self.structure is not None or not bk.spreads_arrays():
            return rows - others
        cut = bk.known_cut(rows)
        found = bk.on_grid(rows, self.shapes[0], cut) - bk.on_grid(others, self.shapes[0])
        return found if cut is not None else bk.flat(found)

    def unflatten(self, bk: Backend, rows: Array, lead: Sequence[int] = ()) -> Any:
        """`(*lead, systems, size)` as the user's arrays, with `lead` as their first axes."""
        leaves, start = [], 0
        rows = rows if len(self.shapes) == 1 else bk.flat(rows)
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            size = math.prod(shape)
            part = rows if len(self.shapes) == 1 else rows[..., start : start + size]
            part = bk.reshape(part, (*lead, *self.batch, *shape))
            part = part if self.axis is None else self.placed(bk, part, len(lead))
            leaves.append(part if bk.dtype(part) == dtype else bk.astype(part, dtype))
            start += size
        return leaves[0] if self.structure is None else bk.unleaves(self.structure, leaves)


def is_coarser(found: np.dtype, dtype: np.dtype) -> bool:
    """Has `found` a larger rounding unit than `dtype`? That of integers, in which fractions are lost, is 1."""
    if found.kind not in "fcV":  # V: bfloat16
        return found.kind in "biu" and dtype.kind in "fc"
    return found.itemsize // (2 if found.kind == "c" else 1) < dtype.itemsize // (2 if dtype.kind == "c" else 1)


def coarse(what: str, found: np.dtype) -> str:
    """The message about an image of less precision."""
    if found.kind in "biu":
        return (
            f"{what}, in which fractions are lost. Let it compute in the dtype of its argument (look for astype, a "
            "cast, or an array that was made for integers)."
        )
    return (
        f"{what}, whose rounding would be taken for a part of the matrix. Let it compute in the dtype of its argument "
        f"(look for astype, a cast, or autocast), or solve in {found}: give b in that dtype."
    )


def moved_axis(bk: Backend, x: Array, source: int, target: int) -> Array:
    """NumPy's `moveaxis` for one axis."""
    count = len(x.shape)
    source, target = source % count, target % count
    if source == target:
        return x
    order = [i for i in range(count) if i != source]
    order.insert(target, source)
    return bk.permute_dims(x, order)


def _array(bk: Backend, leaf: Any, what: str) -> Array:
    try:
        return leaf if bk.is_array(leaf) else bk.asarray(leaf)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{what} is a {type(leaf).__name__}; expected an array of {bk.name}, the library of b."
        ) from error
