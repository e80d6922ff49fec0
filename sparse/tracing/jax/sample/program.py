"""A jaxpr as the list of operations that a few elements are computed from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.extend import core

from ...verify.sample import Node, OperationGraph, Sampler
from ...verify.sources import Positions, Shape
from ..expand import is_call, program_of
from ..interpreter import JaxprInterpreter
from ..known.table import as_known, is_known
from .rules import POINTS


def sampled(
    program: Any,
    interpreter: JaxprInterpreter,
    inputs: Callable[[int, Positions | None], Any],
    wanted: Sequence[Positions],
) -> list[np.ndarray] | None:
    """Some elements of what a closed program returns, see `Sampler.run`.

    Raises:
        LookupError: NumPy has no rule for what a known operand is.
    """
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
