"""Is the transpose of a function, which its library derives, that of the matrix that the function multiplies with?

It is not where something inside cuts the derivative by the argument, or replaces it. Every product with the transpose
is then wrong alike, the last residual too, and so is the gradient, without a word.
"""

from __future__ import annotations

import numpy as np

from ...backends import Array, Backend
from ...sparse import Operator
from ...sparse.symmetry import PRODUCTS


def prove_transpose(bk: Backend, A: Operator, y: Array, image: Array) -> None:
    """Compare `<A u, y>` with `<u, image>` for one random u: one product with A.

    Args:
        bk: of eager arrays with values.
        A: the function.
        y: rows `(batch, n)`.
        image: the transpose times y, as it was used.

    Raises:
        RuntimeError: they differ by more than rounding.
    """
    u = bk.asarray(np.random.default_rng(6).standard_normal(tuple(y.shape)), bk.dtype(y), like=y)
    forward = A.apply(u)
    # bilinear, for the transpose: `dot` conjugates its first argument
    left, right = bk.dot(bk.conj(forward), y), bk.dot(bk.conj(u), image)
    size = bk.norm(forward) * bk.norm(y) + bk.norm(u) * bk.norm(image)
    if bk.any(bk.abs(left - right) > PRODUCTS * np.finfo(bk.dtype(y)).eps * size):
        raise RuntimeError(
            "The derivative of A(x) by x is not A itself, so its transpose is not that of the matrix, and the gradient "
            "of the solution would be wrong. Something in the function cuts or replaces the derivative by x: detach(), "
            "no_grad(), stop_gradient, or a custom gradient. Take it out, or give the matrix: "
            "krylix.matrix_from_function follows the values."
        )
