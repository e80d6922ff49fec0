"""Krylov methods on grids and flat vectors, batches, gradients."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from krylix import linear_solve, prepare
from krylix.sparse import Stencil

from .cases import STAR, Case, exact, periodic, star

N, SYSTEMS = 16, 8
METHODS = (
    "CG", "CG-adaptive", "CG-single-reduction", "biCG-stab", "biCG-stab(2)", "MINRES", "GMRES(9)", "FGMRES(9)",
    "IDR(4)", "mixed-CG", "COCR", "block-CG", "LSMR", "CGLS",
)  # fmt: skip
GRID = np.random.default_rng(0).normal(size=(N, N))
MANY = np.random.default_rng(1).normal(size=(SYSTEMS, N, N))
WAYS = {"jit": {"known": True}, "Explicit": {"explicit": True}, "eager": {"eager": True}}
WAYS |= {"Explicit, eager": {"explicit": True, "eager": True}}


def solved(b: Any, *, A: Any = star, method: str = "CG", **settings: Any) -> Any:
    return linear_solve(A, b, method=method, rtol=1e-10, **settings).x


def cases() -> Iterator[tuple[str, Case]]:
    yield from _by_xla()
    yield from _matrices()
    yield from _of_kinds()
    yield from _batches()
    yield from _known()


def _by_xla() -> Iterator[tuple[str, Case]]:
    """Solves of traced arrays that do not tell how they are spread."""
    expected = exact(star, GRID)
    for mesh in ("rows", "columns", "2x2"):
        yield f"CG, {mesh}", Case(mesh, ("i", "j"), GRID, solved, expected)
    flat = Case("2x2", ("i", "j"), GRID, solved, expected)
    for method in ("biCG-stab(2)", "MINRES", "mixed-CG", "FGMRES(9)", "IDR(4)"):
        yield f"{method}, 2x2", flat._replace(solve=partial(solved, method=method))

    def energy(b: Any) -> Any:
        return 0.5 * jnp.sum(solved(b) ** 2)

    for mesh in ("rows", "2x2"):
        yield f"gradient, {mesh}", Case(mesh, ("i", "j"), GRID, jax.grad(energy), exact(star, expected))


def _matrices() -> Iterator[tuple[str, Case]]:
    expected = exact(star, GRID)
    rows = Case("rows", ("i",), GRID.ravel(), solved, expected.reshape(-1))
    stencil = Stencil(list(STAR.values()), list(STAR), (N, N))
    yield "stencil, rows", rows._replace(solve=partial(solved, A=stencil))
    yield "stencil, rows, known", rows._replace(solve=partial(solved, A=stencil), known=True)
    yield "diagonals of numbers, rows", rows._replace(solve=partial(solved, A=stencil.to("dia")))
    arrays = [c + 0.2 * GRID**2 if c > 0 else np.full((N, N), c) for c in STAR.values()]

    def varying(u: Any) -> Any:
        return star(u) + 0.2 * GRID**2 * u

    of_arrays = Stencil(arrays, list(STAR), (N, N))
    one = rows._replace(expected=exact(varying, GRID).reshape(-1), solve=partial(solved, A=of_arrays))
    yield "stencil of arrays, rows", one
    diagonals = partial(solved, A=of_arrays.to("dia"))
    yield "diagonals, rows", one._replace(solve=diagonals)
    yield "GMRES with diagonals, rows", one._replace(solve=partial(diagonals, method="GMRES(9)"))
    yield "GMRES with diagonals, rows, known", one._replace(solve=partial(diagonals, method="GMRES(9)"), known=True)
    wrapped = dict.fromkeys([(-1, 0), (1, 0), (0, -1), (0, 1), (N - 1, 0), (1 - N, 0), (0, N - 1), (0, 1 - N)], -0.9)
    periodic_stencil = Stencil([4.0, *wrapped.values()], [(0, 0), *wrapped], (N, N))
    right = exact(lambda u: 0.9 * periodic(u) + 0.4 * u, GRID).reshape(-1)
    yield "periodic stencil, rows", rows._replace(solve=partial(solved, A=periodic_stencil), expected=right)
    reshaped = Case("2x2", ("i", "j"), GRID, lambda b: solved(b.reshape(-1), A=stencil).reshape(N, N), expected)
    yield "stencil, 2x2", reshaped


def _of_kinds() -> Iterator[tuple[str, Case]]:
    """Preconditioners, functions and results of all kinds."""
    flat = Case("2x2", ("i", "j"), GRID, solved, exact(star, GRID))
    yield "jacobi, 2x2", flat._replace(solve=partial(solved, preconditioner="jacobi", x0=np.ones((N, N))))
    yield "a function as M, 2x2", flat._replace(solve=partial(solved, preconditioner=lambda r: r / 4))

    def weighted(b: Any, **known: Any) -> Any:  # not known when it is compiled
        return solved(b, A=lambda u: star(u) + (1 + b**2) * u + 1, x0=b, **known)

    expected = exact(lambda u: star(u) + (1 + GRID**2) * u, GRID - 1)
    yield "traced coefficients, 2x2", flat._replace(solve=weighted, expected=expected)
    yield "traced coefficients, 2x2, known", flat._replace(solve=weighted, expected=expected, known=True)
    balanced = GRID - GRID.mean()
    null = flat._replace(b=balanced, solve=partial(solved, A=periodic), expected=exact(periodic, balanced))
    yield "null space, 2x2", null
    yield "null space, 2x2, known", null._replace(known=True)
    yield "null space, 2x2, eager", null._replace(eager=True)

    def of_two(b: Any) -> Any:
        return solved({"a": b, "b": 2 * b}, A=lambda u: {"a": star(u["a"]), "b": 2 * u["b"]})["a"]

    yield "container, 2x2", flat._replace(solve=of_two)
    yield "container, 2x2, eager", flat._replace(solve=of_two, eager=True)
    yield "ssor, 2x2", flat._replace(solve=partial(solved, preconditioner="ssor"))
    yield "several limits, 2x2", flat._replace(solve=lambda b: solved(b, max_iter=[50, 500])[1])


def _with_b_here(b: Any, c: Any) -> Any:
    """Only the arguments of the function lie on the mesh."""
    return linear_solve(lambda u, c: c * u, jnp.asarray(np.asarray(b)), args=(c,), method="CG").x


def _batches() -> Iterator[tuple[str, Case]]:
    batch = Case("rows", ("i", None, None), MANY, partial(solved, batch_ndim=1), exact(star, MANY))
    yield "batch, systems", batch
    yield "batch, systems, Explicit, eager", batch._replace(explicit=True, eager=True)
    yield "batch, rows", batch._replace(spec=(None, "i", None))
    here = Case("2x2", ("i", "j"), GRID, _with_b_here, np.asarray(GRID) / 2, [(np.full_like(GRID, 2), ("i", "j"))])
    yield "b on one device, Explicit, eager", here._replace(explicit=True, eager=True)
    yield "batch, systems and columns", batch._replace(mesh="2x2", spec=("i", None, "j"))
    yield "batch, systems and columns, known", batch._replace(mesh="2x2", spec=("i", None, "j"), known=True)


def _known() -> Iterator[tuple[str, Case]]:
    """Solves that know how b is spread: every method on 2x2, CG and its gradient on every mesh, in every way."""
    expected = exact(star, GRID)

    def energy(b: Any, **known: Any) -> Any:
        return 0.5 * jnp.sum(solved(b, **known) ** 2)

    def curvature(b: Any, **known: Any) -> Any:  # the product of the second derivative with ones
        return jax.grad(lambda b: jnp.sum(jax.grad(partial(energy, **known))(b)))(b)

    twice = exact(star, expected)
    for way, settings in WAYS.items():
        for method in METHODS:
            one = Case("2x2", ("i", "j"), GRID, partial(solved, method=method), expected, **settings)
            yield f"{method}, 2x2, {way}", one
        for mesh in ("rows", "columns", "line"):
            spec = ("i",) if mesh == "line" else ("i", "j")
            for method in ("CG", "block-CG", "LSMR"):
                solve = partial(solved, method=method)
                yield f"{method}, {mesh}, {way}", Case(mesh, spec, GRID, solve, expected, **settings)
        both = Case("2x2", (("i", "j"), None), GRID, solved, expected, **settings)
        yield f"CG, both mesh axes on rows, {way}", both
        yield f"CG, half of the mesh, {way}", both._replace(spec=("i", None))
        yield f"gradient, 2x2, {way}", both._replace(spec=("i", "j"), solve=jax.grad(energy), expected=twice)
        ones = exact(star, exact(star, np.ones((N, N))))
        yield f"second derivative, 2x2, {way}", both._replace(spec=("i", "j"), solve=curvature, expected=ones)
    grids = np.random.default_rng(2).normal(size=(8, 8, 8))
    seven = {(0, 0, 0): 6.1} | {tuple(s * (k == axis) for k in range(3)): -1.0 for axis in range(3) for s in (1, -1)}
    cube = partial(star, coefficients=seven)
    one = Case("2x2x2", ("i", "j", "k"), grids, partial(solved, A=cube), exact(cube, grids, 3), known=True)
    yield "CG, 2x2x2, jit", one
    yield "CG, 2x2x2, eager", one._replace(known=False, eager=True)
    prepared = {}

    def by_prepared(b: Any) -> Any:
        like = prepared.setdefault(0, b)
        return prepare(star, like, method="CG", rtol=1e-10).solve(b).x

    square = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("i", "j"))

    def on_another_mesh(b: Any) -> Any:
        like = jax.device_put(np.asarray(GRID), NamedSharding(square, PartitionSpec("i", "j")))
        return prepare(star, like, method="CG", preconditioner="multigrid").solve(b).x

    other = Case("rows", ("i", "j"), GRID, on_another_mesh, expected, explicit=True, eager=True)
    yield "prepared on another mesh", other
    yield "prepared, 2x2, eager", Case("2x2", ("i", "j"), GRID, by_prepared, expected, eager=True)
