"""Functions of one element, applied to each element of arrays."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from .arrays import Array


class Vmap(ABC):
    """Backend methods for it."""

    is_array: Callable[[Any], bool]
    asarray: Callable[..., Array]
    copy: Callable[[Array], Array]
    zeros: Callable[..., Array]
    dtype: Callable[[Array], Any]
    stack: Callable[[Sequence[Array]], Array]
    leaves: Callable[[Any], tuple[list[Any], Any]]
    unleaves: Callable[[Any, Sequence[Array]], Any]

    def vmap(self, function: Callable[..., Any], axes: Sequence[int | None] | None = None) -> Callable[..., Any]:
        """`function` of each element along the first axis of its arguments, with the results stacked.

        Arguments are arrays or containers of them. One whose entry in `axes` is None is shared, and so is one of size 1
        beside larger ones; the others have entry 0. Without `axes` all have.
        """

        def mapped(*args: Any) -> Any:
            own = tuple(axes) if axes is not None else (0,) * len(args)
            sizes = self._mapped_sizes(args, own)
            if len(set(sizes.values())) > 1:
                alone = [i for i, size in sizes.items() if size == 1]
                args = tuple(self._first(x) if i in alone else x for i, x in enumerate(args))
                own = tuple(None if i in alone else axis for i, axis in enumerate(own))
            return self._vmap(function, own)(*args)

        return mapped

    def _mapped_sizes(self, args: Sequence[Any], axes: Sequence[int | None]) -> dict[int, int]:
        """The size of each argument that is mapped, by its place.

        Raises:
            ValueError: there is none, or their sizes do not fit together.
        """
        if len(args) != len(axes) or not {*axes} <= {0, None} or 0 not in axes:
            raise ValueError(
                f"vmap got axes={tuple(axes)} and {len(args)} arguments; expected 0 or None for each, and one 0 at "
                "least. Move another axis to the front."
            )
        sizes: dict[int, int] = {}
        for i, (x, axis) in enumerate(zip(args, axes, strict=True)):
            if axis is None:
                continue
            arrays = [x] if self.is_array(x) else self.leaves(x)[0]
            shapes = {tuple(a.shape[:1] if hasattr(a, "shape") else np.shape(a)[:1]) for a in arrays}
            if len(shapes) != 1 or not shapes.isdisjoint(((), (None,))):
                found = ", ".join(str(*shape) or "none" for shape in shapes)
                raise ValueError(
                    f"vmap got argument {i} with first axes of size {found}; expected one size for all of its arrays."
                )
            sizes[i] = shapes.pop()[0]
        if len({*sizes.values()} - {1}) > 1:
            raise ValueError(
                f"vmap got first axes of size {', '.join(map(str, sizes.values()))}; expected one size, or 1 for an "
                "argument that all elements share."
            )
        return sizes

    def _first(self, tree: Any) -> Any:
        leaves, structure = self.leaves(tree)
        return self.unleaves(structure, [leaf[0, ...] for leaf in leaves])

    def _vmap(self, function: Callable[..., Any], axes: Sequence[int | None]) -> Callable[..., Any]:
        """`vmap` of arguments whose sizes fit. `function` of no elements is called once, with zeros."""

        def element(tree: Any, i: int) -> Any:
            leaves, structure = self.leaves(tree)
            return self.unleaves(structure, [leaf[i, ...] for leaf in leaves])

        def zeros(tree: Any) -> Any:
            leaves, structure = self.leaves(tree)
            arrays = [self.asarray(x) for x in leaves]
            return self.unleaves(structure, [self.zeros(tuple(x.shape[1:]), self.dtype(x), x) for x in arrays])

        def called(part: Callable[[Any], Any], args: Sequence[Any]) -> tuple[list[Array], Any]:
            found = function(*(a if axis is None else part(a) for a, axis in zip(args, axes, strict=True)))
            leaves, structure = self.leaves(found)
            return [self.copy(self.asarray(x)) for x in leaves], structure  # a function may return one buffer each time

        def mapped(*args: Any) -> Any:
            size = next(self.leaves(a)[0][0].shape[0] for a, axis in zip(args, axes, strict=True) if axis == 0)
            parts: list[Callable[[Any], Any]] = [partial(element, i=i) for i in range(int(size))]
            opened = [called(part, args) for part in parts or [zeros]]
            columns = [self.stack(column) for column in zip(*(leaves for leaves, _ in opened), strict=True)]
            return self.unleaves(opened[0][1], columns if size else [x[:0, ...] for x in columns])

        return mapped
