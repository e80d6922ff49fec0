"""Operators for some of the systems of a batch: those on one device."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..layout import Layout
from ..operator import Operator
from .composed import Composed
from .function import DerivedFunction, FunctionOperator


def for_some_systems(A: Operator, count: int, args: Sequence[Any] | None = None) -> Operator | None:
    """The operator for `count` systems instead of all, but for its arrays; None where it is a program for all of them.

    Functions are called with `count` systems, and without the constant that is taken off.

    Args:
        args: further arguments of a function A, in place of its own.
    """
    if isinstance(A, FunctionOperator):
        return None if A._is_record else _function(A, count, A.args if args is None else args)  # a record is of all
    if isinstance(A, DerivedFunction):
        part = for_some_systems(A.function, count, args)
        if not isinstance(part, FunctionOperator):
            return None
        return DerivedFunction(part, transposed=A.transposed, conjugated=A.conjugated)
    if not isinstance(A, Composed):
        return A
    found = {id(part): for_some_systems(part, count) for part in A._operators()}
    if any(part is None for part in found.values()):
        return None
    if all(found[id(part)] is part for part in A._operators()):
        return A
    other: Operator = A._map(lambda part: found[id(part)])  # type: ignore[arg-type, return-value]
    return other


def arguments_of(A: Operator) -> Sequence[Any]:
    """What a function, or the transpose of one, is called with beside x."""
    function = A.function if isinstance(A, DerivedFunction) else A
    return function.args if isinstance(function, FunctionOperator) else ()


def _function(A: FunctionOperator, count: int, args: Sequence[Any]) -> FunctionOperator:
    other = copy.copy(A)
    other.args = tuple(args)
    other.layout, other.image = _some(A.layout, count), _some(A.image, count)
    other.systems = count if A.layout.batch else None
    other.constant, other._entries, other._matrix, other._traced, other.recorded = None, None, None, None, None
    other.is_container = False  # type: ignore[misc]
    other.__dict__.pop("_only_shape", None)
    return other


def _some(layout: Layout, count: int) -> Layout:
    return replace(layout, batch=(count,)) if layout.batch else layout
