"""Set-up of PETSc for a matrix: Mats and KSPs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....backends import Array, Backend, get_backend
from ....sparse import Operator, SparseMatrix, Turned, as_operator
from ....sparse.analysis.analysis import analysis_of
from ....sparse.analysis.canonical import canonical
from ...factors.inverse import DirectInverse
from ...singular.projections import basis_of
from ..scipy_methods import See
from .system import Choice, Found, PetscSystem, suited


@dataclass(eq=False, repr=False, kw_only=True)
class PetscInverse(Turned, DirectInverse):
    """KSPs for the matrix of each system and its transpose. As an operator it applies the PC.

    A KSP may be shared with other matrices of the same pattern. It then receives the values of the present matrix.

    Attributes:
        rows: CSR of each matrix.
        solvers: one for each matrix.
        hermitian: whether the matrices are Hermitian, so that one KSP serves both sides.
        again: makes the solvers in another process.
        last: reason why the KSP stopped last.
        has_constants: with a communicator, whether constants are null vectors of A and of its adjoint.
    """

    bk: Backend
    shape: tuple[int, int]
    dtype: np.dtype
    systems: int | None
    rows: Sequence[Any]
    solvers: Sequence[PetscSystem]
    hermitian: bool
    again: Callable[[], Sequence[PetscSystem]]
    transposed: bool = False
    conjugated: bool = False
    last: str = field(default="", init=False)
    has_constants: bool = field(default=False, init=False)

    @property
    def note(self) -> str:
        """Name the KSP and the PC, and the reason why the KSP stopped last."""
        return f"{self.solvers[0].choice}" + (f", which ended with {self.last}" if self.last else "")

    def solver(self, i: int) -> tuple[PetscSystem, bool]:
        """The solver of system `i` in this form, and whether vectors have to be conjugated before and after it."""
        k = 0 if self.systems is None else i
        own = self.solvers[k].with_numbers(self.rows[k])
        if self.hermitian and self.transposed:  # A^T is the conjugate of A
            return own, not self.conjugated if self.dtype.kind == "c" else False
        return (own.transposed() if self.transposed else own), self.conjugated

    def solve_system(self, i: int, b: np.ndarray, goal: float, limit: int, see: See | None) -> Found:
        """See `PetscSystem.solve`."""
        solver, conjugated = self.solver(i)
        if not conjugated:
            found = solver.solve(b, goal, limit, see)
        else:
            shown = None if see is None else lambda x, its, r: see(x.conj(), its, lambda: r().conj())
            found = solver.solve(b.conj(), goal, limit, shown)
            found = found._replace(x=found.x.conj())
        self.last = found.reason
        return found

    def tell_null(self, null: Operator, both: bool) -> None:
        """Pass the null vectors that a projection removes to each Mat."""
        for k in range(len(self.solvers)):
            solver, conjugated = self.solver(k)
            found = basis_of(null, k)
            if found is not None and len(found):  # also in a process without unknowns
                solver.tell_null(null, lambda found=found, c=conjugated: found.conj() if c else found, both)

    def scale_of_rows(self) -> np.ndarray:
        """`(local rows,)`: modulus of the diagonal entries."""
        return np.abs(self.solvers[0].mat.getDiagonal().getArray())

    def product(self, x: Array) -> Array:
        bk = self.bk
        if bk.on_host:
            return self._preconditioned(x)
        spec = [(tuple(int(n) for n in x.shape), bk.dtype(x))]
        return bk.host_call(lambda rows: (self._preconditioned(np.asarray(rows)),), spec, x)[0]

    def _preconditioned(self, x: np.ndarray) -> np.ndarray:
        found = np.empty_like(x)
        for i, r in enumerate(x):
            solver, _ = PetscInverse.solver(self.turned(transposed=self.transposed, conjugated=False), i)
            found[i] = solver.precondition(r)
        return found

    def turned(self, *, transposed: bool, conjugated: bool) -> PetscInverse:
        return replace(self, transposed=transposed, conjugated=conjugated)

    def on_backend(self, bk: Backend, like: Array | None) -> PetscInverse:
        return replace(self, bk=bk, dtype=np.dtype(bk.stored_dtype(self.dtype)))

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        return (), lambda _: self.on_backend(get_backend("numpy"), None)

    def __deepcopy__(self, memo: Any) -> PetscInverse:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "solvers": None, "last": ""}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.solvers = self.again()


def inverse_of(bk: Backend, A: Operator, given: Choice, block_size: int, previous: Any = None) -> PetscInverse:
    """Set up KSPs for the matrices of an operator of NumPy.

    Args:
        given: settings; "" for those that krylix chooses.
        previous: a `PetscInverse` of other matrices, whose solvers are reused for the same pattern.

    Raises:
        ValueError, TypeError: PETSc does not support the matrix or the settings.
        ImportError: PETSc is not installed.
    """
    if A.offset:
        raise ValueError(
            "method='petsc' does not support matrix_offset, which makes every entry non-zero. Name the null vectors "
            "of a singular matrix (nullspace='constant'), or use CG or 'scipy-direct'."
        )
    own, matrices = _matrices(bk, A.without_offset)
    facts = analysis_of(own)
    hermitian = facts.hermitian is True
    choice = suited(given, facts.seems_hermitian, bool(facts.one_sign), A.dtype.kind == "c", 1)
    negative = hermitian and all(one.diagonal().real.max(initial=-1) < 0 for one in matrices)
    make = partial(_solvers, matrices, choice, -1 if negative else 1, block_size)
    olds = previous.solvers if isinstance(previous, PetscInverse) and previous.hermitian == hermitian else ()
    solvers = make(olds)
    return PetscInverse(
        bk=bk, shape=A.shape, dtype=A.dtype, systems=A.systems,
        rows=matrices, solvers=solvers, hermitian=hermitian, again=make,
    )  # fmt: skip


def _solvers(
    matrices: Sequence[Any], choice: Choice, sign: int, block_size: int, olds: Sequence[PetscSystem] = ()
) -> list[PetscSystem]:
    found = []
    for k, matrix in enumerate(matrices):
        old = olds[k] if len(olds) == len(matrices) else None
        if old is not None and (old.choice, old.sign) == (choice, sign) and same_pattern(old.rows, matrix):
            found.append(old.with_numbers(matrix))
        else:
            found.append(PetscSystem.of(matrix, choice, sign, block_size))
    return found


def same_pattern(one: Any, other: Any) -> bool:
    """Whether two CSR matrices have the same pattern, in the same order."""
    same = one.shape == other.shape and np.array_equal(one.indptr, other.indptr)
    return same and np.array_equal(one.indices, other.indices)


def _matrices(bk: Backend, A: Operator) -> tuple[Operator, list[Any]]:
    """The operator as a matrix, and each system's as canonical CSR in NumPy with all diagonal entries."""
    if not isinstance(A, SparseMatrix):  # A function may have a sparse matrix.
        arrays, make = A.for_host()
        A = make([bk.to_numpy(array) for array in arrays])
    if not isinstance(A, SparseMatrix):
        A = as_operator(np.asarray(A.dense()))
    count = 1 if A.systems is None else A.systems
    return A, [with_diagonal(canonical(sp.csr_array(A.per_system(i)))) for i in range(count)]


def with_diagonal(A: Any, first: int = 0) -> Any:
    """Store all diagonal entries, because incomplete factorisations and MUMPS expect them.

    Args:
        first: column of the diagonal entry in the first row.
    """
    n = A.shape[0]
    rows = np.repeat(np.arange(n), np.diff(A.indptr))
    there = np.zeros(n, bool)
    there[rows[rows + first == A.indices]] = True
    if there.all():
        return A
    lost = np.flatnonzero(~there)
    places = np.append(rows, lost), np.append(A.indices, lost + first)
    entries = np.append(A.data, np.zeros(len(lost), A.dtype)), places
    return canonical(sp.coo_array(entries, shape=A.shape).tocsr())
