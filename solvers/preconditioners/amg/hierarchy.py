"""Hierarchies on the host: coarsened anew, on aggregates and splittings of other values, and for unknown values."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import scipy.sparse as sp

from ....sparse.formats import Structure
from .aggregation import aggregated_levels, with_transfers
from .classical.levels import classical_levels, eliminated
from .classical.renewal import CHECKED, ClassicalRule, is_reusable
from .classical.rows import product, sorted_rows
from .classical.splitting import threshold_of
from .components import within_components
from .host_levels import HostLevel, Tentative, adjoint, is_diagonal
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
        components: labels `(n,)` of the unknowns: classical levels are those of A without entries between components.

    Raises:
        ValueError: A cannot be coarsened.
    """
    if A.shape[0] <= settings.max_coarse or settings.max_levels == 1 or is_diagonal(A):
        return [HostLevel.finest(A)]
    if settings.is_classical:
        A = A if components is None else within_components(A, components)
        return classical_levels(A, settings, hermitian, components)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # of pyamg about speed, and about matrices of several systems
            levels = aggregated_levels(A, settings, hermitian, near_nullspace, block_size)
    except Exception as error:
        raise _failed(settings, str(error).split("\n")[0]) from error
    if not all(np.isfinite(M.data).all() for level in levels for M in (level.A, level.P, level.R) if M is not None):
        raise _failed(settings, "it made numbers that are infinite or NaN.")
    return levels


def _failed(settings: AmgSettings, why: str) -> ValueError:
    return ValueError(
        f"This matrix could not be coarsened by {settings.coarsening!r}: {why} Choose another coarsening, or another "
        "kind of preconditioner."
    )


def galerkin_levels(
    A: sp.csr_array, tentative: Sequence[Tentative], settings: AmgSettings, hermitian: bool, checked: bool = False
) -> list[HostLevel] | None:
    """Levels of A, finest first, on the aggregates or the splittings of another matrix.

    Args:
        checked: return None if the splittings of classical levels no longer suit A, see `is_reusable`.

    Cost: two products of sparse matrices on each level, one more and 15 with vectors for smoothing.
    """
    levels, theta, interpolated = [HostLevel.finest(A)], threshold_of(A, settings), 0
    for kept in tentative:
        level = levels[-1]
        A = level.A
        if isinstance(kept, ClassicalRule):
            if checked and interpolated < CHECKED and not is_reusable(kept, A, theta):
                return None
            coarse = kept.coarse
            pair = eliminated(level, coarse, hermitian, kept.labels) if kept.keeps_all(A) else None
            if pair is not None:
                levels[-1:] = pair
                continue
            interpolated += 1
            P = kept.prolongation(A)
            level = level._replace(P=P, R=adjoint(P), tentative=kept, splitting=coarse)
        else:
            level = with_transfers(level, kept, None if hermitian else kept, settings)
        levels[-1:] = level, level.below(sorted_rows(product(level.R, product(A, level.P)), hermitian))
    return levels


def tentative_of(
    structure: Structure, settings: AmgSettings, near_nullspace: np.ndarray | None, block_size: int
) -> tuple[Tentative, ...]:
    """Tentative prolongations for matrices of unknown values, finest first, cached by pattern.

    They are those of unit coefficients, which suit any values; those of a matrix with jumps suit only similar ones.
    """
    if near_nullspace is None:
        return _tentative_of(structure, settings, None, "", block_size)
    return _tentative_of(structure, settings, near_nullspace.tobytes(), near_nullspace.dtype.str, block_size)


@lru_cache(maxsize=8)
def _tentative_of(
    structure: Structure, settings: AmgSettings, vectors: bytes | None, dtype: str, block_size: int
) -> tuple[Tentative, ...]:
    columns = None if vectors is None else np.frombuffer(vectors, dtype).reshape(structure.shape[0], -1)
    levels = coarsened(_graph_laplacian(structure), settings, True, columns, block_size)
    return tuple(level.tentative for level in levels if level.tentative is not None)


def _graph_laplacian(structure: Structure) -> sp.csr_array:
    rows, cols, _ = structure.entries()
    apart = rows != cols
    ones = sp.csr_array((np.ones(int(apart.sum())), (rows[apart], cols[apart])), structure.shape)
    couplings = sp.csr_array(ones + ones.T)
    couplings.data[:] = 1
    degrees = np.asarray(couplings.sum(axis=1)).reshape(-1)
    return sp.csr_array(sp.diags_array(np.maximum(degrees, 1.0)) - couplings)
