"""From what a user calls a preconditioner to an operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...backends import Backend, left_alone
from ...sparse import Layout, Operator, as_operator, is_function, to_operator
from .amg.amg import amg, updated
from .base import Preconditioner
from .foreign import from_foreign
from .jacobi import jacobi

PRECONDITIONERS: dict[str, Callable[..., Preconditioner]] = {"jacobi": jacobi, "amg": amg}
"""Name -> function that builds it from an operator; tests and the command line run over this table."""

UPDATES: dict[str, Callable[[Preconditioner, Operator], Preconditioner]] = {"amg": updated}
"""Name -> function that gives M the numbers of another matrix of the same pattern, for kinds that keep some work."""


def preconditioner(A: Any, kind: str = "auto", *, like: Any = None, **settings: Any) -> Preconditioner:
    """Compute a preconditioner M, an approximation of the inverse of A, to be passed to `linear_solve`.

    Args:
        A: a matrix of any kind (dense, sparse, operator), or a function, which is traced.
        kind: "jacobi", "amg" (algebraic multigrid); "auto" chooses.
        like: an array of the shape and dtype that a function takes; a matrix of NumPy or SciPy gets a preconditioner
            on arrays of its library.
        settings: further settings of that kind, as `krylix.solvers.PRECONDITIONERS[kind]` explains them.

    Raises:
        ValueError: no such kind.
        UnsupportedOperation: A does not show what this kind needs.
    """
    return left_alone(_of_user)(A, kind, like, settings)


preconditioner._torchdynamo_disable = True  # type: ignore[attr-defined]  # as of linear_solve


def _of_user(A: Any, kind: str, like: Any, settings: dict[str, Any]) -> Preconditioner:
    return _build(as_operator(A, like), kind, settings)


def to_preconditioner(M: Any, A: Operator, bk: Backend, layout: Layout, like: Any) -> Operator | None:
    """The operator that `linear_solve(preconditioner=M)` means, or None.

    Raises:
        ValueError: an unknown name, or another size than A's.
    """
    if M is None:
        return None
    if isinstance(M, str):
        return _build(A, M, {})
    if is_function(M):
        return Preconditioner(to_operator(bk, M, layout, A.dtype, (), like, "preconditioner"), "user's function")
    foreign = from_foreign(M)
    operator = to_operator(bk, M if foreign is None else foreign.linear, layout, A.dtype, (), like, "preconditioner")
    if operator.shape != A.shape:
        raise ValueError(f"The preconditioner has the shape {operator.shape}; expected {A.shape}, that of A.")
    if foreign is not None:
        return Preconditioner(operator, foreign.kind, foreign.hermitian, foreign.memory)
    return operator if isinstance(operator, Preconditioner) else Preconditioner(operator, "user's matrix")


def _build(A: Operator, kind: str, settings: dict[str, Any]) -> Preconditioner:
    key = kind.strip().lower()
    if key == "auto":
        key = "jacobi"
    if key not in PRECONDITIONERS:
        raise ValueError(f"No preconditioner is called {kind!r}; there are auto, {', '.join(PRECONDITIONERS)}.")
    return PRECONDITIONERS[key](A, **settings)
