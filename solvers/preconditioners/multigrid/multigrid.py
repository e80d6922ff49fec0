"""The multigrid preconditioner: structured multigrid from the stencil of a matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ....sparse import Matrix
from ....sparse.operators.couplings import Couplings, are_flat
from ..base import Preconditioner
from ..checks import MOST_STEPS, check_choice, check_finite, check_in_range, check_integer
from ..cycle.small import exact_inverse
from ..operators import check_precision, precision_as_setting
from ..pipeline import grid_of, of_operator
from ..target import Target
from .coarsening import Coarsest, coarsest
from .cycle import SMOOTHERS, VISITS
from .from_matrix import couplings_of
from .grid_cycle import cycle_of, with_cost
from .set_up_in_runs import cycle_in_runs
from .smoothing import Smoothing

_SMALL = 64  # unknowns up to which there is one grid


@of_operator()
def multigrid(
    own: Matrix,
    target: Target,
    *,
    grid: Sequence[int] | None = None,
    cycle: str = "V",
    smoother: str | None = None,
    degree: int = 2,
    direct: int | None = None,
    directional: bool = True,
    precision: str | None = None,
) -> Preconditioner:
    """One cycle of multigrid for a matrix on a grid, whose points are coupled to their neighbours.

    The interpolation follows the coefficients (box multigrid), so that jumps of any size between blocks, obstacles and
    boundaries of all kinds need no care; periodic axes are recognised. On the coarsest grid the matrix is solved with
    exactly, by elimination of one line or plane after the other. Where the values of a single matrix are known, points
    are counted that are weakly coupled to a coarser grid: of thin lines and walls, channels, coefficients that jump
    from cell to cell. A grid with too many, and what is below it, is left to classical AMG ("amg"); the note of the
    preconditioner says so. Hermitian for a Hermitian A, and positive definite with it. Where the values of A are
    traced, the levels are set up in each run: by NumPy in JAX's programs on a CPU that may call the host, else in the
    library, which takes a second or two of compilation for each level.

    Args:
        grid: shape of the grid that the unknowns lie on, last axis fastest, if A neither knows nor shows it.
        cycle: "V" or "W".
        smoother: "chebyshev", or "jacobi", which is the default where A is known not to be Hermitian.
        degree: of the smoother's polynomial; so many products with A before and after the coarser grids.
        direct: the coarsest grid has at most so many points; by default 64 along one axis, 16^3, and 64^2, or 128^2
            where too many points are known to be weakly coupled.
        directional: halve only axes along which couplings are strong, where values are known.
        precision: "single" computes on all grids but the coarsest in single precision where A is in double: three
            quarters of the memory, half to two thirds of the time, and as many iterations.

    Raises:
        ValueError: a setting, a zero on the diagonal of a row that is not empty, or too large a coarsest grid.
        UnsupportedOperation: A does not show its entries, or couples points that are no neighbours.

    Stores 11 numbers for each point of two dimensions, 15 of three, and the inverse on the coarsest grid: its points
    times those of a line, or of a plane. Costs 7 to 9 products with A.

    Source: Dendy, Black box multigrid, J. Comput. Phys. 48 (1982).
    """
    choose = checked_smoothing(cycle, smoother, degree, precision)
    shape = grid_of(own, grid, find=True)
    if own.shape[0] <= _SMALL:
        return with_cost(*exact_inverse(own, "multigrid"), ())
    size = coarsest(shape) if direct is None else Coarsest(*(check_integer("direct", direct, 1),) * 2)
    couplings = couplings_of(own, shape)
    hermitian = checked_couplings(couplings) if own.bk.on_host else None
    smoothing = choose(hermitian)._replace(as_grids=are_flat(target.bk, couplings.periodic))
    if own.bk.on_host:
        host = Target(own, own.dtype, target.bk)
        found = cycle_of(couplings, own.dtype, size, smoothing, hermitian, directional, host)
    else:
        found = cycle_in_runs(couplings, own.dtype, size.most, smoothing)
    settings = (("direct", found.points), ("degree", degree), ("cycle", cycle), *precision_as_setting(precision))
    return with_cost(found.inner, hermitian, settings, found.note)


def checked_smoothing(
    cycle: str, smoother: str | None, degree: int, precision: str | None
) -> Callable[[bool | None], Smoothing]:
    """The smoothing that the settings mean, once it is known whether A is Hermitian.

    Raises:
        ValueError: there is no such setting.
    """
    if cycle not in VISITS:
        raise ValueError(f"cycle={cycle!r} was given; expected one of {', '.join(map(repr, VISITS))}.")
    if smoother is not None:
        smoother = check_choice("smoother", smoother, tuple(SMOOTHERS))
    degree = check_integer("degree", degree, 1, MOST_STEPS)
    check_precision(precision)
    return lambda hermitian: Smoothing(
        smoother or ("jacobi" if hermitian is False else "chebyshev"), degree, VISITS[cycle], precision
    )


def checked_couplings(A: Couplings) -> bool:
    """Is it Hermitian?

    Raises:
        ValueError: it has what is no finite number, or an overflowing inverse, or a row with entries but a zero on the
            diagonal.
    """
    check_finite("multigrid", A.is_finite())
    check_in_range("multigrid", A.diagonal)
    wrong = A.diagonal == 0
    if wrong.any():
        wrong &= A.sum_of_sizes() > 0
    if wrong.any():
        at = tuple(int(k) for k in np.argwhere(wrong)[0][1:])
        raise ValueError(
            f"multigrid was asked for a matrix with zeros on its diagonal, in {int(wrong.sum())} rows that have other "
            f"entries (the first is of the point {at}); its smoothers divide by the diagonal. Use another kind."
        )
    return A.is_hermitian()
