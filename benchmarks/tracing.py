"""Milliseconds from a function to its matrix, beside PhiML's `matrix_from_function` on the same operator and library.

Functions of JAX, or of the library that `--backend` names. Every call traces a new function, so no cache of the library
or krylix helps. Both make the values, not just the structure, and krylix tests its matrix with a random vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from .measure import Comparison, compare, per_call, seconds
from .settings import Settings, missing
from .table import Row

TO_DIAGONALS, TO_CSR, GRAPH_SECONDS, COMPILE = 1 / 30, 1 / 4, 0.06, 2.5
OTHERS_TO_DIAGONALS = 1 / 10  # of functions that do not come from JAX
FIRST_CALL = 0.06
Call = Callable[[], Any]


class Case(NamedTuple):
    """One operator on arrays of `shape`; `make` gives the function anew, `peer` PhiML's."""

    name: str
    shape: tuple[int, ...]
    make: Callable[[], Callable[[Any], Any]]
    peer: Callable[[], Callable[[Any], Any]] | None
    like: Any  # what the function is traced with
    budget: float = TO_DIAGONALS
    arrays: Callable[[np.ndarray], Any] = np.asarray  # what the function takes


def rows(settings: Settings) -> Iterator[Row]:
    if missing(settings.backend):
        yield Row("tracing", "PhiML", missing=f"{settings.backend} is not installed")
        return
    few = replace(settings, repeats=min(settings.repeats, 3))  # PhiML takes seconds
    for case in cases(settings) if settings.backend == "jax" else forms(settings):
        yield from against_phiml(case, few)
    if settings.backend != "jax":
        return
    yield from graph_laplacian(settings)
    yield from first_call(settings)
    yield from compiling(settings)


def cases(settings: Settings) -> Iterator[Case]:
    from . import stencils

    peer = peers("jax")
    square, box = (settings.grid,) * 2, (settings.grid_in_3d,) * 3
    k = np.random.default_rng(0).random(box) + 0.5
    fluid = stencils.obstacles(settings.grid)
    for boundary in stencils.PADDING:
        make = peer(lambda p, boundary=boundary: p.laplace(boundary))
        yield jax_case(f"5 points, {boundary}", square, lambda boundary=boundary: stencils.laplace(boundary), make)
    yield jax_case("7 points, variable", box, lambda: stencils.variable(k), peer(lambda p: p.variable(k)))
    yield jax_case("masked div grad", square, lambda: stencils.masked(fluid), peer(lambda p: p.masked(fluid)))
    yield jax_case(
        "4th order, periodic", square, lambda: lambda u: stencils.fourth_order(u), peer(lambda p: p.fourth_order)
    )
    yield jax_case(
        "A(A(x)), Dirichlet",
        square,
        lambda: stencils.twice(stencils.laplace("Dirichlet")),
        peer(lambda p: lambda u: p.laplace("Dirichlet")(p.laplace("Dirichlet")(u))),
    )


def forms(settings: Settings) -> Iterator[Case]:
    """The Laplacian in the forms that a library allows."""
    from .stencils_forms import FORMS, arrays_of

    arrays, peer = arrays_of(settings.backend), peers(settings.backend)
    for points, shape in {5: (settings.grid,) * 2, 7: (settings.grid_of_forms,) * 3}.items():
        for name, (form, boundary) in FORMS.items():
            if name == "in place" and arrays.copy is None:
                continue
            yield Case(
                f"{arrays.title}: {points} points, {name}",
                shape,
                lambda form=form: form(arrays),
                peer(lambda p, boundary=boundary: p.laplace(boundary)),
                arrays.of(np.zeros(shape)),
                OTHERS_TO_DIAGONALS,
                arrays.of,
            )


def peers(library: str) -> Callable[[Callable[[Any], Any]], Any]:
    """What makes PhiML's functions on arrays of a library from the module of its operators; None without PhiML."""
    if missing("phiml"):
        return lambda make: None
    from . import stencils_phiml

    stencils_phiml.use(library)
    return lambda make: lambda: make(stencils_phiml)


