"""Seconds of one product with a sparse matrix inside `jax.jit`, beside JAX's BCOO and SciPy's CSR product.

Matrices and vectors are arguments of the compiled functions. `matvec_tuned` has the same with another allocator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from .measure import Sampler, compare, per_call
from .settings import Settings, missing
from .table import Row

IN_A_ROW = 5  # products, as a solver makes them: the matrix is then where the last one left it
COLUMNS = 8  # right-hand sides at once
TRANSPOSED, SEVERAL = 1.5, 1.0  # times the forward product, times five single products


class Case(NamedTuple):
    """A matrix, the formats to store it in, and the budgets: times BCOO and times SciPy."""

    name: str
    matrix: sp.csr_array
    formats: tuple[str, ...]
    bcoo: float
    scipy: float | None


def rows(settings: Settings, remark: str = "") -> Iterator[Row]:
    if missing("jax"):
        yield Row("products in jit", "BCOO", missing="jax is not installed")
        return
    for case in cases(settings):
        for format in case.formats:
            yield from of_format(case, format, settings, remark)
    yield from of_stencils(settings, remark)


def of_stencils(settings: Settings, remark: str) -> Iterator[Row]:
    """Traced functions whose coefficients are numbers, beside the function itself too."""
    import jax

    from krylix import matrix_from_function

    from . import stencils

    square, cube = (settings.grid,) * 2, (settings.grid_in_3d,) * 3
    for name, function, shape in (
        (f"5 points {settings.grid}²", stencils.laplace("Dirichlet"), square),
        (f"5 points periodic {settings.grid}²", stencils.laplace("periodic"), square),
        (f"27 points {settings.grid_in_3d}³", stencils.cube, cube),
    ):
        A = matrix_from_function(function, jax.ShapeDtypeStruct(shape, np.float64))[0]
        csr = A.to_scipy()
        bcoo, u = bcoo_matrix(csr), np.random.default_rng(1).standard_normal(A.shape[1])
        v, what = jax.device_put(u), f"A x, {name}, {A.format}{remark}"
        product = timed(lambda A, v: A @ v, A, v)
        peers: dict[str, tuple[Sampler, float | None]] = {
            "BCOO": (timed(lambda A, v: A @ v, bcoo, v), 1 / 15),
            "SciPy CSR": (per_call(lambda csr=csr, u=u: csr @ u, IN_A_ROW), 1 / 1.5),
            "the function": (timed(lambda f, v: f(v), jax.tree_util.Partial(function), v.reshape(shape)), None),
        }
        for peer, (sampler, budget) in peers.items():
            yield Row(what, peer, compare(product, sampler, settings.repeats), budget=budget)


def cases(settings: Settings) -> Iterator[Case]:
    yield Case(f"5 points {settings.grid}²", five_points(settings.grid), ("dia", "ell"), 1 / 15, 1 / 1.5)
    yield Case(f"27 points {settings.grid_in_3d}³", all_neighbours(settings.grid_in_3d), ("dia",), 1 / 15, 1 / 1.5)
    yield Case(f"mesh {settings.nodes}", mesh(settings.nodes), ("hyb", "csr"), 1 / 4, 1 / 1.5)
    yield Case(f"power law {settings.nodes}", power_law(settings.nodes), ("hyb", "csr"), 1 / 4, None)


def of_format(case: Case, format: str, settings: Settings, remark: str) -> Iterator[Row]:
    import jax

    x = np.random.default_rng(1).standard_normal((case.matrix.shape[1], COLUMNS)).astype(case.matrix.dtype)
    column = x[:, 0].copy()
    A, bcoo = krylix_matrix(case.matrix, format), bcoo_matrix(case.matrix)
    single, several = jax.device_put(column), jax.device_put(x)
    check(A, case.matrix, x)
    what = f"{case.name}, {format.upper()}{remark}"
    forward = timed(lambda A, v: A @ v, A, single)
    wanted = format != "csr"  # which is there to be compared with
    measured = compare(forward, timed(lambda A, v: A @ v, bcoo, single), settings.repeats)
    yield Row(f"A x, {what}", "BCOO", measured, budget=case.bcoo if wanted else None)
    measured = compare(forward, per_call(lambda: case.matrix @ column, IN_A_ROW), settings.repeats)
    yield Row(f"A x, {what}", "SciPy CSR", measured, budget=case.scipy if wanted else None)
    measured = compare(timed(lambda A, v: A @ v, A.T, single), forward, settings.repeats)
    yield Row(f"Aᵀ x, {what}", "A x", measured, budget=TRANSPOSED if wanted else None)
    measured = compare(timed(lambda A, v: A.T @ v, A, single), forward, settings.repeats)
    yield Row(f"Aᵀ x, transposed in jit, {what}", "A x", measured)

    def five() -> float:
        return 5 * forward()

    measured = compare(timed(lambda A, v: A @ v, A, several), five, settings.repeats)
    yield Row(f"A X, {COLUMNS} columns, {what}", "5 times A x", measured, budget=SEVERAL if wanted else None)


def krylix_matrix(matrix: sp.csr_array, format: str) -> Any:
    from krylix import choose_backend
    from krylix.sparse.formats import from_entries

    entries = matrix.tocoo()
    return from_entries(choose_backend("jax"), entries.row, entries.col, entries.data, matrix.shape, format=format)


def bcoo_matrix(matrix: sp.csr_array) -> Any:
    from jax.experimental.sparse import BCOO

    return BCOO.from_scipy_sparse(matrix.tocoo()).sort_indices()


def check(A: Any, matrix: sp.csr_array, x: np.ndarray) -> None:
    error = np.abs(np.asarray(A @ x) - matrix @ x).max() + np.abs(np.asarray(A.T @ x) - matrix.T @ x).max()
    if not error < 1e-3 * np.abs(matrix.data).max():
        raise RuntimeError(f"products with {A!r} are wrong by {error}")


def timed(function: Callable[[Any, Any], Any], A: Any, x: Any) -> Sampler:
    import jax

    compiled = jax.jit(function)
    return per_call(lambda: compiled(A, x).block_until_ready(), IN_A_ROW)


# --- matrices ---------------------------------------------------------------------------------------------------------


def five_points(grid: int) -> sp.csr_array:
    """Neighbours on a square, each entry another number."""
    n = grid * grid
    return banded(n, np.array([-grid, -1, 0, 1, grid]))


def all_neighbours(grid: int) -> sp.csr_array:
    """The 27 points around each point of a cube."""
    steps = np.arange(-1, 2)
    offsets = (steps[:, None, None] * grid + steps[:, None]) * grid + steps
    return banded(grid**3, np.unique(offsets))


def banded(n: int, offsets: np.ndarray) -> sp.csr_array:
    rows = np.repeat(np.arange(n), len(offsets))
    cols = rows + np.tile(offsets, n)
    return entries(rows, cols, n)


def mesh(n: int) -> sp.csr_array:
    """Six or seven neighbours nearby, as in a mesh that is numbered well, and twenty rows of fifty entries."""
    rng = np.random.default_rng(0)
    reach = int(n**0.5) + 1
    rows = np.concatenate([np.repeat(np.arange(n), 7), np.repeat(rng.integers(0, n, 20), 43)])
    return entries(rows, rows + rng.integers(-reach, reach + 1, len(rows)), n)


def power_law(n: int) -> sp.csr_array:
    """Mostly short rows, and a few with a good part of all columns."""
    rng = np.random.default_rng(0)
    lengths = np.minimum(3 + 3 * rng.pareto(1.2, n), n // 4).astype(int)
    rows = np.repeat(np.arange(n), lengths)
    return entries(rows, rng.integers(0, n, len(rows)), n)


def entries(rows: np.ndarray, cols: np.ndarray, n: int) -> sp.csr_array:
    """Random values at these places, as far as they are in the matrix."""
    inside = (cols >= 0) & (cols < n)
    values = np.random.default_rng(2).standard_normal(np.count_nonzero(inside))
    return sp.coo_array((values, (rows[inside], cols[inside])), (n, n)).tocsr()
