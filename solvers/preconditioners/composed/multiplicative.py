"""Multiplicative composition: each preconditioner corrects the residual that those before it leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from ....backends import Array
from ....sparse import Composed, Operator, storable
from ....sparse.analysis.analysis import analysis_of
from ....sparse.operators.concrete import kept
from ..base import Preconditioner, in_brackets, joint_cost, joint_note
from ..pipeline import stored_entries
from .pieces import in_one_library


@storable("one after the other")
@dataclass(eq=False, repr=False)
class Successive(Composed):
    """Multiplicative combination: `y = first r`, then `y + second (r - A y)`. Cost: 1 product with A."""

    parts = ("A", "first", "second")

    A: Operator
    first: Operator
    second: Operator

    def apply(self, x: Array) -> Array:
        y = self.first.apply(x)
        return y + self.second.apply(x - self.A.apply(y))

    def transpose(self) -> Operator:
        return Successive(self.A.transpose(), self.second.transpose(), self.first.transpose())


def multiplicative(A: Any, *pieces: Any, symmetric: bool = False, like: Any = None) -> Preconditioner:
    """Preconditioners for A one after the other: `x = M1 r`, then `x = x + M2 (r - A x)`, and so on.

    Args:
        A: the matrix, or a function, that they are preconditioners for.
        pieces: two or more of what `M1 + M2` takes, or one with `symmetric`.
        symmetric: go back through the adjoints of all but the last, M1, M2, M1^H: with a Hermitian A and last piece a
            Hermitian preconditioner. It is positive definite where A and the last are and the iteration
            `x = x + M1 (b - A x)` does not diverge; a coarse correction never does.
        like: an array of the shape and dtype that a function A takes.

    Raises:
        ValueError: too few pieces, or of other sizes.

    Cost: one product with A less than there are pieces, and theirs.

    Source: Smith, Bjorstad & Gropp, Domain Decomposition, 1996, section 1.2.
    """
    if len(pieces) < (1 if symmetric else 2):
        raise ValueError(f"{len(pieces)} preconditioners were given to be applied one after the other; expected two.")
    *every, given = in_one_library(pieces, A, like)
    operator = kept(given)
    if symmetric:
        every += [M.H for M in reversed(every[:-1])]
    inner = reduce(lambda y, M: Successive(operator, y, M), (M.inner for M in every[1:]), every[0].inner)
    return _described(operator, inner, every, symmetric)


def _described(A: Operator, inner: Operator, every: Sequence[Any], symmetric: bool) -> Preconditioner:
    entries = stored_entries(A)
    memory, work = joint_cost(every, "memory"), joint_cost(every, "work")
    if work is not None:
        work = None if entries is None else work + (len(every) - 1) * entries
    middle = every[len(every) // 2]
    hermitian = True if symmetric and middle.hermitian and analysis_of(A.without_offset).hermitian else None
    kind = ", then ".join(in_brackets(M.kind) for M in every)
    M = Preconditioner(inner, kind, hermitian, memory, work, entries, (), joint_note(every))
    return M.on_grid_of(A)
