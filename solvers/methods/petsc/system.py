"""One matrix of PETSc with its KSP, on a communicator."""

from __future__ import annotations

from itertools import count
from threading import RLock
from typing import Any, NamedTuple

import numpy as np

from ...log import log
from ..one_by_one import LoopStopped, See
from .choice import Choice, ask_for_true_norm, facts_of, suited
from .library import checked_indices, checked_values, is_used, petsc, told

_numbers = count()
_COARSEST = "pc_hypre_boomeramg_relax_type_coarse"
_LOCK = RLock()  # PETSc is not made for several threads


class Found(NamedTuple):
    """What a KSP says it has done; the true residual is somebody else's."""

    x: np.ndarray
    iterations: int
    reason: str


class PetscSystem:
    """A Mat and a KSP; one at a time of several matrices of one pattern has its numbers in them.

    Attributes:
        mat, ksp: PETSc's objects, collective on their communicator.
        choice: the settings of the KSP.
        rows: this process's rows as CSR, whose numbers the Mat has now; None where the Mat was given.
    """

    def __init__(self, mat: Any, choice: Choice, rows: Any = None, sign: int = 1) -> None:
        """
        Args:
            mat: assembled; the system owns it if `rows` are given.
            rows: what it was made of.
            sign: -1 if the Mat holds the negative of the matrix.
        """
        self.mat, self.choice, self.rows, self.sign = mat, choice, rows, sign
        self.ksp: Any = None
        self._x: Any = None
        self._b: Any = None
        self._real = True  # is the last right-hand side?
        self._twin: PetscSystem | None = None
        self._null: Any = None
        self._owns = rows is not None
        self._prefix = f"krylix_{next(_numbers)}_"
        with _LOCK, told(f"set up {choice}"):
            try:
                self._set_up()
                self._check_options()
            except (petsc().Error, ValueError):
                self.close()
                raise

    @classmethod
    def of(cls, rows: Any, choice: Choice, sign: int, block_size: int, comm: Any = None) -> PetscSystem:
        """From rows of this process: CSR `(local rows, columns of the whole)`, canonical."""
        with _LOCK, told("make a matrix"):
            return cls(made_mat(rows, sign, block_size, comm), choice, rows, sign)

    @classmethod
    def over(cls, mat: Any, given: Choice, rows: Any = None) -> tuple[PetscSystem, bool]:
        """For a Mat of several processes, and whether it is Hermitian. Collective; `rows` as in the constructor."""
        with _LOCK, told("look at a matrix"):
            facts = facts_of(mat)
            choice = suited(given, facts.hermitian, facts.one_sign, facts.is_complex, mat.getComm().getSize())
            negative = facts.hermitian and facts.negative and rows is not None
            if negative:
                mat.scale(-1)
        return cls(mat, choice, rows, -1 if negative else 1), facts.hermitian

    def _set_up(self) -> None:
        PETSc = petsc()
        options = PETSc.Options(self._prefix)
        for name, value in self.choice.options:
            options.setValue(name, value)
        self.ksp = ksp = PETSc.KSP().create(self.mat.getComm())
        ksp.setOptionsPrefix(self._prefix)
        ksp.setOperators(self.mat)
        ksp.setType(self.choice.ksp)
        ksp.getPC().setType(self.choice.pc)
        ask_for_true_norm(ksp, self.choice.ksp)
        ksp.setFromOptions()
        ksp.setUp()
        self._x, self._b = self.mat.createVecs()

    def _check_options(self) -> None:
        """Raises ValueError for options that nothing has read: PETSc itself says nothing of a misspelt name."""
        unread = [name for name, _ in self.choice.options if not is_used(self._prefix + name)]
        if unread:
            raise ValueError(
                f"PETSc cannot set up {self.choice} with {', '.join(map(repr, unread))}: it has read no such option. "
                "Correct the name (as of PETSc, without a prefix), or leave out what belongs to another KSP or PC."
            )

    def with_numbers(self, rows: Any) -> PetscSystem:
        """This system with the numbers of `rows`, whose pattern it has; what depends on them is set up anew."""
        if rows is self.rows or self.rows is None:
            return self
        with _LOCK, told("take other numbers"):
            values = checked_values(rows.data)
            starts, columns = _indices(rows)
            self.mat.setValuesCSR(starts, columns, values if self.sign > 0 else -values)
            self.mat.assemble()
            self.rows = rows
            if self._twin is not None:
                self._twin.close()
                self._twin = None
            self.ksp.setOperators(self.mat)  # of the same pattern: symbolic factors are kept, the rest is not
            self.ksp.setUp()
        return self

    def transposed(self) -> PetscSystem:
        """The system of the transposed matrix, with a KSP of its own: PCs cannot all be transposed, hypre's is not."""
        if self._twin is None:
            with _LOCK, told("transpose a matrix"):
                mat = petsc().Mat()
                self.mat.transpose(mat)
                self._twin = PetscSystem(mat, self.choice, (), self.sign)
        return self._twin

    def tell_null(self, key: Any, vectors: Any, both: bool) -> None:
        """Hand null vectors over, of the matrix and with `both` of its transpose.

        Args:
            key: the object that they are of; nothing is done for the one that was given last.
            vectors: a function that returns orthonormal rows `(k, local columns)`, or "constant".
        """
        if key is self._null:
            return
        with _LOCK, told("take null vectors"):
            PETSc, comm, found = petsc(), self.mat.getComm(), vectors()
            if isinstance(found, str):
                space = PETSc.NullSpace().create(constant=True, comm=comm)
            else:
                space = PETSc.NullSpace().create(vectors=[self._vector(v) for v in found], comm=comm)
            self.mat.setNullSpace(space)
            if both:
                self.mat.setTransposeNullSpace(space)
            space.destroy()  # the Mat holds it
            self._null = key
            self._smooth_the_coarsest()

    def _smooth_the_coarsest(self) -> None:
        """Of a singular matrix hypre would eliminate on the coarsest grid, with a pivot of rounding errors."""
        if self.choice.pc == "hypre" and _COARSEST not in dict(self.choice.options):
            petsc().Options(self._prefix).setValue(_COARSEST, "symmetric-SOR/Jacobi")
            self.ksp.setFromOptions()

    def _vector(self, values: np.ndarray) -> Any:
        vector = self._x.duplicate()
        vector.setArray(checked_values(values))
        return vector

    def solve(self, b: np.ndarray, goal: float, limit: int, see: See | None = None) -> Found:
        """Run the KSP from zero, for the residual norm `goal`, which it may miss in every way.

        Args:
            b: this process's part.
        """
        PETSc = petsc()
        with _LOCK, told(f"solve by {self.choice}"):
            if b.dtype.kind == "c" and np.dtype(PETSc.ScalarType).kind != "c":
                return self._solve_parts(b, goal, limit)
            self._b.setArray(np.ascontiguousarray(self.sign * b, PETSc.ScalarType))
            self._x.set(0)
            self._real = b.dtype.kind != "c"
            norm = self._b.norm()
            rtol = max(goal / norm, 0.1 * float(np.finfo(PETSc.RealType).eps))
            self.ksp.setTolerances(rtol=min(rtol, 0.99), atol=0, max_it=limit)
            if see is None:
                self.ksp.solve(self._b, self._x)
            else:
                self._solve_watched(rtol, limit, see)
            reason = reasons().get(self.ksp.getConvergedReason(), "?")
            x = self._x.getArray().copy()
        iterations = int(self.ksp.getIterationNumber())
        log.info("PETSc: %s stopped after %d iterations: %s", self.choice, iterations, reason)
        if x.dtype.kind == "c" and b.dtype.kind != "c":
            x = x.real
        return Found(x if np.all(np.isfinite(x)) else np.zeros_like(x), iterations, reason)

    def _solve_parts(self, b: np.ndarray, goal: float, limit: int) -> Found:
        """Real and imaginary part one after the other, of a real matrix."""
        parts = [b.real, b.imag]
        found = [self.solve(part, goal / 2, limit) if np.any(part) else None for part in parts]
        x = [np.zeros(len(b)) if one is None else one.x for one in found]
        made = [one for one in found if one is not None]
        worst = next((one.reason for one in made if "DIVERGED" in one.reason), made[-1].reason)
        return Found(x[0] + 1j * x[1], max(one.iterations for one in made), worst)

    def _solve_watched(self, rtol: float, limit: int, see: See) -> None:
        """With a test that shows each iterate."""
        PETSc, first, real = petsc(), [0.0], self._real
        reason = PETSc.KSP.ConvergedReason

        def residual() -> np.ndarray:
            r = self._b.duplicate()
            self.mat.mult(self.ksp.buildSolution(), r)
            r.aypx(-1, self._b)
            return shown(self.sign * r.getArray())

        def shown(v: np.ndarray) -> np.ndarray:
            return v.real.copy() if real and v.dtype.kind == "c" else v.copy()

        def test(ksp: Any, its: int, norm: float) -> Any:
            if not np.isfinite(norm):
                return reason.DIVERGED_NANORINF
            first[0] = first[0] or norm
            if its:
                try:
                    see(shown(ksp.buildSolution().getArray()), its, residual)
                except LoopStopped:
                    return reason.CONVERGED_ITS
            return reason.CONVERGED_RTOL if norm <= rtol * first[0] else reason.ITERATING

        self.ksp.setConvergenceTest(test)
        try:
            self.ksp.solve(self._b, self._x)
        finally:
            self.ksp.setConvergenceTest(None)

    def precondition(self, r: np.ndarray) -> np.ndarray:
        """One application of the PC."""
        with _LOCK, told(f"apply PC {self.choice.pc}"):
            self._b.setArray(np.ascontiguousarray(self.sign * r, petsc().ScalarType))
            self.ksp.getPC().apply(self._b, self._x)
            return self._x.getArray().copy()

    def close(self) -> None:
        """Destroy what PETSc holds for it. Collective; nothing can be solved after it."""
        PETSc = petsc()
        if self.ksp is None or PETSc.Sys.isFinalized():
            return
        if self._twin is not None:
            self._twin.close()
        self._forget_options()
        for one in (self.ksp, self._x, self._b, *((self.mat,) if self._owns else ())):
            if one is not None:
                one.destroy()
        self.ksp = None

    def _forget_options(self) -> None:
        options = petsc().Options(self._prefix)
        for name, _ in (*self.choice.options, (_COARSEST, "")):
            options.delValue(name)

    def __del__(self) -> None:
        if getattr(self, "ksp", None) is None or petsc().Sys.isFinalized():
            return
        if self.mat.getComm().getSize() == 1:
            self.close()
        else:  # the rest is left to PETSc's own collection of garbage, which is collective
            self._forget_options()


