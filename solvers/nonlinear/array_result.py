"""What results of non-linear solves and of searches have in common: a message, and a form that libraries take apart."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from typing import Any, Self

import numpy as np

from ...backends import Array, Backend, choose_backend


class ArrayResult(ABC):
    """A frozen dataclass of arrays, or None where they were not asked for, and the name of its `method`."""

    status: Array
    method: str

    @abstractmethod
    def end_state(self) -> tuple[Array, ...]:
        """Numbers for the message, the status in front."""

    @abstractmethod
    def _described(self, *numbers: np.ndarray) -> str:
        """The message, of `end_state` on the host."""

    @property
    def message(self) -> str:
        """What happened, in words (needs values: not inside a compiled function)."""
        bk = choose_backend(self.status)
        if bk.compiled(self.status) or not hasattr(self.status, "shape"):
            return "The message is known when the compiled function has run."
        return self._described(*[np.asarray(bk.to_numpy(a)) for a in self.end_state()])

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.message}>"

    # TensorFlow asks the class itself how to flatten it.

    def __tf_flatten__(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        arrays, static = _flatten(self)
        return static, tuple(arrays)

    @classmethod
    def __tf_unflatten__(cls, static: tuple[Any, ...], arrays: tuple[Any, ...]) -> Self:
        return _unflatten(cls, static, arrays)


def _flatten(result: Any) -> tuple[Sequence[Any], tuple[Any, ...]]:
    names = [field.name for field in fields(result) if field.name != "method"]
    known = tuple(name for name in names if getattr(result, name) is not None)
    return [getattr(result, name) for name in known], (result.method, known)


def _unflatten(cls: Any, static: tuple[Any, ...], arrays: Sequence[Any]) -> Any:
    method, known = static
    values = dict.fromkeys(field.name for field in fields(cls))
    return cls(**{**values, **dict(zip(known, arrays, strict=True)), "method": method})


def register_result(bk: Backend, cls: type[ArrayResult]) -> None:
    """Make a class of results a container of arrays for this backend's transformations."""
    bk.register(cls, _flatten, partial(_unflatten, cls))
