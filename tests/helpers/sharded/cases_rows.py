"""Irregular matrices whose rows are cut: every way to give them, methods, preconditioners, derivatives."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from jax.experimental import sparse as jsparse

from irregular_matrices import triangulated, with_hubs
from krylix import NotConverged, linear_solve, preconditioner, prepare
from krylix.sparse import row_cut

from .cases import Case, Later, constants

N = 4000
LARGE, POINTS = triangulated(N)
SMALL, _ = triangulated(400, seed=1)
WINDY, _ = triangulated(400, seed=2, wind=0.5)


def right(A: sp.csr_array, b: Any) -> Later:
    return Later(lambda: spla.splu(sp.csc_array(A)).solve(np.asarray(b).T).T)


def solved(b: Any, *, A: Any, method: str = "CG", **settings: Any) -> Any:
    result = linear_solve(A, b, method=method, rtol=1e-10, **settings)
    return result.x, {"iterations": result.iterations}


def cut(b: Any, *, A: Any, way: dict[str, Any] | None = None, sharding: Any = None, **settings: Any) -> Any:
    """With A cut before: the mesh is that of A."""
    matrix = row_cut(A, like=None if sharding is not None else b, sharding=sharding, **(way or {}))
    return solved(b, A=matrix, **settings)


def case(A: sp.csr_array, solve: Any, mesh: str = "line", **settings: Any) -> Case:
    b = np.random.default_rng(0).normal(size=A.shape[0])
    return Case(mesh, ("i",), b, solve, right(A, b), **settings)


def cases() -> Iterator[tuple[str, Case]]:
    yield from _ways()
    yield from _kinds()
    yield from _shapes()
    yield from _derivatives()
    yield from _others()
    for parts, mesh in {4: "line", 8: "8"}.items():  # of equal local size
        A, _ = triangulated(500 * parts, seed=parts)
        yield f"weak, {parts}", case(A, partial(solved, A=A, preconditioner="schwarz"), mesh=mesh, known=True)


def _ways() -> Iterator[tuple[str, Case]]:
    for name, way in {"graph": {}, "coordinates": {"coordinates": POINTS}}.items():
        yield f"CG, by {name}", case(LARGE, partial(cut, A=LARGE, way=way), known=True)
    small = case(SMALL, partial(solved, A=SMALL), known=True)
    yield "SciPy", small
    yield "SciPy, eager", small._replace(known=False, eager=True)
    yield "SciPy, Explicit", small._replace(known=False, explicit=True)
    yield "SciPy, Explicit, eager", small._replace(known=False, explicit=True, eager=True)
    yield "cut, eager", small._replace(solve=partial(cut, A=SMALL), known=False, eager=True)
    uneven = np.random.default_rng(0).integers(0, 3, 400)
    yield "uneven parts", small._replace(solve=partial(cut, A=SMALL, way={"labels": uneven}))


def _kinds() -> Iterator[tuple[str, Case]]:
    small = case(SMALL, partial(solved, A=SMALL), known=True)
    for kind in ("jacobi", "chebyshev", "block-jacobi", "schwarz"):
        yield kind, small._replace(solve=partial(solved, A=SMALL, preconditioner=kind))
    yield "a function as M", small._replace(solve=partial(solved, A=SMALL, preconditioner=lambda r: r / 6))
    windy = case(WINDY, partial(solved, A=WINDY, method="biCG-stab(2)"), known=True)
    yield "biCG-stab(2)", windy
    schwarz = partial(solved, A=WINDY, method="biCG-stab(2)", preconditioner="schwarz")
    yield "biCG-stab(2), schwarz", windy._replace(solve=schwarz)
    for method in ("GMRES(20)", "MINRES", "IDR(4)", "CG-single-reduction"):
        yield method, small._replace(solve=partial(solved, A=SMALL, method=method, preconditioner="jacobi"))
    for name, one in {"auto": small, "auto, windy": windy}.items():
        A = SMALL if one is small else WINDY
        yield name, one._replace(solve=partial(solved, A=A, method="auto"))
        yield f"{name}, eager", one._replace(solve=partial(solved, A=A, method="auto"), known=False, eager=True)
    hubs = with_hubs(400, 2)
    yield "hubs", case(hubs, partial(solved, A=hubs), known=True)


def _shapes() -> Iterator[tuple[str, Case]]:
    """Batches, meshes of two axes, dtypes, singular matrices."""
    many = np.random.default_rng(1).normal(size=(2, 400))
    batch = Case("line", (None, "i"), many, partial(solved, A=SMALL), right(SMALL, many), known=True)
    yield "batch", batch
    yield "batch, eager", batch._replace(known=False, eager=True)
    yield "batch over j", batch._replace(mesh="2x2", spec=("j", "i"))
    schwarz = partial(solved, A=SMALL, preconditioner="schwarz")
    yield "batch over j, schwarz", batch._replace(mesh="2x2", spec=("j", "i"), solve=schwarz)
    yield "both mesh axes", case(SMALL, schwarz, mesh="2x2", known=True)._replace(spec=(("i", "j"),))
    yield "both mesh axes, other order", case(SMALL, schwarz, mesh="2x2", known=True)._replace(spec=(("j", "i"),))
    yield "half of the mesh", case(SMALL, schwarz, mesh="2x2", known=True)._replace(spec=("j",))
    yield "half of the mesh, eager", case(SMALL, schwarz, mesh="2x2", eager=True)._replace(spec=("j",))
    shifted = sp.csr_array(SMALL + 0.5j * sp.eye_array(400))
    b = many[0] + 1j * many[1]
    solve = partial(solved, A=shifted, method="biCG-stab(2)", preconditioner="schwarz")
    yield "complex", Case("line", ("i",), b, solve, right(shifted, b), known=True)
    single = many[0].astype(np.float32)

    def in_single(b: Any, **known: Any) -> Any:
        return linear_solve(SMALL.astype(np.float32), b, rtol=1e-5, **known).x

    yield "single", Case("line", ("i",), single, in_single, right(SMALL, single), known=True)
    neumann = sp.csr_array(SMALL - 0.01 * sp.eye_array(400))
    balanced = many[0] - many[0].mean()
    expected = Later(lambda: np.linalg.lstsq(neumann.toarray(), balanced)[0])
    for kind in (None, "schwarz"):
        solve = partial(solved, A=neumann, preconditioner=kind)
        yield f"null space, {kind}", Case("line", ("i",), balanced, solve, expected, known=True)
    start = partial(solved, A=SMALL, x0=np.ones(400), history=True)
    yield "start", case(SMALL, start, known=True)
    limited = partial(linear_solve, SMALL, method="CG", rtol=1e-10, max_iter=[5, 500])
    yield "several limits", case(SMALL, lambda b, **known: limited(b, **known).x[1], known=True)


def _derivatives() -> Iterator[tuple[str, Case]]:
    def energy(b: Any, A: Any = SMALL, **settings: Any) -> Any:
        return 0.5 * jnp.sum(solved(b, A=A, **settings)[0] ** 2)

    small = case(SMALL, None, known=True)
    for name, kind in {"gradient": None, "gradient, schwarz": "schwarz"}.items():
        solve = jax.grad(partial(energy, preconditioner=kind))
        yield name, small._replace(solve=solve, expected=right(SMALL, small.expected))
    solve = jax.grad(partial(energy, A=WINDY, method="biCG-stab(2)"))
    windy = small._replace(solve=solve, expected=right(WINDY.T, right(WINDY, small.b)))
    yield "gradient, windy", windy
    yield "gradient, windy, eager", windy._replace(known=False, eager=True)
    places = np.stack(WINDY.nonzero(), 1)
    known_places = jnp.asarray(places)  # outside of the program, in which they would be traced
    data = WINDY[places[:, 0], places[:, 1]]
    x = np.asarray(right(WINDY, small.b))
    sensitivity = -np.asarray(right(WINDY.T, x))[places[:, 0]] * x[places[:, 1]]

    def by_values(b: Any, data: Any, kind: Any = None, **known: Any) -> Any:
        def of_data(data: Any) -> Any:
            A = jsparse.BCOO((data, known_places), shape=WINDY.shape)
            x, _ = solved(b, A=A, method="biCG-stab(2)", preconditioner=kind, **known)
            return 0.5 * jnp.sum(x**2), x

        gradient, x = jax.grad(of_data, has_aux=True)(data)
        return x, {"gradient": jnp.max(jnp.abs(gradient - sensitivity)) / np.max(np.abs(sensitivity))}

    for kind in (None, "jacobi", "schwarz"):
        solve = partial(by_values, kind=kind)
        yield f"values, {kind}", small._replace(solve=solve, arrays=[(data, ())], expected=x)


def _others() -> Iterator[tuple[str, Case]]:
    """Matrices and preconditioners that are made before the solve."""
    small = case(SMALL, None, eager=True)

    def by_preconditioner(b: Any) -> Any:
        A = row_cut(SMALL, like=b)
        M = preconditioner(A, "schwarz")
        images = np.asarray(M @ b), np.asarray(M.T @ b)
        x, numbers = solved(b, A=A, preconditioner=M)
        return x, numbers | {"symmetric": np.abs(images[0] - images[1]).max()}

    def by_prepared(b: Any) -> Any:
        result = prepare(row_cut(SMALL, like=b), b, rtol=1e-10).solve(b)
        return result.x, {"iterations": result.iterations, "is_cg": result.method == "CG"}

    def failing(b: Any) -> Any:
        try:
            solved(b, A=row_cut(SMALL, like=b), max_iter=3)
        except NotConverged as error:
            r = np.asarray(b) - SMALL @ np.asarray(error.result.x)
            difference = np.abs(r - np.asarray(error.result.residual)).max()
            return solved(b, A=SMALL)[0], {"difference": difference}
        return 0 * b

    def watched(b: Any) -> Any:
        seen: list[np.ndarray] = []
        solved(b, A=SMALL, callback=lambda state: seen.append(np.asarray(state.x)))
        return jax.device_put(seen[-1], b.sharding)

    def as_argument(b: Any) -> Any:
        A = row_cut(SMALL, like=b)
        M = preconditioner(A, "schwarz")
        solve = jax.jit(lambda A, M, b: solved(b, A=A, preconditioner=M))
        x, numbers = solve(A, M, b)
        program = solve.lower(A, M, b).compile().as_text()
        return x, numbers | {"constant": max(constants(program), default=0)}

    def products(b: Any) -> Any:
        A = row_cut(WINDY, like=b)
        images = [A @ b, A.T @ b, A(b), A.diagonal()]
        expected = [WINDY @ small.b, WINDY.T @ small.b, WINDY @ small.b, WINDY.diagonal()]
        wrong = max(np.abs(np.asarray(y) - z).max() for y, z in zip(images, expected, strict=True))
        return images[0], {"wrong": wrong}

    yield "a preconditioner", small._replace(solve=by_preconditioner)
    yield "prepared", small._replace(solve=by_prepared)
    yield "failure", small._replace(solve=failing)
    yield "callback", small._replace(solve=watched)
    yield "as an argument", small._replace(solve=as_argument)
    yield "products", small._replace(solve=products, expected=WINDY @ small.b)
