"""Wrappers that give a library's functions the standard's arguments in one dtype: `RULES` says which is for which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple

import numpy as np

from ..registry import choose_backend
from .library import ArrayLibrary, is_number, named_after

Function = Callable[..., Any]


class Promotion:
    """One method for each rule of `names.RULES` about arguments, which takes the library's function for equal dtypes.

    Arrays of equal dtypes go to the function at once: that comparison is all that a call costs then.
    """

    def __init__(self, library: ArrayLibrary) -> None:
        self.library = library

    def any(self, function: Function) -> Function:
        return function

    def pair(self, function: Function) -> Function:
        together = self.library.together

        @named_after(function)
        def promoted(x1: Any, x2: Any, /) -> Any:
            try:
                equal = x1.dtype is x2.dtype
            except AttributeError:  # of a number
                equal = False
            return function(x1, x2) if equal else function(*together(x1, x2))

        return promoted

    def first_pair(self, function: Function) -> Function:
        together = self.library.together

        @wraps(function)
        def promoted(x1: Any, x2: Any, /, *args: Any, **keywords: Any) -> Any:
            return function(*together(x1, x2), *args, **keywords)

        return promoted

    def power(self, function: Function) -> Function:
        promoted, kind_of = self.pair(function), self._kind_of

        @named_after(function)
        def power(x1: Any, x2: Any, /) -> Any:
            # Libraries disagree: some raise, some give 0.
            if kind_of(x2) == "i" and kind_of(x1) in "biu" and (lowest := _lowest_known(x2)) < 0:
                raise ValueError(
                    f"xp.pow got integers and the exponent {lowest}; expected one that is not negative. Cast the "
                    f"integers to real numbers first, or give the exponent {lowest}.0."
                )
            return promoted(x1, x2)

        return power

    def _kind_of(self, x: Any) -> str:
        """Return the kind of an array, or of a number of Python or NumPy."""
        if is_number(x) or isinstance(x, (np.ndarray, np.generic)):
            return np.asarray(x).dtype.kind
        return self.library.kinds.get(getattr(x, "dtype", None), "f")

    def real_pair(self, function: Function) -> Function:
        floating, kinds = self.library.floating, self.library.kinds
        together, to_real = self.library.together, self._to_real

        @named_after(function)
        def promoted(x1: Any, x2: Any, /) -> Any:
            try:
                equal = x1.dtype is x2.dtype and x1.dtype in floating
            except AttributeError:
                equal = False
            if not equal:
                x1, x2 = together(x1, x2)
                if kinds[x1.dtype] in "biu":
                    x1, x2 = to_real(x1), to_real(x2)
            return function(x1, x2)

        return promoted

    def real(self, function: Function) -> Function:
        floating, to_real = self.library.floating, self._to_real

        @named_after(function)
        def promoted(x: Any, /) -> Any:
            try:
                known = x.dtype in floating
            except AttributeError:  # of a number
                known = False
            return function(x if known else to_real(x))

        return promoted

    def real_first(self, function: Function) -> Function:
        floating, to_real = self.library.floating, self._to_real

        @wraps(function)
        def promoted(x: Any, /, *args: Any, **keywords: Any) -> Any:
            return function(x if getattr(x, "dtype", None) in floating else to_real(x), *args, **keywords)

        return promoted

    def _to_real(self, x: Any) -> Any:
        if self.library.kinds[self.library.dtype_of(x)] in "fc":
            return x
        return self.library.in_dtype(x, self.library.default_of("f"), None)

    def accumulated(self, function: Function) -> Function:
        library, floating = self.library, self.library.floating

        @wraps(function)
        def accumulated(x: Any, /, *, dtype: Any = None, **keywords: Any) -> Any:
            if dtype is None and getattr(x, "dtype", None) in floating:
                return function(x, **keywords)
            if dtype is not None:
                return function(x, dtype=library.native(dtype), **keywords)
            kind = library.kinds[library.dtype_of(x)]
            if kind in "fc":
                return function(x, **keywords)
            widest = library.default_unsigned if kind == "u" else library.default_integer
            return function(x, dtype=library.native(widest), **keywords)

        return accumulated

    def listed(self, function: Function) -> Function:
        @named_after(function)
        def promoted(arrays: Sequence[Any], /, *, axis: Any = 0) -> Any:
            arrays = list(arrays)
            if not arrays:
                raise ValueError(f"xp.{function.__name__} got no arrays; expected at least one.")
            first = getattr(arrays[0], "dtype", None)
            if first is None or any(getattr(x, "dtype", None) is not first for x in arrays):
                arrays = self.library.together(*arrays)
            return function(arrays, axis=axis)

        return promoted

    def subscripts(self, function: Function) -> Function:
        """The arrays come after a text."""

        @wraps(function)
        def promoted(equation: str, /, *arrays: Any) -> Any:
            return function(equation, *(self.library.together(*arrays) if len(arrays) > 1 else arrays))

        return promoted

    def where(self, function: Function) -> Function:
        library, bool_ = self.library, self.library.native(bool)

        @named_after(function)
        def where(condition: Any, x1: Any, x2: Any, /) -> Any:
            if getattr(condition, "dtype", None) is not bool_:
                like = next((x for x in (x1, x2) if library.is_array(x)), None)
                condition = library.in_dtype(condition, bool_, like)
            return function(condition, *library.together(x1, x2))

        return where

    def clip(self, function: Function) -> Function:
        @named_after(function)
        def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
            if min is not None and max is not None:
                x, min, max = self.library.together(x, min, max)
            elif min is not None:
                x, min = self.library.together(x, min)
            elif max is not None:
                x, max = self.library.together(x, max)
            return function(x, min, max)

        return clip

    def diff(self, function: Function) -> Function:
        """`prepend` and `append` are arrays with as many axes."""

        @named_after(function)
        def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
            given = {name: y for name, y in (("prepend", prepend), ("append", append)) if y is not None}
            if given:
                x, *others = self.library.together(x, *given.values())
                given = dict(zip(given, others, strict=True))
            return function(x, axis=axis, n=n, **given)

        return diff


def _lowest_known(x: Any) -> int:
    """The lowest integer of an array or a number; 0 where there is none, or only the compiled function will know."""
    known = np.asarray(x) if is_number(x) or isinstance(x, np.generic) else choose_backend(x).host_view(x)
    return 0 if known is None or not known.size else int(known.min())


def in_order(library: ArrayLibrary, name: str, function: Function) -> Function:
    """The function, whose refusal of complex numbers is ours where the library has one."""

    @wraps(function)
    def of_numbers(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except Exception as error:
            if not any(library.kinds.get(getattr(x, "dtype", None)) == "c" for x in args):
                raise
            raise TypeError(
                f"xp.{name} got complex numbers, which have no order in {library.name}; expected real ones: take "
                "xp.real, xp.imag or xp.abs first."
            ) from error

    return of_numbers


# --- What functions of the standard return that give several arrays ---------------------------------------------------


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
