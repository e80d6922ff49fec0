"""What TensorFlow adds to tracing: its functions as linear maps, their values, their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ....backends import get_backend
from ....backends.tensorflow.derivatives import has_tangent
from ...errors import UnsupportedOperation
from ..front_end import FrontEnd, Linearised, Shaped, Traced, arguments, check_dtypes, matrix_dtype, sample_of_all
from .interpreter import GraphInterpreter
from .record import GraphRecord, record


class TensorFlowFunction(NamedTuple):
    """A function that can be run again.

    Attributes:
        function: of the input.
        structure: the container of the input.
        recorded: its graph.
    """

    function: Callable[[Any], Any]
    structure: Any
    recorded: GraphRecord

    def __call__(self, leaves: Sequence[np.ndarray]) -> list[Any]:
        """The arrays that it returns for NumPy arrays, by a call of the function."""
        tensors = [tf.constant(leaf) for leaf in leaves]
        image = self.function(tf.nest.pack_sequence_as(self.structure, tensors))
        found = [tf.convert_to_tensor(x) for x in tf.nest.flatten(image) if x is not None]
        return [x.numpy() for x in found]

    def watched(self, leaves: Sequence[np.ndarray]) -> tuple[list[Any], float]:
        """The same by the operations of its graph, where their values are known, and the largest number between."""
        interpreter = GraphInterpreter(get_backend("tensorflow"), self.recorded, watch=True)
        return interpreter.outputs(leaves), interpreter.largest


def trace_function(
    function: Callable[..., Any], like: Any, args: Sequence[Any], kwargs: Mapping[str, Any], keep_zeros: bool
) -> Traced:
    """See `FrontEnd.trace`. The function is called once, to make its graph."""
    leaves = tf.nest.flatten(like)
    specifications = [_specification(leaf) for leaf in leaves]
    inputs = [Shaped(tuple(spec.shape), _numpy(spec.dtype)) for spec in specifications]
    check_dtypes(inputs, "the input")

    def of_input(x: Any) -> Any:
        return function(x, *args, **kwargs)

    made = record(of_input, specifications, like)
    _refuse_tangents(made)
    outputs = [x for x in made.outputs if x is not None]
    dtypes = [Shaped((), _numpy(x.dtype)) for x in outputs]
    check_dtypes(dtypes, "an output")
    bk = get_backend("tensorflow")
    interpreter = GraphInterpreter(bk, made, keep_zeros)
    results = interpreter.outputs(arguments(bk, inputs))

    def pack(arrays: Sequence[Any]) -> Any:
        rest = iter([tf.cast(tf.convert_to_tensor(a), x.dtype) for a, x in zip(arrays, outputs)])
        return tf.nest.pack_sequence_as(made.structure, [None if x is None else next(rest) for x in made.outputs])

    return Traced(
        bk,
        TensorFlowFunction(of_input, like, made),
        tuple(results),
        tuple(inputs),
        (),
        pack,
        None if tf.nest.is_nested(like) else inputs[0].shape,
        None if tf.nest.is_nested(made.structure) else tuple(results[0].shape),
        matrix_dtype([*inputs, *dtypes]),
        interpreter.precision,
        next((leaf for leaf in leaves if isinstance(leaf, (tf.Tensor, tf.Variable))), None),
    )


def _refuse_tangents(made: GraphRecord) -> None:
    tensors = [x for x in made.captured if isinstance(x, tf.Tensor) and x.dtype not in (tf.resource, tf.variant)]
    if any(map(has_tangent, tensors)):
        raise UnsupportedOperation(
            "A ForwardAccumulator watches what the function closes over, and the products of its matrix have no "
            "forward mode in TensorFlow. Use tf.GradientTape, or the function itself instead of its matrix."
        )


def _specification(leaf: Any) -> tf.TensorSpec:
    if isinstance(leaf, (tf.Tensor, tf.Variable, tf.TensorSpec)):
        found = tf.TensorSpec(leaf.shape, leaf.dtype)
    else:
        array = np.asarray(leaf)
        try:
            found = tf.TensorSpec(array.shape, tf.as_dtype(array.dtype))
        except TypeError:
            raise TypeError(
                f"like has the dtype {array.dtype}, which TensorFlow does not know. Give a float or complex one."
            ) from None
    if not found.shape.is_fully_defined():
        raise TypeError(
            f"like has the shape {found.shape}, and the structure of a matrix needs all lengths. Give them, as in "
            "tf.TensorSpec((64, 64), tf.float64), or tf.ensure_shape in the tf.function around."
        )
    return found


def _numpy(dtype: tf.DType) -> np.dtype:
    return np.dtype(dtype.as_numpy_dtype)


# --- the front end ----------------------------------------------------------------------------------------------------

_NO_FORWARD = "TensorFlow's forward mode drops functions with a gradient of their own"


class TensorflowFrontEnd(FrontEnd):
    """Functions of TensorFlow are recorded as graphs, whose operations are followed one by one."""

    trace = staticmethod(trace_function)

    def evaluate(self, traced: Traced, leaves: Sequence[np.ndarray], watch: bool = False) -> tuple[list[Any], float]:
        """By the function itself, called eagerly; while a graph is made, by the operations that were recorded."""
        if watch or not tf.executing_eagerly():
            return traced.program.watched(leaves)
        return traced.program(leaves), 0.0

    sample = sample_of_all

    def forward_derivative(
        self, f: Callable[..., Any], x: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Linearised:
        raise UnsupportedOperation(f"{_NO_FORWARD}, without a word. The reverse derivative has them.")

    def reverse_derivative(
        self, f: Callable[..., Any], x: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Linearised:
        x = tf.nest.map_structure(_array, x)

        def derivative(cotangent: Any) -> Any:
            own = [tf.identity(leaf) for leaf in tf.nest.flatten(x)]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(own)
                image = [tf.convert_to_tensor(y) for y in tf.nest.flatten(f(_packed(x, own), *args, **kwargs))]
            # TensorFlow's cotangents are conjugated
            given = [tf.math.conj(c) for c in tf.nest.flatten(cotangent)]
            found = tape.gradient(image, own, given, tf.UnconnectedGradients.ZERO)
            return _packed(x, [tf.math.conj(tf.convert_to_tensor(g)) for g in found])

        return derivative, f(x, *args, **kwargs)

    def has_only_reverse_rule(self, error: Exception) -> bool:
        """The reverse derivative is always taken."""
        return _NO_FORWARD in str(error)


def _packed(structure: Any, leaves: Sequence[tf.Tensor]) -> Any:
    return tf.nest.pack_sequence_as(structure, leaves)


def _array(leaf: Any) -> tf.Tensor:
    array = tf.convert_to_tensor(leaf)
    if not (array.dtype.is_floating or array.dtype.is_complex):
        raise TypeError(
            f"x has the dtype {array.dtype.name}; expected a floating or complex one. Give tf.cast(x, ...)."
        )
    return array


FRONT_END: FrontEnd = TensorflowFrontEnd()
