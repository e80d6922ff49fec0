"""How long an iteration that was chosen may take before factors solve the system instead: as long as these would."""

from __future__ import annotations

from typing import NamedTuple

from ..backends import Array
from ..sparse import Matrix, NonlinearError, Operator, SparseMatrix, UnsupportedOperation
from ..sparse.operators.concrete import as_matrix
from .cost import ANALYSIS, FactorCost, expected_cost, matrix_cost
from .methods.method import Method
from .preconditioners import Preconditioner
from .read.system import System
from .run.outcome import Status
from .run.stopping import Limits

LEAST = 50  # iterations that any preconditioner may take
_ENTRY = 8  # operations on dense blocks in the time of one entry in a product, which memory decides
_VECTORS = 4  # numbers per unknown that the other operations of an iteration take like entries
_CALLS = 1e5  # work that the calls of an iteration take, however small the system
_SET_UP = 2e7  # likewise of factors
_EXCHANGES = 2  # times the work, where rows may have to be exchanged
_SINGULAR = 20  # likewise, where null vectors are known, which are taken out of the factors
_WORTH = 1.25  # times the iterations there were, from which on it is worth going on
_LARGEST = 1 << 30


class Fallback(NamedTuple):
    """What solves a system where the method that was chosen does not.

    Attributes:
        method: makes factors.
        after: iterations in which the chosen method has to converge; None: until it fails.
        is_bound: have these been spent on what factors cost? Else on what counting that takes, which comes first.
    """

    method: Method
    after: int | None = None
    is_bound: bool = True

    @property
    def name(self) -> str:
        """Of the method."""
        return self.method.name

    def ends(self, status: Array, steps: Array, limits: Limits) -> Array:
        """bool `(batch, 1)`: which systems it has ended before their limits."""
        return (status == int(Status.MAX_ITER)) & (steps >= (self.after or 0)) & self.shortens(limits)

    def shortens(self, limits: Limits) -> bool:
        """Does it end an iteration before its limits do?"""
        return self.after is not None and len(limits) == 1 and any(limit > self.after for limit in limits.rows[-1])

    def shortened(self, limits: Limits) -> Limits:
        """The limits of the chosen method."""
        if self.after is None or not self.shortens(limits):
            return limits
        return Limits((tuple(min(limit, self.after) for limit in limits.rows[-1]),))


def with_iteration_budget(
    fallback: Method | None, system: System, method: Method, M: Operator | None, matrix: Operator, many: bool = False
) -> Fallback | None:
    """The fallback, with the iterations that the chosen method gets.

    Eagerly these are first as many as it takes to count what factors cost, which mostly nobody has to know then. In a
    compiled function, and for `many` solves, it is estimated at once.
    """
    if fallback is None:
        return None
    one = work_of_iteration(system, method, M, matrix)
    if one is None or method.factorises or not isinstance(matrix, SparseMatrix) or system.several or system.is_empty:
        return Fallback(fallback)
    if not (system.is_implicit or many):
        return Fallback(fallback, _rounded(max(ANALYSIS * matrix.nnz / one, LEAST)), is_bound=False)
    return Fallback(fallback, _rounded(iterations_for(expected_cost(matrix), system, method, one)))


def work_of_iteration(system: System, method: Method, M: Operator | None, matrix: Operator) -> float | None:
    """Of all systems, in the unit of `FactorCost.work`; None where it is not known."""
    if not isinstance(matrix, Matrix):
        return None
    of_M = 0 if M is None else M.work if isinstance(M, Preconditioner) else None
    if of_M is None:
        return None
    products, systems = max(method.products_per_step, 1), system.layout.systems
    times = systems if matrix.systems is None else 1  # M and the entries of several matrices are counted for all
    vectors = _VECTORS * systems * matrix.shape[0]
    return _CALLS + _ENTRY * products * (times * (matrix.nnz + of_M) + vectors)


def iterations_for(cost: FactorCost, system: System, method: Method, one: float) -> float:
    """Iterations that take as long as factors."""
    times = _SINGULAR if system.null is not None else 1 if method.needs_definite else _EXCHANGES
    solves = _ENTRY * cost.numbers * system.layout.systems
    return max((_SET_UP + times * cost.work + solves) / one, LEAST)


def remaining_budget(system: System, method: Method, M: Operator | None, after: int) -> int | None:
    """Further iterations, after so many, that take no longer than factors would; None: as many as the method may.

    The cost of the factors is counted here.
    """
    try:
        matrix = as_matrix(system.A.without_offset)
    except (UnsupportedOperation, NonlinearError):
        return None
    one = work_of_iteration(system, method, M, matrix)
    if one is None:
        return None
    most = iterations_for(matrix_cost(matrix), system, method, one)
    return int(min(most, _LARGEST)) - after if most > _WORTH * after else 0


def _rounded(iterations: float) -> int:
    """Up to 2^k or 3 * 2^k, so that similar matrices share their compiled programs."""
    power = 1 << max(int(min(iterations, _LARGEST)) - 1, 1).bit_length()
    return power * 3 // 4 if iterations <= power * 3 / 4 else power
