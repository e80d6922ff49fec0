"""In a compiled solve each application of a preconditioner is computed once.

XLA may fuse M's last sweep into each of its uses, and compute all sweeps anew there: a solve then takes two to twenty
times as long, and nothing but the time tells. The operations of the compiled program do.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from cells import in_turn
from frameworks import lazy
from krylix import linear_solve, matrix_from_function, preconditioner
from krylix.solvers import PRECONDITIONERS

SETTINGS: dict[str, dict[str, Any]] = {"block-jacobi": {"block_size": 4}, "amg": {"max_coarse": 10}}
POINTS = 32  # along each axis of a square
APPLICATIONS = {"biCG-stab": 4, "CG": 2}  # in the text of the program: in a step, at the start, at the end
SLACK = 1.25

jax = lazy("jax")


def operations(function: Any, *arguments: Any) -> float:
    """Numbers added, multiplied and so on, in one run of all that the compiled program holds."""
    costs = jax.jit(function).lower(*arguments).compile().cost_analysis()
    return float(costs["flops"])


@cache
def system() -> tuple[Any, Any]:
    b = jax.numpy.asarray(np.random.default_rng(0).standard_normal((POINTS, POINTS)), "float32")
    weights = 1 + b**2

    def f(u: Any) -> Any:
        p = jax.numpy.pad(u, 1)
        return (4.2 + weights) * u - p[2:, 1:-1] - p[:-2, 1:-1] - p[1:-1, 2:] - p[1:-1, :-2]

    return matrix_from_function(f, b)[0], b.reshape(-1)


def solve_by(method: str) -> Any:
    def solve(A: Any, M: Any, b: Any) -> Any:
        return linear_solve(A, b, method=method, preconditioner=M, rtol=1e-5, on_failure="status").x

    return solve


@cache
def without(method: str) -> float:
    """The operations of a solve without a preconditioner."""
    A, b = system()
    return operations(solve_by(method), A, None, b)


@pytest.mark.merge
@pytest.mark.parametrize(("kind", "method"), in_turn(PRECONDITIONERS, APPLICATIONS))
def test_an_application_is_computed_once(kind: str, method: str) -> None:
    A, b = system()
    M = preconditioner(A, kind, **SETTINGS.get(kind, {}))
    bare, whole = without(method), operations(solve_by(method), A, M, b)
    once = operations(lambda M, b: M @ b, M, b)
    small = 10 * b.size  # Jacobi's few multiplications are fused, rightly
    assert whole - bare <= SLACK * APPLICATIONS[method] * once + small
