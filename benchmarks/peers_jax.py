"""Solvers for functions of JAX arrays, compiled for a fixed number of iterations: krylix, jax.scipy, lineax, PhiML."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.sparse.linalg as jsl

from krylix import linear_solve

from .problems import poisson_function

Solver = Callable[[Any, int], Any]  # right-hand side, iterations -> x, complete

laplace = poisson_function(lambda x: jnp.pad(x, 1))


def _compiled(solve: Callable[[Any, int], Any]) -> Solver:
    """`solve` as one compiled program for each number of iterations, waited for."""
    programs = cache(lambda k: jax.jit(lambda b: solve(b, k)))
    return lambda b, k: programs(k)(b).block_until_ready()


def ours(method: str) -> Solver:
    return _compiled(lambda b, k: linear_solve(laplace, b, method=method, rtol=0.0, max_iter=k, on_failure="status").x)


def jax_scipy(method: str) -> Solver:
    solve = {"CG": jsl.cg, "biCG-stab": jsl.bicgstab}[method]
    return _compiled(lambda b, k: solve(laplace, b, tol=0.0, maxiter=k)[0])


def lineax_cg() -> Solver:
    import lineax as lx

    def solve(b: Any, k: int) -> Any:
        operator = lx.FunctionLinearOperator(laplace, jax.ShapeDtypeStruct(b.shape, b.dtype), lx.positive_semidefinite_tag)
        method = lx.CG(rtol=0.0, atol=0.0, max_steps=k)
        return lx.linear_solve(operator, b, method, throw=False).value

    return _compiled(solve)


def phiml_cg() -> Solver:
    from phiml import math
    from phiml.backend.jax import JAX

    axes = math.spatial("x,y")

    def function(x: Any) -> Any:
        return math.wrap(laplace(x.native("x,y")), axes)

    @cache
    def program(k: int) -> Callable[[Any], Any]:
        stop = {"rel_tol": 0.0, "abs_tol": 0.0, "max_iterations": k, "suppress": [math.NotConverged, math.Diverged]}
        return math.jit_compile(lambda b: math.solve_linear(function, b, math.Solve("CG", x0=math.zeros_like(b), **stop)))

    def solve(b: Any, k: int) -> Any:
        with JAX, math.precision(b.dtype.itemsize * 8):
            return program(k)(math.wrap(b, axes)).native("x,y").block_until_ready()

    return solve
