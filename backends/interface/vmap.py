"""Functions of one element, applied to each element of arrays."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .arrays import Array


class Vmap(ABC):
    """Backend methods for it."""

    is_array: Callable[[Any], bool]
    asarray: Callable[..., Array]
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
                raise ValueError(
                    f"vmap got argument {i} with first axes of size {[*shapes]}; expected one size for all of its "
                    "arrays."
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
        """`vmap` of arguments whose sizes fit."""

        def element(tree: Any, i: int) -> Any:
            leaves, structure = self.leaves(tree)
            return self.unleaves(structure, [leaf[i, ...] for leaf in leaves])

        def mapped(*args: Any) -> Any:
            size = next(self.leaves(a)[0][0].shape[0] for a, axis in zip(args, axes, strict=True) if axis == 0)
            return self._stack_trees([
                function(*(a if axis is None else element(a, i) for a, axis in zip(args, axes, strict=True)))
                for i in range(int(size))
            ])  # fmt: skip

        return mapped

    def _stack_trees(self, trees: Sequence[Any]) -> Any:
        """Containers of one form as one, of arrays stacked along a new first axis."""
        opened = [self.leaves(tree) for tree in trees]
        columns = zip(*(leaves for leaves, _ in opened), strict=True)
        return self.unleaves(opened[0][1], [self.stack([self.asarray(x) for x in column]) for column in columns])
