"""Bilinear maps, such as a sparse matrix-vector product, with derivatives of every order.

Multiplying a vector by a sparse matrix is such a map: `y = product(values, x)`. It comes with two others, which the
scalar `sum(z * product(values, x))` gives when it is differentiated by x and by the values: the transposed product
`(values, z) -> x` and the sample `(z, x) -> values`. Each of the three is linear in each argument, and the derivatives
of each are among the three, so that rules for them hold to every order, forward and backward:

    map         arguments a, b    cotangent c     by a            by b
    product     values, x         of the image    sample(c, x)    transposed(values, c)
    transposed  values, z         of x            sample(z, c)    product(values, c)
    sample      z, x              of the values   product(c, x)   transposed(c, z)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from .arrays import Array

Arrays: TypeAlias = tuple[Array, ...]

PRODUCT, TRANSPOSED, SAMPLE = "product", "transposed", "sample"
# the maps that are the derivatives of each by its first and second argument
DERIVATIVES = {PRODUCT: (SAMPLE, TRANSPOSED), TRANSPOSED: (SAMPLE, PRODUCT), SAMPLE: (PRODUCT, TRANSPOSED)}


class Bilinear(ABC):
    """The three maps, of one structure. Static: it holds no arrays of a library, is hashable and equal by content.

    `values` and `indices` are tuples of arrays of the library `bk`; vectors are rows, `(batch, n)`. All floating
    numbers have one dtype. Nothing is conjugated. Where the arrays of values have one more axis in front, each row of
    the batch has its own.
    """

    each: ClassVar[bool] = False  # is the sample one for each row of the batch, and not their sum?

    @abstractmethod
    def product(self, bk: Any, values: Arrays, indices: Arrays, x: Array) -> Array:
        """`(batch, m)` -> `(batch, n)`: linear in the values and in x."""

    @abstractmethod
    def product_transposed(self, bk: Any, values: Arrays, indices: Arrays, y: Array) -> Array:
        """`(batch, n)` -> `(batch, m)`: the transpose of `product`."""

    @abstractmethod
    def sample(self, bk: Any, indices: Arrays, y: Array, x: Array, each: bool = False) -> Arrays:
        """The derivative of sum(y * product(values, x)) by each of the values.

        That is a sum over the batch, or with `each` its terms, one more axis in front: every row has its own values.
        """


@dataclass(frozen=True)
class Each(Bilinear):
    """The batched maps: values have a leading axis, one matrix per row of the vectors."""

    each: ClassVar[bool] = True

    form: Bilinear  # of one matrix

    def product(self, bk: Any, values: Arrays, indices: Arrays, x: Array) -> Array:
        return self.form.product(bk, values, indices, x)

    def product_transposed(self, bk: Any, values: Arrays, indices: Arrays, y: Array) -> Array:
        return self.form.product_transposed(bk, values, indices, y)

    def sample(self, bk: Any, indices: Arrays, y: Array, x: Array, each: bool = True) -> Arrays:
        return self.form.sample(bk, indices, y, x, each)


def evaluate_bilinear(bk: Any, form: Bilinear, kind: str, indices: Arrays, a: Arrays, b: Arrays) -> Arrays:
    """Evaluate one of the three maps. Arguments and results are tuples; a vector is a tuple of one."""
    if kind == SAMPLE:
        return tuple(form.sample(bk, indices, a[0], b[0]))
    apply = form.product if kind == PRODUCT else form.product_transposed
    return (apply(bk, a, indices, b[0]),)


def transposed_arguments(kind: str, by: int, a: Sequence[Array], b: Sequence[Array], c: Sequence[Array]) -> Any:
    """The vector-Jacobian product for argument `by` (0: a, 1: b) and cotangent c: a map and its two arguments."""
    other = DERIVATIVES[kind][by]
    if kind == SAMPLE:
        return other, c, (b, a)[by]
    if by == 1:
        return other, a, c
    return other, *((c, b) if kind == PRODUCT else (b, c))
