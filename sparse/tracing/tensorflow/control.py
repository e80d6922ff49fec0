"""Calls, branches and loops inside of a graph: entered and unrolled, as far as their course is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from ....backends.tensorflow.program import tensor_of
from ...errors import UnsupportedOperation
from ..conjugates import Conjugate
from ..engine import coefficients as co
from ..engine.arithmetic import conjugate
from ..engine.linear import Linear
from ..engine.positions import select
from ..engine.refusals import MATRIX_FREE, static
from .messages import by_handle, random


class GraphRunner(Protocol):
    """What runs the graphs of calls, branches and loops: the interpreter that met them."""

    def run(self, graph: Any, values: Sequence[Any], wanted: Sequence[bool] | None = None) -> list[Any]:
        """The results of a graph, errors in place of those that have no matrix; None for what is not wanted."""

    def coefficient(self, value: Any) -> Any:
        """A NumPy array where the value is known, else a tensor."""

    def spend(self, operations: int) -> None:
        """Count the operations of an unrolled loop, and refuse it where they are too many."""


def called_graph(op: tf.Operation, name: str) -> Any:
    """The graph of a function that an operation calls.

    Raises:
        UnsupportedOperation: it cannot be found.
    """
    graph = op.graph
    while graph is not None:
        found = getattr(graph._get_function(name), "graph", None)  # not public; a test pins it
        if found is not None:
            refuse_writes(found)
            return found
        graph = getattr(graph, "outer_graph", None)
    raise UnsupportedOperation(f"the graph of the function '{name}', which it calls, is not known. {MATRIX_FREE}")


_WRITES = ("Assign", "ResourceScatter", "ResourceApply", "ResourceSparseApply", "ResourceStridedSliceAssign")


def refuse_writes(graph: Any) -> None:
    """
    Raises:
        UnsupportedOperation: an operation of the graph writes to a variable.
    """
    for op in graph.get_operations():
        if op.type.startswith(_WRITES):
            raise by_handle(op)


_RANDOM = ("Random", "Multinomial", "ParameterizedTruncatedNormal", "TruncatedNormal", "Bernoulli", "Timestamp")


def refuse_random(op: tf.Operation) -> None:
    """
    Raises:
        UnsupportedOperation: the operation, or one in a function that it calls, has another result in each run.
    """
    if not op.op_def.is_stateful:  # TensorFlow has stateless calls, loops and branches for what is not
        return
    if op.type.startswith(_RANDOM):
        raise random(op)
    for name in _called(op):
        for inner in called_graph(op, name).get_operations():
            refuse_random(inner)


def is_open_ended(op: tf.Operation) -> bool:
    """Does it, or an operation of a function that it calls, loop until a condition holds, or call Python?"""
    if op.type in ("While", "StatelessWhile", "PyFunc", "PyFuncStateless", "EagerPyFunc"):
        return True
    return any(is_open_ended(inner) for name in _called(op) for inner in called_graph(op, name).get_operations())


def _called(op: tf.Operation) -> list[str]:
    """Names of the functions that an operation calls."""
    found: list[str] = []
    for value in op.node_def.attr.values():
        found += [f.name for f in (value.func, *value.list.func) if f.name]
    return found


def _call(runner: GraphRunner, op: tf.Operation, values: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
    return runner.run(called_graph(op, op.get_attr("f").name), values, wanted)


def _if(runner: GraphRunner, op: tf.Operation, values: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
    names = [op.get_attr("else_branch").name, op.get_attr("then_branch").name]
    return _branches(runner, op, names, values, wanted, lambda which: int(bool(np.any(which))))


def _case(runner: GraphRunner, op: tf.Operation, values: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
    names = [branch.name for branch in op.get_attr("branches")]
    last = len(names) - 1
    return _branches(runner, op, names, values, wanted, lambda which: int(which) if 0 <= which <= last else last)


def _branches(
    runner: GraphRunner,
    op: tf.Operation,
    names: Sequence[str],
    values: Sequence[Any],
    wanted: Sequence[bool],
    number: Callable[[np.ndarray], int],
) -> list[Any]:
    """One branch where it is known which, else all of them and a choice."""
    which, operands = runner.coefficient(values[0]), values[1:]
    if co.known(which):
        return runner.run(called_graph(op, names[number(np.asarray(which))]), operands, wanted)
    if isinstance(which, Exception):
        raise which
    if isinstance(which, Linear):
        static("condition", which)
    results = [runner.run(called_graph(op, name), operands, wanted) for name in names]
    if op.type.endswith("Case"):
        which = tf.where((which < 0) | (which >= len(names)), len(names) - 1, which)
    return [_choice(runner, which, cases) for cases in zip(*results)]


def _choice(runner: GraphRunner, which: tf.Tensor, cases: Sequence[Any]) -> Any:
    error = next((case for case in cases if isinstance(case, Exception) or case is None), None)
    if error is not None or any(case is None for case in cases):
        return error
    cases = [conjugate(case.linear) if isinstance(case, Conjugate) else case for case in cases]  # has no matrix
    if any(isinstance(case, Linear) for case in cases):
        return select(which, [runner.coefficient(case) for case in cases])
    tensors = [tensor_of(case) for case in cases]
    if which.dtype == tf.bool:
        return tf.where(which, tensors[1], tensors[0])
    found = tensors[0]
    for k, tensor in enumerate(tensors[1:], 1):
        found = tf.where(which == k, tensor, found)
    return found


def _while(runner: GraphRunner, op: tf.Operation, values: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
    condition, body = (called_graph(op, op.get_attr(name).name) for name in ("cond", "body"))
    length = len(body.get_operations())
    while True:
        (go_on,) = runner.run(condition, values)
        if isinstance(go_on, Exception):
            raise go_on
        if not bool(np.any(static("condition", runner.coefficient(go_on)))):
            return list(values)
        runner.spend(length)
        values = runner.run(body, values)


Rule = Callable[[GraphRunner, tf.Operation, Sequence[Any], Sequence[bool]], list[Any]]
CONTROL: dict[str, Rule] = {
    **dict.fromkeys(("PartitionedCall", "StatefulPartitionedCall"), _call),
    **dict.fromkeys(("If", "StatelessIf"), _if),
    **dict.fromkeys(("Case", "StatelessCase"), _case),
    **dict.fromkeys(("While", "StatelessWhile"), _while),
}
