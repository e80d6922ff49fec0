"""Every method and every kind of preconditioner on a grid that is spread over a mesh: what moves, and what is said."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

import krylix
from krylix import linear_solve
from krylix.solvers import METHODS, PRECONDITIONERS
from krylix.solvers.results import devices

from .cases import Case, Later, exact, shifted, star
from .cases_cut_products import conduction

N = 16
GRID = np.random.default_rng(0).normal(size=(N, N))
COARSENED = 128  # points along each axis of a grid that multigrid does not gather as a whole
devices.LEAST = 0  # warn of small ones, too


def blocks() -> Any:
    with jax.ensure_compile_time_eval():
        return krylix.preconditioner(conduction, "block-jacobi", like=jnp.asarray(GRID), block_size=2)


def solved(b: Any, *, A: Any = star, preconditioner: Any = None, **settings: Any) -> Any:
    M = preconditioner() if preconditioner is blocks else preconditioner
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x = linear_solve(A, b, rtol=1e-9, preconditioner=M, **settings).x
    told = [str(one.message) for one in caught if one.category is krylix.GatherWarning]
    return x, {"told": len(told)}


def one_row(u: Any) -> Any:
    """Neighbours in one direction: few diagonals."""
    return 3 * u - shifted(u, (0, 1)) - shifted(u, (0, -1))


def cases() -> Iterator[tuple[str, Case]]:
    one = Case("2x2", ("i", "j"), GRID, solved, exact(conduction, GRID), known=True)
    for name, method in METHODS.items():
        A = star if method.needs_grid else one_row if method.needs_band else conduction
        yield f"method {name}", one._replace(solve=partial(solved, A=A, method=name), expected=exact(A, GRID))
    for kind in PRECONDITIONERS:
        if kind == "multigrid":
            continue
        A = star if kind == "fast" else conduction
        method = "GMRES" if kind == "ilu" else "CG"
        solve = partial(solved, A=A, method=method, preconditioner=blocks if kind == "block-jacobi" else kind)
        yield f"preconditioner {kind}", one._replace(solve=solve, expected=exact(A, GRID))
    wide = np.random.default_rng(1).normal(size=(COARSENED, COARSENED))
    b = Later(partial(jax.jit(star), wide))
    solve = partial(solved, method="CG", preconditioner="multigrid")
    yield "preconditioner multigrid", Case("2x2", ("i", "j"), b, solve, wide, known=True)
    matrix = sp.csr_array(np.eye(N * N) * 4 + np.diag(np.ones(N * N - 1), 1) + np.diag(np.ones(N * N - 1), -1))
    rng = np.random.default_rng(2)
    order = rng.permutation(N * N)
    shuffled = sp.csr_array(matrix[order][:, order])
    solve, expected = partial(solved, A=shuffled, method="CG"), np.linalg.solve(shuffled.toarray(), GRID.ravel())
    yield "matrix csr", Case("line", ("i",), GRID.ravel(), solve, expected, known=True)
