"""Milliseconds of a small PyTorch solve with its gradient, beside conjugate gradients written by hand.

The hand-written solve is what a user writes who has no library: one loop on tensors, and a second one backward, with
the same matrix as it is symmetric. Both have the same relative tolerance; their gradients are compared first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from krylix import linear_solve

from .measure import compare, per_call
from .settings import Settings, missing
from .table import Row

RTOL = 1e-8
PEER = "CG by hand"
Function = Callable[[Any, Any], Any]  # of u and the coefficients


def rows(settings: Settings) -> Iterator[Row]:
    if missing("torch"):
        yield Row("gradient, small", PEER, missing="torch is not installed")
        return
    import torch

    generator = torch.Generator().manual_seed(0)
    random = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator)  # noqa: E731
    stencil = torch.tensor([[0.0, -1, 0], [-1, 5.0, -1], [0, -1, 0]], dtype=torch.float64)
    cases: tuple[tuple[str, Function, Any, Any, float, float | None], ...] = (
        ("convolution of 4 x 32²", convolution, random(4, 32, 32), stencil, 1.8, 1.6),
        ("implicit diffusion, 64 points", diffusion, random(1, 64), torch.ones(63, dtype=torch.float64), 3.0, None),
    )
    for name, function, b, k, budget, forward in cases:
        yield from compared(name, function, b, k.requires_grad_(), budget, forward, settings)


def convolution(u: Any, k: Any) -> Any:
    """With a symmetric kernel of 3 x 3, and zeros outside."""
    import torch.nn.functional as F

    return F.conv2d(F.pad(u[:, None], (1, 1, 1, 1)), (0.5 * (k + k.flip(0, 1)))[None, None])[:, 0]


def diffusion(u: Any, k: Any) -> Any:
    """u - 0.1 (k u')' with walls at both ends."""
    import torch

    wall = torch.zeros_like(u[:, :1])
    return u - 0.1 * torch.diff(torch.cat([wall, k * torch.diff(u), wall], 1))


def compared(
    name: str, function: Function, b: Any, k: Any, budget: float, forward: float | None, settings: Settings
) -> Iterator[Row]:
    """The solve with its gradient by k, and the solve alone."""
    import torch

    by_hand = _by_hand(function)
    solve = lambda: linear_solve(lambda u: function(u, k), b, method="CG", rtol=RTOL, batch_ndim=1).x  # noqa: E731

    def gradient(solve: Callable[[], Any]) -> Any:
        k.grad = None
        (solve() ** 2).sum().backward()
        return k.grad

    mine, theirs = gradient(solve), gradient(lambda: by_hand(b, k))
    error = float(np.linalg.norm(mine - theirs) / np.linalg.norm(theirs))
    if not error < 1e-6:
        raise RuntimeError(f"{name}: the gradients differ by {error:.1e}.")
    pair = per_call(lambda: gradient(solve)), per_call(lambda: gradient(lambda: by_hand(b, k)))
    yield Row(f"{name}, solve and gradient", PEER, compare(*pair, settings.repeats), budget=budget)
    with torch.no_grad():
        alone = compare(per_call(solve), per_call(lambda: by_hand(b, k)), settings.repeats)
    yield Row(f"{name}, solve", PEER, alone, budget=forward)


def _by_hand(function: Function) -> Callable[[Any, Any], Any]:
    import torch

    class Solve(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, b: Any, k: Any) -> Any:
            x = _cg(lambda u: function(u, k), b)
            ctx.save_for_backward(x, k)
            return x

        @staticmethod
        def backward(ctx: Any, cotangent: Any) -> Any:
            x, k = ctx.saved_tensors
            y = _cg(lambda u: function(u, k), cotangent)
            with torch.enable_grad():
                own = k.detach().requires_grad_()
                (by_k,) = torch.autograd.grad(function(x, own), own, -y)
            return y, by_k

    apply: Callable[[Any, Any], Any] = Solve.apply
    return apply


def _cg(A: Callable[[Any], Any], b: Any) -> Any:
    """Each system of `(batch, ...)` with its own step lengths, until all have converged."""
    axes = tuple(range(1, b.ndim))
    x, r, p = b * 0, b, b
    square = (r * r).sum(axes, keepdim=True)
    goal = RTOL**2 * square
    while not bool((square <= goal).all()):
        image = A(p)
        alpha = square / (p * image).sum(axes, keepdim=True)
        x, r = x + alpha * p, r - alpha * image
        before, square = square, (r * r).sum(axes, keepdim=True)
        p = r + square / before * p
    return x
