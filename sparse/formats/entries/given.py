"""Validation of constructor arguments: values of any library, and the integer arrays that belong to them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....backends import Array, Backend, choose_backend
from ....backends.interface.arrays import check_count, check_rising
from .integers import as_indices, check_shape, repeat_rows


def as_values(values: Any, ndim: int) -> tuple[Backend, Array]:
    """The backend of the values, and the values as its array of floating numbers; of NumPy a copy.

    One more axis in front than `ndim` makes a batch of matrices.

    Raises:
        ValueError: they have another number of axes.
        TypeError: they are no numbers.
    """
    bk = choose_backend(values)
    array = values if bk.is_array(values) and not isinstance(values, np.ndarray) else np.array(values)
    shape = tuple(array.shape)
    if len(shape) not in (ndim, ndim + 1):
        expected = f"{ndim} {'axis' if ndim == 1 else 'axes'}, or one more in front for a batch of matrices"
        raise ValueError(f"Values of the shape {shape} were given; expected {expected}.")
    dtype = array.dtype if isinstance(array, np.ndarray) else bk.dtype(array)
    if dtype.kind not in "biufc":
        raise TypeError(f"The values have the dtype {dtype}; expected numbers.")
    if dtype.kind == "f" and dtype.itemsize < 4:
        raise TypeError(f"The values have the dtype {dtype}; krylix multiplies in float32 and float64. Cast them.")
    if dtype.kind in "biu":
        array = array.astype(np.float64) if isinstance(array, np.ndarray) else bk.astype(array, bk.default_float)
    return bk, array


def known_array(x: Any, what: str) -> np.ndarray:
    """Copy index arrays that must be known.

    Raises:
        TypeError: it is not known while a function is traced.
    """
    try:
        return np.array(np.asarray(x))  # in two steps, as TensorFlow's tensors are asked to
    except (NotImplementedError, TypeError, RuntimeError) as error:
        raise TypeError(
            f"{what} must be known when the matrix is made, but these have no values that NumPy could read: "
            f"{type(x).__name__}. Make them with NumPy, or outside of the function that is traced."
        ) from error


def check_lengths(values: Array, positions: np.ndarray, what: str) -> None:
    """Check that there is one position for each value `(..., nnz)`.

    Raises:
        ValueError: it is not so.
    """
    check_count(int(values.shape[-1]), len(positions), what)


def check_starts(starts: Any, n: int, nnz: int) -> np.ndarray:
    """`(n + 1,)`: where each of n rows (or columns) starts in a list of nnz entries.

    Raises:
        TypeError, ValueError: it is no such list.
    """
    return check_rising(known_array(starts, "The starts"), n, nnz, "The starts").astype(np.int32, copy=False)


def read_lines(
    values: Any, places: Any, starts: Any, shape: Any, word: str
) -> tuple[Backend, Array, np.ndarray, np.ndarray]:  # fmt: skip
    """Read the arguments of compressed rows or columns: the backend, the values, and line and place of each entry.

    Args:
        shape: `(lines, places)`.
        word: what the places are called in messages.

    Raises:
        TypeError, ValueError: they do not fit.
    """
    n, m = check_shape(shape)
    bk, values = as_values(values, 1)
    found = as_indices(known_array(places, f"The {word}"), m, f"The {word}")
    lines = repeat_rows(check_starts(starts, n, len(found)))
    check_lengths(values, found, word)
    return bk, values, lines, found


def working(values: np.ndarray) -> np.ndarray:
    """Values as floating numbers."""
    return values if values.dtype.kind in "fc" else values.astype(np.float64)
