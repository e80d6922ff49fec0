"""The third table, of sample rules: how a few elements of a result come from a few elements of the operands.

A rule says which elements an equation needs, and what it makes of them; `verify/sources.py` has the functions that most
need. An operation that is missing here is right too: its operands are computed whole where they are needed at all.

>>> import jax
>>> equation = jax.make_jaxpr(lambda u: u[1:, ::2])(np.zeros((4, 6))).eqns[0]
>>> POINTS["slice"].sources(equation, np.array([0, 8]), [(4, 6)], (3, 3))  # u[1, 0] and u[3, 4] of u, raveled
[array([ 6, 22])]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from ...verify import sources
from ...verify.sources import Positions, Shape
from ..known.elementwise import ELEMENTWISE

_NOT_BY_POINTS = {"iota", "bitcast_convert_type", "optimization_barrier"}
Shapes = Sequence[Shape]


class SampleRule(NamedTuple):
    """What an operation needs, and what it makes of that.

    Attributes:
        sources: `(equation, positions in the result, shapes of the operands, shape of the result)` -> positions in each
            operand; None where they are needed whole.
        combine: `(equation, elements of each operand, their positions)` -> elements of the result.
    """

    sources: Callable[[Any, Positions, Shapes, Shape], list[Positions] | None]
    combine: Callable[[Any, Sequence[np.ndarray], Sequence[Positions]], np.ndarray]


def _combining(
    function: Callable[[Sequence[np.ndarray], Sequence[Positions], np.dtype], np.ndarray],
) -> Callable[[Any, Sequence[np.ndarray], Sequence[Positions]], np.ndarray]:
    return lambda equation, parts, where: function(parts, where, equation.outvars[0].aval.dtype)


_MOVED, _JOINED = _combining(sources.moved), _combining(sources.joined)


def _elementwise(equation: Any, where: Positions, shapes: Shapes, shape: Shape) -> list[Positions]:
    return sources.elementwise(where, shapes, shape)


def _evaluate(equation: Any, parts: Sequence[np.ndarray], where: Sequence[Positions]) -> np.ndarray:
    """By the rule for known operands.

    Raises:
        LookupError: it leaves them to JAX.
    """
    name, dtype = equation.primitive.name, equation.outvars[0].aval.dtype
    with np.errstate(all="ignore"):
        found = ELEMENTWISE[name](parts, equation.params, [SimpleNamespace(shape=parts[0].shape, dtype=dtype)])
    if found is None:
        raise LookupError(name)
    return np.asarray(found[0] if isinstance(found, list) else found, dtype)


def _same_order(equation: Any, where: Positions, shapes: Shapes, shape: Shape) -> list[Positions] | None:
    return None if equation.params.get("dimensions") and equation.primitive.name == "reshape" else [where]


def _broadcast(equation: Any, where: Positions, shapes: Shapes, shape: Shape) -> list[Positions]:
    return sources.broadcast(where, shapes[0], shape, equation.params["broadcast_dimensions"])


def _slice(equation: Any, where: Positions, shapes: Shapes, shape: Shape) -> list[Positions]:
    p = equation.params
    return sources.sliced(where, shapes[0], shape, p["start_indices"], p["strides"] or (1,) * len(shape))


def _transpose(equation: Any, where: Positions, shapes: Shapes, shape: Shape) -> list[Positions]:
    return sources.transposed(where, shapes[0], shape, equation.params["permutation"])


def _reverse(equation: Any, where: Positions, shapes: Shapes, shape: Shape) -> list[Positions]:
    return sources.reversed_along(where, shape, equation.params["dimensions"])


def _concatenate(equation: Any, where: Positions, shapes: Shapes, shape: Shape) -> list[Positions]:
    return sources.concatenated(where, shapes, shape, equation.params["dimension"])


def _stack(equation: Any, where: Positions, shapes: Shapes, shape: Shape) -> list[Positions]:
    return sources.stacked(where, shapes, shape, equation.params["axis"])


def _pad(equation: Any, where: Positions, shapes: Shapes, shape: Shape) -> list[Positions]:
    return sources.padded(where, shapes[0], shape, equation.params["padding_config"])


def _reduce_sum(equation: Any, where: Positions, shapes: Shapes, shape: Shape) -> list[Positions] | None:
    return sources.summed_over(where, shapes[0], equation.params["axes"])


def _convolution(equation: Any, where: Positions, shapes: Shapes, shape: Shape) -> list[Positions] | None:
    p = equation.params
    if p["batch_group_count"] != 1:
        return None
    numbers, groups = p["dimension_numbers"], p["feature_group_count"]
    axes = (numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec)
    dilation = p["lhs_dilation"], p["rhs_dilation"]
    return sources.convolved(where, shapes, shape, axes, p["window_strides"], p["padding"], *dilation, groups)


POINTS: dict[str, SampleRule] = {
    **{name: SampleRule(_elementwise, _evaluate) for name in ELEMENTWISE if name not in _NOT_BY_POINTS},
    "reshape": SampleRule(_same_order, _MOVED),
    "squeeze": SampleRule(_same_order, _MOVED),
    "expand_dims": SampleRule(_same_order, _MOVED),
    "broadcast_in_dim": SampleRule(_broadcast, _MOVED),
    "slice": SampleRule(_slice, _MOVED),
    "transpose": SampleRule(_transpose, _MOVED),
    "rev": SampleRule(_reverse, _MOVED),
    "concatenate": SampleRule(_concatenate, _JOINED),
    "stack": SampleRule(_stack, _JOINED),
    "pad": SampleRule(_pad, _combining(sources.filled)),
    "reduce_sum": SampleRule(_reduce_sum, _combining(sources.added)),
    "conv_general_dilated": SampleRule(_convolution, _combining(sources.products_added)),
}
