"""Operations as attributes of a backend, found when they are first asked for."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from types import MethodType
from typing import TYPE_CHECKING, Any

from .added import ADDED

if TYPE_CHECKING:
    from .names import Names
else:
    Names = object


class NamedOperations(Names):
    """Every name of OPERATIONS (`table`); a method of the class comes before all, as Python looks there first."""

    name: str
    xp: Any

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
            return getattr(self._own_operations, name)
        module = operations.OPERATIONS[name].module
        if name in ADDED:
            return MethodType(ADDED[name][1], self)
        return getattr(self.xp, name) if module is None else MethodType(_composed(module, name), self)

    @cached_property
    def _own_operations(self) -> Any:
        """The module `operations` beside the one of the backend's class, where there is one."""
        beside = f"{type(self).__module__.rpartition('.')[0]}.operations"
        return import_module(beside) if beside in sys.modules or find_spec(beside) else None

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *import_module(".table", __package__).OPERATIONS})


def _composed(module: str, name: str) -> Any:
    return getattr(import_module(f".{module}", __package__), name)
