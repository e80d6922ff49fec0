"""Classical AMG below a grid that no coarser one suits: the algebraic part of a cycle."""

from __future__ import annotations

import scipy.sparse as sp

from ....sparse import Matrix, Operator
from ....sparse.operators.couplings import Couplings
from ..amg.cycle import known_cycle
from ..amg.hierarchy import coarsened
from ..amg.settings import AmgSettings
from ..target import Target
from .cycle import VISITS
from .matrix import couplings_stencil
from .smoothing import Smoothing

_CYCLES = {visits: cycle for cycle, visits in VISITS.items()}


def algebraic_cycle(A: Couplings, smoothing: Smoothing, hermitian: bool, target: Target) -> Operator:
    """A cycle of classical AMG for the stencil coefficients of a single matrix, in NumPy's arrays.

    Args:
        target: of NumPy's library, with the formats of another one.
    """
    settings = AmgSettings(
        coarsening="classical",
        cycle=_CYCLES[smoothing.visits],
        smoother=smoothing.smoother,
        degree=smoothing.degree,
        precision=smoothing.precision,
    )
    return known_cycle(coarsened(_rows(A), settings, hermitian, None, 1), settings, hermitian, target)


def _rows(A: Couplings) -> sp.csr_array:
    """As rows, without the zeros of couplings that leave the grid."""
    matrix: Matrix = couplings_stencil(A).to("csr")
    found = sp.csr_array(matrix.known())
    found.eliminate_zeros()
    return found
