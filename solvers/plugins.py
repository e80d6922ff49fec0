"""Methods and preconditioners of other packages, which announce them as entry points.

    [project.entry-points."krylix.methods"]
    my-method = "my_package:MyMethod"          # a Method, or what returns one when it is called without arguments

    [project.entry-points."krylix.preconditioners"]
    my-kind = "my_package:my_kind"             # a function of an operator, as those of `PRECONDITIONERS`: it returns
                                               # a `Preconditioner` of the shape of the operator

They are looked for when a name is asked for that krylix does not have, or when all are listed, and loaded then: no
import of krylix reads them. Names of krylix itself, and other names that it takes for them, stay its own. Whatever goes
wrong while one of them is loaded, or a preconditioner is made, the error names it and its package.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from .names import squeezed

T = TypeVar("T")


class BrokenPluginWarning(UserWarning):
    """A method or preconditioner of another package cannot be used; the others can."""


@dataclass(eq=False)
class Plugins(Generic[T]):
    """The entry points of one group.

    Attributes:
        group: its name.
        what: "method" or "preconditioner".
        made: what is loaded -> what it stands for.
        is_own: is a squeezed name taken?
        loaded: what was loaded, by squeezed names.
        origins: the same in words, with their packages.
    """

    group: str
    what: str
    made: Callable[[str, Any], T]
    is_own: Callable[[str], bool]
    loaded: dict[str, T] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def find(self, name: str) -> T | None:
        """The one of this name; None if no package has it.

        Raises:
            ValueError: it cannot be loaded, or is something else.
        """
        key = squeezed(name)
        if key in self.loaded:
            return self.loaded[key]
        meant = [entry for entry in self._entries() if squeezed(entry.name) == key]
        return self._load(meant[0]) if meant else None

    def names(self) -> list[str]:
        """Names of all, without loading them."""
        return sorted({entry.name for entry in self._entries()})

    def all(self) -> dict[str, T]:
        """All that can be loaded, by name; a warning names each that cannot."""
        found = {}
        for name in self.names():
            try:
                one = self.find(name)
            except ValueError as error:
                warnings.warn(str(error), BrokenPluginWarning, stacklevel=2)
                continue
            if one is not None:
                found[name] = one
        return found

    def _entries(self) -> Iterable[EntryPoint]:
        for entry in entry_points(group=self.group):
            if not self.is_own(squeezed(entry.name)):
                yield entry
                continue
            warnings.warn(
                f"The {self.what} {entry.name!r} of {_package(entry)} has a name that krylix itself takes, and is left "
                "out; its package has to give it another one.",
                BrokenPluginWarning,
                stacklevel=3,
            )

    def _load(self, entry: EntryPoint) -> T:
        origin = f"The {self.what} {entry.name!r} of {_package(entry)} ({entry.value})"
        try:
            found = self.made(entry.name, entry.load())
        except Exception as error:  # whatever another package does while it is imported
            raise ValueError(f"{origin} cannot be used: {in_one_line(error)}") from error
        self.origins[squeezed(entry.name)] = origin
        self.loaded[squeezed(entry.name)] = found
        return found


def in_one_line(error: Exception) -> str:
    """The error of another package, in a message of ours."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _package(entry: EntryPoint) -> str:
    return "another package" if entry.dist is None else f"the package {entry.dist.name}"
