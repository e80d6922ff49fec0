"""PETSc's Krylov methods and preconditioners as a method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ....backends import Backend
from ....sparse import Operator
from ...run.watch import InnerSteps
from ..method import Method
from ..scipy_methods import OneByOne, See
from .inverse import PetscInverse, RowsProduct, inverse_of, of_members
from .system import Choice


@dataclass(frozen=True)
class Petsc(OneByOne):
    """A KSP of PETSc with one of its preconditioners, such as hypre's BoomerAMG, GAMG, ILU and MUMPS' factors.

    Needs petsc4py and the entries of A. It runs on the host, one system after the other. Arrays of other libraries are
    copied there and back, in compiled functions by a callback. The true residual decides about convergence: if the KSP
    stops too early, it is called again for the residual. Its tolerance and limit of iterations are those of the solve.
    The transposed system, for derivatives, is solved by the same KSP if A is Hermitian, else by another one with the
    transposed matrix. Null vectors that were found or given are passed as a MatNullSpace. `prepare` stores the KSP, and
    `update` puts new values on the same pattern into the same Mat.

    Attributes:
        ksp: name of the Krylov method, `-ksp_type`. If None, "cg" for a symmetric (Hermitian) matrix whose diagonal has
            one sign, "preonly" with factors, otherwise "gmres".
        pc: name of the preconditioner, `-pc_type`. If None, "hypre" if the diagonal has one sign ("gamg" if the build
            has no hypre, and for complex numbers), MUMPS' factors for other symmetric matrices if the build has them,
            otherwise "ilu".
        options: further options of PETSc by name: `{"pc_hypre_boomeramg_strong_threshold": 0.5}`. They apply only to
            this KSP, and options of the command line are ignored. One that PETSc does not read is refused.
        block_size: unknowns per point, for example of elasticity, stored contiguously in x.

    Cost: that of the KSP and the PC; a copy of the entries, and a transposed copy for derivatives of a matrix that is
    not Hermitian; per call 1 more product, and copies of b and x.

    Source: Balay et al., PETSc/TAO Users Manual, ANL-21/39 Revision 3.18.

    Examples:
        >>> from krylix.solvers import Petsc, find_method
        >>> Petsc("gmres", pc="ilu", options={"ksp_gmres_restart": 50})
        Petsc(ksp='gmres', pc='ilu', options=(('ksp_gmres_restart', '50'),), block_size=1)
        >>> find_method("petsc") == Petsc()
        True
    """

    takes_preconditioner: ClassVar[bool] = False
    keeps_setup: ClassVar[bool] = True
    names_provider: ClassVar[bool] = True
    holds_external: ClassVar[bool] = True
    takes_rows: ClassVar[bool] = True

    ksp: str | None = None
    pc: str | None = None
    options: Mapping[str, Any] | tuple[tuple[str, str], ...] = ()
    block_size: int = 1

    def __post_init__(self) -> None:
        pairs: Any = self.options.items() if isinstance(self.options, Mapping) else self.options
        for name in ("ksp", "pc"):
            if not isinstance(value := getattr(self, name), str | None):
                raise TypeError(f"{name} is a name such as 'cg' or 'hypre', or None; got {value!r}.")
        if isinstance(self.block_size, bool) or not isinstance(self.block_size, int) or self.block_size < 1:
            raise ValueError(
                f"block_size is the number of unknowns per point, an integer >= 1; got {self.block_size!r}."
            )
        try:
            options = tuple(sorted((name.lstrip("-"), _as_text(value)) for name, value in pairs))
        except (TypeError, ValueError, AttributeError):
            raise TypeError(f"options is a dictionary of names and values of PETSc; got {self.options!r}.") from None
        object.__setattr__(self, "options", options)

    @property
    def name(self) -> str:
        return "petsc"

    @property
    def choice(self) -> Choice:
        """The given settings."""
        options: Any = self.options
        return Choice(self.ksp or "", self.pc or "", options)

    def check(self, A: Operator, M: Operator | None) -> None:
        if A.shape[0] % self.block_size:
            raise ValueError(f"A has {A.shape[0]} rows, which is no multiple of block_size={self.block_size}.")

    def setup(self, bk: Backend, A: Operator, M: Operator | None) -> PetscInverse:
        return M if isinstance(M, PetscInverse) else inverse_of(bk, A, self.choice, self.block_size)

    def of_rows(
        self, bk: Backend, rows: Any, mat: Any, previous: Operator | None = None
    ) -> tuple[PetscInverse, RowsProduct]:
        """The result of `setup`, and the product with A, for rows that are distributed over processes."""
        return of_members(bk, rows, mat, self.choice, self.block_size, previous)

    def set_up_again(self, bk: Backend, A: Operator, previous: Operator | None) -> Operator | None:
        return inverse_of(bk, A, self.choice, self.block_size, previous)

    def tell_null(self, M: Operator | None, null: Operator, both: bool) -> None:
        if isinstance(M, PetscInverse):
            M.tell_null(null, both)

    def monitored(self, inner: InnerSteps | None) -> Method:
        return self if inner is None else _MonitoredPetsc(self.ksp, self.pc, self.options, self.block_size, inner)

    def solve_system(
        self, A: Operator, M: Operator | None, b: np.ndarray, goal: float, limit: int, i: int, see: See | None
    ) -> tuple[np.ndarray, int, int]:
        if not isinstance(M, PetscInverse):
            raise TypeError(f"petsc needs its own set-up; got {M!r}.")
        result = M.solve_system(i, b, goal, limit, see)
        return result.x, result.iterations, result.iterations


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool | np.bool_) else str(value)


@dataclass(frozen=True)
class _MonitoredPetsc(Petsc):
    inner: InnerSteps | None = None

    def inner_steps(self) -> InnerSteps | None:
        return self.inner
