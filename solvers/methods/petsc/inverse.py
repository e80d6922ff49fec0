"""PETSc's solvers as operators: the inverse of a matrix, or of rows over processes with the product with A."""

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
from .system import (
    Choice,
    KspResult,
    PetscSystem,
    errors_explained,
    has_complex_numbers,
    made_mat,
    petsc,
    suited,
)


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
        system = self.solvers[k].with_numbers(self.rows[k])
        if self.hermitian and self.transposed:  # A^T is the conjugate of A
            return system, not self.conjugated if self.dtype.kind == "c" else False
        return (system.transposed() if self.transposed else system), self.conjugated

    def solve_system(self, i: int, b: np.ndarray, goal: float, limit: int, see: See | None) -> KspResult:
        """See `PetscSystem.solve`."""
        solver, conjugated = self.solver(i)
        if not conjugated:
            result = solver.solve(b, goal, limit, see)
        else:
            see_conjugate = None if see is None else lambda x, its, r: see(x.conj(), its, lambda: r().conj())
            result = solver.solve(b.conj(), goal, limit, see_conjugate)
            result = result._replace(x=result.x.conj())
        self.last = result.reason
        return result

    def tell_null(self, null: Operator, both: bool) -> None:
        """Pass the null vectors that a projection removes to each Mat."""
        for k in range(len(self.solvers)):
            solver, conjugated = self.solver(k)
            basis = basis_of(null, k)
            if basis is not None and len(basis):  # also in a process without unknowns
                solver.tell_null(null, lambda basis=basis, c=conjugated: basis.conj() if c else basis, both)

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
        form, z = self.turned(transposed=self.transposed, conjugated=False), np.empty_like(x)
        for i, r in enumerate(x):
            solver, conjugated = form.solver(i)
            z[i] = solver.precondition(r.conj()).conj() if conjugated else solver.precondition(r)
        return z

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
    """Set up KSPs for the matrices of an operator of NumPy, with those of `previous` where the pattern is the same."""
    if A.offset:
        raise ValueError(
            "method='petsc' does not support matrix_offset, which makes every entry non-zero. Name the null vectors "
            "of a singular matrix (nullspace='constant'), or use CG or 'scipy-direct'."
        )
    matrix, matrices = _matrices(bk, A.without_offset)
    facts = analysis_of(matrix)
    hermitian = facts.hermitian is True
    choice = suited(given, facts.seems_hermitian, bool(facts.one_sign), A.dtype.kind == "c", 1)
    negative = hermitian and all(rows.diagonal().real.max(initial=-1) < 0 for rows in matrices)
    make = partial(_solvers, matrices, choice, -1 if negative else 1, block_size)
    olds = previous.solvers if isinstance(previous, PetscInverse) and previous.hermitian == hermitian else ()
    return PetscInverse(
        bk=bk, shape=A.shape, dtype=A.dtype, systems=A.systems,
        rows=matrices, solvers=make(olds), hermitian=hermitian, again=make,
    )  # fmt: skip


def _solvers(
    matrices: Sequence[Any], choice: Choice, sign: int, block_size: int, olds: Sequence[PetscSystem] = ()
) -> list[PetscSystem]:
    solvers = []
    for k, matrix in enumerate(matrices):
        old = olds[k] if len(olds) == len(matrices) else None
        if old is not None and (old.choice, old.sign) == (choice, sign) and _same_pattern(old.rows, matrix):
            solvers.append(old.with_numbers(matrix))
        else:
            solvers.append(PetscSystem.of(matrix, choice, sign, block_size))
    return solvers


def _same_pattern(A: Any, B: Any) -> bool:
    """Whether two CSR matrices have the same pattern, in the same order."""
    same = A.shape == B.shape and np.array_equal(A.indptr, B.indptr)
    return same and np.array_equal(A.indices, B.indices)


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
    """Store all diagonal entries, that of the first row in column `first`: incomplete factors and MUMPS expect them."""
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


# --- rows that are distributed over processes


