"""A few elements of what a function returns, computed from the elements that they need.

The test of a traced matrix looks at some rows of large problems. Which elements of every intermediate array these need
is found backwards through the list of operations; where an operation has no rule for that, its operands are needed
whole. Which elements an operation needs is in sources.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from .sources import Positions

FEW = 4096  # elements that are looked up one by one, even if they are all
_NOTHING: Positions = np.zeros(0, np.int64)  # of a result without elements


class Node(NamedTuple):
    """An operation with its operands: numbers of values, or known arrays."""

    operation: Any
    operands: Sequence[Any]
    results: Sequence[int]


class OperationGraph(NamedTuple):
    """A function as a list of operations, each after those whose results it needs.

    Attributes:
        nodes: the operations; calls are written out.
        shapes, dtypes: of the values, by number.
        inputs: numbers of the values that the function gets.
        outputs: what it returns: numbers, or known arrays.
    """

    nodes: Sequence[Node]
    shapes: Sequence[tuple[int, ...]]
    dtypes: Sequence[np.dtype]
    inputs: Sequence[int]
    outputs: Sequence[Any]


class Operations(Protocol):
    """What a library's operations do to known values."""

    def sources(
        self, operation: Any, where: Positions, shapes: Sequence[tuple[int, ...]], shape: tuple[int, ...]
    ) -> Sequence[Positions] | None:
        """For the positions `where` of a result of `shape`, those in each operand, of `shapes`; -1: none; may have a
        second axis. None: the operands are needed whole.
        """

    def combine(self, operation: Any, parts: Sequence[np.ndarray], sources: Sequence[Positions]) -> np.ndarray:
        """The elements of the result from those of the operands."""

    def evaluate(self, operation: Any, operands: Sequence[Any]) -> Sequence[np.ndarray] | None:
        """All results from all of the operands; None where these are not known."""


class Sampler:
    """Computes elements of what a program returns."""

    def __init__(self, program: OperationGraph, operations: Operations) -> None:
        self._nodes, self._shapes, self._dtypes, self._inputs, self._outputs = program
        self._operations = operations

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
            _need(needs, output, where)
        plans = [self._plan(node, needs) for node in reversed(self._nodes)][::-1]
        values: dict[int, _Elements] = {}
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

    def _plan(self, node: Node, needs: dict[int, Any]) -> Any:
        """The positions of the results and of the operands; `(None, None)`: all; None: nothing is needed."""
        if not any(result in needs for result in node.results):
            return None
        if all(0 in self._shapes[result] for result in node.results):
            return _NOTHING, ()
        if len(node.results) == 1:
            shape = self._shapes[node.results[0]]
            where = _union(needs[node.results[0]], shape)
            if where is not None:
                shapes = [self._shapes[x] if isinstance(x, int) else x.shape for x in node.operands]
                sources = self._operations.sources(node.operation, where, shapes, shape)
                if sources is not None:
                    for operand, source in zip(node.operands, sources):
                        _need(needs, operand, source)
                    return where, sources
        for operand in node.operands:
            _need(needs, operand, None)
        return None, None

    def _step(self, node: Node, plan: Any, values: dict[int, _Elements]) -> bool:
        """Compute what was planned; False where something is not known."""
        where, sources = plan
        if where is _NOTHING:
            found: Sequence[np.ndarray] | None = [np.zeros(0, self._dtypes[result]) for result in node.results]
        elif where is None:
            operands = [values[x].whole() if isinstance(x, int) else x for x in node.operands]
            found = self._operations.evaluate(node.operation, operands)
        else:
            if not all(isinstance(x, (int, np.ndarray)) for x in node.operands):
                return False
            parts = [_elements(values, x, source) for x, source in zip(node.operands, sources)]
            found = [self._operations.combine(node.operation, parts, sources)]
        if found is None:
            return False
        for result, array in zip(node.results, found):
            values[result] = _Elements(array.reshape(-1), None if where is _NOTHING else where, self._shapes[result])
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


def _need(needs: dict[int, Any], operand: Any, where: Positions | None) -> None:
    if isinstance(operand, int):
        if where is None or needs.get(operand, []) is None:
            needs[operand] = None
        else:
            needs.setdefault(operand, []).append(where)


def _elements(values: dict[int, _Elements], operand: Any, where: Positions) -> np.ndarray:
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
