"""What a method is: settings, a first state and a step. Loops, stopping, masks and printing are elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

from ...backends import Array, Backend
from ...sparse import Operator


class Goal(NamedTuple):
    """What one round of iterations is after; the residual at its start is scaled to entries of about 1."""

    norm: Array  # (batch, 1), residual norm at which a system is done
    attempt: Array  # (batch, 1) integers, how often a round ended in a breakdown or without progress


class Method(ABC):
    """A way to solve `A d = r` from `d = 0`; frozen and hashable.

    `init` gives the first state, `step` the next one. A state is a NamedTuple of arrays, each with the batch as its
    first axis, and has at least: `x` (see `solution`), `r` the residual of the recurrence, `rr` its squared norm and
    `broken`, True for a system that cannot go on. The method owns the arrays of its state, and only these may be
    overwritten by `axpy` and `xpay`.
    """

    needs_hermitian: ClassVar[bool] = False  # symmetric, or Hermitian where complex
    least_squares: ClassVar[bool] = False  # takes rectangular matrices, and has a setting `damp`
    needs_transpose: ClassVar[bool] = False  # products with the transpose of A (and of the preconditioner)
    on_host: ClassVar[bool] = False  # runs on NumPy arrays whatever the library
    takes_preconditioner: ClassVar[bool] = True
    takes_complex: ClassVar[bool] = True
    can_pause: ClassVar[bool] = True  # does a solve stopped at a limit go on as if it had not been stopped?
    couples_systems: ClassVar[bool] = (
        False  # does a step of one system use the others? Then A and M are the same for all
    )
    products_per_step: ClassVar[int] = 1
    products_at_start: ClassVar[int] = 0  # of each round

    @property
    @abstractmethod
    def name(self) -> str:
        """The name by which `linear_solve(method=...)` finds it."""

    @property
    def summary(self) -> str:
        """What it is, in one line."""
        return (type(self).__doc__ or "").strip().partition("\n")[0].rstrip(".").replace("`", "")

    def setup(self, bk: Backend, A: Operator, M: Operator | None) -> Operator | None:
        """What `init` and `step` get as M: the preconditioner, or a factorisation."""
        return M

    def check(self, A: Operator, M: Operator | None) -> None:
        """Refuse, with a ValueError, what the method is not made for; before anything is computed."""
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

    def limited(self, bk: Backend, state: Any, left: Array) -> Any:
        """The state, told how many iterations each system may still take; for methods whose step takes many."""
        return state

    def steps_taken(self, state: Any) -> Any:
        """Iterations that the last step stands for."""
        return 1

    def products_to_start(self, A: Operator) -> int:
        """Products with A at the start of each round."""
        return self.products_at_start

    def products_made(self, state: Any) -> Any:
        """Products with A in the last step."""
        return self.products_per_step


def apply(M: Operator | None, r: Array) -> Array:
    """`M r`, or `r` itself without a preconditioner; never write to the result."""
    return r if M is None else M.apply(r)
