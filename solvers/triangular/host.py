"""Unit triangular solves on the host by SuperLU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from ...backends import Array, Backend
from ...sparse import Composed, Operator, SparseMatrix, storable
from .levels import LevelSolve

_UNCHANGED: dict[str, Any] = {
    "permc_spec": "NATURAL", "diag_pivot_thresh": 0.0, "relax": 1, "panel_size": 1, "options": {"Equil": False},
}  # fmt: skip


@storable("triangle on the host")
@dataclass(eq=False, repr=False)
class HostSolve(Composed):
    """Inverse of I + S, S strictly triangular, in NumPy; a `LevelSolve` in other libraries.

    Stores S, and SuperLU's copy of it from the first application on. Costs as much as two to four products with S.
    """

    parts = ("strict",)

    strict: SparseMatrix
    transposed: bool = False

    def _settle(self) -> None:
        super()._settle()
        self._factors: list[Any] = []  # one for each system

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_factors": []}

    def transpose(self) -> HostSolve:
        other = replace(self, transposed=not self.transposed)
        other._factors = self._factors  # shared; filled by the first application of either
        return other

    def on_backend(self, bk: Backend, like: Array | None) -> Operator | None:
        moved = self.strict.on_backend(bk, like)
        if moved is None:
            return None
        found = LevelSolve.of(moved)
        return found.transpose() if self.transposed else found

    def apply(self, x: Array) -> Array:
        if not self.strict.structure.nnz:
            return x
        if not self._factors:
            found = self.strict.known()
            for S in found if isinstance(found, tuple) else (found,):
                # The factors are I + S itself and I, because there is no pivoting or reordering.
                triangle = sp.csc_array(S + sp.eye_array(S.shape[0], dtype=S.dtype))
                self._factors.append(splu(triangle, **_UNCHANGED))
        if self.systems is None:
            return self._solved(self._factors[0], x)
        return np.concatenate([self._solved(one, row[None]) for one, row in zip(self._factors, x, strict=True)])

    def _solved(self, factors: Any, x: Array) -> Array:
        if x.dtype.kind == "c" and self.dtype.kind != "c":
            return self._solved(factors, x.real) + 1j * self._solved(factors, x.imag)
        columns = np.ascontiguousarray(x.T, self.dtype)
        return np.ascontiguousarray(factors.solve(columns, "T" if self.transposed else "N").T)


def inverse_of_unit(S: SparseMatrix) -> Operator:
    """Inverse of I + S as an operator, S strictly triangular. Its values may be traced."""
    return HostSolve(S) if S.bk.on_host else LevelSolve.of(S)
