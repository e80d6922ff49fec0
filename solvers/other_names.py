"""Errors for arguments and methods by their names in other libraries, with ours."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from typing import ParamSpec, TypeVar

from ..backends.tracebacks import named_in_tracebacks, shorten

P = ParamSpec("P")
R = TypeVar("R")

_ARGUMENTS = {
    "tol": "rtol",
    "maxiter": "max_iter",
    "maxit": "max_iter",
    "max_steps": "max_iter",
    "m": "preconditioner",
    "precond": "preconditioner",
    "restart": "method='GMRES(m)' with the number of steps for m",
    "restrt": "method='GMRES(m)' with the number of steps for m",
    "timeout": "time_limit, in seconds",
    "solver": "method",
    "sym_pos": "method='CG', or 'direct', which finds out by itself",
    "assume_a": "method='CG', or 'direct', which finds out by itself",
}


def with_our_names(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: unknown arguments are refused with the name that they have here, and tracebacks are short."""
    known = set(inspect.signature(function).parameters)

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            if not known.issuperset(kwargs):
                raise TypeError(_refusal(function.__name__, sorted(set(kwargs) - known), known))
            return function(*args, **kwargs)
        except Exception as error:
            __tracebackhide__ = True  # for pytest
            shorten(error)
            raise

    return named_in_tracebacks(checked, function.__name__)


def _refusal(function: str, unknown: list[str], known: set[str]) -> str:
    first = unknown[0]
    ours = _ARGUMENTS.get(first.lower())
    if ours is None:
        close = get_close_matches(first, sorted(known), 1)
        ours = close[0] if close else None
    hint = f"here that is {ours}" if ours else f"there are {', '.join(sorted(known))}"
    return f"{function} has no argument {first!r}; {hint}."
