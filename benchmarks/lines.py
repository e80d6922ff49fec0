"""Seconds of problems along a line: factors on the host and cyclic reduction, beside SuperLU and LAPACK."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from krylix import linear_solve
from krylix.sparse import DIA

from .measure import compare, per_call
from .settings import Settings, missing
from .table import Row

OFFSETS = [-1, 0, 1]


def rows(settings: Settings) -> Iterator[Row]:
    n = settings.grid_of_blocks**2
    yield from numpy_rows(settings, n)
    for systems in (1, 64):
        yield from jax_rows(settings, systems, n // systems)


def diagonals(systems: int, n: int) -> np.ndarray:
    """`(systems, 3, n)`, of diffusion with random coefficients."""
    k = 1 + np.random.default_rng(0).random((systems, n + 1))
    found = np.stack([-k[:, :-1], k[:, 1:] + k[:, :-1], -k[:, 1:]], axis=1)
    found[:, 0, 0] = found[:, 2, -1] = 0
    return found


def numpy_rows(settings: Settings, n: int) -> Iterator[Row]:
    own, b = diagonals(1, n)[0], np.ones(n)
    A = sp.csr_array(sp.diags_array([own[0, 1:], own[1], own[2, :-1]], offsets=OFFSETS))
    band = np.array([np.roll(own[2], 1), own[1], np.roll(own[0], -1)])
    what = f"line of {n} points, all of linear_solve, NumPy"
    krylix = per_call(lambda: linear_solve(A, b))
    columns = sp.csc_array(A)
    yield Row(what, "scipy splu", compare(krylix, per_call(lambda: spl.splu(columns).solve(b)), settings.repeats))
    lapack = per_call(lambda: scipy.linalg.solve_banded((1, 1), band, b))
    yield Row(what, "scipy.linalg.solve_banded", compare(krylix, lapack, settings.repeats))
    reduction = per_call(lambda: linear_solve(A, b, method="banded-direct"))
    yield Row(f"line of {n} points, banded-direct, NumPy", "auto", compare(reduction, krylix, settings.repeats))


def jax_rows(settings: Settings, systems: int, n: int) -> Iterator[Row]:
    what = f"{systems} lines of {n} points, values traced, jax.jit"
    peer = "jax.lax.linalg.tridiagonal_solve"
    if missing("jax"):
        yield Row(what, peer, missing="jax is not installed")
        return
    import jax
    import jax.numpy as jnp

    values, b = jnp.asarray(diagonals(systems, n)), jnp.ones((systems, n))
    ours = jax.jit(lambda v, b: linear_solve(DIA(v, OFFSETS, (n, n)), b, method="banded-direct").x)
    theirs = jax.jit(lambda v, b: jax.lax.linalg.tridiagonal_solve(v[:, 0], v[:, 1], v[:, 2], b[..., None]))
    pair = (per_call(lambda f=f: f(values, b).block_until_ready()) for f in (ours, theirs))
    yield Row(what, peer, compare(*pair, settings.repeats))