def made_mat(rows: Any, sign: int, block_size: int, comm: Any) -> Any:
    """An AIJ Mat of this process's rows, cut as they are."""
    PETSc = petsc()
    comm = PETSc.COMM_SELF if comm is None else comm
    (local, n), alone = rows.shape, comm is PETSc.COMM_SELF or comm.size == 1
    values, (starts, columns) = checked_values(rows.data), _indices(rows)
    mat = PETSc.Mat().create(comm)
    mat.setSizes(((local, n), (local, n)) if not alone else (n, n), block_size)
    mat.setType("aij")
    mat.setPreallocationCSR((starts, columns, values if sign > 0 else -values))
    mat.assemble()
    return mat


def _indices(rows: Any) -> tuple[np.ndarray, np.ndarray]:
    most = max(rows.shape[1], rows.nnz)
    return checked_indices(rows.indptr, rows.shape[1], most), checked_indices(rows.indices, rows.shape[1], most)


_reasons: dict[int, str] = {}


def reasons() -> dict[int, str]:
    """Names of the reasons for which a KSP stops."""
    if not _reasons:
        kinds: Any = petsc().KSP.ConvergedReason
        found = {getattr(kinds, name): name for name in dir(kinds) if name.startswith(("CONVERGED_", "DIVERGED_"))}
        _reasons.update(found)
    return _reasons
