"""What `dir` shows of objects: public names only."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class PublicNames:
    """Base of classes whose objects show no name with an underscore to `dir`, and so to the completion of editors."""

    __slots__ = ()

    def __dir__(self) -> Iterable[str]:
        names = {
            *super().__dir__(),
            *getattr(self, "__dataclass_fields__", ()),
        }  # fields may be made when they are read
        return sorted(name for name in names if not name.startswith("_"))


def shown(names: Iterable[str]) -> Callable[[], list[str]]:
    """The `__dir__` of a module with these names."""
    found = sorted(names)
    return lambda: list(found)
