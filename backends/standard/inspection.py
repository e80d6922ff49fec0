"""What dtypes are, hold and become: the standard's functions of dtypes, for any library."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .library import ArrayLibrary

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
