"""Containers of arrays: states of loops, registered objects, dictionaries, lists and tuples of unknowns."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
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
    if is_array(tree):
        return [tree], lambda arrays: arrays[0]
    if type(tree) in containers:
        container = containers[type(tree)]
        branches, static = container.flatten(tree)
        return _branches(list(branches), lambda parts: container.unflatten(static, parts), is_array, containers)
    if isinstance(tree, dict):
        keys = list(tree)
        return _branches(list(tree.values()), lambda parts: dict(zip(keys, parts, strict=True)), is_array, containers)
    if isinstance(tree, (tuple, list)):
        kind: Any = type(tree)
        make = (lambda parts: kind(*parts)) if hasattr(tree, "_fields") else kind
        return _branches(list(tree), make, is_array, containers)
    return [], lambda arrays: tree


def _branches(
    branches: list[Any],
    make: Callable[[Sequence[Any]], Any],
    is_array: Callable[[Any], bool],
    containers: dict[type, Container],
) -> tuple[list[Array], Callable[[Sequence[Array]], Any]]:
    parts = [flatten(branch, is_array, containers) for branch in branches]
    leaves = [leaf for found, _ in parts for leaf in found]
    counts = [(len(found), remake) for found, remake in parts]  # without the arrays, which `rebuild` may outlive

    def rebuild(arrays: Sequence[Array]) -> Any:
        made, start = [], 0
        for count, remake in counts:
            made.append(remake(arrays[start : start + count]))
            start += count
        return make(made)

    return leaves, rebuild


# --- Flatten and rebuild containers of unknowns: dictionaries, lists and tuples of arrays -----------------------------


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

    def rebuild(self, leaves: Sequence[Array]) -> Any:
        """The container with these arrays, in the order of `flatten_with_structure`."""
        return self._rebuilt(iter(leaves))

    def _rebuilt(self, leaves: Any) -> Any:
        parts = [next(leaves) if child is None else child._rebuilt(leaves) for child in self.children]
        return self.opened[0].rebuild(parts)


def flatten_with_structure(
    tree: Any, open_other: Callable[[Any], Opened | None]
) -> tuple[list[Any], ContainerStructure | None]:
    """Leaves and structure of a container; the structure is None where `tree` is a leaf itself.

    Args:
        open_other: opens objects other than dictionaries, lists and tuples; None for a leaf.
    """
    opened = _open(tree) or open_other(tree)
    if opened is None:
        return [tree], None
    found = [flatten_with_structure(child, open_other) for child in opened.children]
    structure = ContainerStructure(opened.key, tuple(inner for _, inner in found), (opened._replace(children=()),))
    return [leaf for leaves, _ in found for leaf in leaves], structure


def _open(tree: Any) -> Opened | None:
    kind = type(tree)
    if isinstance(tree, dict):
        keys = sorted(tree, key=lambda k: (type(k).__name__, k) if isinstance(k, str | int) else (str(type(k)), str(k)))
        order = tuple(tree)

        def remake(parts: Sequence[Any]) -> Any:
            values = dict(zip(keys, parts, strict=True))
            ordered = {key: values[key] for key in order}
            return ordered if kind is dict else kind(ordered)

        return Opened([tree[key] for key in keys], (kind.__name__, tuple(keys)), remake)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return Opened(tree, (kind.__name__, kind._fields), lambda parts: kind(*parts))
    if kind in (list, tuple):
        return Opened(tree, kind.__name__, kind)
    return None
