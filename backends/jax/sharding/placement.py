"""Functions of the blocks of distributed arrays (`jax.shard_map`), and the specs that say how arrays are cut."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from ...interface.arrays import Array
from ...interface.cuts import Cut
from ..tracing import is_tracing
from .grid_rows import cells_of
from .varying import is_mapped

WHOLE = PartitionSpec()


def of_blocks(function: Callable[..., Any], cut: Cut, in_specs: Sequence[Any], out_specs: Any) -> Callable[..., Any]:
    """`function` on each device of the mesh of a cut, or on those of the context, whose mesh is that one.

    Raises:
        ValueError: the context has another mesh.
    """
    context = jax.sharding.get_abstract_mesh()
    sizes = {name: cut.mesh.shape[name] for name in (*cut.all_names, *cut.batch)}
    if not context.empty and any(context.shape.get(name) != size for name, size in sizes.items()):
        raise ValueError(
            f"A solver or preconditioner for arrays spread over a mesh with the axes {sizes} was called with arrays "
            f"of one with {dict(context.shape)}; expected the same mesh. Prepare another for that mesh, or "
            "spread b over the first one by jax.device_put."
        )
    # The mesh of the context has no devices: arrays that lie on none, as those of a known matrix, could not go there.
    own = context.empty or (isinstance(cut.mesh, Mesh) and cut.mesh.abstract_mesh == context)
    mesh = cut.mesh if own else context
    return jax.shard_map(function, mesh=mesh, in_specs=tuple(in_specs), out_specs=out_specs, check_vma=False)


def grid_spec(cut: Cut, lead: int = 1) -> PartitionSpec:
    """Of `(*lead, *grid)`; the last axis of `lead` is that of the batch, the others are whole; all, if negative."""
    front = (*(None,) * (lead - 1), cut.batch or None) if lead > 0 else (None,) * -lead
    return PartitionSpec(*front, *(names or None for names in cut.names))


def batch_spec(cut: Cut) -> PartitionSpec:
    """Of an array whose first axis is that of the batch."""
    return PartitionSpec(cut.batch or None)


def spread(cells: Array, cut: Cut, lead: int = 1) -> Array:
    """`(*lead, *grid)`, see `grid_spec`, laid out as the cut says: XLA's search for layouts starts from there."""
    spec = grid_spec(cut, lead)
    if not isinstance(cells, jax.core.Tracer):
        return jax.device_put(cells, NamedSharding(cut.mesh, spec))
    context = jax.sharding.get_abstract_mesh()
    return lax.with_sharding_constraint(cells, NamedSharding(cut.mesh, spec) if context.empty else spec)


def is_reduced_by_parts(x: Any, cut: Cut | None) -> bool:
    """Is a reduction over the grid axes of `x` one of a program, over several devices whose mesh is known?"""
    return cut is not None and bool(cut.all_names) and isinstance(x, jax.core.Tracer) and not is_mapped()


# --- The argument `sharding`: how an array is spread, as its caller says where a traced array does not tell -----------


def checked_sharding(sharding: Any, shape: Sequence[int]) -> NamedSharding:
    """The sharding that is meant, for an array of this shape.

    Raises:
        TypeError: it is neither a NamedSharding nor a PartitionSpec.
        ValueError: there is no mesh, the mesh has no such axis, or an axis of the array does not divide.
    """
    if isinstance(sharding, PartitionSpec):
        mesh = jax.sharding.get_abstract_mesh()
        if mesh.empty:
            raise ValueError(
                f"sharding={sharding!r} was given, and there is no mesh that its names belong to. Give "
                "NamedSharding(mesh, spec), or call it in `with jax.set_mesh(mesh):`."
            )
        unknown = [name for entry in sharding for name in names_in(entry) if name not in mesh.axis_names]
        if unknown:
            raise ValueError(
                f"sharding={sharding!r} names the mesh axis {unknown[0]!r}; the mesh of the context has the axes "
                f"{mesh.axis_names}. Give one of these, or NamedSharding(mesh, spec)."
            )
        sharding = NamedSharding(mesh, sharding)
    if not isinstance(sharding, NamedSharding):
        raise TypeError(
            f"sharding must be a NamedSharding, or a PartitionSpec for the mesh of jax.set_mesh; got {sharding!r}."
        )
    spec = sharding.spec
    if len(spec) > len(shape):
        raise ValueError(f"sharding has the spec {spec!r}, of {len(spec)} axes; b has the shape {tuple(shape)}.")
    for axis, entry in enumerate(spec):
        parts = math.prod(sharding.mesh.shape[name] for name in names_in(entry))
        if shape[axis] % parts:
            raise ValueError(
                f"sharding cuts axis {axis} of b, of length {shape[axis]}, into {parts} parts ({spec!r}); expected a "
                "length that they divide. Pad the grid, or spread another axis."
            )
    return sharding


def names_in(entry: Any) -> tuple[str, ...]:
    """Mesh axes in an entry of a PartitionSpec."""
    return () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)


# --- Placement: of arrays made beside others, and of a solve whose arrays lie on meshes with Explicit axes ------------
# Such meshes are made by `jax.make_mesh`. Most operations of a solve (it flattens, stacks and gathers) would have to
# say how their results are spread, so it runs with Auto axes, where XLA finds that out by itself, and its results are
# spread as their types say outside.

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
