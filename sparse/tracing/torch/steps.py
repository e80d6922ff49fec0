"""A recorded function: ATen calls, and where in memory the tensors lie that they read, make and write.

Tensors may share memory: views, and what is written into a part of another. So a tensor is not an array, but a place in
a storage. Which tensor shares which storage is not derived from the calls: it is seen while the function runs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch


class Place(NamedTuple):
    """Elements of a storage.

    Attributes:
        storage: its number.
        shape, strides, offset: of the tensor, counted in elements of `dtype`.
        conjugated, negated: the elements are read so.
        device: the kind of device; "meta" has no values.
    """

    storage: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    conjugated: bool = False
    negated: bool = False
    device: str = "cpu"

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor in the record: its number, and its place; None for a sparse one."""

    slot: int
    place: Place | None

    @property
    def dense(self) -> Place:
        """Its place.

        Raises:
            TypeError: it is sparse.
        """
        if self.place is None:
            raise TypeError("A sparse tensor has no place in memory.")
        return self.place

    @property
    def is_meta(self) -> bool:
        """Has it a shape, but no values?"""
        return self.place is not None and self.place.device == "meta"


class Step(NamedTuple):
    """One call.

    Attributes:
        function: the overload of an ATen operator.
        args, kwargs: with Operands for tensors.
        results: Operands, None where a result is no tensor.
        line: `(file, line, function)` of the user's code, None if unknown.
    """

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[Operand | None]
    line: tuple[str, int, str] | None

    @property
    def name(self) -> str:
        """Of the operator, without overload."""
        return str(self.function._schema.name).split("::")[-1]

    @property
    def place(self) -> Place:
        """That of the first result."""
        return next(result.dense for result in self.results if result is not None)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the first result."""
        return self.place.shape

    def operands(self) -> Iterator[Operand]:
        """All tensors that it gets."""
        return (v for v in _leaves((self.args, *self.kwargs.values())) if isinstance(v, Operand))

    def written(self) -> list[Operand]:
        """The tensors that it writes to."""
        return list(written(self.function, self.args, self.kwargs, Operand))


@dataclass
class StepRecord:
    """What a function did to some tensors.

    Attributes:
        steps: the calls.
        inputs: the tensors that it was called with.
        outputs: the tensors that it returned, with `structure` of torch's pytrees; None in place of None.
        captured: tensors that were there before, by slot.
        given: their storages.
        first: the operand that each storage was seen with first.
        counts: elements of each storage, counted in those of its first operand.
        last_write: the number of the last step that writes to a storage.
        device: of the inputs.
    """

    steps: list[Step] = field(default_factory=list)
    inputs: list[Operand] = field(default_factory=list)
    outputs: list[Operand | None] = field(default_factory=list)
    structure: Any = None
    captured: dict[int, torch.Tensor] = field(default_factory=dict)
    given: set[int] = field(default_factory=set)
    first: dict[int, Operand] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    last_write: dict[int, int] = field(default_factory=dict)
    device: Any = None


def place_in(storage: int, x: torch.Tensor) -> Place:
    """The place of a tensor in the storage of this number."""
    return Place(
        storage,
        tuple(x.shape),
        tuple(x.stride()),
        int(x.storage_offset()),
        x.dtype,
        x.is_conj(),
        x.is_neg(),
        x.device.type,
    )


def written(function: Any, args: Sequence[Any], kwargs: dict[str, Any], kind: type) -> Iterator[Any]:
    """Those arguments of a call, of type `kind`, that it writes to."""
    if function._schema.is_mutable:
        named = {argument.name: argument for argument in function._schema.arguments}
        given = itertools.chain(zip(named.values(), args), ((named[key], value) for key, value in kwargs.items()))
        for argument, value in given:
            if argument.alias_info is not None and argument.alias_info.is_write:
                yield from (v for v in _leaves(value) if isinstance(v, kind))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for v in value:
            yield from _leaves(v)
    else:
        yield value
