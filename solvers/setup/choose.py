"""The automatic choice of a method: a table of what is known about the system."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...backends import Backend
from ...sparse import DenseOperator, FunctionOperator, Matrix, Operator
from ...sparse.symmetry import products_agree, seems_hermitian
from ..iteration.method import Method
from ..methods.registry import METHODS
from .problem import Problem

_SMALL = 1000  # unknowns up to which a dense factorisation is the quickest and safest way


class Choice(NamedTuple):
    """A method, the preconditioner for it where the user gave none, and what to try where it fails."""

    method: Method
    preconditioner: str | None
    fallback: Method | None


def choose(problem: Problem, preconditioned: bool = False) -> Choice:
    """What suits the system; only methods that take a preconditioner where the user gives one.

    | known about A | method |
    |---|---|
    | dense, at most 1000 unknowns | direct |
    | matrix, symmetric, diagonal of one sign | CG with Jacobi; eagerly, scipy-direct if that fails |
    | matrix, not symmetric, eager | scipy-direct |
    | function, symmetric for random vectors | CG |
    | anything else | biCG-stab(2); eagerly for a matrix, scipy-direct if that fails |
    """
    A, n = problem.A, problem.layout.size
    inner = A.without_offset
    if isinstance(inner, DenseOperator) and n <= _SMALL and not preconditioned:
        return Choice(METHODS["direct"], None, None)
    matrix = isinstance(inner, Matrix)
    fallback = METHODS["scipy-direct"] if matrix and not problem.compiled else None
    if _symmetric(inner, problem):
        if matrix and _one_sign(problem.bk, A):
            return Choice(METHODS["CG"], None if preconditioned else "jacobi", fallback)
        if not matrix:
            return Choice(METHODS["CG"], None, None)
    if fallback is not None and not preconditioned:
        return Choice(fallback, None, None)
    return Choice(METHODS["biCG-stab(2)"], None, fallback)


def _symmetric(A: Operator, problem: Problem) -> bool:
    if isinstance(A, FunctionOperator):
        return products_agree(A, problem.layout.systems, problem.like)
    return seems_hermitian(A)


def _one_sign(bk: Backend, A: Operator) -> bool:
    diagonal = bk.known_now(lambda: bk.real(A.diagonals()))
    return diagonal is not None and bool(np.all(diagonal > 0) or np.all(diagonal < 0))
