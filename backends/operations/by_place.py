"""Settings of the standard's functions that users give by their place; the standard has them by name only."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

_REDUCTIONS = "all argmax argmin count_nonzero max mean min prod std var"
# Name -> how many arguments come first, and what follows them by place.
_PLACES = {
    **dict.fromkeys(_REDUCTIONS.split(), (1, ("axis", "keepdims"))),
    **dict.fromkeys(("argsort", "cumulative_prod", "cumulative_sum", "sort"), (1, ("axis",))),
    **dict.fromkeys(("roll", "take_along_axis"), (2, ("axis",))),
    **dict.fromkeys(("empty", "ones", "ones_like"), (1, ("dtype",))),
    **dict.fromkeys(("tril", "triu"), (1, ("k",))),
}


def by_place(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which takes these settings by place, too."""
    if name not in _PLACES:
        return function
    first, settings = _PLACES[name]

    @wraps(function)
    def called(*args: Any, **keywords: Any) -> Any:
        if first < len(args) <= first + len(settings):
            given = dict(zip(settings, args[first:], strict=False))
            return function(*args[:first], **_with_tuples(given), **_with_tuples(keywords))
        return function(*args, **_with_tuples(keywords))

    return called


def _with_tuples(settings: dict[str, Any]) -> dict[str, Any]:
    """NumPy takes no lists of axes."""
    return {name: tuple(given) if isinstance(given, list) else given for name, given in settings.items()}
