"""The third table, of sample rules: how a few elements of a result come from a few elements of the operands.

The test of a traced matrix looks at some rows of large problems. Which elements of every intermediate array these need
is found backwards through the list of equations; where one has no rule for that, its operands are needed whole. Sources
are flat positions in each operand, -1 where there is no element: of `u[1, 0]` and `u[3, 4]`, as parts of `u[1:, ::2]`,
and of two elements of an array (1, 2) below another.

>>> import jax
>>> equation = jax.make_jaxpr(lambda u: u[1:, ::2])(np.zeros((4, 6))).eqns[0]
>>> POINTS["slice"].sources(equation.params, np.array([0, 8]), [(4, 6)], (3, 3))
[array([ 6, 22])]
>>> POINTS["concatenate"].sources({"dimension": 0}, np.array([0, 5]), [(2, 2), (1, 2)], (3, 2))
[array([ 0, -1]), array([-1,  1])]

Sums need several elements for each, along a second axis:

>>> POINTS["reduce_sum"].sources({"axes": (1,)}, np.array([1]), [(2, 3)], (2,))
[array([[3, 4, 5]])]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jax.extend import core

from ...formats.entries.integers import row_strides
from .interpreter import JaxprInterpreter, is_call, program_of
from .known import ELEMENTWISE, Params, as_known, is_known

Positions: TypeAlias = np.ndarray  # flat, int64; -1: no element
Shape: TypeAlias = tuple[int, ...]
Shapes: TypeAlias = Sequence[Shape]
MOST_SUMMED = 256  # elements of a sum
FEW = 4096  # elements that are looked up one by one, even if they are all
_NOTHING: Positions = np.zeros(0, np.int64)  # of a result without elements


class Node(NamedTuple):
    """An equation with its operands: numbers of values, or known arrays."""

    equation: Any
    operands: Sequence[Any]
    results: Sequence[int]


class EquationList(NamedTuple):
    """A function as a list of equations, each after those whose results it needs.

    Attributes:
        nodes: the equations; calls are written out.
        avals: shapes and dtypes of the values, by number.
        inputs: numbers of the values that the function gets.
        outputs: what it returns: numbers, or known arrays.
    """

    nodes: list[Node]
    avals: list[Any]
    inputs: Sequence[int]
    outputs: Sequence[Any]


def equation_list(program: Any, interpreter: JaxprInterpreter) -> EquationList:
    """The equations of a closed program."""
    nodes: list[Node] = []
    avals: list[Any] = []

    def new(variable: Any) -> int:
        avals.append(variable.aval)
        return len(avals) - 1

    def flatten(program: Any, arguments: Sequence[Any]) -> list[Any]:
        scope: dict[Any, Any] = dict(zip(program.jaxpr.invars, arguments))
        for variable, constant in zip(program.jaxpr.constvars, program.consts):
            scope[variable] = interpreter.constant(constant, variable.aval)

        def read(atom: Any) -> Any:
            return as_known(atom.val, atom.aval.dtype) if isinstance(atom, core.Literal) else scope[atom]

        for equation in program.jaxpr.eqns:
            operands = [read(atom) for atom in equation.invars]
            if is_call(equation):
                results = flatten(program_of(equation, ()), operands)
            else:
                results = [new(v) for v in equation.outvars]
                nodes.append(Node(equation, operands, results))
            scope.update(zip(equation.outvars, results))
        return [read(atom) for atom in program.jaxpr.outvars]

    inputs = [new(v) for v in program.jaxpr.invars]
    return EquationList(nodes, avals, inputs, flatten(program, inputs))


def sampled(
    program: Any,
    interpreter: JaxprInterpreter,
    inputs: Callable[[int, Positions | None], Any],
    wanted: Sequence[Positions],
) -> list[np.ndarray] | None:
    """Some elements of what a closed program returns; None where something is not known.

    Args:
        program: the closed program.
        interpreter: evaluates equations whose operands are needed whole.
        inputs: `(number, positions or None for all)` -> those elements of an input, flat.
        wanted: positions in each output.
    """
    nodes, avals, arguments, outputs = equation_list(program, interpreter)
    shapes = [tuple(aval.shape) for aval in avals]
    needs: dict[int, Any] = {}  # the positions of a value that are needed, None: all
    for output, where in zip(outputs, wanted):
        _need(needs, output, where)
    plans = [_plan(node, needs, shapes) for node in reversed(nodes)][::-1]
    values: dict[int, _Elements] = {}
    for number, value in enumerate(arguments):
        if value in needs:
            asked = _union(needs[value], shapes[value])
            values[value] = _Elements(inputs(number, asked), asked, shapes[value])
    for node, plan in zip(nodes, plans):
        if plan is None:
            continue
        where, sources = plan
        if where is _NOTHING:
            results: Any = [np.zeros(0, avals[result].dtype) for result in node.results]
        elif where is None:
            operands = [values[x].whole() if isinstance(x, int) else x for x in node.operands]
            results = interpreter.known_results(node.equation, operands) if all(map(is_known, operands)) else [None]
        elif all(isinstance(x, (int, np.ndarray)) for x in node.operands):
            parts = [_elements(values, x, source) for x, source in zip(node.operands, sources)]
            results = [POINTS[node.equation.primitive.name].combine(node.equation, parts, sources)]
        else:
            results = [None]
        if not all(isinstance(result, np.ndarray) for result in results):
            return None
        for result, array in zip(node.results, results):
            values[result] = _Elements(array.reshape(-1), None if where is _NOTHING else where, shapes[result])
    if not all(isinstance(output, (int, np.ndarray)) for output in outputs):
        return None
    return [_elements(values, output, where) for output, where in zip(outputs, wanted)]


def _plan(node: Node, needs: dict[int, Any], shapes: Shapes) -> Any:
    """The positions of the results and of the operands; `(None, None)`: all; None: nothing is needed."""
    if not any(result in needs for result in node.results):
        return None
    if all(0 in shapes[result] for result in node.results):
        return _NOTHING, ()
    rule = POINTS.get(node.equation.primitive.name)
    if len(node.results) == 1 and rule is not None:
        shape = shapes[node.results[0]]
        where = _union(needs[node.results[0]], shape)
        if where is not None:
            own = [shapes[x] if isinstance(x, int) else x.shape for x in node.operands]
            sources = rule.sources(node.equation.params, where, own, shape)
            if sources is not None:
                for operand, source in zip(node.operands, sources):
                    _need(needs, operand, source)
                return where, sources
    for operand in node.operands:
        _need(needs, operand, None)
    return None, None


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


# --- sample rules -----------------------------------------------------------------------------------------------------
# An operation that is missing here is right too: its operands are computed whole where they are needed at all.

_NOT_BY_POINTS = {"iota", "bitcast_convert_type", "optimization_barrier"}


class SampleRule(NamedTuple):
    """What an operation needs, and what it makes of that.

    Attributes:
        sources: `(parameters, positions in the result, shapes of the operands, shape of the result)` -> positions in
            each operand; may have a second axis. None where they are needed whole.
        combine: `(equation, elements of each operand, their positions)` -> elements of the result.
    """

    sources: Callable[[Params, Positions, Shapes, Shape], list[Positions] | None]
    combine: Callable[[Any, Sequence[np.ndarray], Sequence[Positions]], np.ndarray]


def _index(where: Positions, shape: Sequence[int]) -> list[np.ndarray]:
    return list(np.unravel_index(where, tuple(shape))) if len(shape) else []


def _flat(index: Sequence[Any], shape: Sequence[int], like: Positions) -> Positions:
    """Positions in an array, whose axes of length 1 are broadcast."""
    flat = np.zeros(like.shape, np.int64)
    for i, n, stride in zip(index, shape, row_strides(shape)):
        if n > 1:
            flat += i * stride
    return flat


def _elementwise(p: Params, where: Positions, shapes: Shapes, shape: Shape) -> list[Positions]:
    """Operands of the shape of the result, or without axes."""
    index = None if all(s in (shape, ()) for s in shapes) else _index(where, shape)
    return [where if s == shape else _flat(index or [], s, where) for s in shapes]


def _same_order(p: Params, where: Positions, shapes: Shapes, shape: Shape) -> list[Positions]:
    return [where]


def _broadcast(p: Params, where: Positions, shapes: Shapes, shape: Shape) -> list[Positions]:
    index = _index(where, shape)
    return [_flat([index[axis] for axis in p["broadcast_dimensions"]], shapes[0], where)]


def _slice(p: Params, where: Positions, shapes: Shapes, shape: Shape) -> list[Positions]:
    steps = zip(_index(where, shape), p["start_indices"], p["strides"] or (1,) * len(shape))
    return [_flat([a + i * s for i, a, s in steps], shapes[0], where)]


def _transpose(p: Params, where: Positions, shapes: Shapes, shape: Shape) -> list[Positions]:
    index = _index(where, shape)
    return [_flat([index[axis] for axis in np.argsort(p["permutation"])], shapes[0], where)]


def _reverse(p: Params, where: Positions, shapes: Shapes, shape: Shape) -> list[Positions]:
    both = enumerate(zip(_index(where, shape), shape))
    return [_flat([n - 1 - i if axis in p["dimensions"] else i for axis, (i, n) in both], shape, where)]


def _concatenate(p: Params, where: Positions, shapes: Shapes, shape: Shape) -> list[Positions]:
    axis, index, sources, start = p["dimension"], _index(where, shape), [], 0
    for s in shapes:
        own = [i - start if a == axis else i for a, i in enumerate(index)]
        inside = (own[axis] >= 0) & (own[axis] < s[axis])
        sources.append(np.where(inside, _flat(own, s, where), -1))
        start += s[axis]
    return sources


def _stack(p: Params, where: Positions, shapes: Shapes, shape: Shape) -> list[Positions]:
    index = _index(where, shape)
    number = index.pop(p["axis"])
    return [np.where(number == k, _flat(index, s, where), -1) for k, s in enumerate(shapes)]


def _pad(p: Params, where: Positions, shapes: Shapes, shape: Shape) -> list[Positions]:
    inside, own = np.ones(where.shape, bool), []
    for i, n, (lo, _, between) in zip(_index(where, shape), shapes[0], p["padding_config"]):
        place, rest = np.divmod(i - lo, between + 1)
        inside &= (rest == 0) & (place >= 0) & (place < n)
        own.append(place)
    return [np.where(inside, _flat(own, shapes[0], where), -1), np.zeros_like(where)]


def _reduce_sum(p: Params, where: Positions, shapes: Shapes, shape: Shape) -> list[Positions] | None:
    """The elements of each sum; None where these are many."""
    source, axes = shapes[0], p["axes"]
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


def _convolution(p: Params, where: Positions, shapes: Shapes, shape: Shape) -> list[Positions] | None:
    """Image and kernel elements of each product in the sum; None where these are many."""
    numbers, groups = p["dimension_numbers"], p["feature_group_count"]
    axes = (numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec)
    image, kernel = ([s[a] for a in order] for s, order in zip(shapes, axes))
    if p["batch_group_count"] != 1 or not 0 < math.prod(kernel[1:]) <= MOST_SUMMED:
        return None
    index = _index(where, shape)
    batch, out, *space = (index[a][:, None] for a in axes[2])
    feature, *taps = (t.reshape(1, -1) for t in np.indices(kernel[1:]))
    own = [batch, out // (kernel[0] // groups) * kernel[1] + feature]
    inside = np.ones((len(where), math.prod(kernel[1:])), bool)
    places = zip(space, taps, image[2:], p["window_strides"], p["rhs_dilation"], p["lhs_dilation"], p["padding"])
    for i, tap, n, stride, step, between, (lo, _) in places:
        place, rest = np.divmod(i * stride + tap * step - lo, between)
        inside &= (rest == 0) & (place >= 0) & (place < n)
        own.append(place)
    like = np.zeros(inside.shape, np.int64)
    image_source = _flat([own[i] for i in np.argsort(axes[0])], shapes[0], like)
    weights = [out, feature, *taps]
    kernel_source = _flat([weights[i] for i in np.argsort(axes[1])], shapes[1], like)
    return [np.where(inside, image_source, -1), kernel_source]


def _dtype(equation: Any) -> np.dtype:
    return np.dtype(equation.outvars[0].aval.dtype)


def _evaluate(equation: Any, parts: Sequence[np.ndarray], sources: Sequence[Positions]) -> np.ndarray:
    """By the rule for known operands."""
    name, dtype = equation.primitive.name, _dtype(equation)
    with np.errstate(all="ignore"):
        found = ELEMENTWISE[name](parts, equation.params, [SimpleNamespace(shape=parts[0].shape, dtype=dtype)])
    if found is None:
        raise LookupError(name)
    return np.asarray(found[0] if isinstance(found, list) else found, dtype)


def _moved(equation: Any, parts: Sequence[np.ndarray], sources: Sequence[Positions]) -> np.ndarray:
    return parts[0]


def _joined(equation: Any, parts: Sequence[np.ndarray], sources: Sequence[Positions]) -> np.ndarray:
    """Elements of whichever operand has one."""
    joint = np.zeros(parts[0].shape, _dtype(equation))
    for part, source in zip(parts, sources):
        np.copyto(joint, part, where=source >= 0)
    return joint


def _filled(equation: Any, parts: Sequence[np.ndarray], sources: Sequence[Positions]) -> np.ndarray:
    return np.where(sources[0] >= 0, parts[0], parts[1])


def _added(equation: Any, parts: Sequence[np.ndarray], sources: Sequence[Positions]) -> np.ndarray:
    return np.asarray(parts[0].sum(axis=1, dtype=_dtype(equation)))


def _products_added(equation: Any, parts: Sequence[np.ndarray], sources: Sequence[Positions]) -> np.ndarray:
    products = np.where(sources[0] >= 0, parts[0] * parts[1], 0)
    return np.asarray(products.sum(axis=1, dtype=_dtype(equation)))


POINTS: dict[str, SampleRule] = {
    **{name: SampleRule(_elementwise, _evaluate) for name in ELEMENTWISE if name not in _NOT_BY_POINTS},
    "reshape": SampleRule(lambda p, where, *shapes: None if p.get("dimensions") else [where], _moved),
    **dict.fromkeys(("squeeze", "expand_dims"), SampleRule(_same_order, _moved)),
    "broadcast_in_dim": SampleRule(_broadcast, _moved),
    "slice": SampleRule(_slice, _moved),
    "transpose": SampleRule(_transpose, _moved),
    "rev": SampleRule(_reverse, _moved),
    "concatenate": SampleRule(_concatenate, _joined),
    "stack": SampleRule(_stack, _joined),
    "pad": SampleRule(_pad, _filled),
    "reduce_sum": SampleRule(_reduce_sum, _added),
    "conv_general_dilated": SampleRule(_convolution, _products_added),
}
