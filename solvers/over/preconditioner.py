"""Preconditioners of parts of vectors: each member applies its own to its part, and exchanges what it likes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends import Backend
from ...sparse import Operator, UnsupportedOperation
from ...sparse.analysis.spectrum import largest_eigenvalue
from ..methods.method import Method
from ..preconditioners import Preconditioner, to_preconditioner
from ..preconditioners.build import check_kind
from ..preconditioners.chebyshev import ChebyshevOperator
from ..read.requirements import refuse_preconditioner
from ..read.system import System

OF_PRODUCTS = ("chebyshev",)  # kinds that are made of products with A
_DEGREE, _RATIO, _MARGIN = 4, 30.0, 1.1


def of_one_part(M: Any, system: System, method: Method | None) -> Operator | str | None:
    """The preconditioner of this part, on the library's own backend; or the name of one that is made of products.

    A matrix, an operator or a `Preconditioner` is one for this part alone: block Jacobi over the members.

    Raises:
        UnsupportedOperation: a kind that is made of the entries of A.
        ValueError, TypeError: as `to_preconditioner`.
    """
    if method is not None:
        refuse_preconditioner(method, M)
    if isinstance(M, str):
        kind = check_kind(M)
        if kind == "auto":
            return None
        if kind in OF_PRODUCTS:
            return kind
        raise UnsupportedOperation(
            f"preconditioner={M!r} is made of the entries of A, and with over= A is a function. Make it of the entries "
            f"between the unknowns of this member, M = krylix.preconditioner(A_here, {kind!r}), and give M; or give a "
            "function r -> M r of this part (for Jacobi r / diagonal), or 'chebyshev'."
        )
    made = to_preconditioner(M, system.A, system.bk, system.layout, system.like)
    if method is not None and method.needs_symmetry and isinstance(made, Preconditioner) and made.hermitian is False:
        raise ValueError(
            f"{method.name} needs a symmetric preconditioner; {made!r} is not. Use biCG-stab(2) or GMRES with it."
        )
    return made


def made_of_products(kind: str | Operator | None, system: System) -> Operator | None:
    """The preconditioner on the members, where its name was given.

    Cost: "chebyshev": 10 products with A and 3 messages each; then 3 products per application.
    """
    if not isinstance(kind, str):
        return kind
    bk, A = system.bk, system.A
    end = _largest(bk, A, system)
    inverse = bk.full((1, A.shape[0]), 1, A.dtype, system.like)
    operator = ChebyshevOperator(A, inverse, end, _DEGREE, _RATIO)
    note = f"{_DEGREE - 1} products with A per application, not scaled by its diagonal"
    return Preconditioner(operator, kind, None, A.shape[0] + 1, note=note)


def _largest(bk: Backend, A: Operator, system: System) -> Any:
    """`(systems, 1)`: a bound of the largest eigenvalue, without derivatives."""
    systems = system.layout.systems
    numbers = bk.scatter_numbers(A.shape[1], np.dtype(bk.dtype(bk.real(system.b))), system.b)
    start = bk.copy(bk.broadcast_to(bk.astype(numbers, A.dtype)[None, :], (systems, A.shape[1])))
    with bk.errstate():
        end = _MARGIN * largest_eigenvalue(bk, A.apply, start)
    return bk.constant(bk.where(end > 0, end, bk.full_like(end, 1)))
