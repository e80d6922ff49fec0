"""The automatic choice of a method: a table of what is known about the system."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ...backends import Backend
from ...sparse import (
    DenseOperator,
    FunctionOperator,
    Matrix,
    NonlinearError,
    Operator,
    SparseMatrix,
    UnsupportedOperation,
)
from ...sparse.symmetry import products_agree, seems_hermitian
from ...sparse.tracing.engine.limits import entries_at_most
from ..iteration.method import Method
from ..methods.direct.fast import FastDirect
from ..methods.registry import METHODS
from .factors import factors_now
from .fill import factor_operations
from .problem import Problem

_FAST = FastDirect()
_SMALL = 1000  # unknowns up to which a dense factorisation is the quickest and safest way
_MOST_ENTRIES = 64  # per unknown, of a function that is traced in order to choose
_LEAST_GRID = 256  # unknowns of a grid from which looking for a fast solver pays
_MOST_OPERATIONS = 2e9  # of factors that are worth it for many solves, which takes about a second


class Choice(NamedTuple):
    """A method, the preconditioner for it where the user gave none, and what to try where it fails.

    `factors` are those of the method where they were made in order to choose it.
    """

    method: Method
    preconditioner: str | None
    fallback: Method | None
    factors: Operator | None = None


def choose(problem: Problem, preconditioned: bool = False, many: bool = False) -> Choice:
    """What suits the system; only methods that take a preconditioner where the user gives one.

    Args:
        many: are many solves with A to come?

    | known about A | method |
    |---|---|
    | dense, at most 1000 unknowns | direct |
    | known, on a grid, a sum of matrices along its axes; of functions in `prepare` and when compiled | fast-direct |
    | matrix in `prepare`, eager, whose factors cost less than a second | scipy-direct |
    | matrix, symmetric, diagonal of one sign | CG, multigrid, amg or jacobi; eagerly, scipy-direct if that fails |
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
    if n and not preconditioned:
        fast = _fast(problem, many)
        if fast is not None:
            return Choice(_FAST, None, fallback, fast)
        if many and fallback is not None and _cheap_factors(problem):
            return Choice(fallback, None, None)
    if _symmetric(inner, problem):
        if matrix and _one_sign(problem.bk, A):
            return Choice(METHODS["CG"], None if preconditioned else "auto", fallback)
        if not matrix:
            return Choice(METHODS["CG"], None, None)
    if fallback is not None and not preconditioned:
        return Choice(fallback, None, None)
    return Choice(METHODS["biCG-stab(2)"], None, fallback)


def _fast(problem: Problem, many: bool) -> Operator | None:
    """Factors of the fast solver on grids, if it is one for this matrix.

    A function is traced for it where that is done once: its values may be others in the next call.
    """
    A = problem.A
    if len(A.in_shape) < 2 or problem.layout.size < _LEAST_GRID or A.offset or problem.null_basis is not None:
        return None
    if not (many or problem.compiled or isinstance(A, SparseMatrix)):
        return None
    try:
        with entries_at_most(_MOST_ENTRIES * problem.layout.size):  # a transform is traced to a dense matrix
            return factors_now(problem, _FAST)
    except (UnsupportedOperation, NonlinearError):
        return None


def _cheap_factors(problem: Problem) -> bool:
    """Of a sparse matrix that is known, on the host."""
    A = problem.A.without_offset
    known = A.known() if isinstance(A, SparseMatrix) and A.systems is None else None
    return (
        known is not None
        and problem.bk.is_at_hand(problem.b)
        and factor_operations(sp.csr_array(known)) <= _MOST_OPERATIONS
    )


def _symmetric(A: Operator, problem: Problem) -> bool:
    if isinstance(A, FunctionOperator):
        return products_agree(A, problem.layout.systems, problem.like)
    return seems_hermitian(A)


def _one_sign(bk: Backend, A: Operator) -> bool:
    diagonal = bk.known_now(lambda: bk.real(A.diagonals()))
    return diagonal is not None and bool(np.all(diagonal > 0) or np.all(diagonal < 0))
