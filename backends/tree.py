"""Map over the state of a loop: arrays in (nested) tuples and NamedTuples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


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
