"""Set-up of the levels of a known matrix."""

from __future__ import annotations

import warnings

import numpy as np
import scipy.sparse as sp

from .aggregation import aggregated_levels
from .classical.levels import classical_levels
from .components import within_components
from .hierarchy import HostLevel, is_diagonal, levels_by_pyamg
from .settings import AmgSettings


def coarsened(
    A: sp.csr_array,
    settings: AmgSettings,
    hermitian: bool,
    near_nullspace: np.ndarray | None,
    block_size: int,
    components: np.ndarray | None = None,
) -> list[HostLevel]:
    """Levels, finest first; a single one for a small A.

    Args:
        components: labels `(n,)` of the unknowns: classical levels are those of A without entries between different
            ones.

    Raises:
        ValueError: pyamg fails, or has no such coarsening for complex matrices.
    """
    if A.shape[0] <= settings.max_coarse or settings.max_levels == 1 or is_diagonal(A):
        return [HostLevel(A)]
    if settings.coarsening == "ruge-stuben" and A.dtype.kind == "c":
        raise ValueError(
            f"coarsening='ruge-stuben' is for real matrices; this one is {A.dtype}. Use "
            "coarsening='smoothed-aggregation', or another kind of preconditioner."
        )
    if settings.is_classical:
        A = A if components is None else within_components(A, components)
        return classical_levels(A, settings, hermitian, components)
    make = aggregated_levels if settings.aggregates else levels_by_pyamg
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # of pyamg about speed, and about matrices of several systems
            found = make(A, settings, hermitian, near_nullspace, block_size)
    except Exception as error:
        raise _failed(settings, str(error).split("\n")[0]) from error
    if not all(np.isfinite(M.data).all() for level in found for M in (level.A, level.P, level.R) if M is not None):
        raise _failed(settings, "it made numbers that are infinite or NaN.")
    return found


def _failed(settings: AmgSettings, why: str) -> ValueError:
    return ValueError(
        f"This matrix could not be coarsened by {settings.coarsening!r}: {why} Choose another coarsening, or another "
        "kind of preconditioner."
    )
