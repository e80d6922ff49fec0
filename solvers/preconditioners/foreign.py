"""SciPy's and pyamg's objects as preconditioners: SuperLU factors and multigrid hierarchies."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse.linalg import LinearOperator, SuperLU

from ...sparse import UnsupportedOperation

_NOISE = 1e3  # times the rounding unit: what <u, M v> and <M u, v> may differ by where M is symmetric


class Foreign(NamedTuple):
    """A preconditioner of another library.

    Attributes:
        linear: it, with its transpose where that is known.
        kind: the library's name for it.
        hermitian: is it symmetric (Hermitian)? None: not known.
        memory: numbers stored.
    """

    linear: LinearOperator
    kind: str
    hermitian: bool | None
    memory: int


def from_foreign(M: Any) -> Foreign | None:
    """Wrap factors of SuperLU or a hierarchy of pyamg; None for anything else.

    A hierarchy stands for one V-cycle from zero. Whether that is symmetric is seen by two cycles with random vectors.
    """
    if isinstance(M, SuperLU):
        return Foreign(_Factors(M), "SuperLU", None, int(M.nnz))
    pyamg = sys.modules.get("pyamg.multilevel")  # who has a hierarchy has imported it
    if pyamg is None or not isinstance(M, pyamg.MultilevelSolver):
        return None
    cycle = _PyamgCycle(M)
    return Foreign(cycle, "pyamg", cycle.hermitian, sum(int(level.A.nnz) for level in M.levels))


class _Factors(LinearOperator):
    """The inverse by `splu`, or an approximation by `spilu`."""

    def __init__(self, factors: SuperLU) -> None:
        self.factors = factors
        super().__init__(factors.solve(np.zeros(factors.shape[0], np.float32)).dtype, factors.shape)

    def _matvec(self, x: np.ndarray) -> np.ndarray:
        return _in_dtype(self.factors.solve, x, self.dtype)

    def _rmatvec(self, x: np.ndarray) -> np.ndarray:
        return _in_dtype(lambda v: self.factors.solve(v, "H"), x, self.dtype)

    _matmat, _rmatmat = _matvec, _rmatvec


class _PyamgCycle(LinearOperator):
    """One V-cycle of a hierarchy of pyamg."""

    def __init__(self, hierarchy: Any) -> None:
        A = hierarchy.levels[0].A
        self.cycle = hierarchy.aspreconditioner(cycle="V")
        super().__init__(A.dtype, A.shape)
        self.hermitian = self._is_hermitian()

    def _matvec(self, x: np.ndarray) -> np.ndarray:
        return _in_dtype(self.cycle.matvec, np.ravel(x), self.dtype)

    def _rmatvec(self, x: np.ndarray) -> np.ndarray:
        if self.hermitian:
            return self._matvec(x)
        raise UnsupportedOperation(
            "This needs the transpose of the preconditioner, and that of pyamg's cycle is not known, as the cycle is "
            "not symmetric. Build the hierarchy of a symmetric matrix with symmetric smoothing, such as presmoother="
            "postsmoother=('gauss_seidel', {'sweep': 'symmetric'}), or use another preconditioner."
        )

    def _is_hermitian(self) -> bool:
        u, v = np.random.default_rng(6).standard_normal((2, self.shape[0])).astype(self.dtype)
        Mu, Mv = self._matvec(u), self._matvec(v)
        size = np.linalg.norm(u) * np.linalg.norm(Mv)
        return bool(abs(np.vdot(u, Mv) - np.vdot(Mu, v)) <= _NOISE * np.finfo(self.dtype).eps * size)


def _in_dtype(apply: Callable[[np.ndarray], np.ndarray], x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A linear function for arrays of another dtype; a real one acts on both parts of complex arrays."""
    if x.dtype.kind == "c" and dtype.kind != "c":
        return _in_dtype(apply, x.real, dtype) + 1j * _in_dtype(apply, x.imag, dtype)
    return apply(np.ascontiguousarray(x, dtype))
