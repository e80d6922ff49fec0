"""Recording of a function as a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction  # not public

from ....backends.tensorflow.program import graph_of
from ...errors import NonlinearError, UnsupportedOperation
from .messages import failed, leaves_tensorflow


@dataclass
class GraphRecord:
    """What a function does to tensors.

    Attributes:
        graph: its operations; its inputs are those of the function, then what is captured.
        inputs: number of the function's.
        captured: tensors that the function closes over, and values of its variables, as they are outside; variables
            themselves where a `tf.function` inside took their handles when it was called before.
        outputs: tensors of the graph that it returns, None in place of None, with their container, `structure`.
    """

    graph: Any
    inputs: int
    captured: Sequence[tf.Tensor | tf.Variable]
    outputs: Sequence[tf.Tensor | None]
    structure: Any
    _program: Any = None

    def run(self, wanted: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Tensors of the graph that do not depend on the input, by TensorFlow, with all their derivatives.

        They become the outputs of the graph, of which derivatives are made later, so they must always be the same.
        """
        graph = self.graph
        if self._program is None:
            graph.outputs, graph.structured_outputs = list(wanted), list(wanted)
            self._program = ConcreteFunction.from_func_graph(graph, None, {})
        program = self._program
        inputs = [tf.zeros(x.shape, x.dtype) for x in graph.inputs[: self.inputs]]
        captured = [x.handle if isinstance(x, tf.Variable) else x for x in self.captured]
        return list(tf.nest.flatten(program._call_flat(inputs, captured)))


def record(function: Callable[[Any], Any], specifications: Sequence[tf.TensorSpec], structure: Any) -> GraphRecord:
    """Of a function of a container, of this structure, of tensors with these specifications.

    Raises:
        TypeError: it returns something that is no tensor.
        NonlinearError, UnsupportedOperation: it asks for the values of its tensors, or there is no graph of it.
    """
    inputs: list[tf.Tensor] = []
    returned: list[Any] = []

    def flat(*leaves: tf.Tensor) -> list[tf.Tensor]:
        inputs.extend(leaves)
        image = function(tf.nest.pack_sequence_as(structure, leaves))
        found = [tf.convert_to_tensor(x) if isinstance(x, tf.IndexedSlices) else x for x in tf.nest.flatten(image)]
        if all(x is None for x in found) or any(
            not isinstance(x, (tf.Tensor, tf.Variable)) and x is not None for x in found
        ):
            raise _NoTensor(f"The traced function returned {_kinds(found)}; expected a tensor. Is a `return` missing?")
        returned.extend([image, [x is None for x in found]])
        return [tf.identity(x) for x in found if x is not None]

    try:
        graph = graph_of(flat, specifications)
    except (NonlinearError, UnsupportedOperation):
        raise
    except _NoTensor as error:
        raise TypeError(str(error)) from None
    except Exception as error:  # whatever the function does with symbolic tensors that it would not with values
        found = leaves_tensorflow(error, lambda tensor: depends(tensor, inputs))
        raise (failed(error) if found is None else found) from error
    image, missing = returned
    outputs = iter(graph.outputs)
    variables = {id(variable.handle): variable for variable in graph.variables}
    return GraphRecord(
        graph,
        len(inputs),
        [variables.get(id(x), x) for x in graph.external_captures],
        [None if absent else next(outputs) for absent in missing],
        image,
    )


class _NoTensor(TypeError):
    """The function returned something else."""


def depends(tensor: Any, inputs: Sequence[tf.Tensor]) -> bool:
    """Is a tensor computed from the inputs? Of the body of a loop or a branch nobody knows."""
    sources, seen, pending = {id(x) for x in inputs}, set(), [tensor]
    while pending:
        x = pending.pop()
        if id(x) in sources:
            return True
        if id(x) in seen:
            continue
        seen.add(id(x))
        if inputs and x.graph is not inputs[0].graph:
            return True
        pending.extend(x.op.inputs)
    return False


def _kinds(found: Sequence[Any]) -> str:
    return ", ".join(dict.fromkeys(type(x).__name__ for x in found)) or "nothing"
