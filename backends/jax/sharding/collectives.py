"""The distribution of arrays over devices, and messages between devices inside of functions of blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from ...interface.arrays import Array
from ...interface.backend import Backend
from ...interface.cuts import Cut, CutAxis
from ..tracing import is_tracing
from .given import checked_sharding, names_in
from .grid_rows import GridRows, cells_of
from .mesh_axes import MeshControl, mesh_axes
from .parts import WHOLE, grid_spec, of_blocks, spread
from .varying import apart as tell_nothing
from .varying import is_mapped


class JaxCollectives(Backend):
    """See `Collectives` and `Members`."""

    _communicators = "the name of a mesh axis, or a tuple of names, inside jax.shard_map"
    _of_members = (MeshControl,)
    _communicator = staticmethod(mesh_axes)

    def cut_of(self, x: Array, batch_ndim: int, sharding: Any = None) -> Cut | None:
        if isinstance(sharding, Cut) or is_mapped():
            return sharding if isinstance(sharding, Cut) else None
        given = None if sharding is None else checked_sharding(sharding, tuple(x.shape))
        found = self.sharding_of(x) if given is None else given
        if found is None or found.mesh.size == 1:
            return None
        mesh, entries = found.mesh, [*found.spec, *[None] * (x.ndim - len(found.spec))]
        names = [tuple(name for name in names_in(entry) if mesh.shape[name] > 1) for entry in entries]
        if not any(names) or any(names[1:batch_ndim]):  # batch axes become one, of which only the first stays cut
            return None
        batch = names[0] if batch_ndim else ()
        return Cut(_with_auto_axes(mesh), tuple(names[batch_ndim:]), batch)

    def sharding_of(self, x: Any) -> NamedSharding | None:
        while isinstance(x, jax.core.Tracer) and hasattr(x, "primal"):  # of a derivative, whose values are known
            x = x.primal
        traced = isinstance(x, jax.core.Tracer)
        found = getattr(jax.typeof(x), "sharding", None) if traced else getattr(x, "sharding", None)
        if not isinstance(found, NamedSharding) or found.mesh.size == 1:
            return None
        return found if not traced or found.mesh.explicit_axes else None

    def spread_over(self, x: Array, cut: Cut, lead: int) -> Array:
        return spread(jnp.asarray(x) if is_tracing() else x, cut, lead)

    def cells(self, x: Any, grid: Sequence[int]) -> Array:
        return jnp.reshape(cells_of(x), (x.shape[0], *grid))

    def as_rows(self, cells: Array, like: Any) -> Any:
        found = jnp.reshape(cells, cells_of(like).shape)
        return GridRows(found, like.cut) if isinstance(like, GridRows) else found

    def map_parts(
        self,
        function: Callable[..., Any],
        cut: Cut,
        arrays: Sequence[Array],
        leads: Sequence[int | None],
        out_leads: Any,
        apart: bool = False,
    ) -> Any:
        out = jax.tree.map(lambda lead: _spec(cut, lead), out_leads, is_leaf=lambda lead: lead is None)
        function = tell_nothing(function) if apart else function
        return of_blocks(function, cut, [_spec(cut, lead) for lead in leads], out)(*arrays)

    def from_neighbour(self, u: Array, axis: CutAxis, side: int) -> Array:
        last = axis.parts - 1
        pairs = [(k, k + 1) if side < 0 else (k + 1, k) for k in range(last)]
        if axis.ring:
            pairs.append((last, 0) if side < 0 else (0, last))
        return self.permuted(u, axis.names, pairs)

    def permuted(self, u: Array, names: Sequence[str], pairs: Sequence[tuple[int, int]]) -> Array:
        number = _in_order_of_mesh(names)
        return lax.ppermute(u, tuple(names), [(number[source], number[target]) for source, target in pairs])

    def all_gathered(self, u: Array, names: Sequence[str], axis: int) -> Array:
        return lax.all_gather(u, tuple(names), axis=axis, tiled=True)

    def all_to_all(self, u: Array, names: Sequence[str], split: int, concat: int) -> Array:
        return lax.all_to_all(u, tuple(names), split, concat, tiled=True)

    def ordered_after(self, x: Array, before: Array) -> Array:
        one = jnp.real(before[(0,) * before.ndim])
        never = (one != one) & (one == one)  # a dependence that XLA does not simplify away, as it does a barrier
        return jnp.where(never, jnp.zeros_like(x), x)

    def part_index(self, names: Sequence[str]) -> Array:
        return jnp.asarray(lax.axis_index(tuple(names)), np.int32)

    def sum_over(self, x: Array, names: Sequence[str]) -> Array:
        return lax.psum(x, tuple(names)) if names else x

    def max_over(self, x: Array, names: Sequence[str]) -> Array:
        return lax.pmax(x, tuple(names)) if names else x


def _in_order_of_mesh(names: Sequence[str]) -> list[int]:
    """The number that `ppermute` gives to each position along mesh axes: it counts in the order of the mesh."""
    mesh = jax.sharding.get_abstract_mesh()
    sizes = [mesh.shape[name] for name in names]
    order = sorted(range(len(names)), key=lambda k: mesh.axis_names.index(names[k]))
    numbers = np.arange(np.prod(sizes)).reshape([sizes[k] for k in order])
    return numbers.transpose(np.argsort(order)).ravel().tolist()


def _with_auto_axes(mesh: Any) -> Any:
    if isinstance(mesh, AbstractMesh):
        return mesh.update_axis_types(dict.fromkeys(mesh.axis_names, AxisType.Auto))
    return Mesh(mesh.devices, mesh.axis_names)


def _spec(cut: Cut, lead: int | None) -> PartitionSpec:
    return WHOLE if lead is None else grid_spec(cut, lead)
