"""Validation of constructor arguments, and of the index arrays of SciPy matrices, which users may have changed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....backends import Array, Backend, choose_backend
from ....backends.interface.arrays import check_count, check_range, check_rising
from .integers import as_indices, check_shape, repeat_rows


def as_values(values: Any, ndim: int) -> tuple[Backend, Array]:
    """The backend of the values, and the values as its array of floating numbers; of NumPy a copy.

    One more axis in front than `ndim` makes a batch of matrices.
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
    """Copy index arrays that must be known."""
    try:
        return np.array(np.asarray(x))  # in two steps, as TensorFlow's tensors are asked to
    except (NotImplementedError, TypeError, RuntimeError) as error:
        raise TypeError(
            f"{what} must be known when the matrix is made, but these have no values that NumPy could read: "
            f"{type(x).__name__}. Make them with NumPy, or outside of the function that is traced."
        ) from error


def check_lengths(values: Array, positions: np.ndarray, what: str) -> None:
    """Check that there is one position for each value `(..., nnz)`."""
    check_count(int(values.shape[-1]), len(positions), what)


def read_lines(
    values: Any, places: Any, starts: Any, shape: Any, word: str
) -> tuple[Backend, Array, np.ndarray, np.ndarray]:  # fmt: skip
    """Read the arguments of compressed rows or columns: the backend, the values, and line and place of each entry.

    Args:
        shape: `(lines, places)`.
        word: what the places are called in messages.
    """
    n, m = check_shape(shape)
    bk, values = as_values(values, 1)
    found = as_indices(known_array(places, f"The {word}"), m, f"The {word}")
    starts = check_rising(known_array(starts, "The starts"), n, len(found), "The starts")
    lines = repeat_rows(starts.astype(np.int32, copy=False))
    check_lengths(values, found, word)
    return bk, values, lines, found


def working(values: np.ndarray) -> np.ndarray:
    """Values as floating numbers."""
    return values if values.dtype.kind in "fc" else values.astype(np.float64)


# --- Validation of the index arrays of SciPy matrices, which users and files may have changed -------------------------


def checked_scipy(A: Any, name: str = "A") -> Any:
    """Validate the index arrays of a SciPy matrix; returns A itself, or its entries.

    Compressed matrices may have room for more entries, as SciPy's have before `prune`; the result has views without it.

    Nothing else is safe to hand on: SciPy's compiled functions do not look. Its own `check_format` is not called when
    attributes are written to, and does not know COO.

    Args:
        A: of any format.
        name: what to call it in a message.

    Cost: two passes over the index arrays, 0.26 ms for a million entries, 5 us for a few.
    """
    if len(A.shape) != 2:
        raise ValueError(f"{name} is a sparse array of shape {A.shape}; expected two axes.")
    if A.format in ("csr", "csc", "bsr"):
        A = _without_room(A, name)
        _check_compressed(A, name)
    elif A.format == "coo":
        _check_coordinates(A, name)
    elif A.format == "dia":
        _check_diagonals(A, name)
    elif A.format == "lil":
        A = A.tocsr()  # of Python's lists: safe, but its numbers may be any
        _check_compressed(A, name)
    elif A.format == "dok":
        A = A.tocoo()
        _check_coordinates(A, name)
    return A


def _without_room(A: Any, name: str) -> Any:
    starts, room = np.asarray(A.indptr), len(A.indices)
    lines = A.shape[A.format == "csc"] if A.format != "bsr" else _blocks(A, name)[0]
    whole = starts.dtype.kind == "i" and starts.shape == (lines + 1,) and len(A.data) == room
    if not whole or not 0 <= starts[-1] < room:
        return A
    used = int(starts[-1])
    return type(A)((A.data[:used], A.indices[:used], A.indptr), A.shape, copy=False)


def _check_compressed(A: Any, name: str) -> None:
    n, m = A.shape
    if A.format == "bsr":
        n, m = _blocks(A, name)
    lines, limit, word = (m, n, "row") if A.format == "csc" else (n, m, "column")
    indices, count = np.asarray(A.indices), len(A.data)
    check_rising(A.indptr, lines, len(indices), f"The starts (indptr) of {name}")
    if count != len(indices):
        check_count(count, len(indices), f"{word} indices of {name}")
    check_range(indices, limit, f"The {word} indices of {name}")


def _blocks(A: Any, name: str) -> tuple[int, int]:
    """The shape in blocks."""
    shape = np.shape(A.data)
    if len(shape) != 3 or 0 in shape[1:] or A.shape[0] % shape[1] or A.shape[1] % shape[2]:
        raise ValueError(f"{name} has data of the shape {shape} for a matrix of {A.shape}; expected blocks of it.")
    return A.shape[0] // shape[1], A.shape[1] // shape[2]


def _check_coordinates(A: Any, name: str) -> None:
    for word, places, limit in zip(("row", "column"), A.coords, A.shape):
        check_count(len(A.data), len(places), f"{word} indices of {name}")
        check_range(np.asarray(places), limit, f"The {word} indices of {name}")


def _check_diagonals(A: Any, name: str) -> None:
    shape, offsets = np.shape(A.data), np.asarray(A.offsets)
    if len(shape) != 2 or offsets.shape != shape[:1] or offsets.dtype.kind != "i":
        raise ValueError(
            f"{name} has data of the shape {shape} and {offsets.size} offsets ({offsets.dtype}); "
            "expected a row of numbers for each whole offset."
        )
