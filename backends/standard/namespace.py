"""`backend.xp`: the namespace of the array API standard, made of a library's functions and the promotion rule."""

from __future__ import annotations

import math
from difflib import get_close_matches
from typing import Any

from .creation import Creation, Inspection, NamespaceInfo
from .library import EXTENSIONS, ORDERED, RULES, VERSION, ArrayLibrary, find, named
from .promotion import Promotion, in_order


class Namespace:
    """Functions, dtypes and constants of the standard as attributes; `linalg` and `fft` are namespaces, too.

    Args:
        sources: modules with the library's functions for arrays of one dtype, those of ours first; by extension, ""
            for the standard itself.
    """

    pi, e, inf, nan, newaxis = math.pi, math.e, math.inf, math.nan, None
    __array_api_version__ = VERSION

    def __init__(self, library: ArrayLibrary, sources: dict[str, tuple[Any, ...]], extension: str = "") -> None:
        self._library, self._extension = library, extension
        rules = (Promotion(library), Creation(library))
        inspection = Inspection(library)
        for name, rule in RULES.items():
            within, _, own = name.rpartition(".")
            if within != extension or name in library.refused:
                continue
            if rule == "dtypes":
                setattr(self, own, getattr(inspection, own))
                continue
            function = find(name, sources)
            if function is not None:  # else a version of the library that has not got it
                if name in ORDERED:
                    function = in_order(library, name, function)
                made = next(getattr(r, rule) for r in rules if hasattr(r, rule))(function)
                setattr(self, own, made if made is function else named(made, own))
        if not extension:
            self._add_dtypes_and_extensions(sources)

    def _add_dtypes_and_extensions(self, sources: dict[str, tuple[Any, ...]]) -> None:
        for name, dtype in self._library.dtypes().items():
            setattr(self, name, dtype)
        for extension in EXTENSIONS:
            setattr(self, extension, Namespace(self._library, sources, extension))

    def promoted(self, rule: str, function: Any) -> Any:
        """A function of the library for arrays of one dtype, made one for those that a rule of `Promotion` takes."""
        return getattr(Promotion(self._library), rule)(function)

    def in_dtype(self, x: Any, dtype: Any, like: Any) -> Any:
        """An array or a number as an array of a native dtype, on the device of another."""
        return self._library.in_dtype(x, dtype, like)

    def __array_namespace_info__(self) -> NamespaceInfo:
        """What the namespace can do."""
        return NamespaceInfo(self._library)

    def __dir__(self) -> list[str]:
        return sorted(name for name in {*vars(self), *vars(type(self))} if not name.startswith("_"))

    def __repr__(self) -> str:
        return f"<krylix: {self._extension or 'the'} array API standard {VERSION} on {self._library.name}>"

    def __getattr__(self, name: str) -> Any:
        """Only what there is not comes here."""
        if name.startswith("_"):
            raise AttributeError(name)
        library = self._library
        full = f"{self._extension}.{name}" if self._extension else name
        if full in library.refused:
            raise AttributeError(f"xp of {library.name} has no {full}: {library.refused[full]}")
        if full in RULES:
            raise AttributeError(
                f"This version of {library.name} has no {full} of the array API standard {VERSION}; install a newer "
                f"one: pip install -U {library.module}."
            )
        close = get_close_matches(name, dir(self), 1)
        raise AttributeError(
            f"xp has the names of the array API standard {VERSION}, and {full} is none of them."
            + (f" Did you mean {close[0]}?" if close else "")
            + f" What {library.name} has beyond the standard is in {library.module} itself."
        )
