"""New arrays, whose dtype is what the precision in force or the library gives; functions of dtypes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .library import ArrayLibrary, is_number, named_after

Function = Callable[..., Any]
_OF_PYTHON = {np.dtype(np.float64): "f", np.dtype(np.complex128): "c", np.dtype(np.int64): "i", np.dtype(np.intp): "i"}


class Creation:
    """One method for each rule of `names.RULES` about new arrays; the functions that they take get a native dtype."""

    def __init__(self, library: ArrayLibrary) -> None:
        self.library = library

    def _dtype(self, dtype: Any, *numbers: Any) -> Any:
        """The native dtype asked for, or that of new numbers of the highest kind among these."""
        if dtype is not None:
            return self.library.native(dtype)
        kinds = {self._kind(number) for number in numbers}
        return self.library.default_of(next(kind for kind in "cfib" if kind in kinds))

    def _kind(self, number: Any) -> str:
        """Of a number, or of an array without axes, which may be traced."""
        kind = self.library.kinds[number.dtype] if self.library.is_array(number) else np.asarray(number).dtype.kind
        return kind.replace("u", "i")

    def filled(self, function: Function) -> Function:
        @named_after(function)
        def filled(shape: int | Sequence[int], *, dtype: Any = None, device: Any = None) -> Any:
            return function(_shape(shape), dtype=self._dtype(dtype, 1.0), device=device)

        return filled

    def full(self, function: Function) -> Function:
        @named_after(function)
        def full(shape: int | Sequence[int], fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
            if dtype is None and not is_number(fill_value):
                dtype = self.library.dtype_of(fill_value)
            return function(_shape(shape), fill_value, dtype=self._dtype(dtype, fill_value), device=device)

        return full

    def arange(self, function: Function) -> Function:
        @named_after(function)
        def arange(
            start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None
        ) -> Any:  # fmt: skip
            start, stop = (0, start) if stop is None else (start, stop)
            return function(start, stop, step, dtype=self._dtype(dtype, start, stop, step, 1), device=device)

        return arange

    def eye(self, function: Function) -> Function:
        @named_after(function)
        def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Any:
            columns = n_rows if n_cols is None else n_cols
            return function(n_rows, columns, k=k, dtype=self._dtype(dtype, 1.0), device=device)

        return eye

    def linspace(self, function: Function) -> Function:
        @named_after(function)
        def linspace(
            start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True
        ) -> Any:
            if not (self.library.is_array(start) or self.library.is_array(stop)):
                dtype = self._dtype(dtype, start, stop, 1.0)
                return function(start, stop, num, dtype=dtype, device=device, endpoint=endpoint)
            # in the dtype and with the derivatives of both ends, which have no axes
            dtype = self.library.result_type(start, stop, 1.0) if dtype is None else self.library.native(dtype)
            weight = function(0.0, 1.0, num, dtype=dtype, device=device, endpoint=endpoint)
            start, stop = (self.library.in_dtype(end, dtype, weight) for end in (start, stop))
            return start * (1 - weight) + stop * weight

        return linspace

    def frequencies(self, function: Function) -> Function:
        @named_after(function)
        def frequencies(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
            return function(n, d=d, dtype=self._dtype(dtype, 1.0), device=device)

        return frequencies

    def like(self, function: Function) -> Function:
        @named_after(function)
        def like(x: Any, /, *value: Any, dtype: Any = None, device: Any = None, **keywords: Any) -> Any:
            dtype = self.library.dtype_of(x) if dtype is None else self.library.native(dtype)
            return function(x, *value, dtype=dtype, device=device, **keywords)

        return like

    def astype(self, function: Function) -> Function:
        library = self.library

        @named_after(function)
        def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
            dtype = library.native(dtype)
            if library.kinds[library.dtype_of(x)] == "c" and library.kinds[dtype] in "iuf":
                raise TypeError(
                    f"xp.astype got complex numbers and the dtype {dtype}; expected a complex dtype. Take xp.real or "
                    "xp.abs first."
                )
            return function(x, dtype, copy=copy, device=device)

        return astype

    def asarray(self, function: Function) -> Function:
        """The function gets an array of any kind or an ndarray; a copy is one that nothing else shares."""
        library = self.library

        @named_after(function)
        def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Any:
            dtype = None if dtype is None else library.native(dtype)
            if hasattr(obj, "dtype"):
                return function(obj, dtype=dtype, device=device, copy=copy)
            if copy is False:
                raise ValueError(
                    f"xp.asarray got copy=False and {type(obj).__name__}, from which it makes a new array."
                )
            if _holds_arrays(library, obj):
                parts = library.together(*(asarray(x) if isinstance(x, (list, tuple)) else x for x in obj))
                return function(library.stack(parts), dtype=dtype, device=device, copy=None)
            numbers = np.asarray(obj)
            if dtype is None:
                kind = _OF_PYTHON.get(numbers.dtype)
                dtype = library.native(numbers.dtype) if kind is None else library.default_of(kind)
            return function(numbers, dtype=dtype, device=device, copy=None)

        return asarray


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    return tuple(shape) if isinstance(shape, (list, tuple)) or hasattr(shape, "__iter__") else (shape,)


def _holds_arrays(library: ArrayLibrary, x: Any) -> bool:
    return isinstance(x, (list, tuple)) and any(library.is_array(one) or _holds_arrays(library, one) for one in x)


# --- What dtypes are, hold and become: the standard's functions of dtypes, for any library ----------------------------

_KINDS = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "c",
    "numeric": "iufc",
}


class FloatLimits(NamedTuple):
    """What `finfo` tells of a dtype; of a complex one what holds for its parts."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: Any


