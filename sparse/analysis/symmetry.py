"""Symmetry tests (Hermitian for complex matrices) and their tolerances.

What is asked decides how sure the answer must be:

| question | answer | up to |
|---|---|---|
| is it proven, entry by entry? | `is_hermitian`, `is_symmetric` | 100 eps of the largest entries of row and column |
| may one triangle stand for both (Cholesky)? | `Analysis.has_equal_triangles` | 10 eps, for a random vector |
| shall a method for such matrices be chosen? | `Analysis.seems_hermitian` | 1e-8, for a random vector |
| must one that the user chose be refused? | `REFUSED` | 1e-4, for a random vector |
| does a function look like it? | `products_agree` (by_record.py) | 1e3 eps of its products with two random vectors |

A method is chosen where it works, and refused where it cannot; in between, the true residual tells. The limits are
relative: of the size of the products. Assembled entries are sums of many contributions, hence 100 eps, and the products
of functions have roundings that nobody sees, hence 1e3 eps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...backends.host_math import rows_times, transposed_times
from ..operator import Operator
from .canonical import canonical, row_maxima

ENTRIES = 100  # in units of eps
TRIANGLES = 10
PRODUCTS = 1e3
CHOSEN = 1e-8
REFUSED = 1e-4
_SHORT = 10_000  # numbers of a random vector that are kept


def is_hermitian(A: Any) -> bool:
    """Is A = Aᴴ, entry by entry and up to rounding of the largest entries in its row and in its column?

    Rectangular matrices are not. Cost: one transposition and one difference of sparse matrices.
    """
    return _equals(A, lambda A: A.conj().T)


def nearest_hermitian(A: Any) -> Any | None:
    """`(A + Aᴴ) / 2` of a SciPy matrix that is as good as Hermitian for an iteration, else None.

    Looked at with ones on its diagonal, as preconditioners see it: large entries hide no small ones.
    """
    if A.shape[0] != A.shape[1] or _asymmetry(A) > REFUSED:  # two products, instead of three transpositions
        return None
    if is_hermitian(A):
        return A
    size = np.sqrt(np.abs(A.diagonal()))
    scale = sp.diags_array(1 / np.where(size > 0, size, 1))
    return type(A)((A + A.conj().T) / 2) if _asymmetry(scale @ A @ scale) < CHOSEN else None


def is_symmetric(A: Any) -> bool:
    """Is A = Aᵀ? As `is_hermitian`, without the complex conjugate."""
    return _equals(A, lambda A: A.T)


def _equals(A: Any, adjoint: Callable[[Any], Any]) -> bool:
    A = canonical(A)
    if A.shape[0] != A.shape[1]:
        return False
    largest = row_maxima(A)
    with np.errstate(all="ignore"):
        difference = (A - adjoint(A)).tocoo()
        limit = ENTRIES * np.finfo(A.dtype).eps * np.minimum(*(largest[k] for k in difference.coords))
        return bool(np.all(np.abs(difference.data) <= limit) and np.isfinite(largest).all())


def asymmetry_of_products(operator: Operator, conjugate: bool = True) -> float | None:
    """Relative size of A - Aᴴ, estimated by one random vector; None where the entries are not known now.

    Without `conjugate` that of A - Aᵀ.

    Cost: two products.
    """
    if operator.shape[0] != operator.shape[1]:
        return None if operator.known() is None else float("inf")
    with np.errstate(all="ignore"):
        images = operator.known_images(_random(operator.shape[1]))
        if images is None:
            return None
        forward, backward = images
        return _difference(forward, backward if conjugate else np.conj(backward))


def _asymmetry(matrix: Any) -> float:
    """`asymmetry_of_products` of one square SciPy matrix."""
    v = _random(matrix.shape[1])
    with np.errstate(all="ignore"):
        return _difference(rows_times(matrix, v), transposed_times(matrix, v))


def _difference(forward: np.ndarray, backward: np.ndarray) -> float:
    """Relative asymmetry from the products of A and Aᵀ with a real vector, for each system along a first axis."""
    largest = np.max(np.maximum(np.abs(forward), np.abs(backward)), axis=-1, initial=0, keepdims=True)
    largest = np.where((largest > 0) & (largest < np.inf), largest, 1)  # squares of the entries may underflow
    forward, backward = forward / largest, np.conj(backward) / largest
    scale = np.linalg.norm(forward, axis=-1) + np.linalg.norm(backward, axis=-1)
    relative = np.linalg.norm(forward - backward, axis=-1) / np.where(scale > 0, scale, 1)
    return float(relative.max(initial=0))  # NaN where the matrix has one: neither symmetric nor not


def _random(n: int) -> np.ndarray:
    return _short_random(n) if n <= _SHORT else np.random.default_rng(1).random(n) - 0.5  # in a third of the time


@lru_cache(maxsize=16)
def _short_random(n: int) -> np.ndarray:
    """Cached random vector: making a generator takes as long as the products of a small solve."""
    return np.random.default_rng(1).standard_normal(n)
