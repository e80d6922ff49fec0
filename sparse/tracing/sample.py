"""A few elements of what a function returns, computed from the elements that they need.

The test of a traced matrix looks at some rows of large problems. Which elements of every intermediate array these need
is found backwards through the list of operations; where an operation has no rule for that, its operands are needed
whole.
A function here gets flat positions in the result and gives the positions in each operand, -1 where there is no element.
Columns 1 to 2 of an array (2, 3), and an array (1, 2) below another:

>>> sliced(np.array([0, 3]), (2, 3), (2, 2), (0, 1), (1, 1))
[array([1, 5])]
>>> concatenated(np.array([0, 5]), [(2, 2), (1, 2)], (3, 2), axis=0)
[array([ 0, -1]), array([-1,  1])]

Sums need several elements for each, along a second axis:

>>> summed_over(np.array([1]), (2, 3), (1,))
[array([[3, 4, 5]])]

The other functions make the elements of the result of those: `moved`, `joined`, `filled`, `added`, `products_added`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from ..formats.entries.integers import row_strides

Positions: TypeAlias = np.ndarray  # flat, int64; -1: no element
Shape: TypeAlias = tuple[int, ...]
MOST_SUMMED = 256  # elements of a sum
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


# --- elements that an operation needs ---------------------------------------------------------------------------------


def _index(where: Positions, shape: Sequence[int]) -> list[np.ndarray]:
    return list(np.unravel_index(where, tuple(shape))) if len(shape) else []


def _flat(index: Sequence[Any], shape: Sequence[int], like: Positions) -> Positions:
    """Positions in an array, whose axes of length 1 are broadcast."""
    flat = np.zeros(like.shape, np.int64)
    for i, n, stride in zip(index, shape, row_strides(shape)):
        if n > 1:
            flat += i * stride
    return flat


def elementwise(where: Positions, shapes: Sequence[Shape], shape: Shape) -> list[Positions]:
    """Operands of the shape of the result, or without axes."""
    index = None if all(s in (shape, ()) for s in shapes) else _index(where, shape)
    return [where if s == shape else _flat(index or [], s, where) for s in shapes]


def broadcast(where: Positions, source: Shape, shape: Shape, axes: Sequence[int]) -> list[Positions]:
    """Axis k became axis `axes[k]`."""
    index = _index(where, shape)
    return [_flat([index[axis] for axis in axes], source, where)]


def sliced(
    where: Positions, source: Shape, shape: Shape, starts: Sequence[int], strides: Sequence[int]
) -> list[Positions]:
    """A part of the operand."""
    return [_flat([a + i * s for i, a, s in zip(_index(where, shape), starts, strides)], source, where)]


def transposed(where: Positions, source: Shape, shape: Shape, axes: Sequence[int]) -> list[Positions]:
    """Axis i of the result is axis `axes[i]` of the operand."""
    index = _index(where, shape)
    return [_flat([index[axis] for axis in np.argsort(axes)], source, where)]


def reversed_along(where: Positions, shape: Shape, axes: Sequence[int]) -> list[Positions]:
    """The order reversed along some axes."""
    index = [n - 1 - i if axis in axes else i for axis, (i, n) in enumerate(zip(_index(where, shape), shape))]
    return [_flat(index, shape, where)]


def concatenated(where: Positions, shapes: Sequence[Shape], shape: Shape, axis: int) -> list[Positions]:
    """All operands one after the other."""
    index, sources, start = _index(where, shape), [], 0
    for s in shapes:
        own = [i - start if a == axis else i for a, i in enumerate(index)]
        inside = (own[axis] >= 0) & (own[axis] < s[axis])
        sources.append(np.where(inside, _flat(own, s, where), -1))
        start += s[axis]
    return sources


def stacked(where: Positions, shapes: Sequence[Shape], shape: Shape, axis: int) -> list[Positions]:
    """All operands along a new axis."""
    index = _index(where, shape)
    number = index.pop(axis)
    return [np.where(number == k, _flat(index, s, where), -1) for k, s in enumerate(shapes)]


def padded(where: Positions, source: Shape, shape: Shape, config: Sequence[tuple[int, int, int]]) -> list[Positions]:
    """An operand and the number around it, with `(lo, hi, interior)` per axis."""
    inside, own = np.ones(where.shape, bool), []
    for i, n, (lo, _, between) in zip(_index(where, shape), source, config):
        place, rest = np.divmod(i - lo, between + 1)
        inside &= (rest == 0) & (place >= 0) & (place < n)
        own.append(place)
    return [np.where(inside, _flat(own, source, where), -1), np.zeros_like(where)]


def summed_over(where: Positions, source: Shape, axes: Sequence[int]) -> list[Positions] | None:
    """The elements of each sum; None where these are many."""
    if not 0 < math.prod(source[a] for a in axes) <= MOST_SUMMED:
        return None
    strides = row_strides(source)
    kept = [a for a in range(len(source)) if a not in axes]
    base = np.zeros(where.shape, np.int64)
    for i, a in zip(_index(where, [source[a] for a in kept]), kept):
        base += i * strides[a]
    steps = np.zeros((), np.int64)
    for a in axes:
        steps = np.add.outer(steps, np.arange(source[a]) * strides[a])
    return [base[:, None] + steps.reshape(-1)]


def convolved(
    where: Positions,
    shapes: Sequence[Shape],
    shape: Shape,
    axes: tuple[Sequence[int], Sequence[int], Sequence[int]],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    image_dilation: Sequence[int],
    kernel_dilation: Sequence[int],
    groups: int = 1,
) -> list[Positions] | None:
    """Image and kernel elements of each product in the sum; None where these are many.

    Args:
        where: positions in the result.
        shapes: of image and kernel.
        shape: of the result.
        axes: those of image, kernel and result that are `(batch, feature, space...)`, `(out, in, space...)` and
            `(batch, out, space...)`.
        strides, padding, image_dilation, kernel_dilation, groups: as for `engine.convolve`.
    """
    image, kernel = ([s[a] for a in order] for s, order in zip(shapes, axes))
    if not 0 < math.prod(kernel[1:]) <= MOST_SUMMED:
        return None
    index = _index(where, shape)
    batch, out, *space = (index[a][:, None] for a in axes[2])
    feature, *taps = (t.reshape(1, -1) for t in np.indices(kernel[1:]))
    own = [batch, out // (kernel[0] // groups) * kernel[1] + feature]
    inside = np.ones((len(where), math.prod(kernel[1:])), bool)
    places = zip(space, taps, image[2:], strides, kernel_dilation, image_dilation, padding)
    for i, tap, n, stride, step, between, (lo, _) in places:
        place, rest = np.divmod(i * stride + tap * step - lo, between)
        inside &= (rest == 0) & (place >= 0) & (place < n)
        own.append(place)
    like = np.zeros(inside.shape, np.int64)
    image_source = _flat([own[i] for i in np.argsort(axes[0])], shapes[0], like)
    weights = [out, feature, *taps]
    kernel_source = _flat([weights[i] for i in np.argsort(axes[1])], shapes[1], like)
    return [np.where(inside, image_source, -1), kernel_source]


def moved(parts: Sequence[np.ndarray], sources: Sequence[Positions], dtype: np.dtype) -> np.ndarray:
    """Elements of the first operand."""
    return parts[0]


def joined(parts: Sequence[np.ndarray], sources: Sequence[Positions], dtype: np.dtype) -> np.ndarray:
    """Elements of whichever operand has one."""
    joint = np.zeros(parts[0].shape, dtype)
    for part, source in zip(parts, sources):
        np.copyto(joint, part, where=source >= 0)
    return joint


def filled(parts: Sequence[np.ndarray], sources: Sequence[Positions], dtype: np.dtype) -> np.ndarray:
    """Those of the first operand, where there are any, else of the second."""
    return np.where(sources[0] >= 0, parts[0], parts[1])


def added(parts: Sequence[np.ndarray], sources: Sequence[Positions], dtype: np.dtype) -> np.ndarray:
    """Sums along the second axis."""
    return np.asarray(parts[0].sum(axis=1, dtype=dtype))


def products_added(parts: Sequence[np.ndarray], sources: Sequence[Positions], dtype: np.dtype) -> np.ndarray:
    """Sums of products along the second axis, where the first factor has an element."""
    return np.asarray(np.where(sources[0] >= 0, parts[0] * parts[1], 0).sum(axis=1, dtype=dtype))
