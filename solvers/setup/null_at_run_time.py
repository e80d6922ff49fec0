"""Null vectors by default (`nullspace="auto"`) where values are known only at run time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...sparse import Dense, Operator, SparseMatrix
from ...sparse.operators.concrete import is_known, without_derivatives
from ..iteration.method import Method
from ..null_space.at_run_time import constants_at_run_time
from .problem import Problem
from .request import Request


def with_constants(problem: Problem, method: Method, matrix: Operator, request: Request) -> Problem:
    """Add the projection of `constants_at_run_time` to the problem.

    Dense factors detect singularity by themselves.

    Args:
        method: what will solve.
        problem: for matrices that are known now, null vectors have been looked for.
        matrix: that of A, if it was found.
        request: what was asked for.
    """
    if problem.bk.is_eager and problem.bk.compiled():  # a transformation, in which no branch may look at values
        return problem
    automatic = isinstance(request.nullspace, str) and request.nullspace == "auto" and problem.null is None
    square = problem.given is None and problem.layout.structure is None and not problem.A.offset
    if not (automatic and square and isinstance(matrix, SparseMatrix | Dense)) or 0 in matrix.shape:
        return problem
    if is_known(matrix) or (method.factorises and isinstance(matrix, Dense)):
        return problem
    constant: Any = without_derivatives(matrix)
    return replace(problem, null=constants_at_run_time(constant), both=True)
