"""Direct methods: factors of A are applied to the residual until it meets the tolerance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...backends import Array, Backend
from ...sparse import Operator
from ..factors.band import banded_factors
from ..factors.dense import factorise, factors_to_apply_once
from ..factors.inverse import DirectInverse, InverseOperator, MatrixToFactorise
from ..factors.sparse import SUPERLU, host_factors
from ..fast.inverse import fast_inverse
from .method import Goal, Method, apply

_SMALL_CORRECTION = 0.25  # relative to x


class RefinementState(NamedTuple):
    """Vectors are (batch, n), scalars (batch, 1)."""

    x: Array
    r: Array
    rr: Array
    dd: Array  # squared norm of the last correction
    broken: Array


@dataclass(frozen=True)
class Direct(Method):
    """LU with partial pivoting in the array library itself, or Cholesky if the matrix is definite.

    For any square matrix (that of a function is computed column by column). For a singular matrix and a consistent b it
    finds the solution of least norm, using slightly shifted factors and the null vectors that these reveal.
    Inconsistent systems are reported.

    Cost: n^2 numbers and 2/3 n^3 operations per matrix (half for Cholesky), and 1 solve that tests whether it is
    singular; then per iteration 1 product and 2 triangular solves, usually for 1 iteration. A matrix that seems
    singular is factorised two or three times.

    Examples:
        >>> import numpy as np
        >>> from krylix import linear_solve
        >>> from krylix.solvers import Direct
        >>> A = np.array([[4.0, 1.0, 0.0], [2.0, 4.0, 1.0], [0.0, 3.0, 4.0]])
        >>> result = linear_solve(A, np.ones(3), method=Direct())
        >>> np.allclose(A @ result.x, 1)
        True
    """

    takes_preconditioner = False
    factorises = True
    keeps_setup = True
    steps_per_iteration = float("inf")

    @property
    def name(self) -> str:
        return "direct"

    def factorise(self, bk: Backend, A: Operator) -> Operator:
        """Return the inverse of A as an operator."""
        return factorise(bk, A)

    def setup(self, bk: Backend, A: Operator, M: Operator | None) -> Operator:
        if isinstance(M, DirectInverse):
            return M
        return self.factorise(bk, M.inner if isinstance(M, MatrixToFactorise) else A)

    def init(self, bk: Backend, A: Operator, M: Operator | None, r: Array, goal: Goal) -> RefinementState:
        rr = bk.square_norm(r)
        return RefinementState(bk.zeros_like(r), r, rr, bk.zeros_like(rr), bk.full_like(rr, False, bool))

    def step(self, bk: Backend, A: Operator, M: Operator | None, s: RefinementState) -> RefinementState:
        d = apply(M, s.r)
        r = s.r - A.apply(d)
        rr = bk.square_norm(r)
        return RefinementState(s.x + d, r, rr, bk.square_norm(d), rr > 0.25 * s.rr)

    def is_settled(self, bk: Backend, state: RefinementState, x: Array, scale: Array) -> Array:
        """Corrections as large as x reveal a singular matrix, whose zero pivots are hidden by rounding."""
        return bk.sqrt(state.dd) <= _SMALL_CORRECTION * bk.norm(x) / scale


@dataclass(frozen=True)
class DirectOnce(Direct):
    """`Direct` in a compiled program: LU, applied once. `DirectOnHost` solves the systems that have not converged."""

    applies_once = True

    def factorise(self, bk: Backend, A: Operator) -> Operator:
        return factors_to_apply_once(bk, A)


@dataclass(frozen=True)
class DirectOnHost(Direct):
    """`Direct` in NumPy, for any library."""

    on_host = True


@dataclass(frozen=True)
class ScipyDirect(Direct):
    """LU of a sparse matrix by SuperLU, with partial pivoting where it is needed; dense and banded ones by LAPACK.

    For any square matrix, real or complex. One factorisation serves all right-hand sides, and each matrix of a batch
    has its own. For a singular matrix and a consistent b it finds the solution of least norm, using slightly shifted
    factors and the null vectors that these reveal. Inconsistent systems are reported. It works on the host: arrays of
    other libraries are copied there and back, in compiled functions by a callback.

    Cost: the numbers in the factors, with fill-in, once per matrix; then per iteration 1 product with A and 2
    triangular solves, usually for 1 iteration.

    Source: Li, ACM TOMS 31 (2005), through scipy.sparse.linalg.splu.

    Examples:
        >>> import numpy as np
        >>> from krylix import linear_solve
        >>> from krylix.solvers import ScipyDirect
        >>> A = np.array([[4.0, 1.0, 0.0], [2.0, 4.0, 1.0], [0.0, 3.0, 4.0]])
        >>> result = linear_solve(A, np.ones(3), method=ScipyDirect())
        >>> np.allclose(A @ result.x, 1)
        True
    """

    on_host = True

    @property
    def name(self) -> str:
        return "scipy-direct"

    def factorise(self, bk: Backend, A: Operator) -> Operator:
        return host_factors(bk, A, SUPERLU.name)


@dataclass(frozen=True)
class SparseDirect(Direct):
    """Sparse factors by the best library that is installed (Pardiso, rslab, SuperLU), with an accuracy check.

    Like `ScipyDirect`, but several times as fast if `pip install krylix[direct]` has installed other libraries: for
    three-dimensional problems, for saddle points, and most of all for new values on the same pattern, whose ordering is
    reused. Factors must solve a test system up to rounding errors. If they do not, and for singular matrices, SuperLU
    is used instead. `prepare(A).explain()` and `result.to_dict()["why"]` name the library. Matrices of fewer than 500
    unknowns are factorised by SuperLU, banded and dense ones by LAPACK. Factors are in double precision.

    Attributes:
        library: use only "Pardiso", "rslab" or "SuperLU", which must be installed, also for small matrices. None
            chooses the first that passes the check.

    Cost: that of `ScipyDirect`, the numbers in the factors, 1 product and 2 triangular solves per iteration, and before
    them one solve that checks the factors. They serve the transposed matrix too.

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

    on_host = True
    names_provider = True

    library: str | None = None

    @property
    def name(self) -> str:
        return "sparse-direct" if self.library is None else f"sparse-direct({self.library})"

    def factorise(self, bk: Backend, A: Operator) -> Operator:
        return host_factors(bk, A, self.library)


