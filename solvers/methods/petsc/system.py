"""A matrix of PETSc with its KSP on a communicator; import, errors, and default KSP and PC."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from glob import glob
from importlib import import_module
from itertools import count
from threading import RLock
from typing import Any, NamedTuple

import numpy as np

from ....sparse.analysis.symmetry import PRODUCTS
from ...log import log
from ..scipy_methods import LoopStopped, See

_INSTALL = (
    "Install PETSc with its bindings: 'apt-get install python3-petsc4py python3-mpi4py mpi-default-bin' (Debian and "
    "Ubuntu, for the system's Python with NumPy 1), 'conda install -c conda-forge petsc4py mpi4py', or "
    "'pip install krylix[petsc]' where a compiler and MPI are."
)
_OUT_OF_MEMORY = 55  # PETSC_ERR_MEM
_COARSEST = "pc_hypre_boomeramg_relax_type_coarse"
_LOCK = RLock()  # PETSc is not thread-safe
_numbers = count()


@cache
def petsc() -> Any:
    """The module `petsc4py.PETSc`, whose first import starts PETSc."""
    try:
        return import_module("petsc4py.PETSc")
    except ImportError as error:
        places = glob("/usr/lib/petscdir/*/*-real")
        found = f" Debian's lie in {places[0]}: set the environment variable PETSC_DIR to it." if places else ""
        raise ImportError(
            f"method='petsc' needs petsc4py, which cannot be imported: {error}. {_INSTALL}{found}"
        ) from error


def has_complex_numbers() -> bool:
    """Whether this PETSc was built for complex numbers."""
    return np.dtype(petsc().ScalarType).kind == "c"


def checked_values(values: np.ndarray) -> np.ndarray:
    """Values in the type of this build of PETSc; raises TypeError for complex ones in a build for real numbers."""
    if values.dtype.kind == "c" and not has_complex_numbers():
        if np.any(values.imag != 0):
            raise TypeError(
                "The matrix is complex, and this build of PETSc computes with real numbers. Set PETSC_DIR (PETSC_ARCH) "
                "to a complex build (Debian: python3-petsc4py-complex), or use 'scipy-direct' or GMRES."
            )
        values = values.real
    return np.ascontiguousarray(values, petsc().ScalarType)


def checked_indices(indices: np.ndarray, rows: int, most: int) -> np.ndarray:
    """Indices in the type of this build of PETSc; raises ValueError if `rows` of the matrix or its local `most`
    entries are too many for it."""
    wanted = np.dtype(petsc().IntType)
    if max(rows, most) > np.iinfo(wanted).max:
        raise ValueError(
            f"The matrix has {rows} rows and {most} entries in one process; this build of PETSc counts with {wanted}. "
            "Use one with 64-bit indices (--with-64-bit-indices), or distribute the rows over more processes."
        )
    return np.ascontiguousarray(indices, wanted)


def is_used(option: str) -> bool:
    """Whether PETSc has read an option, given with its prefix. True if this build cannot say."""
    used = ctypes.c_int(0)
    try:
        failed = ctypes.CDLL(petsc().__file__).PetscOptionsUsed(None, option.encode(), ctypes.byref(used))
    except (OSError, AttributeError):  # the bindings have no function for it, and the library no symbol
        return True
    return bool(failed or used.value)


@contextmanager
def errors_explained(what: str) -> Iterator[None]:
    """Replace errors of PETSc by ValueError, or MemoryError, that name the action, such as "transpose a matrix"."""
    try:
        yield
    except petsc().Error as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        text = " ".join(line.partition("] ")[2] or line for line in lines[-2:])
        if error.ierr == _OUT_OF_MEMORY:
            raise MemoryError(f"PETSc has no memory to {what}: {text}") from error
        raise ValueError(f"PETSc cannot {what}. Its error {error.ierr}: {text}.") from error


class Choice(NamedTuple):
    """Krylov method and preconditioner of PETSc, with options."""

    ksp: str
    pc: str
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"KSP {self.ksp} with PC {self.pc}"


# Side of the preconditioner for which a method tests the norm of the true residual. Other methods test that of the
# preconditioned residual, and another round begins if they stop too early.
_TRUE_NORM = {
    "cg": "left", "groppcg": "left", "pipecg": "left", "pipecgrr": "left", "fcg": "left", "pipefcg": "left",
    "cr": "left", "gcr": "right", "fgmres": "right", "pgmres": "right", "gmres": "right", "lgmres": "right",
    "dgmres": "right", "bcgs": "right", "ibcgs": "right", "fbcgs": "right", "fbcgsr": "right", "cgs": "right",
    "tfqmr": "right", "bicg": "left", "richardson": "left",
}  # fmt: skip


def suited(given: Choice, hermitian: bool, one_sign: bool, is_complex: bool, ranks: int) -> Choice:
    """Complete the given settings, in which "" means to choose for the matrix.

    `one_sign` says that all diagonal entries have one sign, like those of a definite matrix.
    """
    multigrid = "hypre" if _has_pc("hypre") and not is_complex else "gamg"
    if not given.ksp and not given.pc and hermitian and not one_sign:
        factors = next((name for name in ("mumps", "superlu_dist") if _has_factorisations_by(name)), "")
        if factors:
            return Choice("preonly", "lu", (("pc_factor_mat_solver_type", factors), *given.options))
    pc = given.pc or (multigrid if one_sign else "ilu" if ranks == 1 else "asm")
    direct = pc in ("lu", "cholesky", "svd")
    ksp = given.ksp or ("preonly" if direct else "cg" if hermitian and one_sign else "gmres")
    options = given.options
    if direct and pc != "svd" and ranks > 1 and "pc_factor_mat_solver_type" not in dict(options):
        options = (("pc_factor_mat_solver_type", "mumps"), *options)  # PETSc's own factors need one process
    return Choice(ksp, pc, options)


def facts_of(mat: Any) -> tuple[bool, bool, bool]:
    """Whether a Mat is Hermitian according to 2 products, its diagonal has one sign, and that sign is negative.

    Collective, with 5 messages.
    """
    PETSc = petsc()
    u, Au = mat.createVecs()
    v, Av = u.duplicate(), Au.duplicate()
    for k, vector in enumerate((u, v)):
        rng = np.random.default_rng((7 + k, mat.getComm().getRank()))
        vector.setArray(rng.standard_normal(vector.getLocalSize()).astype(PETSc.ScalarType))
    mat.mult(u, Au)
    mat.mult(v, Av)
    size = u.norm() * Av.norm() + Au.norm() * v.norm()
    hermitian = abs(Av.dot(u) - v.dot(Au)) <= PRODUCTS * float(np.finfo(PETSc.RealType).eps) * size
    if has_complex_numbers():
        return hermitian, False, False
    diagonal = mat.getDiagonal()
    least, most = diagonal.min()[1], diagonal.max()[1]
    return hermitian, least > 0 or most < 0, most < 0


def _has_pc(name: str) -> bool:
    PETSc = petsc()
    pc = PETSc.PC().create(PETSc.COMM_SELF)
    try:
        pc.setType(name)
    except PETSc.Error:
        return False
    finally:
        pc.destroy()
    return True


def _has_factorisations_by(name: str) -> bool:
    PETSc = petsc()
    mat = PETSc.Mat().createAIJ((1, 1), nnz=1, comm=PETSc.COMM_SELF)
    mat.setValue(0, 0, 1.0)
    mat.assemble()
    pc = PETSc.PC().create(PETSc.COMM_SELF)
    try:
        pc.setOperators(mat)
        pc.setType("lu")
        pc.setFactorSolverType(name)
        pc.setFactorSetUpSolverType()
    except PETSc.Error:
        return False
    finally:
        pc.destroy()
        mat.destroy()
    return True


class KspResult(NamedTuple):
    """Result of a KSP, whose residual is not verified."""

    x: np.ndarray
    iterations: int
    reason: str


class PetscSystem:
    """A Mat and a KSP, which matrices of the same pattern may use in turn.

    Attributes:
        mat, ksp: PETSc's objects, collective on their communicator.
        choice: the settings of the KSP.
        rows: local rows as CSR, whose values the Mat has now; None if the Mat was given.
    """

    def __init__(self, mat: Any, choice: Choice, rows: Any = None, sign: int = 1) -> None:
        """The system owns `mat` if `rows`, from which it was made, are given; `sign` is -1 if it holds -A."""
        self.mat, self.choice, self.rows, self.sign = mat, choice, rows, sign
        self.ksp: Any = None
        self._x: Any = None
        self._b: Any = None
        self._real = True  # whether the last right-hand side is real
        self._twin: PetscSystem | None = None
        self._null: Any = None
        self._owns = rows is not None
        self._prefix = f"krylix_{next(_numbers)}_"
        with _LOCK, errors_explained(f"set up {choice}"):
            try:
                self._set_up()
                self._check_options()
            except (petsc().Error, ValueError):
                self.close()
                raise

    @classmethod
    def of(cls, rows: Any, choice: Choice, sign: int, block_size: int, comm: Any = None) -> PetscSystem:
        """From local rows: canonical CSR `(local rows, all columns)`."""
        with _LOCK, errors_explained("make a matrix"):
            return cls(made_mat(rows, sign, block_size, comm), choice, rows, sign)

    @classmethod
    def over(cls, mat: Any, given: Choice, rows: Any = None) -> tuple[PetscSystem, bool]:
        """For a Mat of several processes; also whether it is Hermitian. Collective; `rows` as in the constructor."""
        with _LOCK, errors_explained("examine a matrix"):
            hermitian, one_sign, negative = facts_of(mat)
            choice = suited(given, hermitian, one_sign, has_complex_numbers(), mat.getComm().getSize())
            sign = -1 if hermitian and negative and rows is not None else 1
            if sign < 0:
                mat.scale(-1)
        return cls(mat, choice, rows, sign), hermitian

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
        if side := _TRUE_NORM.get(self.choice.ksp):
            ksp.setNormType(PETSc.KSP.NormType.UNPRECONDITIONED)
            ksp.setPCSide(PETSc.PC.Side.LEFT if side == "left" else PETSc.PC.Side.RIGHT)
        ksp.setFromOptions()
        ksp.setUp()
        self._x, self._b = self.mat.createVecs()

    def _check_options(self) -> None:
        """Raise ValueError for options that nothing has read, because PETSc does not report misspelt names."""
        unread = [name for name, _ in self.choice.options if not is_used(self._prefix + name)]
        if unread:
            raise ValueError(
                f"PETSc cannot set up {self.choice} with {', '.join(map(repr, unread))}: it has read no such option. "
                "Correct the name (that of PETSc, without a prefix), or omit options of another KSP or PC."
            )

    def with_numbers(self, rows: Any) -> PetscSystem:
        """Put the values of `rows`, which have the same pattern, into this system and update its set-up."""
        if rows is self.rows or self.rows is None:
            return self
        with _LOCK, errors_explained("accept new values"):
            values = checked_values(rows.data)
            starts, columns = _indices(rows)
            self.mat.setValuesCSR(starts, columns, values if self.sign > 0 else -values)
            self.mat.assemble()
            self.rows = rows
            if self._twin is not None:
                self._twin.close()
                self._twin = None
            self.ksp.setOperators(self.mat)  # reuses symbolic factors only
            self.ksp.setUp()
        return self

    def transposed(self) -> PetscSystem:
        """The system of the transposed matrix, with its own KSP, because some PCs (hypre's) cannot be transposed."""
        if self._twin is None:
            with _LOCK, errors_explained("transpose a matrix"):
                mat = petsc().Mat()
                self.mat.transpose(mat)
                self._twin = PetscSystem(mat, self.choice, (), self.sign)
        return self._twin

    def tell_null(self, key: Any, vectors: Any, both: bool) -> None:
        """Pass null vectors of the matrix, with `both` also of its transpose, to the Mat, unless `key` came last.

        `vectors` returns orthonormal rows `(k, local columns)`, or "constant".
        """
        if key is self._null:
            return
        with _LOCK, errors_explained("accept null vectors"):
            PETSc, comm, basis = petsc(), self.mat.getComm(), vectors()
            if isinstance(basis, str):
                space = PETSc.NullSpace().create(constant=True, comm=comm)
            else:
                stored = [self._x.duplicate() for _ in basis]
                for vector, values in zip(stored, basis):
                    vector.setArray(checked_values(values))
                space = PETSc.NullSpace().create(vectors=stored, comm=comm)
            self.mat.setNullSpace(space)
            if both:
                self.mat.setTransposeNullSpace(space)
            space.destroy()  # the Mat holds a reference
            self._null = key
            # Elimination by hypre on the coarsest grid of a singular matrix would have a pivot of rounding errors.
            if self.choice.pc == "hypre" and _COARSEST not in dict(self.choice.options):
                PETSc.Options(self._prefix).setValue(_COARSEST, "symmetric-SOR/Jacobi")
                self.ksp.setFromOptions()

    def solve(self, b: np.ndarray, goal: float, limit: int, see: See | None = None) -> KspResult:
        """Run the KSP from zero to the residual norm `goal`, which it may miss. `b` is the local part."""
        PETSc = petsc()
        with _LOCK, errors_explained(f"solve by {self.choice}"):
            if b.dtype.kind == "c" and not has_complex_numbers():
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
        return KspResult(x if np.all(np.isfinite(x)) else np.zeros_like(x), iterations, reason)

    def _solve_parts(self, b: np.ndarray, goal: float, limit: int) -> KspResult:
        """Solve for the real and the imaginary part with a real matrix."""
        solves = [(unit, self.solve(part, goal / 2, limit)) for unit, part in ((1, b.real), (1j, b.imag)) if part.any()]
        ends = [end for _, end in solves]
        worst = next((end.reason for end in ends if "DIVERGED" in end.reason), ends[-1].reason)
        x = np.zeros(len(b), np.complex64) + sum(unit * end.x for unit, end in solves)
        return KspResult(x, max(end.iterations for end in ends), worst)

    def _solve_watched(self, rtol: float, limit: int, see: See) -> None:
        """Solve with a convergence test that reports each iterate."""
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
        """Apply the PC to r, of a real matrix to the real and the imaginary part."""
        if r.dtype.kind == "c" and not has_complex_numbers():
            return self.precondition(r.real) + 1j * self.precondition(r.imag)
        with _LOCK, errors_explained(f"apply PC {self.choice.pc}"):
            self._b.setArray(np.ascontiguousarray(self.sign * r, petsc().ScalarType))
            self.ksp.getPC().apply(self._b, self._x)
            return self._x.getArray().copy()

    def close(self) -> None:
        """Destroy all objects of PETSc. Collective; the system cannot be used afterwards."""
        PETSc = petsc()
        if self.ksp is None or PETSc.Sys.isFinalized():
            return
        if self._twin is not None:
            self._twin.close()
        self._forget_options()
        for petsc_object in (self.ksp, self._x, self._b, *((self.mat,) if self._owns else ())):
            if petsc_object is not None:
                petsc_object.destroy()
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
        else:  # PETSc's collective garbage collection frees the rest
            self._forget_options()


def made_mat(rows: Any, sign: int, block_size: int, comm: Any) -> Any:
    """An AIJ Mat of the local rows."""
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


@cache
def reasons() -> dict[int, str]:
    """Names of the reasons why a KSP stops."""
    kinds: Any = petsc().KSP.ConvergedReason
    return {getattr(kinds, name): name for name in dir(kinds) if name.startswith(("CONVERGED_", "DIVERGED_"))}
