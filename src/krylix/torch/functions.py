"""`krylix.torch.solve` and `solve_sparse`: solves that `torch.compile(fullgraph=True)` and `torch.export` can hold."""

from __future__ import annotations

import math
from typing import Any

import torch

from .. import linear_solve
from ..sparse import COO
from .custom_op import solve_op


def solve(
    A: Any, b: torch.Tensor, *, x0: torch.Tensor | None = None, axis: int | None = None, **settings: Any
) -> torch.Tensor:
    """Solve `A x = b` for x, also inside `torch.compile(fullgraph=True)` and `torch.export`.

    Called eagerly it is `krylix.linear_solve(A, b, ...).x`. In a graph, a dense A becomes one node, `krylix::solve`.
    PyTorch's compiler has no sparse tensors: `solve_sparse` takes their parts, as `krylix.torch.Solve` does by itself.
    For a function A the graph is split, which `fullgraph=True` refuses.

    Args:
        A: matrix `(*batch, n, n)`, repeated along batch axes of b that it lacks; eagerly any A of `linear_solve`.
        b: right-hand sides `(..., n)`.
        x0: initial guess, shaped as x; zero if None. It has no derivative.
        axis: the axis of b that the vector lies on, as for `linear_solve`; give it where the number of systems is
            dynamic, because it might be n.
        **settings: as for `linear_solve`. In a graph: method, preconditioner (names), rtol, atol, max_iter (numbers),
            nullspace ("auto" or None) and on_failure, "status" excepted.

    Returns:
        x, in the shape of b, with its precision, complex if A is.

    Raises:
        NotConverged, Diverged: the tolerance was not reached, also in compiled code when it runs, and in its backward
            pass. With `on_failure="nan"`, or where `krylix.on_failure("status")` holds, x is NaN there.
        ValueError, TypeError: shapes that do not fit; a setting that a graph cannot hold.

    Derivatives are with respect to b and A. In a graph: reverse mode by autograd, of any order that PyTorch's compiler
    has; `torch.func.vmap` works inside, `torch.func.grad` does not, because PyTorch has none for custom operators.
    Eagerly: as for `linear_solve`.

    Cost: that of `linear_solve`; in a graph each solve sets the matrix up, and the backward pass its transpose.

    Examples:
        >>> import torch, krylix.torch
        >>> in_one_graph = torch.compile(krylix.torch.solve, fullgraph=True, backend="eager")
        >>> in_one_graph(4 * torch.eye(3), torch.ones(3))
        tensor([0.2500, 0.2500, 0.2500])
    """
    if not torch.compiler.is_compiling() or not isinstance(A, torch.Tensor):
        x: torch.Tensor = linear_solve(A, b, x0=x0, axis=axis, **settings).x
        return x
    if axis is None and A.ndim == 2 and b.shape == A.shape:  # in this order: a dynamic number of systems needs no guard
        raise ValueError(
            f"b of shape {tuple(b.shape)} can be rows or columns; say axis=-1 for a system in each row, axis=0 for one "
            "in each column."
        )
    return _along(axis, b, x0, lambda b, x0: _in_graph(A, None, b, x0, **settings))


def solve_sparse(
    indices: torch.Tensor, values: torch.Tensor, b: torch.Tensor, *, x0: torch.Tensor | None = None,
    axis: int | None = None, **settings: Any,
) -> torch.Tensor:  # fmt: skip
    """`solve` for the square sparse matrix `torch.sparse_coo_tensor(indices, values)`, given by its parts.

    Args:
        indices: rows and columns `(2, nnz)`, integers, in any order; duplicates add up.
        values: entries `(nnz,)`, or `(*batch, nnz)` for a batch of matrices on one pattern.
        b: right-hand sides `(..., n)`.
        x0: initial guess, shaped as x; zero if None. It has no derivative.
        axis: the axis of b that the vector lies on, the last one if None.
        **settings: as for `solve`.

    Returns:
        x, in the shape of b, with derivatives with respect to b and values, as for `solve`.

    Raises:
        NotConverged, Diverged, ValueError, TypeError: as `solve`.

    Cost: as `solve`; each call sorts the entries.

    Examples:
        >>> import torch, krylix.torch
        >>> indices = torch.tensor([[0, 1, 1], [0, 0, 1]])
        >>> krylix.torch.solve_sparse(indices, torch.tensor([2.0, 1.0, 4.0]), torch.tensor([2.0, 5.0]))
        tensor([1., 1.])
    """
    n = b.shape[-1 if axis is None else axis]
    if torch.compiler.is_compiling() or values.ndim > 2:
        return _along(axis, b, x0, lambda b, x0: _in_graph(values, indices, b, x0, **settings))
    A = COO(values, indices[0], indices[1], (n, n))
    x: torch.Tensor = linear_solve(A, b, x0=x0, axis=-1 if axis is None else axis, **settings).x
    return x


