"""Is the transpose of a function, which its library derives, that of the matrix that the function multiplies with?

It is not where something inside cuts the derivative by the argument, or replaces it. Every product with the transpose
is then wrong alike, the last residual too, and so is the gradient, without a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backends import Array, Backend, Kept, get_backend, nan_of, real_dtype
from ...sparse import Operator
from ...sparse.analysis.symmetry import PRODUCTS

_WRONG = (
    "The derivative of A(x) by x is not A itself, so its transpose is not that of the matrix, and the gradient of the "
    "solution would be wrong. Something in the function cuts or replaces the derivative by x: detach(), no_grad(), "
    "stop_gradient, or a custom gradient. Take it out, or give the matrix: krylix.matrix_from_function follows the "
    "values."
)


def with_proven_transpose(bk: Backend, A: Operator, y: Array, image: Array, on_failure: str) -> Array:
    """y, if `<A u, y>` is `<u, image>` for one pseudo-random u, which costs a product with A.

    Args:
        A: the function.
        y: rows `(batch, n)`.
        image: the transpose times y, as it was used.
        on_failure: with "nan" a compiled function calls nobody, and the result is NaN.

    Raises:
        RuntimeError: it is not, by more than rounding; of a compiled function its library's error, when that runs, and
            where none can leave it (XLA) the result is NaN.
    """
    real = real_dtype(bk.dtype(y))
    numbers = bk.reshape(bk.scatter_numbers(int(y.shape[1]), real, y), (1, -1))
    u = bk.times(numbers, bk.full_like(y, 1))
    wrong = _differ(bk, u, A.apply(u), y, image)
    if on_failure == "nan" and bk.compiled(wrong):
        return bk.where(wrong, bk.full_like(y, nan_of(bk.dtype(y))), y)
    return bk.guard(wrong, _refuse, y, kept=Kept("adjoint", "raise", _WRONG))


def _differ(bk: Backend, u: Array, forward: Array, y: Array, image: Array) -> Array:
    """Do `<forward, y>` and `<u, image>` differ by more than rounding, in some system?"""
    bk, (u, forward, y, image) = numbers_of(bk, u, forward, y, image)
    # bilinear, for the transpose: `dot` conjugates its first argument
    with bk.errstate():
        left, right = bk.dot(bk.conj(forward), y), bk.dot(bk.conj(u), image)
        size = bk.norm(forward) * bk.norm(y) + bk.norm(u) * bk.norm(image)
        return bk.any(bk.abs(left - right) > PRODUCTS * float(np.finfo(bk.dtype(y)).eps) * size)


def numbers_of(bk: Backend, *rows: Array) -> tuple[Backend, Sequence[Array]]:
    """NumPy and the rows in its arrays where it sees them, as its small operations take less time; else as they are."""
    seen = [bk.rows_on_host(v) for v in rows]
    return (get_backend("numpy"), seen) if all(v is not None for v in seen) else (bk, rows)


def _refuse(*_: Any) -> None:
    raise RuntimeError(_WRONG)
