"""The argument `sharding`: how an array is spread, as its caller says where a traced array does not tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec


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
