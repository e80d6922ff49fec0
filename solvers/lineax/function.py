"""lineax operators as linear functions, and their containers of arrays as flat vectors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend import core

from ...backends.jax.program.function import trace
from ...sparse import Operator


class LineaxFunction(eqx.Module):
    """A linear function on containers; a pytree of arrays, equal to others of the same program.

    Operators of lineax hold programs that equal only themselves; loops that make a new state in each turn refuse these.
    """

    constants: Any
    program: Any = eqx.field(static=True)
    takes: Any = eqx.field(static=True)  # structures, hashable: see `hashable_structure`
    gives: Any = eqx.field(static=True)
    symmetric: bool = eqx.field(static=True)

    @classmethod
    def of(cls, function: Callable[[Any], Any], takes: Any, symmetric: bool = False) -> LineaxFunction:
        """`function`, which takes arrays of the structure `takes`."""
        gives = jax.eval_shape(function, takes)
        found: tuple[Any, Any] | None = trace(function, takes)
        if found is None:
            closed = jax.make_jaxpr(function)(takes)
            found = _Incomparable(closed.jaxpr, jax.tree.structure(gives)), closed.consts
        return cls(list(found[1]), found[0], hashable_structure(takes), hashable_structure(gives), symmetric)

    def __call__(self, x: Any) -> Any:
        return self.program(x, *self.constants)

    @property
    def T(self) -> LineaxFunction:
        if self.symmetric:
            return self
        transposed = jax.linear_transpose(self, thawed(self.takes))
        return LineaxFunction.of(lambda y: transposed(y)[0], thawed(self.gives))

    def conj(self) -> LineaxFunction:
        def conjugated(x: Any) -> Any:
            return jax.tree.map(jnp.conj, self(jax.tree.map(jnp.conj, x)))

        return LineaxFunction.of(conjugated, thawed(self.takes), self.symmetric)


class _Incomparable:
    """`f(x, *constants)` of an incomparable program: equal to itself only."""

    def __init__(self, jaxpr: Any, structure: Any) -> None:
        self.jaxpr, self.structure = jaxpr, structure

    def __call__(self, x: Any, *constants: Any) -> Any:
        run = core.jaxpr_as_fun(core.ClosedJaxpr(self.jaxpr, list(constants)))
        return jax.tree.unflatten(self.structure, run(*jax.tree.leaves(x)))


class LineaxHostOperator:
    """An operator on NumPy arrays, static to JAX: a constant of its programs."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator

    @property
    def T(self) -> LineaxHostOperator:
        return LineaxHostOperator(self.operator.T)

    def conj(self) -> LineaxHostOperator:
        return LineaxHostOperator(self.operator.conj())


def hashable_structure(structure: Any) -> Any:
    """Hashable form of a container of shapes and dtypes."""
    leaves, tree = jax.tree.flatten(structure)
    return tuple((leaf.shape, jnp.dtype(leaf.dtype)) for leaf in leaves), tree


def thawed(structure: Any) -> Any:
    """Inverse of `hashable_structure`."""
    leaves, tree = structure
    return jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(*leaf) for leaf in leaves])


def ravel(tree: Any) -> jax.Array:
    """All arrays of a container in one vector, in the order of lineax' matrices."""
    return jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(tree)])


def unravel(vector: jax.Array, structure: Any) -> Any:
    """The container of this structure that `ravel` makes the vector of."""
    leaves, tree = jax.tree.flatten(structure)
    parts, start = [], 0
    for leaf in leaves:
        stop = start + math.prod(leaf.shape)
        parts.append(vector[start:stop].reshape(leaf.shape))
        start = stop
    return jax.tree.unflatten(tree, parts)


def on_vectors(function: LineaxFunction) -> Callable[[jax.Array], jax.Array]:
    """The same function from vector to vector."""
    takes = thawed(function.takes)
    return lambda v: ravel(function(unravel(v, takes)))