class IntegerLimits(NamedTuple):
    """What `iinfo` tells of a dtype."""

    bits: int
    max: int
    min: int
    dtype: Any


class Inspection:
    """The functions, as methods."""

    def __init__(self, library: ArrayLibrary) -> None:
        self._library = library

    def result_type(self, *arrays_and_dtypes: Any) -> Any:
        """The dtype that arrays, dtypes and numbers of Python have together."""
        return self._library.result_type(*arrays_and_dtypes)

    def can_cast(self, from_: Any, to: Any, /) -> bool:
        """May promotion lead from one dtype to the other?"""
        return self._library.promote(self._library.dtype_of(from_), self._library.native(to)) == self._library.native(
            to
        )  # fmt: skip

    def isdtype(self, dtype: Any, kind: Any) -> bool:
        """Is a dtype of this kind, which is a dtype, a name such as "integral", or a tuple of kinds?"""
        if isinstance(kind, tuple):
            return any(self.isdtype(dtype, one) for one in kind)
        if isinstance(kind, str) and kind not in _KINDS:
            raise ValueError(f"xp.isdtype got the kind {kind!r}; expected a dtype or one of {', '.join(_KINDS)}.")
        own = self._library.native(dtype)
        if isinstance(kind, str):
            return self._library.kinds[own] in _KINDS[kind]
        return bool(own == self._library.native(kind))

    def finfo(self, type: Any, /) -> FloatLimits:
        """Limits of a real or complex dtype, or of an array's."""
        dtype = self._library.numpy_dtype(self._library.dtype_of(type))
        found = np.finfo(dtype)
        eps, largest, least, normal = (float(x) for x in (found.eps, found.max, found.min, found.smallest_normal))
        return FloatLimits(int(found.bits), eps, largest, least, normal, self._library.native(found.dtype))

    def iinfo(self, type: Any, /) -> IntegerLimits:
        """Limits of an integer dtype, or of an array's."""
        dtype = self._library.numpy_dtype(self._library.dtype_of(type))
        found = np.iinfo(dtype)
        return IntegerLimits(int(found.bits), int(found.max), int(found.min), self._library.native(dtype))


class NamespaceInfo:
    """What the namespace can do, as `__array_namespace_info__` of the standard tells it."""

    def __init__(self, library: ArrayLibrary) -> None:
        self._library = library

    def capabilities(self) -> dict[str, Any]:
        """Whether shapes may depend on values; compiled functions and transformations need shapes that do not."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": self._library.max_axes}

    def default_device(self) -> Any:
        """Where new arrays are."""
        return self._library.devices()[0]

    def devices(self) -> list[Any]:
        """The devices that `device=` may name."""
        return self._library.devices()

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """The dtypes of new arrays, in the precision that holds here."""
        names = {"real floating": "f", "complex floating": "c", "integral": "i", "indexing": "i"}
        return {name: self._library.default_of(kind) for name, kind in names.items()}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """The dtypes by name, of a kind as `isdtype` takes it."""
        of_kind = Inspection(self._library).isdtype
        return {
            name: dtype for name, dtype in self._library.dtypes().items() if kind is None or of_kind(dtype, kind)
        }  # fmt: skip
