"""The automatic choice of a method: the first row of the table that holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from ...sparse import Operator, UnsupportedOperation
from ..iteration.method import Method
from ..methods.registry import METHODS, find_method
from .explanation import Explanation, explain
from .facts import FAST, Facts
from .problem import Problem
from .table import ROWS

T = TypeVar("T")


class MethodChoice(NamedTuple):
    """A method, the preconditioner for it where the user gave none, and what to try where it fails.

    Attributes:
        method: what solves the system.
        preconditioner: its kind, to be made of `matrix`.
        fallback: what to try where that fails.
        factors: those of the method, where they were made in order to choose it.
        matrix: the entries of A, where they are known or were traced; else A.
        row: the line of the table that decided, counted from 0.
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
        """In words."""
        return explain(self.facts, self.row, self.fallback)

    @property
    def is_last(self) -> bool:
        """Has the table no other row?"""
        return self.row == len(ROWS) - 1

    def next(self) -> MethodChoice:
        """The one after it, for systems that it turns out not to solve. It is not the last."""
        return _from_row(self.facts, self.row + 1)


def choose(
    problem: Problem, preconditioned: bool = False, many: bool = False, calls_host: bool = False
) -> MethodChoice:
    """What suits the system; only methods that take a preconditioner where the user gives one.

    Args:
        problem: the system.
        preconditioned: did the user give a preconditioner?
        many: are many solves with A to come?
        calls_host: may a compiled function call the host in each run?
    """
    return _from_row(Facts(problem, preconditioned, many, calls_host), 0)


def first_that_can(choice: MethodChoice, make: Callable[[MethodChoice], T]) -> tuple[MethodChoice, T]:
    """The first choice, from this one on, of which `make` makes something, and that.

    Raises:
        UnsupportedOperation: it can be made of none; what is raised for the last.
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
    method = find_method(row.method)
    fallback = METHODS["scipy-direct"] if method.name not in ("direct", "scipy-direct") and facts.factors_fit else None
    kind = None if facts.preconditioned else row.preconditioner
    factors = facts.fast if method == FAST else None
    matrix = problem.A if facts.matrix is None else facts.matrix
    return MethodChoice(method, kind, fallback, factors, matrix, number, facts)
