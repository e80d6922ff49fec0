"""Batches whose systems lie on several devices."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from krylix import linear_solve
from krylix.sparse import Stencil

from .cases import STAR, Case, dense, exact, star

N, SYSTEMS = 8, 8
MANY = np.random.default_rng(1).normal(size=(SYSTEMS, N, N))
FACTORS = 1 + np.random.default_rng(2).random((SYSTEMS, N, N))
KINDS = ("jacobi", "multigrid", "chebyshev", "ilu", "amg", "fast", "ssor", "ic")
METHODS = ("CG", "biCG-stab(2)", "GMRES(9)", "MINRES", "IDR(4)", "mixed-CG", "LSMR", "COCR")


def solved(b: Any, *, A: Any = star, method: str = "CG", **settings: Any) -> Any:
    batch = {} if isinstance(A, Stencil) or hasattr(A, "shape") else {"batch_ndim": 1}
    return linear_solve(A, b, method=method, rtol=1e-10, on_failure="nan", **batch, **settings).x


def cases() -> Iterator[tuple[str, Case]]:
    one = Case("line", ("i",), MANY, solved, exact(star, MANY), known=True)
    for method in METHODS:
        yield method, one._replace(solve=partial(solved, method=method))
    yield "CG, eager", one._replace(known=False, eager=True)
    yield "CG, Explicit", one._replace(known=False, explicit=True)
    yield "CG, not known", one._replace(known=False)
    for kind in KINDS:
        method = "biCG-stab(2)" if kind == "ilu" else "CG"
        yield kind, one._replace(solve=partial(solved, method=method, preconditioner=kind))
    yield "a function as M", one._replace(solve=partial(solved, preconditioner=lambda r: r / 4))
    affine = partial(solved, A=lambda u: star(u) + 1)
    yield "affine", one._replace(solve=affine, expected=exact(star, MANY - 1))

    def energy(b: Any, **known: Any) -> Any:
        return 0.5 * jnp.sum(solved(b, **known) ** 2)

    yield "gradient", one._replace(solve=jax.grad(energy), expected=exact(star, exact(star, MANY)))
    flat = one._replace(b=MANY.reshape(SYSTEMS, -1), expected=exact(star, MANY).reshape(SYSTEMS, -1))
    stencil = Stencil(list(STAR.values()), list(STAR), (N, N))
    yield "stencil", flat._replace(solve=partial(solved, A=stencil))
    matrices = dense(star, (N, N)) + np.stack([np.diag(c.ravel()) for c in FACTORS])
    own = np.linalg.solve(matrices, MANY.reshape(SYSTEMS, -1, 1))[..., 0]
    yield "a matrix for each", flat._replace(solve=partial(solved, A=jnp.asarray(matrices)), expected=own)
    of_each = one._replace(expected=own.reshape(MANY.shape))

    def by_place(u: Any) -> Any:  # of all systems something else than of those on one device
        return star(u) + FACTORS[: u.shape[0]] * u

    yield "a function of all systems", of_each._replace(solve=partial(solved, A=lambda u: star(u) + FACTORS * u))
    yield "a function by place", of_each._replace(solve=partial(solved, A=by_place))
    yield "a function by place, eager", of_each._replace(solve=partial(solved, A=by_place), known=False, eager=True)

    def traced(b: Any, factors: Any, **known: Any) -> Any:  # whose values nobody knows when it is compiled
        x = solved(b, A=lambda u: star(u) + factors[: u.shape[0]] * u, **known)
        return x, {"failed": jnp.isnan(x).any((1, 2))}

    yield "a traced function by place", of_each._replace(solve=traced, arrays=((FACTORS, ()),))

    def with_arguments(b: Any, factors: Any, **known: Any) -> Any:
        return solved(b, A=lambda u, c: star(u) + c["own"] * u, args=({"own": factors},), **known)

    own_part = of_each._replace(solve=with_arguments, arrays=((FACTORS, ("i",)),))
    yield "arguments of each", own_part

    def energy_of(b: Any, factors: Any, **known: Any) -> Any:
        return jax.grad(lambda b: 0.5 * jnp.sum(with_arguments(b, factors, **known) ** 2))(b)

    twice = np.linalg.solve(matrices, own[..., None])[..., 0].reshape(MANY.shape)
    yield "gradient with arguments of each", own_part._replace(solve=energy_of, expected=twice)
