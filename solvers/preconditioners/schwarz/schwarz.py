"""The Schwarz preconditioner: exact solves in small subdomains, and a coarse-grid correction for what lies between."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....sparse import Matrix
from ....sparse.analysis.analysis import analysis_of
from ....sparse.operators.concrete import nonzero_entries
from ..base import Preconditioner
from ..block_jacobi.block_jacobi import block_jacobi
from ..block_jacobi.blocks import components_per_node
from ..checks import check_finite, check_integer
from ..cluster.coarse import coarse_correction
from ..pipeline import of_operator
from ..target import Target
from .aggregates import subdomains_and_clusters

SIZE, CLUSTERS = 32, 2048


@of_operator()
def schwarz(own: Matrix, target: Target, *, size: int = SIZE, clusters: int = CLUSTERS) -> Preconditioner:
    """Exact solves in small subdomains, and a small dense system for what is constant on clusters of unknowns.

    On several devices, where rows are cut (`krylix.sparse.row_cut`), subdomains and clusters lie within the parts, and
    an application sends one number per cluster and no values of neighbours. Without a limit of the clusters, iterations
    hardly grow with the number of unknowns, and not with that of the devices.

    Args:
        A: a matrix, or a function that can be traced.
        size: most unknowns of a subdomain, rounded down to a power of two; clusters are half as large or larger.
        clusters: how many there are at most.

    Raises:
        ValueError: a setting, or entries that are infinite or NaN.
        UnsupportedOperation: A does not show its entries.

    Stores at most `size` numbers per unknown and m^2 for m clusters, and costs as many multiplications. Subdomains do
    not overlap: more clusters save more iterations than overlap or larger subdomains for the same memory.

    Source: Smith, Bjorstad & Gropp, Domain Decomposition, 1996, chapters 1 and 2; clusters by Nicolaides, Deflation of
    conjugate gradients with applications to boundary value problems, 1987.
    """
    size, clusters = check_integer("size", size, 1), check_integer("clusters", clusters, 1)
    n = own.shape[0]
    bk, rows, cols, values = nonzero_entries(own)
    check_finite("schwarz", not bk.on_host or bool(np.isfinite(values).all()))
    k = components_per_node(n, rows, cols)
    inside, between = subdomains_and_clusters(n // k, rows // k, cols // k, max(size // k, 1), max(clusters // k, 1))
    labels = (k * between[:, None] + np.arange(k)).reshape(-1)
    P = sp.csr_array((np.ones(n, own.dtype), (np.arange(n), labels)), (n, k * (int(between.max()) + 1)))
    fine: Any = target.moved(block_jacobi(own, blocks=np.repeat(inside, k)))
    M = fine + target.moved(coarse_correction(own, P))
    settings = (("subdomains", int(inside.max()) + 1), ("clusters", P.shape[1]))
    hermitian = True if analysis_of(own).hermitian else M.hermitian
    return replace(M, kind="schwarz", hermitian=hermitian, entries=None, settings=settings)
