"""Follows a recorded graph with linear maps in place of the tensors that depend on the input.

Three kinds of values meet here: known ones (NumPy arrays and tensors with values), tensors whose derivatives are being
recorded, or that are symbolic, and `Linear`s. Operations without a `Linear` are computed by TensorFlow, so that
derivatives follow; the others have a rule each. An operation without a matrix is an error only where what is returned
depends on it: the value of a quadratic energy, of which only the gradient is returned, need not be linear.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import record as tapes

from ....backends import Backend
from ....backends.tensorflow.program import (
    BY_HANDLE,
    CUSTOM,
    GraphConstantFolder,
    eagerly,
    evaluate,
    is_eager,
    tensor_of,
    value_of,
)
from ...errors import NonlinearError, UnsupportedOperation
from ..engine import coefficients as co
from ..engine.arithmetic import conjugate
from ..engine.limits import refuse_open_ended
from ..engine.linear import Linear
from ..engine.operands import MATRIX_FREE, NotLinear, static
from ..engine.positions import select
from ..interpreter import Conjugate, Interpreter, in_dtype, proper
from .lists import LISTS, ON_LISTS, WRITES_ITEM, TensorList
from .record import REPORTER, GraphRecord, by_handle, random
from .rules import RULES
from .rules.products import FOURIER, without_rule
from .rules.structure import SHAPES

Plan = list[tuple[tf.Operation, list[bool]]]  # operations, and which of their results are needed
_FOLLOWED = (Linear, Conjugate, TensorList, tf.Variable, Exception)


class GraphInterpreter(Interpreter):
    """One trace."""

    def __init__(self, bk: Backend, record: GraphRecord, keep_zeros: bool = False, watch: bool = False) -> None:
        super().__init__(bk, keep_zeros, watch)
        self.record = record
        self._tracks = not tf.executing_eagerly() or tapes.could_possibly_record()
        self._folder = GraphConstantFolder()
        self._known: dict[int, tuple[tf.Tensor, Any]] = {}  # with the tensor, so that its id stays its own
        self._plans: dict[tuple[int, ...], Plan] = {}  # by what is wanted
        self._apart: dict[int, tf.Tensor] | None = None

    def outputs(self, inputs: Sequence[Any]) -> list[Any]:
        """What the function returns for `Linear`s, or for known arrays: `Linear`s, or coefficients."""
        record = self.record
        refuse_writes(record.graph)
        given = [*inputs, *map(self._captured, record.captured)]
        values = self._run([x for x in record.outputs if x is not None], record.graph.inputs, given)
        for value in values:
            if isinstance(value, Exception):
                raise value
        return [proper(self.bk, self.coefficient(self.settled(value))) for value in values]

    def _captured(self, x: Any) -> Any:
        """In the graph that is being made: gradients of branches and loops take no tensors of others."""
        if tf.executing_eagerly() or isinstance(x, tf.Variable) or x.dtype in (tf.resource, tf.variant):
            return x
        return tf.identity(x) if x.dtype.is_floating or x.dtype.is_complex or not is_eager(x) else x

    # --- graphs -------------------------------------------------------------------------------------------------------

    def run(self, graph: Any, values: Sequence[Any], wanted: Sequence[bool] | None = None) -> list[Any]:
        """The results of a graph, errors in place of those that have no matrix; None for what is not wanted."""
        found = graph.outputs if wanted is None else graph.outputs[: len(wanted)]  # derivatives ask for more
        outputs = [x if wanted is None or wanted[k] else None for k, x in enumerate(found)]
        return self._run(outputs, graph.inputs, values)

    def _run(
        self, outputs: Sequence[tf.Tensor | None], inputs: Sequence[tf.Tensor], values: Sequence[Any]
    ) -> list[Any]:
        """The values of some tensors of a graph, None for None."""
        scope = {id(x): value for x, value in zip(inputs, values)}
        for op, needed in self._plan(inputs, [x for x in outputs if x is not None]):
            results = self._results(op, [scope[id(x)] for x in op.inputs], needed)
            self.note(results)
            for x, value in zip(op.outputs, results):
                scope[id(x)] = value
                if self.watch and isinstance(value, tf.Tensor):
                    self.largest = max(self.largest, _size(value))
        return [None if x is None else scope[id(x)] for x in outputs]

    def _plan(self, inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor]) -> Plan:
        key = tuple(map(id, outputs))
        if key not in self._plans:
            self._plans[key] = plan_of(inputs, outputs)
        return self._plans[key]

    def _results(self, op: tf.Operation, values: list[Any], needed: list[bool]) -> list[Any]:
        """Of one operation; the error in place of all where it has no matrix."""
        if op.type == "Const":
            return [value_of(op) if op.outputs[0].dtype != tf.string else tensor_of(value_of(op))]
        error = next((value for value in values if isinstance(value, Exception)), None)
        if error is not None and op.type not in CONTROL and op.type not in LISTS:
            return [error] * len(op.outputs)
        values = [self.settled(value) for value in values]
        try:
            found = self._computed(op, values, needed)
        except (NonlinearError, UnsupportedOperation) as failure:
            return [REPORTER.located(failure, op, values)] * len(op.outputs)
        return [REPORTER.located(value, op, values) if isinstance(value, Exception) else value for value in found]

    def _computed(self, op: tf.Operation, values: list[Any], needed: list[bool]) -> list[Any]:
        if values and isinstance(values[0], tf.Variable) and op.type in BY_HANDLE:
            return [BY_HANDLE[op.type](op, *values)]
        if any(x.dtype == tf.resource for x in op.inputs) and op.type not in CONTROL:
            raise by_handle(op)
        refuse_random(op)
        refuse_open_ended(is_open_ended, op)
        follows = any(isinstance(value, _FOLLOWED) for value in values)
        if op.type in CONTROL:
            if not follows and not any(x.dtype == tf.variant for x in op.outputs):
                found = self._by_tensorflow(op, values)
                if found is not None:
                    return found
            return CONTROL[op.type](self, op, values, needed)
        if op.type in LISTS or any(isinstance(value, TensorList) for value in values):
            return self._of_lists(op, values)
        if not follows:
            return self._by_tensorflow(op, values) or self._through_custom_gradient(op, values)
        if op.type in SHAPES:
            return SHAPES[op.type](op, *values)
        return self._ruled(op, [self.coefficient(value) for value in values])

    def _of_lists(self, op: tf.Operation, values: list[Any]) -> list[Any]:
        rule = LISTS.get(op.type) or ON_LISTS.get(op.type)
        if rule is None:
            raise UnsupportedOperation(f"it has no rule for lists of tensors. {MATRIX_FREE}")
        for k, value in enumerate(values):  # an element without a matrix may stay in a list that nobody reads
            if isinstance(value, Exception) and (k == 0 or op.type not in WRITES_ITEM):
                raise value
        found = rule(op, *(proper(self.bk, self.coefficient(value)) for value in values))
        return found if isinstance(found, list) else [found]

    # --- what does not depend on the input ----------------------------------------------------------------------------

    def _by_tensorflow(self, op: tf.Operation, values: list[Any]) -> list[Any] | None:
        """None where this would lose derivatives."""
        unknown = any(not self._is_known(value) for value in values)
        if not unknown or (op.type not in CONTROL and not _has_own_gradient(op)):
            return list(evaluate(op, values))
        if self._apart is None:
            self._apart = self._run_apart()
        found = [self._apart.get(id(x)) for x in op.outputs]
        return None if found[0] is None else found  # a loop gets more results when its derivative is taken

    def _run_apart(self) -> dict[int, tf.Tensor]:
        """All that no input reaches and that keeps its derivatives only if TensorFlow runs it as a whole."""
        graph = self.record.graph
        plan = self._plan(graph.inputs, [x for x in self.record.outputs if x is not None])
        reached = {id(x) for x in graph.inputs[: self.record.inputs]}
        wanted: list[tf.Tensor] = []
        for op, _ in plan:
            if any(id(x) in reached for x in op.inputs):
                reached.update(id(x) for x in op.outputs)
            elif (op.type in CONTROL or _has_own_gradient(op)) and not any(x.dtype == tf.variant for x in op.outputs):
                wanted += op.outputs
        return {id(x): value for x, value in zip(wanted, self.record.run(wanted) if wanted else ())}

    def _through_custom_gradient(self, op: tf.Operation, values: list[Any]) -> list[Any]:
        """In a loop or a branch; what its custom gradient is belongs to the graph that was recorded."""
        why = (
            "The derivative of the matrix goes through a custom gradient in a loop, a branch or a tf.function inside "
            "of the traced function. Compute what has it before the loop, or outside of the traced function."
        )
        return [self.bk.refuse_derivatives(tensor_of(value), why, RuntimeError) for value in values]

    def _is_known(self, value: Any) -> bool:
        if not isinstance(value, tf.Tensor):
            return True
        return is_eager(value) and not (self._tracks and tf.executing_eagerly() and self.bk.tracks(value))

    def coefficient(self, value: Any) -> Any:
        """A NumPy array where the value is known, else a tensor; anything else as it is."""
        if not isinstance(value, tf.Tensor) or value.dtype in (tf.variant, tf.resource, tf.string):
            return value
        found = self._known.get(id(value))
        if found is None:
            known = None
            if self._is_known(value):
                known = self.bk.to_numpy(value)
            elif not is_eager(value) and not tapes.should_record_backprop([value]):
                folded = self._folder.value(value)
                known = self.bk.to_numpy(folded) if isinstance(folded, tf.Tensor) else folded
            found = self._known[id(value)] = value, value if known is None else known
        return found[1]

    # --- what does ----------------------------------------------------------------------------------------------------

    def _ruled(self, op: tf.Operation, values: list[Any]) -> list[Any]:
        rule = RULES.get(op.type)
        if rule is None:
            raise without_rule(op, values)
        results = self.by_rule(partial(rule, op), values, {}, commutes=op.type not in FOURIER)
        return [self._fitted(op, k, result, values) for k, result in enumerate(results)]

    def _fitted(self, op: tf.Operation, number: int, value: Any, values: list[Any]) -> Any:
        if isinstance(value, Conjugate):
            return Conjugate(self._fitted(op, number, value.linear, values))
        if not isinstance(value, Linear):
            return value
        output = op.outputs[number]
        if not (output.dtype.is_floating or output.dtype.is_complex):
            raise NotLinear(f"its result is of {output.dtype.name}")
        if output.shape.rank is not None and not output.shape.is_compatible_with(value.shape):
            raise UnsupportedOperation(
                f"its rule found the shape {value.shape} where TensorFlow has {output.shape}. Please report it."
            )
        return in_dtype(value, np.dtype(output.dtype.as_numpy_dtype))


def plan_of(inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor]) -> Plan:
    """The operations that compute some tensors from others, each after those that it needs, and their needed results.

    A graph lists them as they were made; but a loop gets more operands when its derivative is taken.
    """
    given = {id(x) for x in inputs}
    needed = {id(x) for x in outputs}
    found: list[tf.Operation] = []
    seen: set[int] = set()
    pending = [(x.op, False) for x in reversed(outputs) if id(x) not in given]
    while pending:
        op, is_ready = pending.pop()
        if is_ready:
            found.append(op)
        elif id(op) not in seen:
            seen.add(id(op))
            pending.append((op, True))
            needed.update(id(x) for x in op.inputs)
            pending.extend((x.op, False) for x in op.inputs if id(x) not in given)
    return [(op, [id(x) in needed for x in op.outputs]) for op in found]


def _has_own_gradient(op: tf.Operation) -> bool:
    return CUSTOM in op.node_def.attr


def _size(x: tf.Tensor) -> float:
    if not is_eager(x) or not (x.dtype.is_floating or x.dtype.is_complex):
        return 0.0
    with eagerly():
        return co.largest(x.numpy())


# --- calls, branches and loops ----------------------------------------------------------------------------------------


def called_graph(op: tf.Operation, name: str) -> Any:
    """The graph of a function that an operation calls."""
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
    """Refuse a graph with an operation that writes to a variable."""
    for op in graph.get_operations():
        if op.type.startswith(_WRITES):
            raise by_handle(op)


_RANDOM = ("Random", "Multinomial", "ParameterizedTruncatedNormal", "TruncatedNormal", "Bernoulli", "Timestamp")


def refuse_random(op: tf.Operation) -> None:
    """Refuse an operation that has, or calls one that has, another result in each run."""
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
    found: list[str] = []
    for value in op.node_def.attr.values():
        found += [f.name for f in (value.func, *value.list.func) if f.name]
    return found


def _call(runner: GraphInterpreter, op: tf.Operation, values: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
    return runner.run(called_graph(op, op.get_attr("f").name), values, wanted)


def _if(runner: GraphInterpreter, op: tf.Operation, values: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
    names = [op.get_attr("else_branch").name, op.get_attr("then_branch").name]
    return _branches(runner, op, names, values, wanted, lambda which: int(bool(np.any(which))))


def _case(runner: GraphInterpreter, op: tf.Operation, values: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
    names = [branch.name for branch in op.get_attr("branches")]
    last = len(names) - 1
    return _branches(runner, op, names, values, wanted, lambda which: int(which) if 0 <= which <= last else last)


def _branches(
    runner: GraphInterpreter,
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


def _choice(runner: GraphInterpreter, which: tf.Tensor, cases: Sequence[Any]) -> Any:
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


def _while(runner: GraphInterpreter, op: tf.Operation, values: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
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


Rule = Callable[[GraphInterpreter, tf.Operation, Sequence[Any], Sequence[bool]], list[Any]]
CONTROL: dict[str, Rule] = {
    **dict.fromkeys(("PartitionedCall", "StatefulPartitionedCall"), _call),
    **dict.fromkeys(("If", "StatelessIf"), _if),
    **dict.fromkeys(("Case", "StatelessCase"), _case),
    **dict.fromkeys(("While", "StatelessWhile"), _while),
}
