"""Functions of the blocks of distributed arrays (`jax.shard_map`), and the specs that say how arrays are cut."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ...interface.arrays import Array
from ...interface.cuts import Cut
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
