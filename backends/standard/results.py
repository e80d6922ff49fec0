"""What functions of the standard return that give several arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class UniqueAll(NamedTuple):
    """The different elements, where each is first, which of them each element is, and how many there are of each."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """The different elements, and how many there are of each."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """The different elements, and which of them each element is."""

    values: Any
    inverse_indices: Any


class QR(NamedTuple):
    """Orthonormal columns and a triangle."""

    Q: Any
    R: Any


class SVD(NamedTuple):
    """Left vectors in columns, falling singular values, and right vectors, conjugated, in rows."""

    U: Any
    S: Any
    Vh: Any


class SignAndLog(NamedTuple):
    """A determinant: its sign, or phase, and the logarithm of its absolute value."""

    sign: Any
    logabsdet: Any


class EigenPairs(NamedTuple):
    """Rising eigenvalues, and eigenvectors in columns."""

    eigenvalues: Any
    eigenvectors: Any


def parts_of(unique_all: Callable[[Any], UniqueAll]) -> tuple[Callable[[Any], Any], ...]:
    """`unique_counts`, `unique_inverse` and `unique_values` of a library whose `unique_all` is this."""

    def unique_counts(x: Any, /) -> UniqueCounts:
        found = unique_all(x)
        return UniqueCounts(found.values, found.counts)

    def unique_inverse(x: Any, /) -> UniqueInverse:
        found = unique_all(x)
        return UniqueInverse(found.values, found.inverse_indices)

    def unique_values(x: Any, /) -> Any:
        return unique_all(x).values

    return unique_counts, unique_inverse, unique_values
