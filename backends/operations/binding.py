"""Operations as attributes of a backend, found when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from importlib import import_module
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from .names import Names
else:
    Names = object

_BY_DERIVATIVES = ("hessian", "jacobian")  # operations that need those of the library


class NamedOperations(Names):
    """Every name of OPERATIONS (`table`); a method of the class comes before all, as Python looks there first."""

    name: str
    xp: Any
    has_derivatives: ClassVar[bool]
    _own_operations: Any  # the module of the library's own functions; None where it has none

    if not TYPE_CHECKING:  # or any misspelt name would have a type

        def __getattr__(self, name: str) -> Any:
            """Only what the class has not comes here, and once for each name."""
            if name.startswith("_"):  # pickle, copy and inspect ask for such
                raise AttributeError(name)
            self.__dict__[name] = found = self._bind(name)
            return found

    def _bind(self, name: str) -> Any:
        # Late: an import of krylix, and most solves, ask for none.
        table = import_module(".table", __package__)
        if name in table.ALIASES:
            return getattr(self, table.ALIASES[name])
        if name not in table.OPERATIONS:
            close = get_close_matches(name, {*dir(self), *table.ALIASES}, 1)
            raise AttributeError(
                f"A backend has no operation {name!r}." + (f" Did you mean {close[0]}?" if close else "")
            )
        if hasattr(self._own_operations, name):
            rule = table.OPERATIONS[name].rule
            return self.xp.promoted(rule, getattr(self._own_operations, name))
        if name in ADDED:
            return MethodType(ADDED[name][1], self)
        if table.OPERATIONS[name].module:
            return self._composed(name)
        if name not in table.RULES:
            raise AttributeError(
                f"{self.name} has no {name}, which is no part of the array API standard: supports({name!r}) is False. "
                'Convert the arrays to a library that has it, with krylix.convert(x, "jax"), say.'
            )
        return by_place(name, getattr(self.xp, name))

    def _composed(self, name: str) -> Any:
        """The operation made of others, where a method of the class goes beyond what solvers need."""
        module = import_module(".table", __package__).OPERATIONS[name].module
        return MethodType(getattr(import_module(f".{module}", __package__), name), self)

    def _scatter_rows(self, rows: Any, places: Any, values: Any, mode: str) -> Any:
        """Rows `(n, channels)` with others, of their dtype, put in at places that are inside, as each library does."""
        return self._own_operations.scatter_rows(rows, places, values, mode)

    def supports(self, name: str) -> bool:
        """Is there an operation of this name, and does it work on this library?

        Args:
            name: such as "sin", "jacobian", or "linalg.eigh" for a function of `xp.linalg`.
        """
        table = import_module(".table", __package__)
        name = table.ALIASES.get(name, name)
        operation = table.OPERATIONS.get(name)
        if name in _BY_DERIVATIVES and not self.has_derivatives:
            return False
        if operation is None and "." not in name:
            return not name.startswith("_") and callable(getattr(type(self), name, None))
        within, _, own = name.rpartition(".")
        try:
            if not within and not hasattr(type(self), own):
                return callable(self._bind(own))  # no attribute: while a profile runs, there is one for each name
            return callable(getattr(getattr(self.xp, within) if within else self, own))
        except AttributeError:  # which says why
            return False

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *import_module(".table", __package__).OPERATIONS})


# --- Operations that the layers above add to every backend, such as solves --------------------------------------------

ADDED: dict[str, tuple[str, Callable[..., Any]]] = {}  # by name: group and function


def add_operation(function: Callable[..., Any], group: str) -> None:
    """Make `name(bk, ...)` an operation of every backend; at import, before anybody asks for one."""
    ADDED[function.__name__] = (group, function)


# --- Settings of the standard's functions that users give by their place; the standard has them by name only ----------

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
