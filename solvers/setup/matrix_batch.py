"""Batches of matrices matched with the batch axes of right-hand sides."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends import Array, Backend
from ...sparse import FunctionOperator, Layout, Matrix, batch_shape


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
