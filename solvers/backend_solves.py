"""Solves as methods of a backend, `choose_backend(y).linear_solve(method, A, y)`, with the arguments of PhiML's."""

from __future__ import annotations

from typing import Any

from ..backends import Array, Backend
from ..backends.operations.binding import add_operation
from .linear_solve import linear_solve as solve
from .results.result import SolveResult


def linear_solve(
    bk: Backend,
    method: str,
    lin: Any,
    y: Any,
    x0: Array | None = None,
    rtol: Any = None,
    atol: Any = 0.0,
    max_iter: Any = None,
    pre: Any = None,
    matrix_offset: complex | None = None,
) -> SolveResult:
    """Solve A x = y for vectors y `(batch, n)` by a method; failures show in the result's status only.

    Args:
        lin: A, a matrix, a list of matrices, or a linear function of `(batch, n)`.
        y: `(batch, n)`, or a list of vectors.
        x0, rtol, atol, max_iter, matrix_offset: as of `krylix.linear_solve`; `max_iter` may be `(checkpoints, batch)`.
        pre: the preconditioner of `krylix.linear_solve`.
    """
    y = y if bk.is_array(y) else bk.asarray(y)
    return solve(
        lin, y, x0=x0, method=method, preconditioner=pre, rtol=rtol, atol=atol, max_iter=max_iter,
        batch_ndim=y.ndim - 1 if callable(lin) else 0, axis=-1, matrix_offset=matrix_offset, on_failure="status",
    )  # fmt: skip


def conjugate_gradient(bk: Backend, lin: Any, y: Any, *args: Any, **keywords: Any) -> SolveResult:
    """`linear_solve` by the method "CG"."""
    return linear_solve(bk, "CG", lin, y, *args, **keywords)


def conjugate_gradient_adaptive(bk: Backend, lin: Any, y: Any, *args: Any, **keywords: Any) -> SolveResult:
    """`linear_solve` by the method "CG-adaptive", for matrices that are only nearly symmetric."""
    return linear_solve(bk, "CG-adaptive", lin, y, *args, **keywords)


def bi_conjugate_gradient(
    bk: Backend, lin: Any, y: Any, *args: Any, poly_order: int = 2, **keywords: Any
) -> SolveResult:  # fmt: skip
    """`linear_solve` by the method "biCG-stab(l)" with l = `poly_order`, at least 1."""
    return linear_solve(bk, f"biCG-stab({poly_order})", lin, y, *args, **keywords)


for function in (linear_solve, conjugate_gradient, conjugate_gradient_adaptive, bi_conjugate_gradient):
    add_operation(function, "solves")
