"""All methods by name; tests and the command line run over this table."""

from __future__ import annotations

import re
from difflib import get_close_matches

from .bicgstab import BiCGStab
from .cg import CG
from .cg_adaptive import CGAdaptive
from .direct import Direct
from .method import Method
from .scipy_direct import ScipyDirect
from .scipy_methods import SCIPY_NAMES, ScipyMethod

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        CG(),
        CGAdaptive(),
        BiCGStab(1),
        BiCGStab(2),
        BiCGStab(4),
        Direct(),
        ScipyDirect(),
        *(ScipyMethod(name) for name in SCIPY_NAMES),
    )
}
"""Name -> method with its default settings. biCG-stab(l) exists for every l >= 1; the table lists some."""

_BY_LOWER_CASE = {name.lower(): method for name, method in METHODS.items()}
_DEGREE = re.compile(r"bicg-stab\((\d+)\)")


def find_method(method: str | Method) -> Method:
    """The method of this name (upper and lower case alike), or the given method object itself.

    Raises:
        ValueError: no method has this name.
        TypeError: neither a name nor a method.
    """
    if isinstance(method, Method):
        return method
    if not isinstance(method, str):
        raise TypeError(f"method must be a name or a method such as krylix.solvers.CG(); got {type(method).__name__}.")
    key = method.strip().lower()
    if key in _BY_LOWER_CASE:
        return _BY_LOWER_CASE[key]
    degree = _DEGREE.fullmatch(key)
    if degree:
        return BiCGStab(int(degree[1]))
    close = get_close_matches(key, _BY_LOWER_CASE, 1)
    hint = f" Did you mean {_BY_LOWER_CASE[close[0]].name!r}?" if close else ""
    raise ValueError(f"No method is called {method!r}.{hint} There are auto, {', '.join(METHODS)}.")
