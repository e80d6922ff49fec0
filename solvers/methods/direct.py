"""Direct methods: factors of A are applied to the residual until the tolerance is met; several kinds of factors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...backends import Array, Backend
from ...sparse import Operator
from ..factors.band import banded_factors
from ..factors.dense import factorise, factors_to_apply_once
from ..factors.protocol import DirectInverse, InverseOperator, MatrixToFactorise
from ..factors.sparse import SUPERLU, host_factors
from ..fast.inverse import fast_inverse
from .method import Goal, Method, apply

_SMALL_CORRECTION = 0.25  # of x


class RefinementState(NamedTuple):
    """Vectors are (batch, n), scalars (batch, 1)."""

    x: Array
    r: Array
    rr: Array
    dd: Array  # squared norm of the last correction
    broken: Array


@dataclass(frozen=True)
class Direct(Method):
    """LU with partial pivoting on the array library itself; Cholesky where the matrix proves to be definite.

    For any square matrix (a function's is found column by column). Of a singular matrix with a solution it finds the
    one of least norm, with factors that are shifted a little and null vectors that these show; others are reported.
    Cost: n^2 numbers and 2/3 n^3 operations per matrix (half for Cholesky), and 1 solve that shows whether it is
    singular; then per iteration 1 product and 2 triangular solves; mostly 1 iteration. A matrix that seems singular is
    factorised twice or three times.

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
        """The inverse of A, as an operator."""
        return factorise(bk, A)

    def setup(self, bk: Backend, A: Operator, M: Operator | None) -> Operator:
        return (
            M
            if isinstance(M, DirectInverse)
            else self.factorise(bk, M.inner if isinstance(M, MatrixToFactorise) else A)
        )

    def init(self, bk: Backend, A: Operator, M: Operator | None, r: Array, goal: Goal) -> RefinementState:
        rr = bk.square_norm(r)
        return RefinementState(bk.zeros_like(r), r, rr, bk.zeros_like(rr), bk.full_like(rr, False, bool))

    def step(self, bk: Backend, A: Operator, M: Operator | None, s: RefinementState) -> RefinementState:
        d = apply(M, s.r)
        r = s.r - A.apply(d)
        rr = bk.square_norm(r)
        return RefinementState(s.x + d, r, rr, bk.square_norm(d), rr > 0.25 * s.rr)

    def is_settled(self, bk: Backend, state: RefinementState, x: Array, scale: Array) -> Array:
        """Corrections as large as x reveal factors of a singular matrix whose zero pivots are hidden by rounding."""
        return bk.sqrt(state.dd) <= _SMALL_CORRECTION * bk.norm(x) / scale


@dataclass(frozen=True)
class DirectOnce(Direct):
    """`Direct` as a program holds it: LU, applied once; `DirectOnHost` solves what that leaves over."""

    applies_once = True

    def factorise(self, bk: Backend, A: Operator) -> Operator:
        return factors_to_apply_once(bk, A)


@dataclass(frozen=True)
class DirectOnHost(Direct):
    """`Direct` by NumPy, whatever the library."""

    on_host = True


@dataclass(frozen=True)
class ScipyDirect(Direct):
    """LU of a sparse matrix by SuperLU, with partial pivoting where it is needed; dense and banded ones by LAPACK.

    For any square matrix, real or complex. One factorisation serves all systems of a batch; a batch of matrices has
    one for each. Of a singular matrix with a solution it finds the one of least norm, with factors that are shifted a
    little and null vectors that these show; others are reported. Works on the host: arrays of other libraries are
    copied there and back, in compiled functions by a callback.

    Cost: the numbers of the factors, with their fill, once per matrix; then per iteration 1 product with A and 2
    triangular solves; mostly 1 iteration.

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
    """Fast transforms or eigenvectors along each axis of a grid, for sums of matrices that work along one axis each.

    For Laplacians and Helmholtz operators with constant coefficients, or with spacings and coefficients that depend on
    their own axis only, with values or derivatives given along each side, or periodic. The matrix, or the function
    that is traced, must be known before it is solved with, and be such a sum, which one product shows; others are
    refused, and so are grids with an axis so long that its eigenvectors fill the memory. A singular matrix is solved
    without its null space.

    Along an axis with constant coefficients the eigenvectors are sines, cosines or both, see
    `solvers/fast/transforms.py`. They are applied by fast transforms, where these are quicker than products
    with matrices: from 60 to 1000 points on, which depends on the boundary, the library and the prime factors of the
    number of points. Lines along the first axis of a definite A without periodic axes are eliminated instead, where
    that is quicker: it takes a few operations.

    Cost: n numbers, and 2 n_k^2 for each axis without a fast transform, once per matrix; then per iteration 1 product
    with A and two transforms along each axis: about 5 n log2(n_k) operations each, or 2 n n_k; mostly 1 iteration.

    On a grid that is cut over devices each transforms the lines that are whole on it, and all-to-all exchanges of a
    device's part of the vector make the other axes whole: 2 for one axis that is cut, 4 for two, or three, for each
    application; the numbers stored are those of the axes only, 1 or 2 n_k^2 for each.

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
    """Cyclic reduction of matrices with few diagonals, as of problems along a line: in the library, and in batches.

    For tridiagonal and banded matrices, also where a ring or another order of the unknowns hides it: a narrow order is
    found (reverse Cuthill-McKee), in which at most 8 diagonals lie beside the main one. With w of them, blocks of w
    unknowns are eliminated, every second one at a time, so that log2(n / w) passes over arrays do it all; in compiled
    functions too, where values may be traced. Dense matrices and LinearOperators must be known; the entries of the
    latter are found by evaluations, about 12 for each of a row. Rows are not exchanged: for definite matrices, and for
    those with large diagonals, it is as good as LU; others are refined, and reported where that is not enough. Of a
    singular matrix with a solution it finds the one of least norm, with pivots that are shifted where they vanish, and
    null vectors by inverse iteration (2 at most where values are traced).

    Cost: 5 w numbers per unknown and 8 w^2 operations for each, once per matrix, and 1 solve and product that show
    whether it is singular; then per iteration 1 product with A and 10 w operations per unknown; mostly 1 iteration.

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
