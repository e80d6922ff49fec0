"""Automatic preconditioners whose kind depends on values as well."""

from __future__ import annotations

from collections.abc import Callable

from ...sparse import Operator
from ...sparse.operators.concrete import as_matrix, is_known
from .base import Preconditioner
from .fast import fast_where_near
from .ilu import ilu_or_jacobi, serving_ilu
from .multigrid.multigrid import multigrid
from .multigrid.runtime_choice import multigrid_or_jacobi


def fast_or_multigrid(A: Operator, precision: str | None = None) -> Preconditioner:
    """`fast` where coefficients are smooth, else `multigrid`; in compiled functions, whose runs pay more, multigrid.

    In the precision that was asked for, unless the inverse is nearly exact.
    """
    if not is_known(as_matrix(A)):
        return multigrid_or_jacobi(A, precision=precision)
    near = None if A.bk.compiled() else fast_where_near(A, precision)
    return multigrid(A, precision=precision) if near is None else near


def ilu_where_it_serves(A: Operator) -> Preconditioner:
    """`serving_ilu`, which knows the values before it runs, or `ilu_or_jacobi`, which decides in each run."""
    return (serving_ilu if is_known(as_matrix(A)) else ilu_or_jacobi)(A)


AUTOMATIC: dict[str, Callable[..., Preconditioner]] = {"multigrid": fast_or_multigrid, "ilu": ilu_where_it_serves}
"""Name of the kind that was chosen -> what builds it, if that is not the kind itself."""
