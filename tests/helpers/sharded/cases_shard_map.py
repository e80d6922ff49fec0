"""Solves inside of `jax.shard_map`, whose functions tell other devices something, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, PartitionSpec

from krylix import linear_solve

from .cases import Case, exact, star

N = 8
METHODS = ("CG", "biCG-stab(2)", "GMRES(5)", "MINRES", "IDR(4)", "auto")
MATRIX = np.diag(np.full(N, 4.0)) - np.eye(N, k=1) - np.eye(N, k=-1)
OWN = np.random.default_rng(0).normal(size=(4, N, N))


def mapped(function: Any, in_specs: Any, out_specs: Any, checked: bool, explicit: bool = False) -> Any:
    mesh = jax.make_mesh((4,), ("i",), axis_types=(AxisType.Explicit if explicit else AxisType.Auto,))
    return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=checked)


def all_rows(rows: Any, b: Any, method: str) -> Any:
    """Each device multiplies by its rows, and all of them have the whole product."""
    first = lax.axis_index("i") * (N // 4)

    def product(x: Any) -> Any:
        return lax.psum(lax.dynamic_update_slice(jnp.zeros(N), rows @ x, (first,)), "i")

    return linear_solve(product, b, method=method, rtol=1e-10).x


def own_system(b: Any, method: str) -> Any:
    """A system on each device, whose diagonal is the same on all: by a message that each product needs."""

    def product(u: Any) -> Any:
        return star(u) + lax.psum(1.0, "i") * u

    return linear_solve(product, b[0], method=method, rtol=1e-10).x[None]


def own_batch(b: Any, method: str) -> Any:
    """The batch of each device, which tells the others nothing."""
    return linear_solve(star, b, method=method, rtol=1e-10, batch_ndim=1).x


def cases() -> Iterator[tuple[str, Case]]:
    spread, whole = PartitionSpec("i"), PartitionSpec()
    vector = np.random.default_rng(1).normal(size=N)
    many = np.random.default_rng(2).normal(size=(8, N, N))
    for checked in (True, False):
        for method in METHODS:
            tail = f"{method}, {'checked' if checked else 'not checked'}"
            rows = mapped(partial(all_rows, method=method), (spread, whole), whole, checked)
            solution = np.linalg.solve(MATRIX, vector)
            yield f"rows, {tail}", Case("line", (), vector, lambda b, A, f=rows: f(A, b), solution, ((MATRIX, ("i",)),))
            own = mapped(partial(own_system, method=method), spread, spread, checked)
            shifted = exact(lambda u: star(u) + 4 * u, OWN)
            yield f"systems, {tail}", Case("line", ("i",), OWN, own, shifted)
            batch = mapped(partial(own_batch, method=method), spread, spread, checked)
            yield f"batches, {tail}", Case("line", ("i",), many, batch, exact(star, many))
        tail = "checked" if checked else "not checked"
        own = mapped(partial(own_system, method="CG"), spread, spread, checked, True)
        yield f"systems, Explicit, {tail}", Case("line", ("i",), OWN, own, shifted, explicit=True)
        one = mapped(partial(own_system, method="CG"), spread, spread, checked)

        def energy(b: Any, f: Any = one) -> Any:
            return 0.5 * jnp.sum(f(b) ** 2)

        twice = exact(lambda u: star(u) + 4 * u, shifted)
        yield f"gradient, {tail}", Case("line", ("i",), OWN, jax.grad(energy), twice)
