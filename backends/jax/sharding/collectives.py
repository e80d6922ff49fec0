"""The distribution of arrays over devices, and messages between devices inside of functions of blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from ...interface.arrays import Array, scattered
from ...interface.backend import Backend
from ...interface.control import select
from ...interface.cuts import Cut, CutAxis
from ...settings import real_dtype
from ..tracing import is_tracing, is_vectorizing
from .grid_rows import GridRows, cells_of
from .parts import WHOLE, checked_sharding, grid_spec, names_in, of_blocks, spread
from .varying import apart as tell_nothing
from .varying import axes_of, is_mapped, vary, varying_function


class MeshAxes:
    """See `Communicator`; members are the devices along the axes, which run one program."""

    is_traced = True

    def __init__(self, names: tuple[str, ...], size: int) -> None:
        self.names, self.size = names, size
        self.key: Hashable = ("mesh axes", names, size)

    @property
    def rank(self) -> Any:
        return jnp.asarray(lax.axis_index(self.names), np.int32)

    def sum(self, x: Any) -> Any:
        return lax.psum(self.varying(x), self.names)

    def max(self, x: Any) -> Any:
        return lax.pmax(self.varying(x), self.names)

    def any(self, flag: bool) -> bool:
        return flag

    def sum_of_numbers(self, numbers: Sequence[int]) -> list[int]:
        return [self.size * number for number in numbers]

    def max_of_numbers(self, numbers: Sequence[int]) -> list[int]:
        return list(numbers)

    def varying(self, x: Any, everywhere: bool = False) -> Any:
        """x with a type that varies over the axes: an array that is the same on all devices is a part, too.

        Args:
            everywhere: over the others, too.
        """
        if not self.types_tell:
            return x
        return vary(x, axes_of([x]) | {*self.names, *(self.others if everywhere else ())})

    @property
    def types_tell(self) -> bool:
        """Do types say over which axes an array varies (`check_vma` of `shard_map`)?"""
        return bool(axes_of([lax.axis_index(self.names)]))

    @property
    def others(self) -> tuple[str, ...]:
        """The other axes that `shard_map` maps, along which the devices solve other systems."""
        mesh = jax.sharding.get_abstract_mesh()
        return tuple(name for name in mesh.axis_names if name in mesh.manual_axes and name not in self.names)


def mesh_axes(over: Any) -> MeshAxes | None:
    """The communicator of mesh axis names, one or a tuple of them; None if it is no such name.

    Raises:
        ValueError: outside of `shard_map`, or names of axes that it does not map.
    """
    names = (over,) if isinstance(over, str) else over
    if not isinstance(names, tuple | list) or not names or not all(isinstance(name, str) for name in names):
        return None
    mesh = jax.sharding.get_abstract_mesh()
    mapped = tuple(getattr(mesh, "manual_axes", ()))
    if len(set(names)) < len(names) or any(name not in mapped for name in names):
        here = f"the axes here are {mapped}" if mapped else "this is outside of it"
        raise ValueError(
            f"over={over!r} names axes of a mesh; expected different ones that jax.shard_map maps, and {here}. Call "
            "linear_solve in the function that shard_map maps; outside of it, give arrays that are spread over the "
            "mesh, without over=."
        )
    return MeshAxes(tuple(names), math.prod(mesh.shape[name] for name in names))


class MeshControl(Backend):
    """Control flow where all devices along the axes of the communicator take the same branch.

    Where `shard_map` maps other axes too, groups of devices solve different systems. They stay together, as XLA may let
    all of them take part in a message of one: groups that have ended go on without effect.
    """

    alone: Backend  # see `SumsOverMembers`

    @property
    def raises_in_programs(self) -> bool:
        return True  # all of them know of the failure

    def _zeros(self, shape: Any, dtype: np.dtype, like: Array | None) -> Array:
        return self.communicator.varying(
            self.alone._zeros(shape, dtype, like), everywhere=True
        )  # as parts of vectors do

    def scatter_numbers(self, n: int, dtype: np.dtype, like: Array) -> Array:
        places = 1 + n * self.communicator.rank + jnp.arange(n, dtype=np.int32)
        return scattered(jnp, places.astype(real_dtype(dtype))).astype(dtype)

    def cond(self, predicate: Any, if_true: Callable[..., Any], if_false: Callable[..., Any], *operands: Any) -> Any:
        if self.communicator.others or is_vectorizing():  # where both branches run
            return super().cond(predicate, if_true, if_false, *operands)
        axes = frozenset(self.communicator.names) if self.communicator.types_tell else frozenset()
        return lax.cond(predicate, varying_function(if_true, axes), varying_function(if_false, axes), *operands)

    def _while_loop(self, condition: Callable[[Any], Any], body: Callable[[Any], Any], state: Any) -> Any:
        others = self.communicator.others

        def together(state: Any) -> Any:
            return lax.pmax(jnp.asarray(condition(state), np.int32), others) > 0

        found: Any = super()._while_loop(together if others else condition, body, state)
        return found

    def step_active(self, step: Callable[[Any], Any], state: Any, active: Array) -> Any:
        if self.communicator.others:
            return select(self, active, step(state), state)
        return super().step_active(step, state, active)

    def replicated(self, x: Array) -> Array:
        names = self.communicator.names
        if not axes_of([x]) & set(names):
            return x
        first = jnp.where(self.communicator.rank == 0, lax.stop_gradient(x), jnp.zeros_like(x))
        return lax.psum(jnp.asarray(first), names)  # which keeps a NaN, as a maximum may not


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