def _along(axis: int | None, b: torch.Tensor, x0: torch.Tensor | None, solution: Any) -> torch.Tensor:
    if axis is None:
        x: torch.Tensor = solution(b, x0)
        return x
    x = solution(b.movedim(axis, -1), None if x0 is None else x0.movedim(axis, -1))
    return x.movedim(-1, axis)


def _in_graph(
    values: torch.Tensor, indices: torch.Tensor | None, b: torch.Tensor, x0: torch.Tensor | None, method: Any = "auto",
    preconditioner: Any = None, rtol: Any = None, atol: Any = 0.0, max_iter: Any = None, nullspace: Any = "auto",
    on_failure: Any = None, **others: Any,
) -> torch.Tensor:  # fmt: skip
    if others or not isinstance(method, str) or not isinstance(preconditioner, str | None):
        raise TypeError(
            f"A compiled graph holds the names of a method and a preconditioner, rtol, atol, max_iter, nullspace and "
            f"on_failure; got {others or (method, preconditioner)}. Use krylix.linear_solve, between two graphs."
        )
    if (
        not isinstance(rtol, float | int | None)
        or not isinstance(atol, float | int)
        or not isinstance(max_iter, int | None)
    ):
        raise TypeError(f"A compiled graph holds rtol, atol and max_iter as numbers; got {(rtol, atol, max_iter)}.")
    if nullspace not in ("auto", None) or on_failure == "status":
        raise ValueError(
            f"A compiled graph holds nullspace 'auto' or None, and on_failure 'raise', 'warn' or 'nan'; got "
            f"{nullspace!r} and {on_failure!r}. Use krylix.linear_solve, between two graphs."
        )
    dtype = (
        b.dtype if b.dtype.is_floating_point or b.dtype.is_complex else torch.promote_types(values.dtype, torch.float32)
    )
    dtype = torch.promote_types(dtype, torch.complex32) if values.dtype.is_complex else dtype
    values, b = _with_one_batch(values, b, 2 if indices is None else 1)
    if x0 is not None:
        if x0.shape != b.shape:
            raise ValueError(f"x0 has the shape {tuple(x0.shape)}; expected {tuple(b.shape)}, that of x.")
        x0 = x0.to(dtype)
    x, _ = solve_op(
        values.to(dtype), indices, b.to(dtype), x0, method, preconditioner, None if rtol is None else float(rtol),
        float(atol), max_iter, on_failure, nullspace is not None, False,
    )  # fmt: skip
    return x


def _with_one_batch(values: torch.Tensor, b: torch.Tensor, own: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Matrices, whose last `own` axes are those of one, and vectors, with the batch axes of `linear_solve`."""
    axes, shape = values.shape[:-own], values.shape[-own:]
    if not axes or not b.ndim:
        return values, b
    lead = (*axes[: max(len(axes) - b.ndim + 1, 0)], *b.shape[:-1])
    b = b.expand(*lead, b.shape[-1])
    if axes != lead and axes == (math.prod(lead),):  # in the order of b
        return values.reshape(*lead, *shape), b
    while axes and axes[0] == 1:
        axes = axes[1:]
    values, axes_of_b = values.reshape(*axes, *shape), lead[len(lead) - len(axes) :]
    if axes != axes_of_b and all(a in (1, c) for a, c in zip(axes, axes_of_b, strict=True)):
        values = values.expand(*axes_of_b, *shape)
    return values, b  # the operator refuses other axes
