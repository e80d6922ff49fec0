"""Solvers for functions of JAX arrays, compiled for a fixed number of iterations: krylix, jax.scipy, lineax, PhiML."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.sparse.linalg as jsl
import numpy as np

from krylix import linear_solve

from .problems import poisson_function

Function = Callable[[Any], Any]
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

    return _compiled(lambda b, k: _lineax(laplace, b, lx.CG(rtol=0.0, atol=0.0, max_steps=k), {}))


def _lineax(function: Function, b: Any, method: Any, options: dict[str, Any]) -> Any:
    import lineax as lx

    operator = lx.FunctionLinearOperator(function, jax.ShapeDtypeStruct(b.shape, b.dtype), lx.positive_semidefinite_tag)
    return lx.linear_solve(operator, b, method, options=options, throw=False).value


def phiml_cg() -> Solver:
    program = cache(lambda k: _phiml(laplace, "CG", rel_tol=0.0, abs_tol=0.0, max_iterations=k))
    return lambda b, k: program(k)(b).block_until_ready()


def _phiml(operator: Function, method: str, **stop: Any) -> Function:
    from phiml import math
    from phiml.backend.jax import JAX

    axes, ignored = math.spatial("x,y"), [math.NotConverged, math.Diverged]

    def function(x: Any) -> Any:
        return math.wrap(operator(x.native("x,y")), axes)

    @math.jit_compile
    def program(b: Any) -> Any:
        return math.solve_linear(function, b, math.Solve(method, x0=math.zeros_like(b), suppress=ignored, **stop))

    def solve(b: Any) -> Any:
        with JAX, math.precision(b.dtype.itemsize * 8):
            return program(math.wrap(b, axes)).native("x,y")

    return solve


# To a tolerance


def jax_scipy_to(function: Function, preconditioner: Function | None, rtol: float) -> Function:
    return jax.jit(lambda b: jsl.cg(function, b, M=preconditioner, tol=rtol)[0])


def lineax_to(function: Function, preconditioner: Function | None, rtol: float) -> Function:
    """Tolerances that make lineax stop at a relative residual of `rtol` in the 2-norm.

    lineax asks the same of the last change of x, so it may take some iterations more.
    """
    import lineax as lx

    def solve(b: Any) -> Any:
        options = {}
        if preconditioner is not None:
            shape = jax.ShapeDtypeStruct(b.shape, b.dtype)
            options["preconditioner"] = lx.FunctionLinearOperator(preconditioner, shape, lx.positive_semidefinite_tag)
        return _lineax(function, b, _lineax_cg_to(b, rtol), options)

    return jax.jit(solve)


def _lineax_cg_to(b: Any, rtol: float) -> Any:
    import lineax as lx

    def size(v: Any) -> Any:
        return jnp.sqrt(jnp.sum(v * v))

    return lx.CG(rtol=0.0, atol=rtol * size(b), norm=size)


# To a tolerance, inside of a function that is differentiated: (function, right-hand side) -> x


def jax_scipy_in(rtol: float) -> Callable[[Function, Any], Any]:
    return lambda function, b: jsl.cg(function, b, tol=rtol)[0]


def lineax_in(rtol: float) -> Callable[[Function, Any], Any]:
    return lambda function, b: _lineax(function, b, _lineax_cg_to(jax.lax.stop_gradient(b), rtol), {})


def phiml_to(rtol: float) -> Function:
    return _phiml(laplace, "CG", rel_tol=rtol, abs_tol=0.0, max_iterations=10_000)


def phiml_by_default(operator: Function, rtol: float) -> Function:
    """With the method that it takes by itself."""
    return _phiml(operator, "auto", rel_tol=rtol, abs_tol=0.0, max_iterations=100_000)


def solvax_multigrid(operator: Callable[[Any, Any], Any], diagonal: Function, k: Any, b: Any, rtol: float) -> Any:
    """CG with a cycle of geometric multigrid, as SOLVAX has its user write it: coarser grids get averages of k.

    Args:
        operator: of u and k, homogeneous Dirichlet, on `(n, n)` points with n = 2^p - 1, without the factor 1 / h².
        diagonal: of the operator, of k.
    """
    import solvax as sx

    n = len(b)
    coefficients = {b.shape: k}
    while len(k) > 7:
        for _ in range(2):  # full weighting of each axis in turn
            p = jnp.pad(k, ((1, 1), (0, 0)), mode="edge")
            k = ((p[:-2] + 2 * p[1:-1] + p[2:]) / 4)[1::2].T
        coefficients[k.shape] = k

    def level(shape: tuple[int, ...]) -> tuple[Function, Any]:
        k, scale = coefficients[shape], ((shape[0] + 1) / (n + 1)) ** 2
        return lambda u: scale * operator(u, k), sx.jacobi_smoother(scale * diagonal(k))

    grids = sx.semicoarsening_hierarchy(
        b.shape, (True, True), level, levels=len(coefficients), boundary="dirichlet", dtype=b.dtype
    )
    coarsest = sx.dense_coarse_solve(level(grids.shapes[-1])[0], grids.shapes[-1])
    cycle = sx.multigrid(grids.levels, coarsest, cycle="v")
    return sx.pcg_linear_solve(lambda u: operator(u, coefficients[b.shape]), b, precond=cycle, rtol=rtol)


def sparse_product(A: Any) -> Function:
    """A SciPy matrix with nearly equal rows as a function of JAX arrays: every row padded to the longest."""
    counts = np.diff(A.indptr)
    slot = np.arange(A.nnz) - np.repeat(A.indptr[:-1], counts)
    rows = np.repeat(np.arange(A.shape[0]), counts)
    columns, values = np.zeros((2, counts.max(), A.shape[0]))
    columns[slot, rows], values[slot, rows] = A.indices, A.data
    index, entries = jnp.asarray(columns.astype(np.int32)), jnp.asarray(values)
    return lambda x: jnp.sum(entries * x[index], axis=0)
