"""Recording of a function as a graph, and the errors of tracing for its operations."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

from ....backends.tensorflow.program import graph_of
from ...errors import NonlinearError, UnsupportedOperation
from .. import messages
from ..engine.operands import MATRIX_FREE
from ..messages import FOLDERS, UNKNOWN, Operation, Reporter, kind_of, place_of

LIBRARY = (f"{Path(tf.__file__).parent}/", *FOLDERS)  # code that is not the user's

_SYMBOLIC = ("SymbolicTensor", "symbolic `tf.Tensor`", "symbolic tf.Tensor")
_OUTSIDE = (
    "it makes a number, a branch or an array outside of TensorFlow of a tensor that {}, and what follows from it is "
    "not traced. {}"
)
_NAMES = {"__bool__": "bool", "__iter__": "iteration", "__array__": "numpy", "__getattr__": "numpy", "__len__": "len"}


def random(op: tf.Operation) -> UnsupportedOperation:
    """It draws random numbers, or tells the time."""
    return REPORTER.unsupported(
        op, "it is random, or tells the time: another result each time, and a matrix has one. Compute it before."
    )


def by_handle(op: tf.Operation) -> UnsupportedOperation:
    """It takes a variable, or a table, itself."""
    return REPORTER.unsupported(
        op,
        "it takes a tf.Variable or a table by its handle, so that nobody sees its value. Take its value, as in "
        "tf.gather(tf.identity(v), i), and write to no variable in the traced function.",
    )


def leaves_tensorflow(error: Exception, depends: Any) -> Exception | None:
    """The error for a function that failed because a symbolic tensor has no value; None: it failed otherwise."""
    if not any(words in str(error) for words in _SYMBOLIC):
        return None
    frames = list(_frames(error.__traceback__))
    place = place_of((f.f_code.co_filename, line, f.f_code.co_name) for f, line in reversed(frames) if _is_users(f))
    inner = frames[-1][0] if frames else None
    tensor, name = None, "float, int or range"
    for frame, _ in reversed(frames):
        if _is_users(frame):
            break
        if isinstance(frame.f_locals.get("self"), tf.Tensor):
            tensor, name = frame.f_locals["self"], frame.f_code.co_name
    if tensor is None or inner is None:
        how = "Compute with the tensor, as tf.where does; what does not depend on the input, compute outside."
        operation = Operation(name, place, ["symbolic"])
        return messages.nonlinear(operation, _OUTSIDE.format("may depend on the input", how))
    name = _NAMES.get(name, name)
    if depends(tensor):
        if name == "numpy":
            return messages.unsupported(
                Operation(name, place, ["input-dependent"]),
                messages.HANDED_TO_NUMPY.format("TensorFlow"),
            )
        how = "Compute with the tensor, as tf.where does"
        return messages.nonlinear(
            Operation(name, place, ["input-dependent"]), _OUTSIDE.format("depends on the input", how)
        )
    how = "Compute it outside of the function, or write tf.cond or tf.while_loop, or @tf.function above the function."
    return messages.unsupported(
        Operation(name, place, ["constant"]), _OUTSIDE.format("has no value while the function is recorded", how)
    )


def failed(error: Exception) -> UnsupportedOperation:
    """The function raised something while its graph was made."""
    frames = [(f, line) for f, line in _frames(error.__traceback__) if _is_users(f)]
    place = place_of((f.f_code.co_filename, line, f.f_code.co_name) for f, line in reversed(frames))
    words = "".join(traceback.format_exception_only(type(error), error)).strip().split("\n")[0]
    return messages.unsupported(
        Operation("tf.function", place, ["symbolic"]),
        f"TensorFlow could not make a graph of the function: {words} {MATRIX_FREE}",
    )


def _is_users(frame: Any) -> bool:
    return not frame.f_code.co_filename.startswith(LIBRARY)


def _frames(found: TracebackType | None) -> Iterator[tuple[Any, int]]:
    while found is not None:
        yield found.tb_frame, found.tb_lineno
        found = found.tb_next


def _operation(op: tf.Operation, values: Sequence[Any], name: str | None = None) -> Operation:
    kinds = [kind_of(value, not isinstance(value, tf.Tensor)) for value in values]
    return Operation(name or op.type, _place(op), kinds or ["input-dependent"])


def _place(op: tf.Operation) -> str:
    frames = op.traceback  # from the outermost call inwards; None in functions that were loaded
    if frames is None:
        return UNKNOWN
    return place_of(
        (frame.filename, frame.lineno, frame.name)
        for frame in reversed(list(frames))
        if not frame.filename.startswith(LIBRARY)
    )


REPORTER = Reporter(_operation, "Compute it with NumPy, or of what is no argument of the tf.function around.")


# --- recording --------------------------------------------------------------------------------------------------------


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
    """Of a function of a container, of this structure, of tensors with these specifications."""
    inputs: list[tf.Tensor] = []
    returned: list[Any] = []

    def flat(*leaves: tf.Tensor) -> list[tf.Tensor]:
        inputs.extend(leaves)
        image = function(tf.nest.pack_sequence_as(structure, leaves))
        found = [tf.convert_to_tensor(x) if isinstance(x, tf.IndexedSlices) else x for x in tf.nest.flatten(image)]
        if all(x is None for x in found) or any(
            not isinstance(x, (tf.Tensor, tf.Variable)) and x is not None for x in found
        ):
            raise _NoTensor(messages.no_tensor(found))
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
