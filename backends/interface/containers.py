"""Containers of arrays: states of loops, registered objects, dictionaries, lists and tuples of unknowns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, compress
from operator import itemgetter
from typing import Any, NamedTuple

from .arrays import Array


def tree_map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """`function` applied to every leaf of `tree` and the matching leaves of `others`; tuples keep their type."""
    if not isinstance(tree, tuple):
        return function(tree, *others)
    mapped = [tree_map(function, *branches) for branches in zip(tree, *others, strict=True)]
    return type(tree)(*mapped) if hasattr(tree, "_fields") else tuple(mapped)


def tree_leaves(tree: Any) -> list[Any]:
    """All leaves of `tree`, in order."""
    if not isinstance(tree, tuple):
        return [tree]
    return [leaf for branch in tree for leaf in tree_leaves(branch)]


class Opened(NamedTuple):
    """An opened container: its children, a function that rebuilds it from others, and a `key` of its kind."""

    children: Sequence[Any]
    key: Hashable
    rebuild: Callable[[Sequence[Any]], Any]


@dataclass(frozen=True)
class ContainerStructure:
    """The structure of a container without its arrays; compared by classes, keys and positions of arrays.

    Dictionaries are equal whatever the order of their keys.
    """

    key: Hashable
    children: tuple[ContainerStructure | None, ...]  # None: an array
    opened: Sequence[Opened]  # one; not compared

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ContainerStructure) and (self.key, self.children) == (other.key, other.children)

    def __hash__(self) -> int:
        return hash((self.key, self.children))

    def __repr__(self) -> str:
        inner = ", ".join("*" if child is None else repr(child) for child in self.children)
        return f"{self.key}({inner})"

    def rebuild(self, leaves: Iterable[Array]) -> Any:
        """The container with these arrays, in the order of `flatten_with_structure`."""
        rest = iter(leaves)
        parts = [next(rest) if child is None else child.rebuild(rest) for child in self.children]
        return self.opened[0].rebuild(parts)


def flatten_with_structure(
    tree: Any, open_other: Callable[[Any], Opened | None]
) -> tuple[list[Any], ContainerStructure | None]:
    """Leaves and structure of a container; the structure is None where `tree` is a leaf itself.

    Args:
        open_other: opens objects other than dictionaries, lists and tuples; None for a leaf.
    """
    kind = type(tree)
    if isinstance(tree, dict):
        opened: Opened | None = _open_dictionary(tree)
    elif isinstance(tree, tuple) and hasattr(tree, "_fields"):
        opened = Opened(tree, (kind.__name__, kind._fields), lambda parts: kind(*parts))
    elif kind in (list, tuple):
        opened = Opened(tree, kind.__name__, kind)
    else:
        opened = open_other(tree)
    if opened is None:
        return [tree], None
    found = [flatten_with_structure(child, open_other) for child in opened.children]
    structure = ContainerStructure(opened.key, tuple(map(itemgetter(1), found)), (opened._replace(children=()),))
    return list(chain.from_iterable(map(itemgetter(0), found))), structure


def _open_dictionary(tree: dict[Any, Any]) -> Opened:
    kind = type(tree)
    make: Any = partial(defaultdict, tree.default_factory) if isinstance(tree, defaultdict) else kind
    keys = sorted(tree, key=lambda k: (type(k).__name__, k) if isinstance(k, str | int) else (str(type(k)), str(k)))
    order = tuple(tree)

    def remake(parts: Sequence[Any]) -> Any:
        values = dict(zip(keys, parts, strict=True))
        ordered = {key: values[key] for key in order}
        return ordered if kind is dict else make(ordered)

    return Opened([tree[key] for key in keys], (kind.__name__, tuple(keys)), remake)


class Container(NamedTuple):
    """How to flatten and unflatten objects of a class."""

    flatten: Callable[[Any], tuple[Sequence[Any], Hashable]]
    unflatten: Callable[[Any, Sequence[Any]], Any]


def flatten(
    tree: Any, is_array: Callable[[Any], bool], containers: dict[type, Container]
) -> tuple[list[Array], Callable[[Sequence[Array]], Any]]:
    """Arrays of tuples, lists, dictionaries and objects of `containers`, and the function that rebuilds these.

    Anything else is a constant.
    """

    def open_registered(x: Any) -> Opened | None:
        container = containers.get(type(x))
        if container is None:
            return None
        children, static = container.flatten(x)
        return Opened(children, type(x).__name__, lambda parts: container.unflatten(static, parts))

    leaves, structure = flatten_with_structure(tree, open_registered)
    arrays, filled = arrays_among(leaves, is_array)
    if len(arrays) == len(leaves):
        return arrays, itemgetter(0) if structure is None else structure.rebuild

    def rebuild(arrays: Sequence[Array]) -> Any:
        return filled(arrays)[0] if structure is None else structure.rebuild(filled(arrays))

    return arrays, rebuild


def arrays_among(
    leaves: Sequence[Any], is_array: Callable[[Any], bool]
) -> tuple[list[Array], Callable[..., list[Any]]]:
    """The arrays, and a function that returns the leaves with others in their places; it does not hold the arrays.

    Its second argument, if there is one, takes the places of all other leaves.
    """
    known = list(map(is_array, leaves))
    arrays = list(compress(leaves, known))
    constants = [None if there else leaf for leaf, there in zip(leaves, known, strict=True)]

    def filled(arrays: Sequence[Array | None], *other: Any) -> list[Any]:
        rest = iter(arrays)
        return [next(rest) if there else (other or (x,))[0] for x, there in zip(constants, known, strict=True)]

    return arrays, filled
