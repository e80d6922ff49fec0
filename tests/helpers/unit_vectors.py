"""The matrix of a function by its images of the unit vectors, which is what tracing is compared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def matrix_of(f: Callable[[np.ndarray], Any], shape: tuple[int, ...], dtype: Any = float) -> tuple[np.ndarray, Any]:
    """The matrix, and the constant part in its own shape.

    Args:
        f: from a NumPy array of this shape and dtype to one of any, or to a tuple of some, which are joined.
    """

    def image(x: np.ndarray) -> np.ndarray:
        found = f(x)
        return np.concatenate([np.ravel(a) for a in found]) if isinstance(found, tuple) else np.asarray(found)

    zero, size = image(np.zeros(shape, dtype)), int(np.prod(shape))
    units = np.eye(size, dtype=dtype).reshape(size, *shape)
    columns = [(image(unit) - zero).reshape(-1) for unit in units]
    return np.stack(columns, 1) if columns else np.zeros((zero.size, 0), zero.dtype), zero


def check_program(matrix: Any, bias: np.ndarray, f: Callable[[np.ndarray], Any], shape: Any, dtype: Any) -> None:
    """Compare what was traced of a random program with the program."""
    A, zero = matrix_of(f, shape, dtype)
    single = np.finfo(dtype).bits == 32
    bound = (2e-4 if single else 1e-11) * max(1, np.abs(A).max(initial=0), np.abs(zero).max(initial=0))
    np.testing.assert_allclose(matrix.toarray(), A, atol=bound)
    np.testing.assert_allclose(bias, zero, atol=bound)
