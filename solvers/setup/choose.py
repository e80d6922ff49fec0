"""Automatic choice of a method, the first row of the table that holds, and its explanation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from ...sparse import FunctionOperator, Operator, SparseMatrix, UnsupportedOperation
from ..iteration.method import Method
from ..methods.direct.pivot_order import LEAST
from ..methods.direct.sparse_factors.ladder import providers_of
from ..methods.registry import METHODS, find_method
from .facts import FAST, Facts
from .problem import Problem
from .table import ROWS

T = TypeVar("T")


class MethodChoice(NamedTuple):
    """Chosen method, default preconditioner, and fallback.

    Attributes:
        method: what solves the system.
        preconditioner: its kind, to be made of `matrix`.
        fallback: what to try where that fails.
        factors: the factorisation, if it was made in order to choose the method.
        matrix: the entries of A, where they are known or were traced; else A.
        row: index of the table row that decided.
        facts: what was found out.
    """

    method: Method
    preconditioner: str | None
    fallback: Method | None
    factors: Operator | None
    matrix: Operator
    row: int
    facts: Facts

    def explain(self) -> Explanation:
        """Explain the choice."""
        return explain(self.facts, self.row, self.fallback)

    @property
    def source(self) -> Operator:
        """What a preconditioner is made of: A itself where traced entries would lie on each of several devices."""
        facts = self.facts
        return facts.A if facts.is_cut and facts.matrix is not None and not facts.is_known else self.matrix

    @property
    def why(self) -> str:
        """The reason, in words."""
        return why_auto(self.row)

    @property
    def is_last(self) -> bool:
        """Is it the last row of the table?"""
        return self.row == len(ROWS) - 1

    def next(self) -> MethodChoice:
        """Choice by the next row that holds, if this one cannot be used; not for the last row."""
        return _from_row(self.facts, self.row + 1)


def choose(
    problem: Problem, preconditioned: bool = False, many: bool = False, calls_host: bool = False
) -> MethodChoice:
    """Choose a method; one that takes a preconditioner if the user gives one.

    Args:
        problem: the system.
        preconditioned: did the user give a preconditioner?
        many: are many solves with A to come?
        calls_host: may a compiled function call the host in each run?
    """
    return _from_row(Facts(problem, preconditioned, many, calls_host), 0)


def first_that_can(choice: MethodChoice, make: Callable[[MethodChoice], T]) -> tuple[MethodChoice, T]:
    """The first usable choice, from this one on, and what `make` returns for it.

    Raises:
        UnsupportedOperation: no choice is usable; the error of the last one.
    """
    while True:
        try:
            return choice, make(choice)
        except UnsupportedOperation:
            if choice.is_last:
                raise
            choice = choice.next()


def _from_row(facts: Facts, first: int) -> MethodChoice:
    problem = facts.problem
    number = next(i for i in range(first, len(ROWS)) if ROWS[i].holds(facts))
    row = ROWS[number]
    method = _best_of(find_method(row.method), facts)
    can_fail = method.name not in ("direct", "scipy-direct")
    superlu = METHODS["scipy-direct"]
    behind = superlu if method.name == "sparse-direct" else _best_of(superlu, facts)
    fallback = behind if can_fail and facts.may_fall_back else None
    kind = None if facts.preconditioned else row.preconditioner
    factors = facts.fast if method == FAST else None
    matrix = problem.A if facts.matrix is None else facts.matrix
    return MethodChoice(method, kind, fallback, factors, matrix, number, facts)


def _best_of(method: Method, facts: Facts) -> Method:
    """The faster libraries of sparse factors in the place of SuperLU, where they are installed and A is not small."""
    better = method.name == "scipy-direct" and facts.unknowns >= LEAST and len(providers_of(None)) > 1
    return METHODS["sparse-direct"] if better and isinstance(facts.matrix, SparseMatrix) else method


@dataclass(frozen=True)
class Explanation:
    """Explanation of an automatic choice; hashable.

    Attributes:
        system: description of the system.
        passed: rows of the table that do not hold.
        row: the row that holds.
        method: its method and preconditioner.
        why: the reason for it.
        fallback: the method that is tried where this one fails.
    """

    system: str
    passed: tuple[str, ...]
    row: str
    method: str
    why: str
    fallback: str | None

    @property
    def reason(self) -> str:
        """As `MethodChoice.why`."""
        return f'"auto" chose it: {self.why}'

    def __str__(self) -> str:
        lines = [self.system, *(f"  no   {known}" for known in self.passed), f"  yes  {self.row}"]
        lines.append(f"-> {self.method}: {self.why}")
        if self.fallback is not None:
            lines.append(f"   if it fails: {self.fallback}")
        return "\n".join(lines)


def why_auto(row: int) -> str:
    """The reason of a row of the table, in words."""
    return f'"auto" chose it: {ROWS[row].why}'


def explain(facts: Facts, number: int, fallback: Method | None) -> Explanation:
    """Explain why row `number` of the table decides."""
    row = ROWS[number]
    taken = _best_of(find_method(row.method), facts).name
    method = taken if row.preconditioner is None or facts.preconditioned else f"{taken}, preconditioned"
    name = None if fallback is None else fallback.name
    return Explanation(_system(facts), tuple(r.known for r in ROWS[:number]), row.known, method, row.why, name)


def _system(facts: Facts) -> str:
    A, count = facts.A, facts.problem.layout.systems
    systems = "" if count == 1 else f", {count} systems at once"
    what = f"{A!r}{systems}"
    if facts.matrix is not None and facts.matrix is not A:
        what += f", traced to {facts.matrix!r}{_for_random_values(facts)}"
    elif facts.untraced is not None:
        what += f", which {facts.untraced}"
    return what


def _for_random_values(facts: Facts) -> str:
    """Describe the facts of a function whose coefficients are arguments of the program that is traced now."""
    if facts.is_known or not isinstance(facts.A, FunctionOperator):
        return ""
    symmetric = "Hermitian" if facts.A.dtype.kind == "c" else "symmetric"
    if facts.symmetric:
        found = symmetric + (", diagonal of one sign" if facts.maybe_definite else ", no sign of being definite")
    else:
        found = "complex symmetric" if facts.complex_symmetric else f"not seen to be {symmetric}"
    return f"; for random values of the arguments: {found}"
