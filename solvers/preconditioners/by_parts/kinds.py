"""The kinds of preconditioners that are made by parts."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from ....sparse import CutRows, UnsupportedOperation
from ....sparse.analysis.analysis import analysis_of
from ...diagonal import DOMINANT
from ..base import Preconditioner
from ..chebyshev import chebyshev_by_parts
from ..jacobi import jacobi
from .schwarz import block_jacobi_by_parts, schwarz_by_parts

BY_PARTS: dict[str, Callable[..., Preconditioner]] = {
    "jacobi": jacobi,
    "chebyshev": chebyshev_by_parts,
    "block-jacobi": block_jacobi_by_parts,
    "schwarz": schwarz_by_parts,
}
"""Name -> function that builds it from `CutRows`."""


def made_by_parts(A: CutRows, kind: str, settings: dict[str, Any]) -> Preconditioner:
    """The preconditioner of this name of a matrix whose rows are cut.

    "auto" is "jacobi" where the diagonal dominates, else "schwarz".

    Raises:
        UnsupportedOperation: it cannot be made by parts.
        ValueError: a setting that it does not have.
    """
    dominant = kind == "auto" and analysis_of(A).dominates(DOMINANT)
    key = kind if kind != "auto" else "jacobi" if dominant else "schwarz"
    if key not in BY_PARTS:
        raise UnsupportedOperation(
            f"{key!r} was asked for a matrix whose rows are cut; by parts there are {', '.join(BY_PARTS)}. Take one of "
            "these, or give the matrix as it is, which each device then holds as a whole."
        )
    known = [*signature(BY_PARTS[key]).parameters][1:]
    if unknown := [name for name in settings if name not in known]:
        raise ValueError(
            f"{key} of a matrix whose rows are cut has no setting {', '.join(unknown)}; it has "
            f"{', '.join(known) or 'none'}."
        )
    return BY_PARTS[key](A, **settings)
