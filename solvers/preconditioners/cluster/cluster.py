"""The cluster preconditioner: Jacobi plus a coarse-grid correction that is constant on each cluster of unknowns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....sparse import Matrix
from ....sparse.analysis.analysis import analysis_of
from ....sparse.operators.concrete import nonzero_entries
from ..base import Preconditioner
from ..checks import check_choice, check_finite
from ..composed.multiplicative import multiplicative
from ..jacobi import jacobi
from ..pipeline import grid_of, of_operator
from ..target import Target
from .clusters import labels_of_clusters
from .coarse import coarse_correction

_MOST = 512  # clusters by default


@of_operator()
def cluster(
    own: Matrix, target: Target, *, clusters: Any = None, grid: Sequence[int] | None = None, form: str = "additive"
) -> Preconditioner:
    """Jacobi for what changes within clusters of unknowns, and a small dense system for what changes between them.

    Args:
        A: a matrix, or a function that can be traced.
        clusters: about how many, by default 2 sqrt(n), at most 512; a tuple, how many
            boxes along each axis of the grid; or an integer label for each unknown.
        grid: shape of the grid that the unknowns lie on, last axis fastest, if A does not know it; there clusters are
            boxes. Without a grid they are connected sets in the graph of A.
        form: "additive", the sum of both; "deflated", the correction before and after Jacobi: fewer steps, with two
            more products with A in each. Both are positive definite where A is.

    Raises:
        ValueError: a setting, or entries that are infinite or NaN.
        UnsupportedOperation: A does not show its entries.

    Stores 2 n + m^2 numbers for m clusters, and costs about as many multiplications.

    Source: Nicolaides, Deflation of conjugate gradients with applications to boundary value problems, 1987; "deflated"
    is the balancing preconditioner of Tang, Nabben, Vuik & Erlangga, 2009, section 2.
    """
    form = check_choice("form", form, ("additive", "deflated"))
    n = own.shape[0]
    bk, rows, cols, values = nonzero_entries(own)
    check_finite("cluster", not bk.on_host or bool(np.isfinite(values).all()))
    labels = labels_of_clusters(n, _default(n) if clusters is None else clusters, grid_of(own, grid), (rows, cols))
    inside, count = np.flatnonzero(labels >= 0), int(labels.max(initial=0)) + 1
    P = sp.csr_array((np.ones(len(inside), own.dtype), (inside, labels[inside])), (n, count))
    fine: Any = target.moved(jacobi(own))
    coarse = target.moved(coarse_correction(own, P))
    M = fine + coarse if form == "additive" else multiplicative(target.A, coarse, fine, coarse)
    settings = (("clusters", count), ("form", form))
    hermitian = True if analysis_of(own).hermitian else M.hermitian
    return replace(M, kind="cluster", hermitian=hermitian, entries=None, settings=settings)


def _default(n: int) -> int:
    return min(max(round(2 * math.sqrt(n)), 1), _MOST)
