"""Cycles of traced values that the host sets up and applies in each run of a compiled program.

Jumps of the coefficients of a run decide which unknowns are coarse, so that no program can hold the hierarchy. NumPy
sets it up in each run, as outside programs, and caches the last ones by their values. Splittings
of unit coefficients, which a program can hold, take 10 times the iterations where coefficients jump by 1e4 in blocks
(1.6 times the run time with the hierarchy at hand), do not converge in 300 where they jump by 1e6 between cells, and
their programs take 3 to 5 times as long to compile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np

from ....backends import Array, Backend, get_backend
from ....sparse import Composed, Operator, SparseMatrix, UnsupportedOperation
from ....sparse.formats.compressed import CsrStructure
from ...diagonal import DiagonalOperator
from ...memory import Memory
from .settings import AmgSettings

_DIGEST = (4,)  # shape of 128 bits as numbers of 32, which every precision has
_CYCLES: Memory[Operator] = Memory(2)

Made = Callable[[SparseMatrix, AmgSettings], Operator]


@dataclass(eq=False, repr=False)
class AppliedByHost(Composed):
    """An operator that the host builds from a matrix of traced values, such as its cycle, and applies.

    Attributes:
        bk: the library.
        values: values in row order, `(nnz,)`.
        digest: digest of the values, int32 `(4,)`, computed by the host.
        structure: structure of the matrix.
        settings: settings of the hierarchy.
        make: builds the operator from a known matrix; a module-level function, because it is compared.
        transposed: the transpose?
    """

    parts = ("values", "digest")

    bk: Backend
    values: Array
    digest: Array
    structure: CsrStructure
    settings: AmgSettings
    make: Made
    transposed: bool = False

    def _settle(self) -> None:
        self.shape, self.dtype = self.structure.shape, np.dtype(self.bk.dtype(self.values))
        self.systems, self.is_container, self.tracked = None, True, False  # type: ignore[misc]

    @staticmethod
    def serves(A: SparseMatrix) -> bool:
        """Is it one matrix of traced values, in a program that may call the host?"""
        return A.systems is None and A.bk.compiled() and A.bk.sets_up_by_host()

    @classmethod
    def of(cls, A: SparseMatrix, settings: AmgSettings, make: Made) -> AppliedByHost:
        bk, entries = A.bk, A.structure.entries()
        structure = CsrStructure.by_rows(entries.rows, entries.cols, A.shape)
        values = bk.constant(A.entry_arrays())
        returns = [(_DIGEST, np.dtype(np.int32))]
        (digest,) = bk.by_host(_digest, lambda v: [bk.zeros(*returns[0], v)], returns, values)
        return cls(bk, values, digest, structure, settings, make)

    def apply(self, x: Array) -> Array:
        if not self.bk.sets_up_by_host():
            raise UnsupportedOperation(
                "amg(coarsening='classical') for traced values is set up and applied by the host, which programs with "
                "on_failure='nan', or for several devices, do not call. Use 'smoothed-aggregation', or pattern=M with "
                "an M that was made outside, or make it where on_failure is 'nan', too."
            )
        returns = [(tuple(map(int, x.shape)), self.dtype)]
        found: Array = self.bk.by_host(self._on_host, self._in_program, returns, self.values, self.digest, x)[0]
        return found

    def transpose(self) -> AppliedByHost:
        return replace(self, transposed=not self.transposed)

    def _on_host(self, values: np.ndarray, digest: np.ndarray, x: np.ndarray) -> list[np.ndarray]:
        host = get_backend("numpy")
        with host.errstate():
            cycle = _cycle(digest.tobytes(), self._matrix(values), self.settings, self.make)
            return [(cycle.transpose() if self.transposed else cycle).apply(np.array(x))]

    def _in_program(self, values: Array, digest: Array, x: Array) -> list[Array]:
        # Jacobi's scaling, for programs that leave this process.
        diagonal = self.structure.diagonal(self.bk, (values,), None)
        return [x / self.bk.where(diagonal != 0, diagonal, 1)]

    def _matrix(self, values: np.ndarray) -> SparseMatrix:
        return SparseMatrix.build(get_backend("numpy"), self.structure, (np.array(values),))


def _digest(values: np.ndarray) -> list[np.ndarray]:
    found = blake2b(np.ascontiguousarray(values).data, digest_size=16).digest()
    return [np.frombuffer(found, np.int32)]


def _cycle(digest: bytes, A: SparseMatrix, settings: AmgSettings, make: Made) -> Operator:
    """The cached cycle of these values, or a new one; Jacobi's scaling if it cannot be built."""
    key = digest, A.structure, settings, A.dtype
    if (known := _CYCLES.get(key)) is not None:
        return known
    try:
        cycle = make(A, settings)
    except ValueError:  # such as NaN, or a zero on the diagonal
        diagonal = A.diagonals()
        some = np.isfinite(diagonal) & (diagonal != 0)
        cycle = DiagonalOperator(A.bk, np.where(some, 1 / np.where(some, diagonal, 1), 1))
    _CYCLES.keep(key, cycle)
    return cycle
