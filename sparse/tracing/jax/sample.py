"""The third table, of sample rules: how a few elements of a result come from a few elements of the operands.

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
from jax.extend import core

from .. import sample as sources
from ..sample import Node, OperationGraph, Positions, Sampler, Shape
from .interpreter import JaxprInterpreter, is_call, program_of
from .known import ELEMENTWISE, as_known, is_known


def sampled(
    program: Any,
    interpreter: JaxprInterpreter,
    inputs: Callable[[int, Positions | None], Any],
    wanted: Sequence[Positions],
) -> list[np.ndarray] | None:
    """Some elements of what a closed program returns, see `Sampler.run`."""
    return Sampler(_Flattening(interpreter).program(program), _Equations(interpreter)).run(inputs, wanted)


class _Equations:
    """The operations of JAX."""

    def __init__(self, interpreter: JaxprInterpreter) -> None:
        self._interpreter = interpreter

    def sources(
        self, operation: Any, where: Positions, shapes: Sequence[Shape], shape: Shape
    ) -> Sequence[Positions] | None:
        rule = POINTS.get(operation.primitive.name)
        return None if rule is None else rule.sources(operation, where, shapes, shape)

    def combine(self, operation: Any, parts: Sequence[np.ndarray], sources: Sequence[Positions]) -> np.ndarray:
        return POINTS[operation.primitive.name].combine(operation, parts, sources)

    def evaluate(self, operation: Any, operands: Sequence[Any]) -> Sequence[np.ndarray] | None:
        if not all(is_known(operand) for operand in operands):
            return None
        results = self._interpreter.known_results(operation, operands)
        return results if all(isinstance(result, np.ndarray) for result in results) else None


class _Flattening:
    """Writes out calls, and counts the values."""

    def __init__(self, interpreter: JaxprInterpreter) -> None:
        self._interpreter = interpreter
        self._nodes: list[Node] = []
        self._avals: list[Any] = []

    def program(self, program: Any) -> OperationGraph:
        inputs = [self._new(v) for v in program.jaxpr.invars]
        outputs = self._flatten(program, inputs)
        shapes = [tuple(aval.shape) for aval in self._avals]
        return OperationGraph(self._nodes, shapes, [aval.dtype for aval in self._avals], inputs, outputs)

    def _new(self, variable: Any) -> int:
        self._avals.append(variable.aval)
        return len(self._avals) - 1

    def _flatten(self, program: Any, arguments: Sequence[Any]) -> list[Any]:
        scope: dict[Any, Any] = dict(zip(program.jaxpr.invars, arguments))
        for variable, constant in zip(program.jaxpr.constvars, program.consts):
            scope[variable] = self._interpreter.constant(constant, variable.aval)

        def read(atom: Any) -> Any:
            return as_known(atom.val, atom.aval.dtype) if isinstance(atom, core.Literal) else scope[atom]

        for equation in program.jaxpr.eqns:
            operands = [read(atom) for atom in equation.invars]
            if is_call(equation):
                results = self._flatten(program_of(equation, ()), operands)
            else:
                results = [self._new(v) for v in equation.outvars]
                self._nodes.append(Node(equation, operands, results))
            scope.update(zip(equation.outvars, results))
        return [read(atom) for atom in program.jaxpr.outvars]


# --- sample rules -----------------------------------------------------------------------------------------------------
# A rule says which elements an equation needs, and what it makes of them; `tracing/sample.py` has the functions that
# most need. An operation that is missing here is right too: its operands are computed whole where they are needed at
# all.

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
    """By the rule for known operands."""
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
