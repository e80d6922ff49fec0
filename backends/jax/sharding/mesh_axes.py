"""Axes of a device mesh inside `jax.shard_map` as a communicator: reductions over all of them in one message."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ...interface.arrays import Array, scattered
from ...interface.backend import Backend
from ...interface.control import select
from ...settings import real_dtype
from ..tracing import is_vectorizing
from .varying import axes_of, vary, varying_function


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
