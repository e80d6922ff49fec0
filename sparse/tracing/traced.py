"""What a front end finds out about a function: linear maps, and what is needed to test and return them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...backends import Backend
from .engine.coefficients import Coefficient
from .engine.linear import Linear, identity


class Specification(Protocol):
    """The shape and dtype of an array."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of its axes."""

    @property
    def dtype(self) -> Any:
        """Of NumPy, or an extension of it."""

    @property
    def size(self) -> int:
        """Number of elements."""


class Shaped(NamedTuple):
    """A shape and a dtype, and no values."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Traced:
    """What a function does to arrays of given shapes.

    Attributes:
        bk: the backend of the function's library.
        program: the recorded function, which only the front end reads.
        outputs: `Linear`s, or plain arrays where the output does not depend on the input.
        inputs: shapes and dtypes of the input's arrays.
        constants: arrays of the user's that the function closes over.
        pack: puts arrays into the container that the function returns.
        in_shape, out_shape: of input and output; None for a container of arrays.
        dtype: of the matrix.
        precision: the coarsest rounding unit of the arrays that depend on the input.
        like: array on whose device the entries go.
    """

    bk: Backend
    program: Any
    outputs: tuple[Linear | Coefficient, ...]
    inputs: tuple[Specification, ...]
    constants: tuple[np.ndarray, ...]
    pack: Callable[[Sequence[Any]], Any]
    in_shape: tuple[int, ...] | None
    out_shape: tuple[int, ...] | None
    dtype: np.dtype
    precision: float
    like: Any = None

    @property
    def columns(self) -> int:
        """Number of unknowns."""
        return sum(int(leaf.size) for leaf in self.inputs)

    def own(self, bias: Any) -> Any:
        """A copy of a bias that is an array of the user's, who may write into it."""
        if not isinstance(bias, np.ndarray):
            return bias
        return bias.copy() if any(np.may_share_memory(bias, c) for c in self.constants) else bias


def arguments(bk: Backend, inputs: Iterable[Specification]) -> list[Linear]:
    """What to call the function with: the columns are counted through all arrays of the input."""
    found: list[Linear] = []
    first = 0
    for leaf in inputs:
        found.append(identity(bk, leaf.shape, leaf.dtype, first))
        first += leaf.size
    return found


def matrix_dtype(arrays: Iterable[Specification]) -> np.dtype:
    """The dtype of a matrix between such arrays: single precision at least, as SciPy has no half sparse matrices."""
    return np.result_type(np.float32, *(array.dtype for array in arrays))


def check_dtypes(arrays: Iterable[Specification], what: str) -> None:
    """
    Args:
        arrays: of the input or output.
        what: they are, "the input" or "an output".

    Raises:
        TypeError: one is neither floating nor complex.
    """
    for array in arrays:
        if array.dtype.kind not in "fc":
            raise TypeError(
                f"{what} of the traced function has the dtype {array.dtype}; expected a floating or complex one of "
                "NumPy, since linear maps act on real or complex numbers. Convert it, or leave it out."
            )
