"""SSOR: symmetric successive over-relaxation, a sweep forward and one backward."""

from __future__ import annotations

from ....sparse import Matrix
from ..base import Preconditioner
from ..checks import check_number
from ..cycle.target import Target
from ..pipeline import of_operator
from .factored import factored
from .kinds import checked_apply, incomplete_preconditioner
from .scaled import UnitDiagonalMatrix


@of_operator()
def ssor(
    own: Matrix, target: Target, *, omega: float = 1.0, apply: str | None = None, sweeps: int = 2
) -> Preconditioner:
    """Symmetric relaxation, `M^-1 = (D/w + L) (D/w)^-1 (D/w + U) / (2 - w)`, of A = L + D + U.

    Nothing is factorised, so it is made in no time, also in compiled functions. M is Hermitian where A is, and positive
    definite where the diagonal is positive. It saves somewhat fewer iterations than "ilu".

    Args:
        omega: the relaxation w, between 0 and 2; 1 is symmetric Gauss-Seidel.
        apply: "sweeps" of Jacobi's method for both triangles (None too), or "exact" solves; see `ilu`.
        sweeps: how many of them for each triangle.

    Where the diagonal is 0, the sum of |a_ij| in the row takes its place, or 1 in a row of zeros.

    Raises:
        ValueError: omega is not between 0 and 2, or another setting does not fit.
        UnsupportedOperation: A does not show its entries.

    Cost: as many numbers as A has entries. An application by sweeps costs as many products with A as there are sweeps.

    Source: Saad, Iterative Methods for Sparse Linear Systems, 2nd ed., section 10.2.
    """
    apply = checked_apply(apply, sweeps) or "sweeps"
    if check_number("omega", omega, 0) >= 2:
        raise ValueError(f"omega={omega!r} was given; expected a number between 0 and 2.")
    scaled = UnitDiagonalMatrix.of(own, target)
    pivots = scaled.host.full_like(scaled.units, 1 / omega)
    M, note = factored(scaled, scaled.values, pivots, sweeps if apply == "sweeps" else None, scale=2 - omega)
    settings = {"omega": float(omega), "apply": apply} | ({"sweeps": sweeps} if apply == "sweeps" else {})
    return incomplete_preconditioner(M, "ssor", scaled, settings, note)
