"""Milliseconds of one call on a system of 16 unknowns, where the arithmetic costs next to nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from krylix import linear_solve, prepare, setup_cache

from .measure import compare, per_call
from .settings import Settings, missing
from .table import Row

N = 16
LINE = 1000
LIMIT = 0.5e-3


def rows(settings: Settings) -> Iterator[Row]:
    def row(
        what: str, krylix: Callable[[], object], peer: str, other: Callable[[], object], limit: float | None = None
    ) -> Row:
        pair = (per_call(krylix, settings.calls), per_call(other, settings.calls))
        return Row(what, peer, compare(*pair, settings.repeats), budget_seconds=limit)

    A, b = system()
    sparse = sp.csr_array(A)
    limits = {"rtol": 1e-10, "atol": 0.0}
    yield row("auto, NumPy, dense", lambda: linear_solve(A, b), "np.linalg.solve", lambda: np.linalg.solve(A, b), LIMIT)
    for name, matrix in {"dense": A, "csr_array": sparse}.items():
        ours = lambda M=matrix: linear_solve(M, b, method="CG")  # noqa: E731
        count = int(ours().iterations)
        yield row(
            f"CG, NumPy, {name}, {count} iterations", ours, "scipy cg", lambda M=matrix: spl.cg(M, b, **limits), LIMIT
        )
    yield row("biCG-stab, NumPy, dense", lambda: linear_solve(A, b, method="biCG-stab"),
              "scipy bicgstab", lambda: spl.bicgstab(A, b, **limits))  # fmt: skip
    yield from repeated_rows(row)
    yield from torch_rows(A, b, row)
    yield from jax_rows(A, b, row)


def system() -> tuple[np.ndarray, np.ndarray]:
    """A well-conditioned symmetric matrix and a right-hand side."""
    generator = np.random.default_rng(0)
    noise = generator.standard_normal((N, N)) / N
    return np.eye(N) + noise @ noise.T, generator.standard_normal(N)


def repeated_rows(row: Callable[..., Row]) -> Iterator[Row]:
    """One tridiagonal matrix, whose factors are at hand."""
    A = sp.csc_array(sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(LINE, LINE)))
    b, factors = np.sin(np.arange(float(LINE))), spl.splu(A)
    solver = prepare(A, b, method="scipy-direct")
    yield row("prepared, NumPy, tridiagonal", lambda: solver.solve(b), "solve of splu", lambda: factors.solve(b))
    with setup_cache(True):
        yield row("again, NumPy, tridiagonal", lambda: linear_solve(A, b, method="scipy-direct"),
                  "solve of splu", lambda: factors.solve(b))  # fmt: skip


def torch_rows(A: np.ndarray, b: np.ndarray, row: Callable[..., Row]) -> Iterator[Row]:
    if missing("torch"):
        yield Row("CG, PyTorch, eager, dense", "torch.linalg.solve", missing="torch is not installed")
        return
    import torch

    At, bt = torch.as_tensor(A), torch.as_tensor(b)
    solve = lambda: torch.linalg.solve(At, bt)  # noqa: E731
    yield row("auto, PyTorch, dense", lambda: linear_solve(At, bt), "torch.linalg.solve", solve)
    yield row("CG, PyTorch, dense", lambda: linear_solve(At, bt, method="CG"), "torch.linalg.solve", solve)


def jax_rows(A: np.ndarray, b: np.ndarray, row: Callable[..., Row]) -> Iterator[Row]:
    if missing("jax"):
        yield Row("CG, JAX in jit, dense", "jax.scipy cg", missing="jax is not installed")
        return
    import jax
    import jax.numpy as jnp
    import jax.scipy.sparse.linalg as jsl

    Aj, bj = jnp.asarray(A), jnp.asarray(b)
    ours = jax.jit(lambda A, b: linear_solve(A, b, method="CG", on_failure="status").x)
    raising = jax.jit(lambda A, b: linear_solve(A, b, method="CG").x)
    theirs = jax.jit(lambda A, b: jsl.cg(lambda v: A @ v, b, tol=1e-10)[0])
    other = lambda: theirs(Aj, bj).block_until_ready()  # noqa: E731
    yield row("CG, JAX in jit, dense", lambda: ours(Aj, bj).block_until_ready(), "jax.scipy cg", other)
    yield row("the same, raising on failure", lambda: raising(Aj, bj).block_until_ready(), "jax.scipy cg", other)
    eager = lambda: linear_solve(Aj, bj, method="CG").x.block_until_ready()  # noqa: E731
    yield row("CG, JAX outside jit, dense", eager, "jax.scipy cg in jit", other)
