"""Varying mesh axes inside `jax.shard_map`: casts where loop states or branches differ in them.

Where the state of a loop or the branches of a condition differ in that, JAX wants them to be cast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any

import jax
from jax import lax

Axes = frozenset[Any]


def is_mapped() -> bool:
    """Does this run inside `shard_map`?"""
    mesh = getattr(jax.sharding, "get_abstract_mesh", lambda: None)()
    return bool(getattr(mesh, "manual_axes", ()))


_apart: ContextVar[bool] = ContextVar("apart", default=False)


def runs_all_branches() -> bool:
    """Do all branches of a condition run? In `shard_map`, where JAX cannot vectorise one that differs by device."""
    return is_mapped() and not _apart.get()


def apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of blocks that tell each other nothing, so that each device may take another branch."""

    def marked(*blocks: Any) -> Any:
        token = _apart.set(True)
        try:
            return function(*blocks)
        finally:
            _apart.reset(token)

    return marked


def axes_of(arrays: Iterable[Any]) -> Axes:
    """Varying mesh axes of the arrays, or of their types."""
    return frozenset().union(*map(_axes, arrays))


def vary(tree: Any, axes: Axes) -> Any:
    """Cast the arrays to vary over `axes` too."""
    return jax.tree.map(lambda leaf: _cast(leaf, axes), tree)


def vary_alike(tree: Any) -> Any:
    """Cast all arrays to vary over the axes of any of them."""
    return vary(tree, axes_of(jax.tree.leaves(tree)))


def varying_function(function: Callable[..., Any], axes: Axes) -> Callable[..., Any]:
    """`function` with its results cast to vary over `axes`."""

    def varying(*arrays: Any) -> Any:
        with casts(automatic=True):
            return vary(function(*arrays), axes)

    return varying


def casts(automatic: bool) -> AbstractContextManager[Any]:
    """Does JAX cast the operands of an operation to those of the most axes, as it does by default?

    `custom_linear_solve` would cast what its functions close over, which they were not made for.
    """
    try:
        from jax._src.config import auto_pcast  # not public
    except ImportError:
        return nullcontext()
    return auto_pcast(automatic)


def axes_after(function: Callable[..., Any], *arrays: Any) -> Axes:
    """Varying axes of arrays and of a function's results."""
    program = jax.make_jaxpr(function)(*arrays)
    return axes_of([*program.in_avals, *program.out_avals])


def _axes(x: Any) -> Axes:
    aval = x if isinstance(x, jax.core.ShapedArray) else jax.typeof(x)
    kind = getattr(aval, "manual_axis_type", None)  # JAX < 0.9: vma
    return frozenset(getattr(aval, "vma", ()) if kind is None else kind.varying)


def _cast(x: Any, axes: Axes) -> Any:
    missing = tuple(sorted(axes - _axes(x), key=str))
    if not missing:
        return x
    return lax.pcast(x, missing, to="varying") if hasattr(lax, "pcast") else lax.pvary(x, missing)
