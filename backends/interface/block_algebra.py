"""Products of blocks: a few long rows `(k, n)` with each other, and with small `(k, k)` matrices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from .dense_algebra import Array, DenseAlgebra


class BlockAlgebra(DenseAlgebra):
    """The part of a backend that treats the rows of `(k, n)` as a basis: what `dot`, `axpy`, `xpay` are to vectors."""

    conj: Callable[[Array], Array]

    def gram(self, a: Array, b: Array) -> Array:
        """`(k, n)` and `(m, n)` -> `(k, m)`: sum of conj(a_i) b_j, for each row of `a` with each row of `b`."""
        return self.product(b, self.conj(a))

    def axpy_block(self, c: Array, x: Array, y: Array) -> Array:
        """`y + c x` with c `(k, m)`, x `(m, n)` and y `(k, n)`; may overwrite `y`."""
        return y + self.product(self.matrix_transpose(x), c)

    def xpay_block(self, x: Array | None, c: Array, y: Array) -> Array:
        """`x + c y` with c `(k, k)`, x (zero where None) and y `(k, n)`; may overwrite `y`."""
        image = self.product(self.matrix_transpose(y), c)
        return image if x is None else x + image

    def by_parts(self, function: Callable[..., tuple[tuple[Array, ...], tuple[Array, ...]]], *blocks: Array) -> Any:
        """`function(*blocks)` -> (new values of the first blocks, sums over n); these blocks may be overwritten.

        The function treats all n positions alike, so that a library may call it with a part of them at a time.
        """
        return function(*blocks)

    @abstractmethod
    def eigh(self, matrix: Array) -> tuple[Array, Array]:
        """Eigenvalues `(k,)`, rising, and eigenvectors `(k, k)` in columns of a finite Hermitian matrix `(k, k)`."""
