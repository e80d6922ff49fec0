"""Seconds per iteration: two solves of different length, so that set-up cancels, on the same operator as the peer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from krylix import linear_solve

from .measure import compare, per_iteration
from .problems import poisson_in_place, poisson_matrix, right_hand_side
from .settings import Settings, missing
from .table import Row

Solve = Callable[[int], Any]  # iterations -> x


def rows(settings: Settings) -> Iterator[Row]:
    yield from numpy_rows(settings)
    yield from jax_rows(settings)
    yield from torch_rows(settings)


def compared(what: str, krylix: Solve, peer: str, other: Solve, settings: Settings, budget: float | None = None) -> Row:
    """The row of a pair that is seen to make the same iterates, hence exactly the same number of them."""
    for k in (settings.few, settings.few + 1):  # not later, where rounding has grown
        mine, theirs = (np.asarray(solve(k)).ravel() for solve in (krylix, other))
        if not np.isfinite(theirs).all():
            return Row(what, peer, missing=f"not finite after {k} iterations", budget=budget)
        difference = np.linalg.norm(mine - theirs) / np.linalg.norm(theirs)
        if not difference < 1e-3:
            raise RuntimeError(f"{what}: after {k} iterations krylix and {peer} differ by {difference:.1e}")
    few, many = settings.few, settings.many
    pair = (per_iteration(krylix, few, many), per_iteration(other, few, many))
    return Row(what, peer, compare(*pair, settings.repeats), budget=budget)


def numpy_rows(settings: Settings) -> Iterator[Row]:
    def ours(A: Any, b: np.ndarray, method: str) -> Solve:
        return lambda k: linear_solve(A, b, method=method, rtol=0.0, max_iter=k, on_failure="status").x

    def scipy(A: Any, b: np.ndarray, method: Callable[..., Any]) -> Solve:
        return lambda k: method(A, b, rtol=0.0, atol=0.0, maxiter=k)[0]

    for dtype in ("float64", "float32"):
        dia, b = poisson_matrix(settings.grid, dtype), right_hand_side(settings.grid, dtype).ravel()
        for name, A in {"dia_array": dia, "csr_array": sp.csr_array(dia)}.items():
            what = f"CG, NumPy, {name}, {dtype}"
            yield compared(what, ours(A, b, "CG"), "scipy cg", scipy(A, b, spl.cg), settings, 0.7)
        square = b.reshape(settings.grid, settings.grid)
        linear = spl.LinearOperator(
            dia.shape, lambda x: poisson_in_place(x.reshape(settings.grid, -1)).ravel(), dtype=dtype
        )
        what = f"CG, NumPy, function, {dtype}"
        yield compared(what, ours(poisson_in_place, square, "CG"), "scipy cg", scipy(linear, b, spl.cg), settings, 0.7)
        what = f"biCG-stab, NumPy, dia_array, {dtype}"
        yield compared(what, ours(dia, b, "biCG-stab"), "scipy bicgstab", scipy(dia, b, spl.bicgstab), settings)


def jax_rows(settings: Settings) -> Iterator[Row]:
    if missing("jax"):
        yield Row("CG, JAX in jit", "jax.scipy", missing="jax is not installed")
        return
    import jax.numpy as jnp

    from . import peers_jax as peers

    makers = {
        "jax.scipy cg": ("jax", "CG", lambda: peers.jax_scipy("CG"), 1.05),
        "lineax CG": ("lineax", "CG", peers.lineax_cg, None),
        "PhiML CG": ("phiml", "CG", peers.phiml_cg, None),
        "jax.scipy bicgstab": ("jax", "biCG-stab", lambda: peers.jax_scipy("biCG-stab"), None),
    }
    for dtype in ("float64", "float32"):
        b = jnp.asarray(right_hand_side(settings.grid, dtype))
        for peer, (package, method, make, budget) in makers.items():
            what = f"{method}, JAX in jit, function, {dtype}"
            if missing(package):
                yield Row(what, peer, missing="not installed", budget=budget)
                continue
            ours, theirs = peers.ours(method), make()
            yield compared(what, lambda k: ours(b, k), peer, lambda k: theirs(b, k), settings, budget)  # noqa: B023


def torch_rows(settings: Settings) -> Iterator[Row]:
    if missing("torch"):
        yield Row("CG, PyTorch", "out-of-place loop", missing="torch is not installed", budget=0.6)
        return
    import torch

    def plain(b: Any, k: int) -> Any:
        """Conjugate gradients as one writes them down; stops by the residual, as any solver does."""
        x, r = torch.zeros_like(b), b
        p, rr = r, torch.sum(r * r)
        for _ in range(k):
            if rr <= 0:
                break
            q = poisson_in_place(p)
            alpha = rr / torch.sum(p * q)
            x = x + alpha * p
            r = r - alpha * q
            old, rr = rr, torch.sum(r * r)
            p = r + rr / old * p
        return x

    for dtype in ("float64", "float32"):
        b = torch.as_tensor(right_hand_side(settings.grid, dtype))

        def ours(k: int, b: Any = b) -> Any:
            return linear_solve(poisson_in_place, b, method="CG", rtol=0.0, max_iter=k, on_failure="status").x

        what = f"CG, PyTorch, function, {dtype}"
        yield compared(what, ours, "out-of-place loop", lambda k, b=b: plain(b, k), settings, 0.6)