class RowsProduct:
    """Products of a Mat with distributed vectors, with SciPy's names.

    Attributes:
        system: the Mat and its KSP.
        rows: CSR of this process; None if a Mat was given.
        shape: of the local part; vectors are distributed like rows.
    """

    def __init__(self, system: PetscSystem, rows: Any) -> None:
        self.system, self.rows = system, rows
        local = system.mat.getLocalSize()
        self.scalar = np.dtype(petsc().ScalarType)
        real = rows is not None and rows.dtype.kind != "c"
        self.shape, self.dtype = (int(local[0]), int(local[1])), np.dtype(petsc().RealType) if real else self.scalar
        self._in, self._out = system.mat.createVecs()

    def matvec(self, v: np.ndarray) -> np.ndarray:
        """Product `A v`, with a message to each neighbour."""
        return self._product("mult", v)

    def rmatvec(self, v: np.ndarray) -> np.ndarray:
        """Product of the adjoint with v, with a message to each neighbour."""
        return self._product("multHermitian", v)

    def gradient_by_entries(self, y: np.ndarray, x: np.ndarray) -> Any:
        """`- y x^H` at the entries of the local rows, CSR `(local rows, n)`, summed over systems; None for a Mat.

        Takes one message to each neighbour for each system.
        """
        rows, petsc_ = self.rows, petsc()
        if rows is None:
            return None
        needed, place = np.unique(rows.indices, return_inverse=True)
        index = petsc_.IS().createGeneral(needed.astype(petsc_.IntType), comm=petsc_.COMM_SELF)
        near = petsc_.Vec().createSeq(len(needed), comm=petsc_.COMM_SELF)
        scatter = petsc_.Scatter().create(self._in, index, near, None)

        def of_neighbours(v: np.ndarray) -> np.ndarray:
            if v.dtype.kind == "c" and not has_complex_numbers():
                return of_neighbours(v.real) + 1j * of_neighbours(v.imag)
            self._in.setArray(np.ascontiguousarray(v, self.scalar))
            scatter.scatter(self._in, near)
            values: np.ndarray = near.getArray().copy()
            return values.real if v.dtype.kind != "c" else values

        lines = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        values = -sum(yi[lines] * of_neighbours(xi).conj()[place] for yi, xi in zip(y, x, strict=True))
        gradient = rows.astype(np.result_type(rows.dtype, np.float32))
        gradient.data = np.asarray(values if gradient.dtype.kind == "c" else np.real(values), gradient.dtype)
        for petsc_object in (scatter, near, index):
            petsc_object.destroy()
        return gradient

    def _product(self, multiply: str, v: np.ndarray) -> np.ndarray:
        v = np.asarray(v).reshape(-1)
        if v.dtype.kind == "c" and not has_complex_numbers():
            return self._product(multiply, v.real) + 1j * self._product(multiply, v.imag)
        system = self.system.with_numbers(self.rows)
        with errors_explained("multiply"):
            self._in.setArray(np.ascontiguousarray(v, self.scalar))
            getattr(system.mat, multiply)(self._in, self._out)
            Av: np.ndarray = system.sign * self._out.getArray()
        return Av.real if self.dtype.kind != "c" and v.dtype.kind != "c" else Av


def of_members(
    bk: Backend, rows: Any, mat: Any, given: Choice, block_size: int, previous: Any = None
) -> tuple[PetscInverse, RowsProduct]:
    """Set up the KSP of a distributed matrix, CSR `rows` of this process or the user's Mat, and its products.

    Collective. `previous` is a `PetscInverse` for other values.
    """
    communicator: Any = bk.communicator
    petsc().garbage_cleanup()  # collective: frees discarded objects of all processes
    system, hermitian = None, False
    if isinstance(previous, PetscInverse) and rows is not None:
        (old,), hermitian = previous.solvers, previous.hermitian
        mine = old.rows is not None and _same_pattern(old.rows, rows)
        if not communicator.any(not mine):
            system = old.with_numbers(rows)
    if system is None:
        with errors_explained("make a matrix"):
            made = made_mat(rows, 1, block_size, communicator.comm) if mat is None else mat
        system, hermitian = PetscSystem.over(made, given, rows)
    product = RowsProduct(system, rows)
    inverse = PetscInverse(
        bk=bk, shape=product.shape, dtype=product.dtype, systems=None,
        rows=[rows], solvers=[system], hermitian=hermitian, again=_refuse_to_unpickle,
    )  # fmt: skip
    return inverse, product


def _refuse_to_unpickle() -> Any:
    raise TypeError("A solver over a communicator cannot be stored: prepare again, in all of its processes.")
