"""Interface of methods: settings, `init` and `step`. Loops, stopping tests, masks and logs are elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from ...backends import Array, Backend
from ...backends.public_names import PublicNames
from ...sparse import Operator


class Goal(NamedTuple):
    """Goal of one round. The residual at the start of a solve is scaled to a norm of about 1."""

    norm: Array  # (batch, 1), residual norm at which a system has converged
    attempt: Array  # (batch, 1) integers, number of rounds that broke down or stagnated


class Method(PublicNames, ABC):
    """Method for `A d = r`, starting from `d = 0`; frozen and hashable.

    `init` returns the first state, `step` the next one. A state is a NamedTuple of arrays with the batch on the first
    axis. It has at least `x` (see `solution`), `r`, the residual of the recurrence, `rr`, its squared norm, and
    `broken`, True for a system that cannot continue. The method owns the arrays of its state, and only these may be
    overwritten by `axpy` and `xpay`.

    The attributes below are facts. A method declares those that differ from the defaults. Requirements are checked
    before a solve, and generated tests check every fact.

    Examples:
        >>> from krylix.solvers import CG, METHODS, Method
        >>> issubclass(CG, Method), METHODS["CG"] == CG()
        (True, True)
    """

    # --- requirements
    needs_hermitian: ClassVar[bool] = False
    """A is symmetric, or Hermitian if complex; so is the preconditioner."""
    needs_symmetric: ClassVar[bool] = False
    """A^T = A, without conjugation if complex; the same holds for the preconditioner."""
    needs_definite: ClassVar[bool] = False
    """A is definite with either sign, or semi-definite with a consistent b; others may break down."""
    needs_transpose: ClassVar[bool] = False
    """Needs products with the transpose of A (and of the preconditioner)."""
    needs_grid: ClassVar[bool] = False
    """A is a known Kronecker sum of matrices along the axes of a grid."""
    needs_band: ClassVar[bool] = False
    """A has few diagonals in some order of the unknowns, and their positions are known."""
    least_squares: ClassVar[bool] = False
    """Accepts rectangular matrices, and has a setting `damp`."""
    takes_preconditioner: ClassVar[bool] = True
    takes_complex: ClassVar[bool] = True
    combines_images: ClassVar[bool] = False
    """x is a combination of vectors that M returned, and r one of their products with A: M may have low precision."""

    # --- implementation
    applies_only: ClassVar[bool] = False
    """Uses only products with A and M, which may belong to another library while vectors are NumPy's."""
    takes_numbers: ClassVar[bool] = False
    """Scalars of a single system may be Python numbers (`Numbers`)."""
    on_host: ClassVar[bool] = False
    """Runs on NumPy arrays for any library."""
    can_pause: ClassVar[bool] = True
    """A solve that was stopped at a limit continues as if it had not been stopped."""
    keeps_grids: ClassVar[bool] = False
    """Reads no entries of vectors, which a library may then store as grids (`Backend.on_grid`)."""
    couples_systems: ClassVar[bool] = False
    """A step of one system uses the others, so A and M must be the same for all."""
    factorises: ClassVar[bool] = False
    """Solves with factors of A, so that one iteration is usually enough."""
    applies_once: ClassVar[bool] = False
    """The factors are applied once, without a loop; another method solves the systems that have not converged."""
    short_steps: ClassVar[bool] = False
    """A step takes no longer than the overhead around it, in compiled functions too."""
    needs_known: ClassVar[bool] = False
    """The set-up needs the values of A, which must be known when a function that contains the solve is compiled."""
    names_provider: ClassVar[bool] = False
    """It chooses a library for its factors before a solve, and the result names that library."""
    keeps_setup: ClassVar[bool] = False
    """The result of `setup` serves all solves with A: factors, or the set-up of another library."""
    holds_external: ClassVar[bool] = False
    """`setup` returns objects of another library, possibly of several processes, which must not be cached."""
    takes_rows: ClassVar[bool] = False
    """With a communicator it accepts the rows of a matrix that belong to this process, see `Petsc.of_rows`."""
    lower_precision: ClassVar[bool] = False
    """Computes with fewer digits than the system has, which limits even an exact preconditioner."""

    # --- properties
    minimises_residual: ClassVar[bool] = False
    """Minimises the residual of inconsistent systems, also with a singular M."""
    may_break_down: ClassVar[bool] = False
    """Divides by dot products that may vanish for regular A, also after a restart."""
    amplifies_rounding: ClassVar[bool] = False
    """Intermediate residuals may be so large that their rounding errors prevent convergence."""
    steps_per_iteration: ClassVar[float] = 1
    """Dimensions by which an iteration may enlarge the Krylov space."""
    products_per_step: ClassVar[int] = 1
    """Products with A in each iteration."""
    products_at_start: ClassVar[int] = 0
    """Products with A at the start of each round."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name for `linear_solve(method=...)`."""

    @property
    def needs_symmetry(self) -> bool:
        """Whether a real A must be symmetric."""
        return self.needs_hermitian or self.needs_symmetric

    @property
    def summary(self) -> str:
        """One-line summary."""
        return (type(self).__doc__ or "").strip().partition("\n")[0].rstrip(".").replace("`", "")

    def setup(self, bk: Backend, A: Operator, M: Operator | None) -> Operator | None:
        """Return the M for `init` and `step`: the preconditioner, or factors."""
        return M

    def set_up_again(self, bk: Backend, A: Operator, previous: Operator | None) -> Operator | None:
        """`setup` for another A; `previous` is its result for one that may have the same pattern."""
        return self.setup(bk, A, None)

    def tell_null(self, M: Operator | None, null: Operator, both: bool) -> None:
        """Pass null vectors of A, which the projection `null` removes, to the result of `setup`.

        Args:
            both: whether they are also null vectors of the adjoint.
        """
        return None

    def check(self, A: Operator, M: Operator | None) -> None:
        """Raise ValueError for unsuitable systems, before anything is computed."""
        return None

    @abstractmethod
    def init(self, bk: Backend, A: Operator, M: Operator | None, r: Array, goal: Goal) -> Any:
        """Return the state before the first step. The method may overwrite `r`."""

    @abstractmethod
    def step(self, bk: Backend, A: Operator, M: Operator | None, state: Any) -> Any:
        """Return the state after one more iteration."""

    def solution(self, bk: Backend, M: Operator | None, state: Any) -> Array:
        """`d` of this state."""
        return state.x

    def is_settled(self, bk: Backend, state: Any, x: Array, scale: Array) -> Any:
        """Whether x, to which `scale` times `d` was added, can be trusted if its residual is small; None if always."""
        return None

    def limited(self, bk: Backend, state: Any, left: Array) -> Any:
        """Return the state with the remaining iterations of each system, 0 if it has ended; called before each step.

        For methods with several iterations in a step, or with separate systems.
        """
        return state

    def monitored(self, inner: Any) -> Method:
        """The method of a monitored solve. One with several iterations in a step reports each to `inner`."""
        return self

    def steps_taken(self, state: Any) -> Any:
        """Number of iterations of the last step."""
        return 1

    def products_to_start(self, A: Operator) -> int:
        """Products with A at the start of each round."""
        return self.products_at_start

    def products_made(self, state: Any) -> Any:
        """Products with A in the last step."""
        return self.products_per_step


def declare(method: Method, facts: Mapping[str, Any]) -> None:
    """Set facts that depend on the settings, from `__post_init__`."""
    for name, value in facts.items():
        object.__setattr__(method, name, value)  # the settings are frozen


def precision_for(method: Method) -> str | None:
    """Precision of an automatically chosen preconditioner, whose time is mostly memory traffic."""
    return "single" if method.combines_images else None


def apply(M: Operator | None, r: Array) -> Array:
    """`M r`, or `r` itself without a preconditioner. The result must not be overwritten."""
    return r if M is None else M.apply(r)