def jax_case(name: str, shape: tuple[int, ...], make: Any, peer: Any) -> Case:
    return Case(name, shape, make, peer, spec(shape))


def against_phiml(case: Case, settings: Settings) -> Iterator[Row]:
    like = case.like
    kinds = {"diagonals": (None, case.budget), "CSR": ("csr", TO_CSR)}
    if case.peer is None:
        for kind, (_, budget) in kinds.items():
            yield Row(f"{case.name} -> {kind}", "PhiML", missing="not installed", budget=budget)
        return
    from . import stencils_phiml

    theirs = case.peer()
    same_operator(case, theirs)
    for kind, (wanted, budget) in kinds.items():
        found = compare(
            per_call(lambda wanted=wanted: matrix(case.make(), like, wanted)),
            per_call(lambda: stencils_phiml.trace(theirs, case.shape)),
            settings.repeats,
        )
        yield Row(f"{case.name} -> {kind}", "PhiML", found, budget=budget)


def same_operator(case: Case, theirs: Callable[[Any], Any]) -> None:
    """Both functions give the same image, and so does the matrix."""
    from . import stencils_phiml

    z = np.random.default_rng(1).standard_normal(case.shape)
    mine = np.asarray(case.make()(case.arrays(z)))
    other = theirs(stencils_phiml.grid(z)).numpy(stencils_phiml.NAMES[: z.ndim])
    product = (matrix(case.make(), case.like, "csr").to_scipy() @ z.reshape(-1)).reshape(z.shape)
    for found in (other, product):
        if not np.linalg.norm(found - mine) <= 1e-10 * np.linalg.norm(mine):
            raise SystemExit(f"{case.name}: the two libraries have different operators")


def graph_laplacian(settings: Settings) -> Iterator[Row]:
    from . import stencils

    edges = stencils.mesh(settings.nodes)
    weights = np.random.default_rng(2).random(len(edges)) + 0.1
    like = spec((settings.nodes,))
    call = per_call(lambda: matrix(stencils.graph(settings.nodes, edges, weights), like, None))
    yield alone(f"mesh Laplacian, {settings.nodes} nodes", call, settings, GRAPH_SECONDS)


def first_call(settings: Settings) -> Iterator[Row]:
    """With empty caches of JAX, as in a script that has just begun."""
    import jax

    from . import stencils

    like = spec((settings.grid,) * 2)

    def sample() -> float:
        jax.clear_caches()
        return seconds(lambda: matrix(stencils.laplace("Dirichlet"), like, None))

    yield alone("5 points, first call", sample, settings, FIRST_CALL)


def compiling(settings: Settings) -> Iterator[Row]:
    """The matrix of traced coefficients inside `jax.jit` beside the function itself: seconds to compile."""
    import jax
    import jax.numpy as jnp

    from . import stencils

    like = spec((settings.grid_in_3d,) * 3)

    def compiled(function: Callable[..., Any], *arguments: Any) -> None:
        jax.clear_caches()
        jax.jit(function).lower(*arguments).compile()

    def values(k: Any) -> Any:
        return matrix(stencils.variable(k), like, None).values

    def product(k: Any, u: Any) -> Any:
        return stencils.variable(k)(u)

    k = u = jnp.ones(like.shape, like.dtype)
    found = compare(
        per_call(lambda: compiled(values, k)), per_call(lambda: compiled(product, k, u)), min(settings.repeats, 5)
    )
    yield Row("7 points, traced: compile the matrix", "the function", found, budget=COMPILE)


def alone(what: str, call: Callable[[], float], settings: Settings, budget: float) -> Row:
    """A time of our own, without a peer."""
    mine = compare(call, call, settings.repeats)
    return Row(what, "itself", Comparison(mine.krylix, mine.krylix, 1.0), budget_seconds=budget)


def spec(shape: tuple[int, ...]) -> Any:
    import jax

    return jax.ShapeDtypeStruct(shape, np.float64)


def matrix(function: Callable[[Any], Any], like: Any, kind: str | None) -> Any:
    from krylix import matrix_from_function

    return matrix_from_function(function, like, format=kind)[0]
