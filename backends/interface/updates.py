"""Updates of vectors, which may overwrite the array named `y`, and that alone."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from typing import Any

from .arrays import Array


class Updates(ABC):
    """Backend methods for them: a library overrides those that it does in place, or several in one pass."""

    product: Callable[[Array, Array], Array]
    matrix_transpose: Callable[[Array], Array]
    square_norm: Callable[[Array], Array]

    def axpy(self, a: Array, x: Array, y: Array) -> Array:
        """`y + a x`; may overwrite `y`."""
        return y + a * x

    def xpay(self, x: Array, a: Array, y: Array) -> Array:
        """`x + a y`; may overwrite `y`."""
        return x + a * y

    def axpy_norm(self, a: Array, x: Array, y: Array) -> tuple[Array, Array]:
        """`y + a x` and its squared norm; may overwrite `y`."""
        y = self.axpy(a, x, y)
        return y, self.square_norm(y)

    def axpy_xpay(self, a: Array, p: Array, x: Array, z: Array, b: Array) -> tuple[Array, Array]:
        """`x + a p` and `z + b p`; may overwrite `x` and `p`."""
        return self.axpy(a, p, x), self.xpay(z, b, p)

    def axpy_block(self, c: Array, x: Array, y: Array) -> Array:
        """`y + c x` with c `(k, m)`, a few rows x `(m, n)` and y `(k, n)`; may overwrite `y`."""
        return y + self.product(self.matrix_transpose(x), c)

    def xpay_block(self, x: Array | None, c: Array, y: Array) -> Array:
        """`x + c y` with c `(k, k)`, x (zero where None) and a few rows y `(k, n)`; may overwrite `y`."""
        image = self.product(self.matrix_transpose(y), c)
        return image if x is None else x + image

    def by_parts(self, function: Callable[..., tuple[tuple[Array, ...], tuple[Array, ...]]], *blocks: Array) -> Any:
        """`function(*blocks)` -> (new values of the first blocks, sums over n); these blocks may be overwritten.

        Blocks are a few long rows `(k, n)`. The function treats all n positions alike, so a library may call it
        blockwise.
        """
        return function(*blocks)
