"""Products of stencils by one exchange with the neighbours, whatever the function is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from krylix import linear_solve

from .cases import Case, Later, dense, exact, periodic, shifted, star

N, SYSTEMS = 16, 4
rng = np.random.default_rng(0)
GRID, WEIGHTS = rng.normal(size=(N, N)), 1 + rng.random((N, N))


def padded(u: Any) -> Any:
    p = jnp.pad(u, [(0, 0)] * (u.ndim - 2) + [(1, 1), (1, 1)])
    return 4.1 * u - p[..., 2:, 1:-1] - p[..., :-2, 1:-1] - p[..., 1:-1, 2:] - p[..., 1:-1, :-2]


def added(u: Any) -> Any:
    """By scattered sums, with a boundary row of its own."""
    y = 4.1 * u
    for here, there in ((np.s_[1:], np.s_[:-1]), (np.s_[:-1], np.s_[1:])):
        y = y.at[..., here, :].add(-u[..., there, :])
        y = y.at[..., here].add(-u[..., there])
    return y.at[..., 0, :].add(2 * u[..., 0, :])


def analytic(u: Any) -> Any:
    """Coefficients that the function computes by itself."""
    x = jnp.linspace(0, 1, N)
    return star(u) + (1 + jnp.sin(3 * x)[:, None] * x) * u


def conduction(u: Any, c: Any = WEIGHTS) -> Any:
    """Conductivities c between points, and u = 0 around."""
    p, q = jnp.pad(u, 1), jnp.pad(c, 1, mode="edge")
    flux = [0.5 * (q[1:, 1:-1] + q[:-1, 1:-1]) * (p[1:, 1:-1] - p[:-1, 1:-1])]
    flux.append(0.5 * (q[1:-1, 1:] + q[1:-1, :-1]) * (p[1:-1, 1:] - p[1:-1, :-1]))
    return flux[0][:-1] - flux[0][1:] + flux[1][:, :-1] - flux[1][:, 1:]


def far(u: Any) -> Any:
    return 9 * u - jnp.roll(u, 3, 0) - jnp.roll(u, -3, 0) - jnp.roll(u, 2, 1) - jnp.roll(u, -2, 1)


def nine(u: Any) -> Any:
    p = jnp.pad(u, 1)
    return 9 * u - sum(p[1 + i : N + 1 + i, 1 + j : N + 1 + j] for i in (-1, 0, 1) for j in (-1, 0, 1))


def wind(u: Any) -> Any:
    p = jnp.pad(u, 1)
    return star(u) + 0.7 * (p[1:-1, 1:-1] - p[:-2, 1:-1]) * WEIGHTS + 0.3 * (p[1:-1, 1:-1] - p[1:-1, :-2])


def ring(u: Any) -> Any:
    return 0.9 * periodic(u) + 0.5 * u


def weighted_ring(u: Any) -> Any:
    return ring(u) + WEIGHTS * u


def over(u: Any) -> Any:
    """Further than a block of four points."""
    return 5 * u - shifted(u, (6, 0)) - shifted(u, (-6, 0))


def half_around(u: Any) -> Any:
    """Of a ring of four points, where two steps back and two ahead lead to one point."""
    return 7 * u - sum(jnp.roll(u, s, 0) for s in (1, -1, 2, -2))


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "star": star, "padded": padded, "added": added, "analytic": analytic, "conduction": conduction, "far": far,
    "nine": nine, "ring": ring, "weighted ring": weighted_ring,
}  # fmt: skip


def solved(b: Any, *arrays: Any, A: Any = star, method: str = "CG", **settings: Any) -> Any:
    return linear_solve(A, b, method=method, rtol=1e-10, args=arrays, **settings).x


def cases() -> Iterator[tuple[str, Case]]:
    for name, A in FUNCTIONS.items():
        expected = exact(A, GRID)
        for mesh in ("rows", "columns", "2x2"):
            yield f"{name}, {mesh}", Case(mesh, ("i", "j"), GRID, partial(solved, A=A), expected, known=True)
    one = Case("2x2", ("i", "j"), GRID, solved, exact(conduction, GRID), known=True)
    traced = one._replace(arrays=[(WEIGHTS, ("i", "j"))], solve=partial(solved, A=conduction))
    yield "traced coefficients, 2x2", traced
    yield "Explicit, 2x2", traced._replace(explicit=True, known=False)
    yield "eager, 2x2", traced._replace(eager=True, known=False)
    method = partial(solved, A=wind, method="biCG-stab(2)")
    yield "wind, 2x2", one._replace(solve=method, expected=exact(wind, GRID))
    gradient = jax.grad(lambda b, **s: 0.5 * jnp.sum(method(b, **s) ** 2))

    def twice() -> np.ndarray:
        A = dense(wind, (N, N))
        return np.linalg.solve(A.T, np.linalg.solve(A, GRID.ravel())).reshape(N, N)

    yield "gradient with wind, 2x2", one._replace(solve=gradient, expected=Later(twice))
    for way in ("mixed-CG", "CG-single-reduction", "GMRES(9)"):
        yield f"{way}, 2x2", one._replace(solve=partial(solved, A=conduction, method=way))
    far_away = one._replace(mesh="rows", solve=partial(solved, A=over), expected=exact(over, GRID))
    yield "reaches over a block, rows", far_away
    small = GRID[:4, :4]
    around = one._replace(b=small, solve=partial(solved, A=half_around), expected=exact(half_around, small))
    yield "half around, 2x2", around
    affine = partial(solved, A=lambda u: conduction(u) + WEIGHTS)
    yield "affine, 2x2", one._replace(solve=affine, expected=exact(conduction, GRID - WEIGHTS))
    many = rng.normal(size=(SYSTEMS, N, N))
    specs = (None, "i", "j")
    systems = Case("2x2", specs, many, partial(solved, A=padded, batch_ndim=1), exact(star, many), known=True)
    yield "systems, 2x2", systems
    yield "spread systems, 2x2", systems._replace(spec=("i", "j", None))
    own = rng.random((SYSTEMS, N, N))
    each = Later(lambda: [np.asarray(exact(lambda u, c=c: star(u) + c * u, b)) for c, b in zip(own, many, strict=True)])
    solve = partial(solved, A=lambda u, c: padded(u) + c * u, batch_ndim=1)
    yield "coefficients of each system, 2x2", systems._replace(solve=solve, expected=each, arrays=[(own, specs)])
    complex_ = GRID + 1j * WEIGHTS

    def hermitian(u: Any) -> Any:
        p = jnp.pad(u, 1)
        return 4.1 * u - 1j * p[2:, 1:-1] + 1j * p[:-2, 1:-1] - p[1:-1, 2:] - p[1:-1, :-2]

    expected = exact(hermitian, complex_)
    yield "complex, 2x2", one._replace(b=complex_, solve=partial(solved, A=hermitian), expected=expected)

    def energy(b: Any, c: Any, **settings: Any) -> Any:
        return 0.5 * jnp.sum(solved(b, c, A=lambda u, c: star(u) + c * u, **settings) ** 2)

    def weighted(u: Any) -> Any:
        return star(u) + WEIGHTS * u

    x = exact(weighted, GRID)
    y = exact(weighted, x)
    by_c = Later(lambda: -np.asarray(x) * np.asarray(y))
    yield "gradient by b, 2x2", traced._replace(solve=jax.grad(energy), expected=y)
    yield "gradient by coefficients, 2x2", traced._replace(solve=jax.grad(energy, 1), expected=by_c)
