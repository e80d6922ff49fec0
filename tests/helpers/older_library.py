"""A namespace of the array API standard as a library of 2022 has it: no `linalg`, no `fft`, no facts about itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace
from typing import Any

WITHOUT = (
    *("linalg", "fft", "__array_namespace_info__", "take_along_axis", "vecdot", "clip", "maximum", "minimum"),
    *("copysign", "hypot", "signbit", "unstack", "moveaxis", "searchsorted", "repeat", "tile", "cumulative_sum"),
    *("cumulative_prod", "diff", "count_nonzero", "nextafter", "reciprocal"),
)


def older(namespace: Any) -> SimpleNamespace:
    """The public functions and dtypes of `namespace`, without what later versions of the standard have added."""
    assert all(hasattr(namespace, name) for name in WITHOUT)  # or a word is misspelt
    names = [name for name in dir(namespace) if not name.startswith("_") and name not in WITHOUT]
    own = {name: getattr(namespace, name) for name in names}
    return SimpleNamespace(__name__="older", **own | {name: _of_complex(own[name]) for name in ("real", "conj")})


def _of_complex(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Functions that took real numbers from the standard of 2023 on."""

    @wraps(function)
    def part(x: Any) -> Any:
        assert "complex" in str(x.dtype)
        return function(x)

    return part
