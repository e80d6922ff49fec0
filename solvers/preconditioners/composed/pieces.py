"""Operands of composed preconditioners: operators and callables, converted to one library and dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....backends import Backend, get_backend
from ....sparse import Operator, as_operator, is_function, to_operator
from ..base import Preconditioner
from ..foreign import from_foreign
from ..pipeline import constant_linear_part


def as_piece(M: Any) -> Preconditioner:
    """A preconditioner, a matrix, an operator, SciPy's factors or pyamg's hierarchy, as a preconditioner.

    Raises:
        TypeError: a function, which does not tell its shapes.
    """
    if isinstance(M, Preconditioner):
        return M
    if is_function(M) and from_foreign(M) is None:
        raise TypeError(
            f"A function was given as a part of a preconditioner: {M!r}; expected what tells its size. Give "
            "as_operator(function, like=b), with an array of the shape and dtype that it takes."
        )
    return foreign_piece(M) or Preconditioner(as_operator(M), "user's matrix")


def foreign_piece(M: Any) -> Preconditioner | None:
    """SciPy's factors or pyamg's hierarchy as a preconditioner on NumPy arrays; None for anything else."""
    foreign = from_foreign(M)
    if foreign is None:
        return None
    return Preconditioner(as_operator(foreign.linear), foreign.kind, foreign.hermitian, foreign.memory)


def in_one_library(pieces: Sequence[Any], A: Any = None, like: Any = None) -> list[Any]:
    """Convert the pieces (and A, which then comes last) to operators of one library and dtype.

    Raises:
        TypeError: they are of two libraries, neither of which is NumPy.
        ValueError: their sizes differ.
    """
    found: list[Operator] = [as_piece(M) for M in pieces]
    if A is not None:
        found.append(constant_linear_part(as_operator(A, like)))
    shapes = list(dict.fromkeys(M.shape for M in found))
    if len(shapes) > 1 or shapes[0][0] != shapes[0][1]:
        raise ValueError(
            f"Operators of the shapes {', '.join(map(str, shapes))} were combined; expected square ones of one size."
        )
    counts = {M.systems for M in found} - {None}
    if len(counts) > 1:
        raise ValueError(f"Operators for {' and '.join(map(str, counts))} systems were combined; expected as many.")
    bk = next((M.bk for M in found if not M.bk.on_host), get_backend("numpy"))
    dtype, anchor = bk.stored_dtype(np.result_type(*(M.dtype for M in found))), _anchor(bk, found)
    return [to_operator(bk, M, None, dtype, (), anchor, "a part of the preconditioner") for M in found]


def _anchor(bk: Backend, operators: Sequence[Operator]) -> Any:
    """An array of this library on the device of the pieces."""
    arrays = (array for M in operators if M.bk is bk for array in bk.flatten(M)[0])
    return next(arrays, None)
