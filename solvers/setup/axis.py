"""Which axes of b are vectors and which are systems: the `axis` argument, and batches of matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...backends import Array, Backend
from ...sparse import FunctionOperator, Layout, Matrix, Operator, batch_shape, is_function
from ...sparse.layout import moved_axis
from .problem import Request


def takes_vectors(A: Any) -> bool:
    """Is A a matrix, which takes vectors, rather than a function of arrays of any shape?"""
    return not is_function(A) and not isinstance(A, FunctionOperator)


def vectors_of(bk: Backend, request: Request, b: Any) -> Any:
    """A list or tuple of vectors as an array with one vector in each row, for a matrix; b itself otherwise.

    Raises:
        ValueError: the vectors have different shapes.
    """
    if type(request.b) not in (list, tuple) or bk.is_array(b) or not takes_vectors(request.A):
        return b
    if not all(bk.is_array(one) for one in b):
        return b  # refused later, as other containers are
    shapes = {tuple(one.shape): None for one in b}
    if len(shapes) > 1:
        raise ValueError(
            f"b is a {type(b).__name__} of arrays of the shapes {', '.join(map(str, shapes))}; expected vectors of one "
            "length, or one array."
        )
    dtype = np.result_type(*map(bk.dtype, b))
    return bk.stack([bk.astype(one, dtype) for one in b])


def last_axis(bk: Backend, request: Request, b: Array) -> Array:
    """b with its vector on the last axis.

    Raises:
        TypeError, ValueError: an axis that b does not have, or of a function; a square b that could be read either way.
    """
    axis = request.axis
    if axis is None:
        if len(b.shape) == 2:
            _refuse_ambiguous(bk, request, b)
        return b
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer):
        raise TypeError(f"axis must be an integer, the axis of b that the vector lies on; got {axis!r}.")
    if not takes_vectors(request.A):
        if axis == -1:
            return b
        raise ValueError(
            f"axis={axis} is for a matrix A; a function gets b as it is, its batch axes in front. Give b with these in "
            "front (moveaxis) and say how many they are, batch_ndim=1, or give the matrix of the function."
        )
    if not -len(b.shape) <= axis < len(b.shape):
        raise ValueError(f"axis={axis} with b of shape {tuple(b.shape)}; expected one of its axes.")
    return moved_axis(bk, b, int(axis), -1)


def expected_vectors(b: Array, m: int, axis: int | None) -> str:
    """Expected shape of b for a matrix with m rows, as the end of a message."""
    shape = tuple(b.shape)
    if axis in (None, -1):
        expected = f"expected b of shape (..., {m}), the vector on the last axis"
    else:
        expected = f"expected {m} numbers along axis={axis} of b"
    if math.prod(shape) == m:
        return f"{expected}. Give b.reshape(-1)"
    others = [i for i, length in enumerate(shape[:-1]) if length == m] + [-1] * (shape[-1] == m)
    if not others:
        return expected
    kind = {0: "one vector per column, as NumPy reads them,", -1: "the vector on the last axis"}
    return f"{expected}. For {kind.get(others[0], f'vectors along axis {others[0]}')} give axis={others[0]}"


def _refuse_ambiguous(bk: Backend, request: Request, b: Any) -> None:
    """Refuse a square b for one n x n matrix: vectors are rows here, but columns in NumPy."""
    if request.batch_ndim:
        return
    n, A = b.shape[0], request.A
    if n != b.shape[1] or n is None or n < 2 or not takes_vectors(A) or batch_shape(A, bk):
        return
    shape = A.shape if isinstance(A, Operator) or hasattr(A, "shape") else np.shape(A)
    if len(shape) == 2 and int(shape[0]) == n:
        raise ValueError(
            f"b has the shape {tuple(b.shape)} and A is one matrix with {n} rows, so the vectors of b may be its rows "
            "or its columns. Say which: axis=0 for columns, as NumPy, SciPy and PyTorch read them, or axis=-1 for "
            "rows (batch_ndim=1 says the same)."
        )


def for_each_matrix(bk: Backend, A: Any, b: Array) -> Array:
    """b, repeated along the batch axes of A that it does not have: every system gets the same right-hand side."""
    own = () if isinstance(A, FunctionOperator) else batch_shape(A, bk)
    more = len(own) - (len(b.shape) - 1)
    return bk.broadcast_to(b, (*own[:more], *b.shape)) if more > 0 else b


def matched(operator: Matrix, batch: tuple[int, ...], layout: Layout) -> Matrix:
    """A batch of matrices, of these axes, for the batch of b; missing leading axes are repeated.

    Raises:
        ValueError: they do not fit.
    """
    if batch == layout.batch or batch == (layout.systems,):
        return operator
    fits = len(batch) <= len(layout.batch) and all(
        a in (1, c) for a, c in zip(batch[::-1], layout.batch[::-1], strict=False)
    )
    if not fits:
        raise ValueError(
            f"A is a batch {batch} of matrices and b a batch {layout.batch} of vectors; expected the same batch axes."
        )
    numbers = np.arange(operator.systems or 0, dtype=np.int32).reshape(batch)
    repeated: Matrix = operator[np.broadcast_to(numbers, layout.batch).reshape(-1)]
    return repeated
