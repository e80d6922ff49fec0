"""The Method interface: settings, `init` and `step`. Loops, stopping, masks and printing are elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from ...backends import Array, Backend
from ...backends.public_names import PublicNames
from ...sparse import Operator


class Goal(NamedTuple):
    """Goal of one round; the residual at the start of a solve is scaled to a norm of about 1."""

    norm: Array  # (batch, 1), residual norm at which a system is done
    attempt: Array  # (batch, 1) integers, number of rounds that ended in a breakdown or stalled


class Method(PublicNames, ABC):
    """A method for `A d = r` from `d = 0`; frozen and hashable.

    `init` gives the first state, `step` the next one. A state is a NamedTuple of arrays, each with the batch as its
    first axis, and has at least: `x` (see `solution`), `r` the residual of the recurrence, `rr` its squared norm and
    `broken`, True for a system that cannot go on. The method owns the arrays of its state, and only these may be
    overwritten by `axpy` and `xpay`.

    The attributes below are facts; a method declares those that differ from the defaults. Requirements are checked
    before a solve; tests check exactly what the facts promise.

    Examples:
        >>> from krylix.solvers import CG, METHODS, Method
        >>> issubclass(CG, Method), METHODS["CG"] == CG()
        (True, True)
    """

    # --- what it needs and takes
    needs_hermitian: ClassVar[bool] = False
    """A is symmetric, or Hermitian where complex; so is the preconditioner."""
    needs_symmetric: ClassVar[bool] = False
    """A^T = A, without conjugation where complex; so is the preconditioner."""
    needs_definite: ClassVar[bool] = False
    """A is definite of either sign, or semi-definite with a solution; others may end in a breakdown."""
    needs_transpose: ClassVar[bool] = False
    """Products with the transpose of A (and of the preconditioner)."""
    needs_grid: ClassVar[bool] = False
    """A is a sum of matrices along the axes of a grid, and known."""
    needs_band: ClassVar[bool] = False
    """A has few diagonals, in some order of the unknowns, at places that are known."""
    least_squares: ClassVar[bool] = False
    """Takes rectangular matrices, and has a setting `damp`."""
    takes_preconditioner: ClassVar[bool] = True
    takes_complex: ClassVar[bool] = True
    combines_images: ClassVar[bool] = False
    """x is made of what M returned, and residuals of the products of that with A: M may then round as it likes."""

    # --- how it works
    applies_only: ClassVar[bool] = False
    """Takes nothing of A and M but their products: these may be another library's, and the vectors NumPy's."""
    takes_numbers: ClassVar[bool] = False
    """Does with scalars only what can be done with numbers: those of a system that is alone may be some (`Numbers`)."""
    on_host: ClassVar[bool] = False
    """Runs on NumPy arrays whatever the library."""
    can_pause: ClassVar[bool] = True
    """A solve stopped at a limit goes on as if it had not been stopped."""
    keeps_grids: ClassVar[bool] = False
    """Does with vectors only what rows can that a library keeps as grids (`Backend.on_grid`), and reads no entry."""
    couples_systems: ClassVar[bool] = False
    """A step of one system uses the others; A and M are then the same for all."""
    factorises: ClassVar[bool] = False
    """Solves with factors of A, so that one iteration is mostly enough."""
    applies_once: ClassVar[bool] = False
    """Its factors are applied once, without a loop; another method solves what that leaves over."""
    short_steps: ClassVar[bool] = False
    """A step with its factors is no longer than what surrounds it, in compiled functions too."""
    needs_known: ClassVar[bool] = False
    """Sets up with the values of A, so that these must be known when a function that it is used in is compiled."""
    names_provider: ClassVar[bool] = False
    """Its factors are of a library that it chooses: they are made before a solve, whose result tells of them."""
    keeps_setup: ClassVar[bool] = False
    """What `setup` makes of A serves all solves with it: factors, or what another library has set up."""
    holds_external: ClassVar[bool] = False
    """What `setup` makes are objects of another library, maybe of several processes, which no cache may keep."""
    takes_rows: ClassVar[bool] = False
    """Over a communicator it takes the rows of a matrix that belong to this member, see `Petsc.of_rows`."""
    lower_precision: ClassVar[bool] = False
    """Computes inside with fewer digits than the system has; a perfect preconditioner is then not quite perfect."""

    # --- what can be expected of it
    minimises_residual: ClassVar[bool] = False
    """Of a system without a solution it finds the x that leaves the least residual, with a singular M too."""
    may_break_down: ClassVar[bool] = False
    """Dot products that it divides by may vanish though A is regular, and a restart does not help."""
    amplifies_rounding: ClassVar[bool] = False
    """Its residuals may grow so large on their way that their rounding errors keep x from the tolerance."""
    steps_per_iteration: ClassVar[float] = 1
    """Dimensions by which an iteration may enlarge the Krylov space: as many unknowns may be found in one."""
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
        """Is a real A symmetric, by one of the two facts?"""
        return self.needs_hermitian or self.needs_symmetric

    @property
    def summary(self) -> str:
        """One-line summary."""
        return (type(self).__doc__ or "").strip().partition("\n")[0].rstrip(".").replace("`", "")

    def setup(self, bk: Backend, A: Operator, M: Operator | None) -> Operator | None:
        """The M that `init` and `step` get: the preconditioner, or a factorisation."""
        return M

    def set_up_again(self, bk: Backend, A: Operator, previous: Operator | None) -> Operator | None:
        """`setup` for another A; `previous` is what it made for one that may have the same pattern."""
        return self.setup(bk, A, None)

    def tell_null(self, M: Operator | None, null: Operator, both: bool) -> None:
        """Let what `setup` has made know null vectors of A: those that a projection removes.

        Args:
            both: has the adjoint of A them, too?
        """
        return None

    def check(self, A: Operator, M: Operator | None) -> None:
        """Raise ValueError for unsuitable systems, before anything is computed."""
        return None

    @abstractmethod
    def init(self, bk: Backend, A: Operator, M: Operator | None, r: Array, goal: Goal) -> Any:
        """The state before the first step. `r` is the method's own."""

    @abstractmethod
    def step(self, bk: Backend, A: Operator, M: Operator | None, state: Any) -> Any:
        """The state after one more iteration."""

    def solution(self, bk: Backend, M: Operator | None, state: Any) -> Array:
        """`d` of this state."""
        return state.x

    def is_settled(self, bk: Backend, state: Any, x: Array, scale: Array) -> Any:
        """Is x, after adding `scale` times `d`, accurate if its residual is at rounding level? None: of all systems."""
        return None

    def limited(self, bk: Backend, state: Any, left: Array) -> Any:
        """The state with the remaining iterations of each system, 0 if it has ended; called before each step.

        For methods whose step takes several iterations, or treats running systems separately.
        """
        return state

    def monitored(self, inner: Any) -> Method:
        """The method of a monitored solve (`InnerSteps`): one whose step takes several iterations tells each."""
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
    """Set facts that depend on the settings; call it from `__post_init__`."""
    for name, value in facts.items():
        object.__setattr__(method, name, value)  # the settings are frozen


def precision_for(method: Method) -> str | None:
    """Precision of an automatically chosen preconditioner, whose time is mostly memory traffic."""
    return "single" if method.combines_images else None


def apply(M: Operator | None, r: Array) -> Array:
    """`M r`, or `r` itself without a preconditioner; never write to the result."""
    return r if M is None else M.apply(r)
