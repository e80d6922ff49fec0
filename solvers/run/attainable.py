"""Attainable accuracy: the residual that rounding of x leaves, measured by one product.

`D(x) = |A(t x (1 + eps s)) / t - A x|` with fixed signs s, one per unknown, and t = 0.7, no power of two: what one
rounding of x and the rounding of the product do. It needs no norm and no entries, and scales as the residual does.
`eps |A| |x|` would be the wrong quantity: where the columns of A differ in size it accepts wrong answers.

Where the precision decides, x must be plausible too: of a singular A with a b outside of its range, an iteration makes
x larger and larger along a null vector, until D is as large as what is left of b. Then `x^H A x / |x|` is no more than
D, as A makes nothing but noise of x. Regular systems that the precision limits have 15 D and more where A is Hermitian.

Source: the normwise backward error, Rigal and Gaches 1967; Higham, Accuracy and Stability of Numerical Algorithms,
2nd ed., Theorem 7.1, here for the perturbation of each entry of x.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...backends import Array, Backend, real_dtype
from ...sparse import Operator

_ROUNDINGS = 2  # of each entry of x: the best residuals that methods reach are 0.2 to 0.7 D, up to 3 D on hard systems
_LARGEST = 0.05  # of |b|: a b that is further than this from the range of A is never taken for solved
_ROUNDED = 4e9  # rounding units of it, likewise: in double precision singular A make x so large that D is 0.02 |b|
_HOPELESS = 0.1  # of D: no method has been seen to reach a tolerance below
_FACTOR = 0.7


def attainable(
    bk: Backend, A: Operator, x: Array, image: Array, size: Array, missed: Array, iterated: bool
) -> Array:  # fmt: skip
    """`(batch, 1)`: attainable residual norm of each system; 1 product if one `missed` its tolerance.

    0 for the others, and where it is so large that an inconsistent system would pass.

    Args:
        image: A x.
        size: norm of b.
        iterated: is x from an iteration, which null vectors may enlarge? Factors are judged by their corrections.
    """
    none = bk.full_like(missed, 0, real_dtype(bk.dtype(x)))

    def measured(x: Array, image: Array, size: Array) -> Array:
        return reached_by(bk, A, x, image, size, iterated, bk.norm)

    reached = bk.cond(bk.any(missed), measured, lambda *_: none, x, image, size)
    return reached if int(x.shape[0]) == 1 else bk.where(missed, reached, none)


def reached_by(
    bk: Backend, A: Operator, x: Array, image: Array, size: Array, iterated: bool, norm: Callable[[Array], Array]
) -> Array:
    """The same of each system, by 1 product and norms of one's own."""
    noise = _noise(bk, A, x, bk.copy(image), norm)  # a function may write to what it returned
    most = min(_LARGEST, _ROUNDED * _eps(bk, x)) * size
    allowed = noise <= most
    if iterated:
        allowed = allowed & (bk.abs(bk.dot(x, image)) > noise * norm(x))
    reached = _ROUNDINGS * noise
    return bk.where(allowed, bk.where(reached < most, reached, most), 0 * most)


def is_hopeless(norm: Array, bound: Array, reached: Array) -> Array:
    """Is the residual at the attainable level, and the tolerance far below?"""
    return (norm <= reached) & (bound < _HOPELESS / _ROUNDINGS * reached)


def _eps(bk: Backend, x: Array) -> float:
    return float(np.finfo(real_dtype(bk.dtype(x))).eps)


def _noise(bk: Backend, A: Operator, x: Array, image: Array, norm: Callable[[Array], Array]) -> Array:
    real, eps = real_dtype(bk.dtype(x)), _eps(bk, x)
    numbers = bk.reshape(bk.scatter_numbers(int(x.shape[1]), real, x), (1, -1))
    one = bk.full_like(numbers, 1)
    moved = bk.times(_FACTOR * bk.where(numbers < 0, one * (1 - eps), one * (1 + eps)), x)  # 1 - eps is a number too
    return norm(bk.times(one[:, :1] / _FACTOR, A.apply(moved)) - image)
