"""The cycle of a hierarchy whose numbers are known, in variables in which the diagonals of all levels are one."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ....backends import Array, Backend, get_backend
from ....sparse import Dense, Operator, SparseMatrix
from ....sparse.formats.making.build import from_csr
from ..cycle.dense import check_dense, known_inverse
from ..cycle.formats import suitable_format
from ..cycle.level import VISITS
from ..cycle.scaled import Scaled
from ..cycle.smoother import steps_for
from ..diagonal import DiagonalOperator
from .galerkin import eigenvalue_bound
from .hierarchy import HostLevel, is_diagonal
from .level import AlgebraicLevel
from .scales import Scales, scales_of, times_diagonals
from .settings import Settings


class Target(NamedTuple):
    """Where the cycle is to work: a library, an array on the device or None, and the dtype of A."""

    bk: Backend
    like: Array | None
    dtype: np.dtype

    def dense(self, matrix: np.ndarray) -> Dense:
        known = matrix.astype(self.bk.stored_dtype(self.dtype))
        return Dense(self.bk, self.bk.asarray(known, like=self.like), known)

    def array(self, values: np.ndarray) -> Array:
        """A constant: of NumPy where a program is compiled, or where that is the library."""
        known = values.astype(self.bk.stored_dtype(self.dtype))
        return known if self.bk.on_host or self.bk.compiled() else self.bk.asarray(known, like=self.like)

    def matrix(self, A: Any, format: str | None = None) -> SparseMatrix:
        """Of SciPy's CSR, in a format, or the one that suits it in the library."""
        return from_csr(
            self.bk, A.astype(self.dtype), prune=False, like=self.like, format=format or suitable_format(self.bk, A)
        )


def known_cycle(levels: list[HostLevel], settings: Settings, hermitian: bool, target: Target) -> Operator:
    """The cycle over all levels, finest first, on the arrays of a library.

    Raises:
        ValueError: the coarsest level is too large.
    """
    scales = [scales_of(level.A, hermitian) for level in levels]
    left, right = scales[0]
    coarsest = levels[-1].A
    if is_diagonal(coarsest):
        found: Operator = DiagonalOperator(target.bk, target.array(np.ones((1, len(scales[-1].left)))))
    else:
        inverse = _inverse(coarsest, scales[-1], hermitian)
        if len(levels) == 1:
            return target.dense(right[:, None] * inverse * left)
        found = target.dense(inverse)
    for level, own, below in reversed(list(zip(levels[:-1], scales[:-1], scales[1:]))):
        found = _level(level, own, below, found, settings, hermitian, target)
    return Scaled(found, target.array(right[None]), target.array(left[None]))


def _level(
    level: HostLevel,
    own: Scales,
    below: Scales,
    coarse: Operator,
    settings: Settings,
    hermitian: bool,
    target: Target,
) -> AlgebraicLevel:
    factor, host = float(np.sqrt(settings.factor)), get_backend("numpy")
    A = times_diagonals(own.left, level.A, own.right)
    P = times_diagonals(factor / own.right, level.P, below.right)
    R = sp.csr_array(P.conj().T) if hermitian else times_diagonals(factor * below.left, level.R, 1 / own.left)
    rho = np.array([level.rho or eigenvalue_bound(level.A)])
    steps = steps_for(host, settings.smoother_of(hermitian), rho, settings.degree)
    return AlgebraicLevel(
        target.matrix(A),
        target.matrix(P),
        target.matrix(R),
        coarse,
        target.array(steps),
        tentative=target.matrix(level.tentative, "csr"),
        visits=VISITS[settings.cycle],
        hermitian=hermitian,
    )


def _inverse(A: sp.csr_array, scales: Scales, hermitian: bool) -> np.ndarray:
    """Of `left A right`.

    Raises:
        ValueError: it is too large.
    """
    check_dense(A.shape[0])
    return known_inverse(times_diagonals(scales.left, A, scales.right).toarray(), hermitian)
