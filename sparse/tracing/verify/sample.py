"""A few elements of what a function returns, computed from the elements that they need.

The test of a traced matrix looks at some rows of large problems. Which elements of every intermediate array these need
is found backwards through the program; where an operation has no rule for that, its operands are needed whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from jax.extend import core

from ..jax.expand import is_call, program_of
from ..jax.interpreter import Interpreter
from ..jax.known.elementwise import ELEMENTWISE
from ..jax.known.table import as_known, is_known
from ..jax.sample.rules import POINTS, Positions

FEW = 4096  # elements that are looked up one by one, even if they are all
_NOTHING: Positions = np.zeros(0, np.int64)  # of a result without elements


class Node(NamedTuple):
    """An equation with its operands: numbers of values, or known arrays."""

    equation: Any
    operands: list[Any]
    results: list[int]


class Sampler:
    """The closed program of a function, with its calls written out."""

    def __init__(self, program: Any, interpreter: Interpreter) -> None:
        self._interpreter = interpreter
        self._nodes: list[Node] = []
        self._shapes: list[tuple[int, ...]] = []
        self._inputs = [self._new(v) for v in program.jaxpr.invars]
        self._outputs = self._flatten(program, self._inputs)

    def _new(self, variable: Any) -> int:
        self._shapes.append(tuple(variable.aval.shape))
        return len(self._shapes) - 1

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

    def run(
        self, inputs: Callable[[int, Positions | None], Any], wanted: Sequence[Positions]
    ) -> list[np.ndarray] | None:
        """The elements at the positions `wanted` of each output; None where something is not known.

        Args:
            inputs: `(number, positions or None for all)` -> those elements of an input, flat.
            wanted: for each output.
        """
        needs: dict[int, Any] = {}  # the positions of a value that are needed, None: all
        for output, where in zip(self._outputs, wanted):
            self._need(needs, output, where)
        plans = [self._plan(node, needs) for node in reversed(self._nodes)][::-1]
        values: dict[int, Any] = {}
        for number, value in enumerate(self._inputs):
            if value in needs:
                asked = _union(needs[value], self._shapes[value])
                values[value] = _Elements(inputs(number, asked), asked, self._shapes[value])
        for node, plan in zip(self._nodes, plans):
            if plan is not None and not self._step(node, plan, values):
                return None
        if not all(isinstance(output, (int, np.ndarray)) for output in self._outputs):
            return None
        return [_elements(values, output, where) for output, where in zip(self._outputs, wanted)]

    def _need(self, needs: dict[int, Any], operand: Any, where: Positions | None) -> None:
        if isinstance(operand, int):
            if where is None or needs.get(operand, []) is None:
                needs[operand] = None
            else:
                needs.setdefault(operand, []).append(where)

    def _plan(self, node: Node, needs: dict[int, Any]) -> Any:
        """The positions of the results and of the operands; `(None, None)`: all; None: nothing is needed."""
        if not any(result in needs for result in node.results):
            return None
        if all(0 in self._shapes[result] for result in node.results):
            return _NOTHING, ()
        rule = POINTS.get(node.equation.primitive.name)
        if rule is not None and len(node.results) == 1:
            where = _union(needs[node.results[0]], self._shapes[node.results[0]])
            if where is not None:
                shapes = [self._shapes[x] if isinstance(x, int) else x.shape for x in node.operands]
                sources = rule(node.equation, where, shapes, self._shapes[node.results[0]])
                if sources is not None:
                    for operand, source in zip(node.operands, sources):
                        self._need(needs, operand, source)
                    return where, sources
        for operand in node.operands:
            self._need(needs, operand, None)
        return None, None

    def _step(self, node: Node, plan: Any, values: dict[int, Any]) -> bool:
        where, sources = plan
        if where is _NOTHING:
            for result, variable in zip(node.results, node.equation.outvars):
                values[result] = _Elements(np.zeros(0, variable.aval.dtype), None, self._shapes[result])
            return True
        if where is None:
            operands = [values[x].whole() if isinstance(x, int) else x for x in node.operands]
            if not all(is_known(operand) for operand in operands):
                return False
            for result, array in zip(node.results, self._interpreter.known_results(node.equation, operands)):
                if not isinstance(array, np.ndarray):
                    return False
                values[result] = _Elements(array.reshape(-1), None, self._shapes[result])
            return True
        if not all(isinstance(x, (int, np.ndarray)) for x in node.operands):
            return False
        found = _combine(node.equation, [_elements(values, x, s) for x, s in zip(node.operands, sources)], sources)
        values[node.results[0]] = _Elements(found, where, self._shapes[node.results[0]])
        return True


class _Elements(NamedTuple):
    values: np.ndarray
    where: Positions | None
    shape: tuple[int, ...]

    def at(self, positions: Positions) -> np.ndarray:
        if not self.values.size:
            return np.zeros(positions.shape, self.values.dtype)
        index = positions if self.where is None else np.searchsorted(self.where, np.maximum(positions, self.where[0]))
        return self.values[index]

    def whole(self) -> np.ndarray:
        return self.values.reshape(self.shape)


def _elements(values: dict[int, Any], operand: Any, where: Positions) -> np.ndarray:
    if isinstance(operand, int):
        return values[operand].at(where)
    return np.broadcast_to(operand.reshape(-1), where.shape) if operand.size == 1 else operand.reshape(-1)[where]


def _union(parts: Any, shape: Sequence[int]) -> Positions | None:
    """Sorted, without duplicates and -1; None where most elements are needed."""
    if parts is None:
        return None
    joint = parts[0].reshape(-1) if len(parts) == 1 else np.concatenate([part.reshape(-1) for part in parts])
    if (joint[1:] <= joint[:-1]).any():
        joint = np.sort(joint)
        joint = joint[np.concatenate([[True], joint[1:] != joint[:-1]])]
    joint = joint[np.searchsorted(joint, 0) :]
    joint = joint if len(joint) else np.zeros(1, np.int64)
    return joint if len(joint) <= FEW or 4 * len(joint) < math.prod(shape) else None


def _combine(equation: Any, parts: list[np.ndarray], sources: Sequence[Positions]) -> np.ndarray:
    name, aval = equation.primitive.name, equation.outvars[0].aval
    if name == "reduce_sum":
        return parts[0].sum(axis=1, dtype=aval.dtype)
    if name == "conv_general_dilated":
        return np.where(sources[0] >= 0, parts[0] * parts[1], 0).sum(axis=1, dtype=aval.dtype)
    if name in ("concatenate", "stack"):
        joint = np.zeros(parts[0].shape, aval.dtype)
        for part, source in zip(parts, sources):
            np.copyto(joint, part, where=source >= 0)
        return joint
    if name == "pad":
        return np.where(sources[0] >= 0, parts[0], parts[1])
    if name in ELEMENTWISE:
        with np.errstate(all="ignore"):
            found = ELEMENTWISE[name](parts, equation.params, [SimpleNamespace(shape=parts[0].shape, dtype=aval.dtype)])
        if found is not None:
            return np.asarray(found[0] if isinstance(found, list) else found, aval.dtype)
        raise LookupError(name)
    return parts[0]
