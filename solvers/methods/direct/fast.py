"""Fast direct solver on grids: fast diagonalisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ....backends import Backend
from ....sparse import Operator
from ...fast.inverse import fast_inverse
from .factorisation import InverseFactors
from .refinement import Refinement


@dataclass(frozen=True)
class FastDirect(Refinement):
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

    needs_grid: ClassVar[bool] = True
    needs_known: ClassVar[bool] = True
    short_steps: ClassVar[bool] = True
    keeps_grids: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return "fast-direct"

    def factorise(self, bk: Backend, A: Operator) -> InverseFactors:
        return InverseFactors(fast_inverse(A))
