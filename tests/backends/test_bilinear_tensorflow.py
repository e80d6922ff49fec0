"""The derivatives of products in TensorFlow, against those of the dense matrix."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bilinear_forms import FORMS, M, N, dtypes, few_forms, forms, indices_of, native, selectors_of, values_of
from contract import backend, rows


@pytest.mark.needs("tensorflow")
class TestTensorflow:
    """Tapes in tapes, eager and compiled, by XLA too."""

    @staticmethod
    def function(name: str, transposed: bool = False) -> Callable[..., Any]:
        bk = backend("tf")

        def product(*values_and_x: Any) -> Any:
            *values, x = values_and_x
            return bk.bilinear(FORMS[name], tuple(values), indices_of(name), x, transposed)

        return product

    @staticmethod
    def dense_function(name: str, transposed: bool = False) -> Callable[..., Any]:
        import tensorflow as tf

        def product(*values_and_x: Any) -> Any:
            *values, x = values_and_x
            selectors = [tf.cast(s, x.dtype) for s in selectors_of(name)]
            matrix = sum(tf.tensordot(v, s, len(v.shape)) for v, s in zip(values, selectors, strict=True))
            return tf.matmul(x, matrix, transpose_b=not transposed)

        return product

    @staticmethod
    def three_orders(f: Any) -> Any:
        """The scalar's gradient, the gradient of a scalar of that, and once more."""
        import tensorflow as tf

        def size(parts: Any) -> Any:
            return sum(tf.reduce_sum(tf.math.real(p * tf.math.conj(p))) for p in parts)

        def all_orders(*arguments: Any) -> Any:
            with tf.GradientTape() as third:
                third.watch(arguments)
                with tf.GradientTape() as second:
                    second.watch(arguments)
                    with tf.GradientTape() as first:
                        first.watch(arguments)
                        value = size([f(*arguments)])
                    one = first.gradient(value, arguments)
                    value = size(one)
                two = second.gradient(value, arguments)
                value = size(two)
            return *one, *two, *third.gradient(value, arguments)

        return all_orders

    @few_forms
    @dtypes
    @pytest.mark.parametrize(
        ("transposed", "how"),
        [
            (False, "eager"),
            (True, "eager"),
            pytest.param(False, "function", marks=pytest.mark.merge),
            (True, "function"),
            (False, "xla"),
        ],
    )
    def test_gradients(self, name: str, dtype: str, transposed: bool, how: str) -> None:
        import tensorflow as tf

        arguments = native("tf", *values_of(name, dtype), 0.3 * rows(dtype, (2, N if transposed else M)))
        found = self.three_orders(self.function(name, transposed))
        if how != "eager":
            found = tf.function(found, autograph=False, jit_compile=how == "xla")
        want = self.three_orders(self.dense_function(name, transposed))(*arguments)
        for f, w in zip(found(*arguments), want, strict=True):
            np.testing.assert_allclose(f, w, rtol=1e-11, atol=1e-11 * np.abs(w).max())

    @forms
    def test_jacobians_and_forward_mode(self, name: str) -> None:
        import tensorflow as tf

        arguments = native("tf", *values_of(name, "float64"), rows("float64", (2, M)))
        tangents = native("tf", *values_of(name, "float64", 1), rows("float64", (2, M), 1))
        outcome = []
        for f in (self.function(name), self.dense_function(name)):
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(arguments)
                image = f(*arguments)
            jacobians = tape.jacobian(image, arguments)
            with tf.autodiff.ForwardAccumulator(arguments, tangents) as accumulator:
                image = f(*arguments)
            with tf.autodiff.ForwardAccumulator(arguments, tangents) as hessian:
                with tf.GradientTape() as tape:
                    tape.watch(arguments)
                    value = tf.reduce_sum(tf.sin(f(*arguments)))
                gradients = tape.gradient(value, arguments)
            outcome.append([*jacobians, accumulator.jvp(image), *(hessian.jvp(g) for g in gradients)])
        for found, want in zip(*outcome, strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-11, atol=1e-11)

    def test_variables_and_maps(self) -> None:
        import tensorflow as tf

        f, g = self.function("both"), self.dense_function("both")
        entries, diagonals = (tf.Variable(v) for v in values_of("both", "float64"))
        x = tf.constant(rows("float64", (4, 2, M)))
        found = []
        for h in (f, g):
            with tf.GradientTape() as tape:
                value = tf.reduce_sum(tf.vectorized_map(lambda x: h(entries, diagonals, x), x) ** 2)  # noqa: B023
            found.append(tape.gradient(value, [entries, diagonals]))
        for a, b in zip(*found, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11)