@dataclass(frozen=True)
class FastDirect(Direct):
    """Fast transforms or eigenvectors along each axis of a grid, for Kronecker sums of matrices along the axes.

    For Laplacians and Helmholtz operators with constant coefficients, or with spacings and coefficients that depend
    only on their own axis, with Dirichlet, Neumann or periodic boundary conditions. The values of the matrix, or of the
    traced function, must be known before the solve. A product with a random vector verifies that it is such a sum, and
    others are refused, as are grids with an axis so long that its eigenvectors would fill the memory. A singular matrix
    is solved on the complement of its null space.

    Along an axis with constant coefficients the eigenvectors are sines, cosines or both, see
    `solvers/fast/transforms.py`. Fast transforms apply them if that is faster than dense products, from 60 to 1000
    points on, depending on the boundary, the library and the prime factors of the number of points. For a definite A
    without periodic axes, lines along the first axis are eliminated instead if that is faster, which takes a few
    operations per unknown.

    Cost: n numbers, and 2 n_k^2 for each axis without a fast transform, once per matrix; then per iteration 1 product
    with A and two transforms along each axis of about 5 n log2(n_k) operations each, or 2 n n_k; usually 1 iteration.

    If the grid is distributed over devices, each device transforms its complete lines, and all-to-all exchanges of the
    vector make the other axes complete: 2 exchanges for one distributed axis and 4 for two or three, for each
    application. Only eigenvalues and eigenvectors of the axes are stored, n_k or 2 n_k^2 numbers for each.

    Source: Lynch, Rice, Thomas, Numer. Math. 6 (1964), 185-199; Buzbee, Golub, Nielson, SIAM J. Numer. Anal. 7 (1970);
    Strang, The Discrete Cosine Transform, SIAM Review 41 (1999); Hockney, J. ACM 12 (1965), for the elimination.

    Examples:
        >>> import numpy as np
        >>> from krylix import linear_solve
        >>> from krylix.solvers import FastDirect
        >>> def laplace(u):
        ...     p = np.pad(u, 1)
        ...     return 4 * u - p[2:, 1:-1] - p[:-2, 1:-1] - p[1:-1, 2:] - p[1:-1, :-2]
        >>> result = linear_solve(laplace, np.ones((32, 32)), method=FastDirect())
        >>> np.allclose(laplace(result.x), 1)
        True
    """

    needs_grid = True
    needs_known = True
    short_steps = True
    keeps_grids = True

    @property
    def name(self) -> str:
        return "fast-direct"

    def factorise(self, bk: Backend, A: Operator) -> Operator:
        return InverseOperator(fast_inverse(A))


@dataclass(frozen=True)
class BandedDirect(Direct):
    """Cyclic reduction of banded matrices, for one-dimensional problems: in the array library, and in batches.

    For tridiagonal and banded matrices, also if a periodic axis or the order of the unknowns hides the band. Reverse
    Cuthill-McKee ordering must find a half bandwidth w of at most 8. Every second block of w unknowns is eliminated at
    a time, so that log2(n / w) passes over arrays suffice, in compiled functions too, where values may be traced. Dense
    matrices and LinearOperators must be known; the entries of the latter take about 12 evaluations for each entry of a
    row. Rows are not exchanged. For definite and diagonally dominant matrices this is as accurate as LU; for others,
    refinement helps, and failures are reported. For a singular matrix and a consistent b it finds the solution of least
    norm, with shifted zero pivots and null vectors by inverse iteration (at most 2 if values are traced).

    Cost: 5 w numbers per unknown and 8 w^2 operations for each, once per matrix, and 1 solve and product that test
    whether it is singular; then per iteration 1 product with A and 10 w operations per unknown; usually 1 iteration.

    Source: Buzbee, Golub, Nielson, SIAM J. Numer. Anal. 7 (1970); Heller, SIAM J. Numer. Anal. 13 (1976).

    Examples:
        >>> import numpy as np
        >>> from krylix import linear_solve
        >>> from krylix.solvers import BandedDirect
        >>> A = np.array([[4.0, 1.0, 0.0], [2.0, 4.0, 1.0], [0.0, 3.0, 4.0]])
        >>> result = linear_solve(A, np.ones(3), method=BandedDirect())
        >>> np.allclose(A @ result.x, 1)
        True
    """

    needs_band = True
    short_steps = True

    @property
    def name(self) -> str:
        return "banded-direct"

    def factorise(self, bk: Backend, A: Operator) -> Operator:
        return banded_factors(A)
