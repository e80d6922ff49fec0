"""Seconds to a relative residual of 1e-6, whole calls: a real system with Jacobi's preconditioner, and Poisson."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from krylix import linear_solve

from .measure import compare, per_call
from .problems import bar, poisson_matrix, right_hand_side
from .settings import Settings, missing
from .table import Row

RTOL = 1e-6
Solve = Callable[[], Any]  # -> x


def rows(settings: Settings) -> Iterator[Row]:
    def row(what: str, krylix: Solve, peer: str, other: Solve, A: Any, b: np.ndarray) -> Row:
        for name, solve in {"krylix": krylix, peer: other}.items():
            reached = residual(A, solve(), b)
            if not reached <= 1.1 * RTOL:
                name = f"{name} (residual {reached:.1e})"
                if solve is krylix:
                    raise RuntimeError(f"{what}: {name}")
                peer = name
        return Row(what, peer, compare(per_call(krylix), per_call(other), settings.repeats))

    if settings.bar:
        yield from bar_rows(row)
    yield from poisson_rows(settings, row)


def residual(A: Any, x: Any, b: np.ndarray) -> float:
    return float(np.linalg.norm(b - A @ np.asarray(x, dtype=b.dtype).ravel()) / np.linalg.norm(b))


def bar_rows(row: Callable[..., Row]) -> Iterator[Row]:
    A, b = bar()
    jacobi = sp.dia_array((1 / A.diagonal()[None], [0]), shape=A.shape)
    ours = lambda: linear_solve(A, b, method="CG", preconditioner="jacobi", rtol=RTOL).x  # noqa: E731
    what = f"bar, {A.shape[0]} unknowns, CG + Jacobi, csr_array"
    yield row(what, ours, "scipy cg", lambda: spl.cg(A, b, M=jacobi, rtol=RTOL, atol=0.0)[0], A, b)
    if missing("jax"):
        return
    import jax
    import jax.numpy as jnp

    from . import peers_jax as peers

    bj, diagonal = jnp.asarray(b), jnp.asarray(1 / A.diagonal())
    product = peers.sparse_product(A)
    compiled = jax.jit(
        lambda b: (
            linear_solve(
                product, b, method="CG", preconditioner=lambda r: diagonal * r, rtol=RTOL, on_failure="status"
            ).x
        )
    )
    what = f"bar, {A.shape[0]} unknowns, CG + Jacobi, JAX function in jit"
    ours_jax = lambda: compiled(bj).block_until_ready()  # noqa: E731
    makers = {"jax.scipy cg": ("jax", peers.jax_scipy_to), "lineax CG": ("lineax", peers.lineax_to)}
    for peer, (package, make) in makers.items():
        if missing(package):
            yield Row(what, peer, missing="not installed")
            continue
        theirs = make(product, lambda r: diagonal * r, RTOL)
        yield row(what, ours_jax, peer, lambda: theirs(bj).block_until_ready(), A, b)  # noqa: B023


def poisson_rows(settings: Settings, row: Callable[..., Row]) -> Iterator[Row]:
    grid = settings.grid_to_tolerance
    A, square = poisson_matrix(grid, "float64"), right_hand_side(grid, "float64")
    b = square.ravel()
    ours = lambda: linear_solve(A, b, method="CG", rtol=RTOL).x  # noqa: E731
    yield row(f"Poisson {grid}², CG, dia_array", ours, "scipy cg", lambda: spl.cg(A, b, rtol=RTOL, atol=0.0)[0], A, b)
    if missing("jax"):
        return
    import jax
    import jax.numpy as jnp

    from . import peers_jax as peers

    bj = jnp.asarray(square)
    compiled = jax.jit(lambda b: linear_solve(peers.laplace, b, method="CG", rtol=RTOL, on_failure="status").x)
    ours_jax = lambda: compiled(bj).block_until_ready()  # noqa: E731
    makers = {
        "jax.scipy cg": ("jax", lambda: peers.jax_scipy_to(peers.laplace, None, RTOL)),
        "lineax CG": ("lineax", lambda: peers.lineax_to(peers.laplace, None, RTOL)),
        "PhiML CG": ("phiml", lambda: peers.phiml_to(RTOL)),
    }
    what = f"Poisson {grid}², CG, JAX function in jit"
    for peer, (package, make) in makers.items():
        if missing(package):
            yield Row(what, peer, missing="not installed")
            continue
        theirs = make()
        yield row(what, ours_jax, peer, lambda: theirs(bj).block_until_ready(), A, b)  # noqa: B023
