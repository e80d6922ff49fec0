"""Errors for derivatives that `tf.vectorized_map` would drop silently.

It replaces each operation of the mapped function by one for all elements, and the `IdentityN` that carries a custom
gradient by a plain one. A tape outside of it then finds no connection, and zeros where derivatives are not. A tape
inside, in the mapped function, is not concerned: by then its gradient has become operations.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.ops.parallel_for import pfor  # not public; a test pins it

_KEY = "_gradient_op_type"
_ours: set[bytes] = set()  # names of custom gradients
_native = pfor._pfor_converter_registry["IdentityN"]


def refuse_when_vectorized(x: tf.Tensor) -> None:
    """Make derivatives by a tape outside of a map an error for the result `x` of a custom gradient in a graph."""
    if not tf.executing_eagerly() and x.op.type == "IdentityN":
        pfor._pfor_converter_registry["IdentityN"] = _convert
        _ours.add(x.op.get_attr(_KEY))


def _convert(pfor_input: Any) -> Any:
    outputs = _native(pfor_input)
    try:
        name = pfor_input.op.get_attr(_KEY)
    except ValueError:  # a plain one
        return outputs
    if name not in _ours:
        return outputs

    @tf.custom_gradient
    def guarded(*tensors: tf.Tensor) -> Any:
        def gradient(*_: tf.Tensor) -> Any:
            raise RuntimeError(
                "The derivative of linear_solve inside of tf.vectorized_map (or tape.jacobian) was asked for by a tape "
                "outside of it, where TensorFlow drops it. Use tf.map_fn, or one solve of all systems (batch_ndim=1); "
                "or open the tape inside of the mapped function; for tape.jacobian, make that tape persistent and give "
                "experimental_use_pfor=False."
            )

        return [tf.identity(t) for t in tensors], gradient

    tensors = guarded(*(o.t for o in outputs))
    return [pfor.wrap(t, o.is_stacked) for t, o in zip(tensors, outputs, strict=True)]
