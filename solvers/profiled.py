"""Methods that profiles watch: products of operators, and set-up of methods. All else is a span where it happens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..backends.profile.spans import WatchedMethod, register_methods
from ..sparse import Operator
from . import shortcut
from .methods.method import Method
from .preconditioners import Preconditioner
from .run import loop


def watched_methods() -> Iterator[WatchedMethod]:
    """The products of all operators, which make one event, and the set-up of methods that have one."""
    for operator in _subclasses(Operator):
        for name in ("apply", "apply_on_host", "add_to"):
            if name in vars(operator):
                yield operator, name, _kind_of(operator), _operator_name, lambda args: args[0].bk
    for method in _subclasses(Method)[1:]:
        for name in ("setup", "set_up_again"):
            if name in vars(method):
                yield method, name, "set-up", lambda args: f"{args[0].name}: factors", None


def _subclasses(cls: type) -> list[type]:
    """The class and all below, each once."""
    classes: list[type] = [cls]
    for parent in classes:
        below: list[type] = parent.__subclasses__()
        classes.extend(sub for sub in below if sub not in classes)
    return classes


def _kind_of(cls: type) -> str:
    if cls.__module__.startswith(f"{__package__}.singular"):
        return "operation"
    return "preconditioner" if cls.__module__.startswith(f"{__package__}.") else "product"


def _operator_name(args: tuple[Any, ...]) -> str:
    operator = args[0]
    return operator.kind if isinstance(operator, Preconditioner) else type(operator).__name__.removesuffix("Operator")


register_methods(watched_methods, loop.NUMBERS, shortcut.NUMBERS)
