"""The custom operator `krylix::solve`: one node in graphs of `torch.compile` and `torch.export`.

    x, converged = solve(values, indices, b, x0, method, preconditioner, rtol, atol, max_iter, on_failure, nullspace,
                         backward)

`values` are a dense matrix `(*batch, n, n)`, with `indices` None, or entries `(*batch, nnz)` at `indices` `(2, nnz)`.
The derivative is the operator again, with the conjugate transpose, so reverse mode has derivatives of any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import ConvergenceError, get_on_failure, linear_solve
from ..solvers.linear_solve import solve_for_derivative
from ..sparse import COO

_SCHEMA = (
    "(Tensor values, Tensor? indices, Tensor b, Tensor? x0, str method, str? preconditioner, float? rtol, float atol, "
    "int? max_iter, str? on_failure, bool nullspace, bool backward) -> (Tensor, Tensor)"
)


def batch_axes(values: torch.Tensor, indices: torch.Tensor | None, b: torch.Tensor) -> torch.Size:
    """The batch axes of x.

    Raises:
        ValueError: shapes do not fit.
    """
    n = b.shape[-1] if b.ndim else 0
    axes = values.shape[:-2] if indices is None else values.shape[:-1]
    fits = values.shape[-2:] == (n, n) if indices is None else indices.shape == (2, values.shape[-1])
    if not b.ndim or not fits:
        expected = "(..., n, n)" if indices is None else "(..., nnz), its indices (2, nnz)"
        raise ValueError(
            f"A has the shape {tuple(values.shape)} and b {tuple(b.shape)}; expected A {expected}, and b (..., n)."
        )
    short, long = sorted((axes, b.shape[:-1]), key=len)
    if len(short) and long[-len(short) :] != short:
        raise ValueError(
            f"A is a batch {tuple(axes)} of matrices and b a batch {tuple(b.shape[:-1])} of vectors; expected the same "
            "batch axes."
        )
    return long


@torch.library.custom_op("krylix::solve", mutates_args=(), schema=_SCHEMA)
def solve_op(
    values: Any, indices: Any, b: Any, x0: Any, method: Any, preconditioner: Any, rtol: Any, atol: Any, max_iter: Any,
    on_failure: Any, nullspace: Any, backward: Any,
) -> Any:  # fmt: skip
    """Solve; tensors have values here, in every mode."""
    lead = batch_axes(values, indices, b)
    policy = get_on_failure() if on_failure is None else on_failure
    A, rhs = values.detach(), b.detach().expand(*lead, b.shape[-1])
    if indices is not None:
        count = A.ndim - 1
        rhs = rhs.reshape(*lead[: len(lead) - count], *([-1] if count else []), b.shape[-1])
        A = COO(A.reshape(-1, A.shape[-1]) if count else A, indices[0], indices[1], (b.shape[-1],) * 2)
    try:
        result = (solve_for_derivative if backward else linear_solve)(
            A, rhs, x0=None if x0 is None else x0.detach().expand(*lead, b.shape[-1]).reshape(rhs.shape), axis=-1,
            method=method, preconditioner=preconditioner, rtol=rtol, atol=atol, max_iter=max_iter,
            nullspace="auto" if nullspace else None,
            on_failure="nan" if policy == "status" else policy,  # the status is not returned, so x shows the failure
        )  # fmt: skip
    except ConvergenceError as error:
        if backward:
            error.add_note("This was the backward solve of krylix.torch.solve, with the conjugate transpose of A.")
        raise
    x = torch.empty(*lead, b.shape[-1], dtype=b.dtype, device=b.device).copy_(result.x.reshape(*lead, b.shape[-1]))
    return x, torch.as_tensor(result.converged, device=b.device).reshape(lead).clone()


@solve_op.register_fake
def _fake(values: Any, indices: Any, b: Any, *_: Any) -> Any:
    lead = batch_axes(values, indices, b)
    return b.new_empty((*lead, b.shape[-1])), b.new_empty(lead, dtype=torch.bool)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    values, indices, b, _, *ctx.settings = inputs
    ctx.save_for_backward(values, indices, *output)
    ctx.shape_of_b = b.shape


def _backward(ctx: Any, cotangent: torch.Tensor, _: Any) -> tuple[Any, ...]:
    """y with A^H y = cotangent for b, and - y x^H for the entries of A."""
    values, indices, x, converged = ctx.saved_tensors
    method, preconditioner, rtol, _, max_iter, on_failure, nullspace, _ = ctx.settings
    adjoint = torch.conj_physical(values if indices is not None else values.mT)
    swapped = None if indices is None else indices.flip(0)
    y, _ = solve_op(
        adjoint, swapped, cotangent, None, method, preconditioner, rtol, 0.0, max_iter, on_failure, nullspace, True
    )  # fmt: skip
    y = torch.where(converged[..., None], y, torch.nan)  # without x there is no derivative
    by_values = None
    if ctx.needs_input_grad[0]:
        x = torch.conj_physical(x)
        outer = y[..., :, None] * x[..., None, :] if indices is None else y[..., indices[0]] * x[..., indices[1]]
        by_values = -outer.sum_to_size(values.shape)
    return by_values, None, y.sum_to_size(ctx.shape_of_b), *(None for _ in range(9))


solve_op.register_autograd(_backward, setup_context=_setup_context)


def _vmap(info: Any, in_dims: Sequence[Any], values: Any, indices: Any, b: Any, x0: Any, *settings: Any) -> Any:
    """Put the mapped axis in front of the vectors, or between the batch and the matrix where the matrix is mapped."""
    if in_dims[1] is not None:
        raise ValueError("The indices of a sparse matrix cannot be mapped over; expected one pattern, mapped values.")
    first = [a if axis is None else a.movedim(axis, 0)[0] for a, axis in zip((values, b), in_dims[::2], strict=False)]
    lead = batch_axes(first[0], indices, first[1])
    place = 0 if in_dims[0] is None else len(lead)
    if in_dims[0] is not None:
        values = values.movedim(in_dims[0], (-3 if indices is None else -2))

    def spread(a: Any, axis: int | None) -> Any:
        a = a.expand(info.batch_size, *a.shape) if axis is None else a.movedim(axis, 0)
        a = a.reshape(info.batch_size, *(1,) * (len(lead) + 2 - a.ndim), *a.shape[1:])
        return a.expand(info.batch_size, *lead, a.shape[-1]).movedim(0, place)

    x0 = None if x0 is None else spread(x0, in_dims[3])
    return solve_op(values, indices, spread(b, in_dims[2]), x0, *settings), (place, place)


if hasattr(solve_op, "register_vmap"):  # of PyTorch 2.5
    solve_op.register_vmap(_vmap)
