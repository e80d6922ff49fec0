"""Sparse factorisation by the best library that is installed, on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ....backends import Backend
from ....sparse import Operator
from .refinement import Refinement
from .superlu import host_factors


@dataclass(frozen=True)
class SparseDirect(Refinement):
    """Sparse factors by the best library that is installed: Pardiso, rslab, SuperLU. Checked, SuperLU behind all.

    As `ScipyDirect`, several times as fast where `pip install krylix[direct]` has installed other libraries: in three
    dimensions, for saddle points, and most of all for other numbers at the same places, whose orderings are kept. Each
    factorisation has to solve a system with rounding errors only; if it does not, and for singular matrices, SuperLU
    takes its place. What made the factors is told by `prepare(A).explain()` and `result.to_dict()["why"]`. Matrices of
    fewer than 500 unknowns are left to SuperLU, banded and dense ones to LAPACK. Factors are in double precision.

    Attributes:
        library: take only "Pardiso", "rslab" or "SuperLU", which has to be installed, also for small matrices; None
            takes the first that suits.

    Cost: as of `ScipyDirect`, the numbers of the factors, 1 product and 2 triangular solves per iteration; before them
    one solve that checks the factors, which serve the transposed matrix too.

    Source: Schenk, Gärtner, Future Generation Computer Systems 20 (2004); Li, ACM TOMS 31 (2005). The check: Oettli and
    Prager, Numer. Math. 6 (1964).

    Examples:
        >>> import numpy as np, scipy.sparse as sp
        >>> from krylix import linear_solve
        >>> from krylix.solvers import SparseDirect
        >>> A = sp.csr_array([[4.0, 1.0, 0.0], [2.0, 4.0, 1.0], [0.0, 3.0, 4.0]])
        >>> result = linear_solve(A, np.ones(3), method=SparseDirect())
        >>> np.allclose(A @ result.x, 1)
        True
    """

    names_provider: ClassVar[bool] = True

    library: str | None = None

    on_host = True

    @property
    def name(self) -> str:
        return "sparse-direct" if self.library is None else f"sparse-direct({self.library})"

    def factorise(self, bk: Backend, A: Operator) -> Operator:
        return host_factors(bk, A, self.library)
