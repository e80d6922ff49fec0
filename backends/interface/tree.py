"""Pytrees: states of loops, and registered objects that hold arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
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
