"""The automatic choice of a method: the first row of the table that holds."""

from __future__ import annotations

from typing import NamedTuple

from ...sparse import Operator
from ..iteration.method import Method
from ..methods.registry import METHODS, find_method
from .explanation import Explanation, explain
from .facts import FAST, Facts
from .problem import Problem
from .table import ROWS


class Choice(NamedTuple):
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


def choose(problem: Problem, preconditioned: bool = False, many: bool = False, calls_host: bool = False) -> Choice:
    """What suits the system; only methods that take a preconditioner where the user gives one.

    Args:
        problem: the system.
        preconditioned: did the user give a preconditioner?
        many: are many solves with A to come?
        calls_host: may a compiled function call the host in each run?
    """
    facts = Facts(problem, preconditioned, many, calls_host)
    number = next(i for i, row in enumerate(ROWS) if row.holds(facts))
    row = ROWS[number]
    method = find_method(row.method)
    fallback = METHODS["scipy-direct"] if method.name not in ("direct", "scipy-direct") and facts.factors_fit else None
    kind = None if preconditioned else row.preconditioner
    factors = facts.fast if method == FAST else None
    matrix = problem.A if facts.matrix is None else facts.matrix
    return Choice(method, kind, fallback, factors, matrix, number, facts)
