"""Placement on devices: of arrays made beside others, and of a solve whose arrays lie on meshes with Explicit axes.

Such meshes are made by `jax.make_mesh`. Most operations of a solve (it flattens, stacks and gathers) would have to say
how their results are spread, so it runs with Auto axes, where XLA finds that out by itself, and its results are spread
as their types say outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from ...interface.arrays import Array
from ..tracing import is_tracing
from .grid_rows import cells_of

_WHAT_TO_DO = (
    "A(x) closes over an array that is spread over a mesh with Explicit axes, and a solve runs with Auto axes, so the "
    "two do not mix. Pass the array on: linear_solve(A, b, args=(array,)) with A(x, array); or make the mesh with "
    "jax.make_mesh(..., axis_types=(jax.sharding.AxisType.Auto,) * number_of_axes)."
)


def with_auto_axes(function: Callable[[Any], Any], tree: Any, like: Any = None) -> Any:
    """`function(tree)` with the Explicit mesh axes of its arrays turned into Auto.

    Args:
        like: None, or an array: arrays of the result that are shaped as it is, or as its first axes, are spread as it
            is, and all others are the same on all devices.

    Raises:
        TypeError: the function closes over an array of the mesh.
        ValueError: the arrays lie on several meshes.
    """
    leaves, structure = jax.tree.flatten(tree)
    mesh = next((sharding.mesh for sharding in map(_explicit, leaves) if sharding is not None), None)
    if mesh is None:
        return function(tree)
    _check_one_mesh(mesh, leaves, like)
    with jax.sharding.use_abstract_mesh(mesh.update_axis_types(dict.fromkeys(mesh.explicit_axes, AxisType.Auto))):
        leaves = [x if _explicit(x) is None else jax.sharding.reshard(x, PartitionSpec()) for x in leaves]
        try:
            found = function(jax.tree.unflatten(structure, leaves))
        except ValueError as error:
            if "context mesh" in str(error) and "should match the aval mesh" in str(error):
                raise TypeError(_WHAT_TO_DO) from error
            raise
    return found if like is None else jax.tree.map(lambda x: _spread(x, like, mesh), found)


def _check_one_mesh(mesh: Any, leaves: Sequence[Any], like: Any) -> None:
    """Refuse arrays of a second mesh with Explicit axes, and `like` on one with other Auto axes: JAX does not mix them.

    Raises:
        ValueError: there are such arrays.
    """
    found = [sharding.mesh for sharding in map(_explicit, leaves) if sharding is not None]
    if isinstance(sharding := getattr(cells_of(like), "sharding", None), NamedSharding):
        found += [sharding.mesh.abstract_mesh] if sharding.mesh.shape != mesh.shape else []
    other = next((one for one in found if one != mesh), None)
    if other is not None and not other.empty:
        raise ValueError(
            f"The arrays of a solve are spread over {_in_words(mesh)} and over {_in_words(other)}; expected one mesh "
            "where axes are Explicit. Spread all of them over the mesh of b: jax.device_put(array, "
            "NamedSharding(b.sharding.mesh, spec))."
        )


def _in_words(mesh: Any) -> str:
    pairs = zip(mesh.shape.items(), mesh.axis_types, strict=True)
    return f"a mesh with the axes {', '.join(f'{name}: {size} ({kind.name})' for (name, size), kind in pairs)}"


def _explicit(x: Any) -> Any:
    """Sharding of an array over Explicit mesh axes; None for others."""
    sharding = getattr(getattr(x, "aval", None), "sharding", None)
    return sharding if getattr(getattr(sharding, "mesh", None), "explicit_axes", ()) else None


def _spread(x: Any, like: Any, mesh: Any) -> Any:
    sharding = _explicit(like)
    spec = () if sharding is None or x.shape != like.shape[: x.ndim] else tuple(sharding.spec)[: x.ndim]
    if not any(isinstance(array, jax.core.Tracer) for array in (x, like)):  # x may lie on one device
        if sharding is None:  # only other arrays lie on the mesh, and types tell no devices to spread x over
            return x
        return jax.device_put(x, NamedSharding(like.sharding.mesh, PartitionSpec(*spec)))
    return jax.sharding.reshard(x, NamedSharding(mesh, PartitionSpec(*spec)))


def placed_like(array: Array, like: Any) -> Array:
    """Place an array made from NumPy beside `like`; on all its devices if there are several.

    JAX itself moves uncommitted arrays to committed ones.
    """
    place = _place(like)
    return array if place is None else jax.device_put(array, place)


def first_placed(arrays: Sequence[Any]) -> Any:
    """The first committed array, or None."""
    return next((x for x in map(cells_of, arrays) if getattr(x, "committed", False)), None)


def _place(like: Any) -> Any:
    """Device of a committed array; None for a single device or while tracing."""
    like = cells_of(like)
    if isinstance(like, jax.core.Tracer) or not getattr(like, "committed", False) or jax.device_count() == 1:
        return None
    if is_tracing():
        return None
    sharding = like.sharding
    if len(sharding.device_set) == 1:
        return sharding
    return NamedSharding(sharding.mesh, PartitionSpec()) if isinstance(sharding, NamedSharding) else None
