"""A layer of Keras that solves a linear system: `Solve`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from .. import linear_solve
from ..matrix_entries import entries_of
from ..sparse import COO, is_function


@keras.saving.register_keras_serializable(package="krylix")
class Solve(keras.layers.Layer):
    """The layer `b -> x` with `A x = b`, where A is a matrix or a function, trainable or fixed; for TensorFlow.

    Args:
        A: a dense matrix `(n, n)` or a sparse one, of NumPy, SciPy or krylix, whose values become the weight `values`;
            or a linear function of a tensor `(batch, *shape)`, `A(x, *args)`.
        args: of a function, numbers and arrays that it is called with after x; they become weights.
        trainable: are the weights trained?
        **settings: of `krylix.linear_solve`: method, preconditioner, rtol, ...; and name and dtype of a Keras layer.
            The dtype is Keras's default, float32, if none is given; give "complex64" or "complex128" for a complex A.

    The input is `(*batch, n)` for a matrix, `(batch, *shape)` for a function; the output has its shape. Gradients reach
    b and the weights. `model.save` stores matrices and args; a function has to be registered with
    `keras.saving.register_keras_serializable`. Models with this layer are not compiled by XLA, because methods that run
    on the host cannot be.

    Raises:
        ValueError: A is not one square matrix; args were given for a matrix; A is complex and the dtype real; the input
            does not fit.
        NotConverged, Diverged: in a call, forward or backward, as of `linear_solve`; in `fit` and other compiled
            functions TensorFlow's error with the same text.

    Cost: that of `linear_solve` in each call, because A may have changed; the pattern of a sparse matrix is read once.

    Examples:
        >>> import numpy as np, krylix.keras
        >>> layer = krylix.keras.Solve(4 * np.eye(3), method="CG")
        >>> np.asarray(layer(np.ones((2, 3)))).tolist()
        [[0.25, 0.25, 0.25], [0.25, 0.25, 0.25]]
    """

    def __init__(self, A: Any, *, args: Sequence[Any] = (), trainable: bool = True, **settings: Any) -> None:
        of_keras = {key: settings.pop(key) for key in ("name", "dtype") if key in settings}
        super().__init__(trainable=trainable, **of_keras)
        self.supports_jit = False
        self.settings = settings
        self.function: Any = None
        self._pattern: Any = None
        A = _deserialized(A)
        if is_function(A):
            self.function = A
            self._given = [_array(a) for a in args]
        else:
            if len(args):
                raise ValueError(
                    f"{len(args)} args were given for a matrix; expected them with a function A(x, *args)."
                )
            matrix = entries_of(A)
            self._given = [matrix.values]
            self._pattern = None if matrix.rows is None else (matrix.rows, matrix.columns, (matrix.n, matrix.n))
        self._own = [self._weight_of(i, value) for i, value in enumerate(self._given)]
        self.built = True

    def _weight_of(self, i: int, value: np.ndarray) -> Any:
        if np.any(np.imag(value)) and np.dtype(self.dtype).kind != "c":
            raise ValueError(
                f"A or an arg is complex, and the layer has the dtype {self.dtype}, which would drop imaginary parts; "
                "expected dtype='complex64' or 'complex128'."
            )
        name = "values" if self.function is None else f"arg{i}"
        return self.add_weight(name=name, shape=value.shape, initializer=lambda *_, **__: value.astype(self.dtype))

    @property
    def values(self) -> Any:
        """The weight with a dense matrix `(n, n)`, or the entries `(nnz,)` of a sparse one in the order of rows."""
        return self._own[0]

    def call(self, b: Any) -> Any:
        """x, in the shape of b."""
        weights = [_tensor(w) for w in self._own]
        if self.function is not None:
            if len(b.shape) < 2:
                raise ValueError(
                    f"b has the shape {tuple(b.shape)}; expected (batch, *shape). For one system give b[None]."
                )
            return linear_solve(self.function, b, args=weights, batch_ndim=1, **self.settings).x
        A = weights[0] if self._pattern is None else COO(weights[0], *self._pattern)
        return linear_solve(A, b, axis=-1, **self.settings).x

    def compute_output_shape(self, input_shape: Any) -> Any:
        """That of the input."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Configuration that Keras stores besides the weights.

        Raises:
            TypeError: a setting is no number, name or None; the weights can still be saved.
        """
        for key, value in self.settings.items():
            if not isinstance(value, str | int | float | None):
                raise TypeError(f"{key}={value!r} cannot be stored by Keras; expected a name, a number or None.")
        if self.function is not None:
            A: Any = keras.saving.serialize_keras_object(self.function)
        elif self._pattern is None:
            A = {"values": _numbers(self._given[0])}
        else:
            rows, columns, (n, _) = self._pattern
            A = {"rows": rows.tolist(), "columns": columns.tolist(), "values": _numbers(self._given[0]), "n": int(n)}
        args = [] if self.function is None else [_numbers(a) for a in self._given]
        return {**super().get_config(), "A": A, "args": args, **self.settings}


def _tensor(weight: Any) -> Any:
    value = weight.value  # derivatives are with respect to the tensor that a variable of TensorFlow is read into
    return value.read_value() if hasattr(value, "read_value") else value


def _deserialized(A: Any) -> Any:
    """Inverse of `get_config` for a matrix or a function."""
    if not isinstance(A, dict):
        return A
    if "class_name" in A:
        return keras.saving.deserialize_keras_object(A)
    if "rows" in A:
        return COO(_array(A["values"]), np.asarray(A["rows"]), np.asarray(A["columns"]), (A["n"], A["n"]))
    return _array(A["values"])


def _numbers(value: np.ndarray) -> Any:
    """Lists, because Keras stores neither arrays nor complex numbers."""
    return {"real": value.real.tolist(), "imag": value.imag.tolist()} if value.dtype.kind == "c" else value.tolist()


def _array(stored: Any) -> np.ndarray:
    """Inverse of `_numbers`."""
    return (
        np.asarray(stored["real"]) + 1j * np.asarray(stored["imag"]) if isinstance(stored, dict) else np.asarray(stored)
    )
