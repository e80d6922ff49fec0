"""The transpose of a function as a function itself, of arrays in the shapes of users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..errors import NonlinearError, UnsupportedOperation
from ..formats.sparse_matrix import SparseMatrix
from ..operator import Operator
from .function import FunctionOperator


class TransposedFunction(FunctionOperator):
    """The transpose of `base`: it takes what `base` returns (a grid, or a container) and returns what `base` takes.

    Where the library has no derivatives its products are those of the entries of `base`, sparse where they are found.
    """

    def __init__(self, base: FunctionOperator) -> None:
        self.base = base
        layout, image = base.image, base.layout
        name = f"the transpose of {base.name}"
        super().__init__(base.bk, _Product(base), layout, base.dtype, (), name, base.like, image=image)
        self.is_linear = True
        self.is_container = base.is_container  # type: ignore[misc]
        self.bk.register(TransposedFunction, _flatten, _restore)

    def as_container(self) -> Operator:
        base = self.base.as_container()
        return TransposedFunction(base) if isinstance(base, FunctionOperator) else self

    def matrix(self) -> SparseMatrix:
        return self.base.matrix().transpose()

    def transpose(self) -> Operator:
        return self.base


def _flatten(operator: TransposedFunction) -> tuple[tuple[Any, ...], Any]:
    return (operator.base,), None


def _restore(static: Any, parts: Sequence[Any]) -> TransposedFunction:
    return TransposedFunction(parts[0])


@dataclass(eq=False)
class _Product:
    """`x -> transpose of base x`, on arrays of users."""

    base: FunctionOperator

    @cached_property
    def _turned(self) -> Operator:
        if not self.base.bk.has_derivatives:
            try:
                return self.base.matrix().transpose()
            except (UnsupportedOperation, NonlinearError):  # by all its entries, then
                pass
        return self.base.transpose()

    def __call__(self, x: Any) -> Any:
        base = self.base
        rows = base.image.flatten(base.bk, x, base.dtype, "the argument of a transposed function")
        return base.layout.unflatten(base.bk, self._turned.apply(rows))


def transposed_in_shape(A: Operator) -> Operator:
    """The transpose, which takes arrays in the shapes that A takes: of functions of anything but vectors a function.

    Raises:
        UnsupportedOperation: the transpose is not known.
    """
    if not isinstance(A, FunctionOperator) or isinstance(A, TransposedFunction):
        return A.transpose()
    vectors = all(one.structure is None and len(one.shapes[0]) == 1 for one in (A.layout, A.image))
    return A.transpose() if vectors else TransposedFunction(A)
