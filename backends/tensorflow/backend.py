"""TensorFlow backend: eager and inside `tf.function`; tensors are immutable, so updates make new ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import record  # not public, as the next; tests pin them
from tensorflow.python.ops import control_flow_util

from ..interface.arrays import Spec, have_one_dtype, nan_of
from ..interface.backend import Array
from ..interface.control import Kept, as_declared, select
from ..settings import exponent_bits
from .derivatives import (
    bilinear,
    differentiated,
    has_tangent,
    implicit_solve,
    refused,
    with_no_derivative,
    with_rule,
    without_derivatives,
)
from .kernels import TensorflowFourier, TensorflowIndexing, TensorflowLinalg, TensorflowSparse
from .loops import TensorflowLoops, declare_shapes, one_by_one
from .program import GraphConstantFolder, eagerly, is_eager, recorded


class TensorflowBackend(TensorflowIndexing, TensorflowLoops):
    """TensorFlow tensors and variables."""

    name = "tensorflow"
    explicit_derivatives = True
    _native_dtypes = {tf.as_dtype(np.dtype(char)): np.dtype(char) for char in "?iqefdFD"}  # noqa: RUF012
    fuses_elementwise = True
    has_unknown_sizes = True
    prefers_channels_last = True
    derivatives = "tf.GradientTape"
    linalg = TensorflowLinalg()
    fourier = TensorflowFourier()
    sparse = TensorflowSparse()

    @property
    def default_float(self) -> np.dtype:
        return np.dtype(np.float32)

    def is_array(self, x: Any) -> bool:
        return isinstance(x, (tf.Tensor, tf.Variable))

    def asarray(self, x: Any, dtype: np.dtype | None = None, like: Array | None = None) -> Array:
        if isinstance(x, (tf.Tensor, tf.Variable)):
            tensor = tf.convert_to_tensor(x)
            return tensor if dtype is None else tf.cast(tensor, dtype)
        return tf.convert_to_tensor(np.asarray(x, dtype))

    def to_numpy(self, x: Array) -> np.ndarray:
        return x.numpy() if isinstance(x, (tf.Tensor, tf.Variable)) else np.asarray(x)

    def dtype(self, x: Array) -> np.dtype:
        return np.dtype(x.dtype.as_numpy_dtype)

    def astype(self, x: Array, dtype: np.dtype) -> Array:
        if dtype == np.bool_ and x.dtype.is_complex:  # tf.cast looks at the real part alone
            return tf.not_equal(x, tf.zeros((), x.dtype))
        return tf.cast(x, dtype)

    def _full(self, shape: Any, value: Any, dtype: np.dtype, like: Array | None) -> Array:
        number = tf.constant(bool(value) if dtype.kind == "b" else value, dtype)
        return tf.fill((shape,) if isinstance(shape, int) else shape, number)

    def compiled(self, *arrays: Any) -> bool:
        return not tf.executing_eagerly()

    def at_once(self) -> AbstractContextManager[Any]:
        return tf.init_scope()

    def constant_folded(self, x: Array) -> np.ndarray | None:
        try:
            found = x if is_eager(x) else GraphConstantFolder().value(x, captured=True)
        except tf.errors.OpError:  # of an operation that runs in graphs only
            return None
        if found is None:
            return None
        with eagerly():
            return np.asarray(found)

    def is_concrete(self, x: Array) -> bool:
        return tf.executing_eagerly() and "GPU" not in x.device

    def host_view(self, x: Array) -> np.ndarray | None:
        if not isinstance(x, tf.Tensor) or not self.is_concrete(x) or self.tracks(x):
            return None
        return np.asarray(x.numpy())

    def _select(self, condition: Array, a: Any, b: Any) -> Array:
        is_bool = getattr(condition, "dtype", None) is tf.bool
        return tf.where(condition, a, b) if is_bool else self.xp.where(condition, a, b)

    def negated(self, condition: Array) -> Array:
        return tf.equal(condition, False)

    def dot(self, a: Array, b: Array) -> Array:
        return tf.reduce_sum(tf.math.conj(a) * b, axis=1, keepdims=True)

    def unit_in_first_place(self, x: Array) -> Array:
        integer, mask = exponent_bits(self.dtype(x))
        bits = tf.bitwise.bitwise_and(tf.bitcast(x, integer), tf.constant(mask, integer))
        return tf.bitcast(bits, x.dtype)

    def safe_divide(self, a: Array, b: Array) -> Array:
        if not have_one_dtype((a, b)) or not (a.dtype.is_floating or a.dtype.is_complex):
            return super().safe_divide(a, b)
        return tf.math.divide_no_nan(a, b)

    def cond(self, predicate: Any, if_true: Callable[..., Any], if_false: Callable[..., Any], *operands: Any) -> Any:
        if tf.executing_eagerly():
            return super().cond(bool(predicate), if_true, if_false, *operands)
        return tf.cond(predicate, lambda: if_true(*operands), lambda: if_false(*operands))

    def where_needed(self, predicate: Any, function: Callable[[], Sequence[Array]]) -> list[Array]:
        if tf.executing_eagerly():
            return list(function())
        program = tf.function(lambda: list(function()), autograph=False).get_concrete_function()
        shapes = program.structured_outputs
        return list(tf.cond(predicate, lambda: list(program()), lambda: [tf.zeros(s.shape, s.dtype) for s in shapes]))

    def step_active(self, step: Callable[[Any], Any], state: Any, active: Array) -> Any:
        if active.shape[0] == 1 or (tf.executing_eagerly() and bool(tf.reduce_all(active))):
            return step(state)
        return select(self, active, step(state), state)

    def put(self, buffer: Array, row: Array, values: Array, active: Array) -> Array:
        systems = tf.range(buffer.shape[1])[:, None]
        row = tf.where(active, tf.cast(row, tf.int32), 0)  # TensorFlow refuses an index beyond the end
        index = tf.concat([row, systems], axis=1)
        values = tf.where(active, tf.cast(values, buffer.dtype), tf.gather_nd(buffer, index)[:, None])
        return tf.tensor_scatter_nd_update(buffer, index, values[:, 0])

    def put_block(self, rows: Array, start: Array, values: Array) -> Array:
        first, n, k = start[0], rows.shape[1], values.shape[1]
        at = tf.range(n, dtype=start.dtype) - first
        inside = tf.gather(values, tf.clip_by_value(at, 0, k - 1), axis=1)  # of a shape that XLA knows
        return tf.where(((at >= 0) & (at < k))[None], inside, rows)

    def rows_on_host(self, rows: Array) -> np.ndarray | None:
        # of any length: tensors are immutable, so an update takes TensorFlow two passes into new memory
        plain = tf.executing_eagerly() and is_eager(rows) and "GPU" not in rows.device
        return self.to_numpy(rows) if plain else None

    def host_call(self, function: Callable[..., Any], returns: Sequence[Spec], *arrays: Array) -> tuple[Array, ...]:
        if tf.executing_eagerly():
            return super().host_call(function, returns, *arrays)
        if _for_xla():
            raise TypeError(
                "XLA (tf.function(jit_compile=True)) cannot call the host, which this method or matrix needs: a scipy "
                "method, a LinearOperator or progress. Use a method of krylix itself, or leave jit_compile out."
            )

        if not returns:
            tf.py_function(lambda *values: function(*(v.numpy() for v in values)), arrays, [])
            return ()

        def on_host(*values: np.ndarray) -> list[np.ndarray]:
            return list(as_declared(function(*values), returns))

        results = tf.numpy_function(on_host, arrays, [d for _, d in returns])
        declare_shapes(results, [shape for shape, _ in returns])
        return tuple(tf.ensure_shape(r, shape) for r, (shape, _) in zip(results, returns, strict=True))

    def can_ask_host(self) -> bool:
        return tf.executing_eagerly() or not _for_xla()

    def can_rescue(self) -> bool:
        return tf.executing_eagerly() or not _for_xla()

    def rescued(
        self,
        failed: Any,
        function: Callable[..., Any],
        found: Sequence[Array],
        *arrays: Array,
        name: Callable[[], str | None] = lambda: None,
    ) -> tuple[Array, ...]:
        if tf.executing_eagerly():
            return super().rescued(bool(failed), function, found, *arrays)
        if not self.can_rescue():
            return tuple(found)
        specs = [(tuple(x.shape), self.dtype(x)) for x in found]
        return tuple(tf.cond(failed, lambda: self.host_call(function, specs, *arrays), lambda: tuple(found)))

    def guard(
        self,
        failed: Any,
        handler: Callable[..., None],
        x: Any,
        *arrays: Array,
        kept: Kept | None = None,
        noted: Any | None = None,
    ) -> Any:
        if tf.executing_eagerly():
            return super().guard(bool(failed), handler, x, *arrays, noted=noted)
        if _for_xla():  # no error can leave such a program, so failures become visible as NaN
            return tf.nest.map_structure(
                lambda leaf: tf.where(failed, tf.constant(nan_of(self.dtype(leaf)), leaf.dtype), leaf), x
            )

        def on_host(*values: np.ndarray) -> np.ndarray:
            handler(*values)
            return np.zeros((), np.bool_)

        calls = failed if noted is None else failed | noted
        flag = tf.cond(calls, lambda: tf.numpy_function(on_host, arrays, tf.bool), lambda: tf.constant(False))
        with tf.control_dependencies([flag]):
            return tf.nest.map_structure(tf.identity, x)

    def product(self, matrix: Array, x: Array) -> Array:
        if len(matrix.shape) == 2:
            return tf.linalg.matmul(x, matrix, transpose_b=True)
        return tf.linalg.matvec(matrix, x)

    def transpose_function(self, function: Callable[[Array], Array], like: Array) -> Callable[[Array], Array]:
        zeros = tf.zeros_like(like)

        def transposed(y: Array) -> Array:
            with tf.GradientTape() as tape:
                tape.watch(zeros)
                image = function(zeros)
            # TensorFlow's cotangent map is the conjugate transpose
            return tf.math.conj(tape.gradient(image, zeros, tf.math.conj(y), tf.UnconnectedGradients.ZERO))

        return transposed

    def tracks(self, x: Any) -> bool:
        if not tf.executing_eagerly():
            return True
        if isinstance(x, tf.Variable):
            x = tf.convert_to_tensor(x)
        return has_tangent(x) or bool(record.should_record_backprop([x]))

    bilinear = bilinear
    broadcast_to = staticmethod(tf.broadcast_to)  # as the next, to shapes that are tensors as well
    reshape = staticmethod(tf.reshape)
    constant = staticmethod(tf.stop_gradient)
    implicit_solve = staticmethod(implicit_solve)
    trace = staticmethod(recorded)
    one_by_one = staticmethod(one_by_one)
    without_derivatives = staticmethod(without_derivatives)
    _differentiated = staticmethod(differentiated)
    _with_rule = staticmethod(with_rule)
    _with_no_derivative = staticmethod(with_no_derivative)

    def refuse_derivatives(
        self, x: Array, why: str, error: type[Exception] = TypeError, sources: Sequence[Array] = ()
    ) -> Array:
        return refused(x, error(why), sources)


def _for_xla() -> bool:
    """Is this graph to be compiled by XLA?"""
    return bool(control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))
