"""Operations as attributes of a backend, found when they are first asked for."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar

from .added import ADDED

if TYPE_CHECKING:
    from .names import Names
else:
    Names = object

_BY_DERIVATIVES = ("derivatives",)  # groups of operations that need those of the library


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
        aliases, operations = (import_module(f".{m}", __package__) for m in ("aliases", "table"))
        if name in aliases.ALIASES:
            return getattr(self, aliases.ALIASES[name])
        if name not in operations.OPERATIONS:
            close = get_close_matches(name, {*dir(self), *aliases.ALIASES}, 1)
            raise AttributeError(
                f"A backend has no operation {name!r}." + (f" Did you mean {close[0]}?" if close else "")
            )
        if hasattr(self._own_operations, name):
            rule = operations.OPERATIONS[name].rule
            return self.xp.promoted(rule, getattr(self._own_operations, name))
        if name in ADDED:
            return MethodType(ADDED[name][1], self)
        if operations.OPERATIONS[name].module:
            return self._composed(name)
        if name not in operations.RULES:
            raise AttributeError(
                f"{self.name} has no {name}, which is no part of the array API standard: supports({name!r}) is False. "
                'Convert the arrays to a library that has it, with krylix.convert(x, "jax"), say.'
            )
        return import_module(".by_place", __package__).by_place(name, getattr(self.xp, name))

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
        aliases, operations = (import_module(f".{m}", __package__) for m in ("aliases", "table"))
        name = aliases.ALIASES.get(name, name)
        operation = operations.OPERATIONS.get(name)
        if operation is not None and operation.group in _BY_DERIVATIVES and not self.has_derivatives:
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
