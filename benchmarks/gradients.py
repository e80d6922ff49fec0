"""Seconds of a solve with its gradient, beside the same solve without, and beside the gradients of peers.

The system is an implicit diffusion step on a square, by conjugate gradients to a relative residual of 1e-6. The
gradient is that of a weighted sum of the solution, with respect to the coefficients and the right-hand side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from krylix import linear_solve

from .measure import compare, per_call
from .settings import Settings, missing
from .table import Row

RTOL, STEP, BUDGET = 1e-6, 20.0, 2.5
CG = {"method": "CG", "rtol": RTOL}
Call = Callable[[], Any]


def rows(settings: Settings) -> Iterator[Row]:
    settings = replace(settings, repeats=min(settings.repeats, 5))  # these take seconds each
    for package, group in {"jax": jax_rows, "torch": torch_rows, "tensorflow": tensorflow_rows}.items():
        if missing(package):
            yield Row(f"gradient, {package}", "forward", missing=f"{package} is not installed", budget=BUDGET)
        else:
            yield from group(settings)


def diffusion(x: Any, k: Any, pad: Callable[[Any], Any]) -> Any:
    """x - STEP div(k grad x) with x = 0 outside; `k` `(grid + 1, grid + 1)` has the edge above and left of a point."""
    p = pad(x)
    down, right = k[:, :-1] * (p[1:, 1:-1] - p[:-1, 1:-1]), k[:-1] * (p[1:-1, 1:] - p[1:-1, :-1])
    return x - STEP * (down[1:] - down[:-1] + right[:, 1:] - right[:, :-1])


def numbers(grid: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coefficients, right-hand side, weights of the loss: all frequencies, so that both solves take as long."""
    rng = np.random.default_rng(0)
    k = 1 + 0.5 * rng.random((grid + 1, grid + 1))
    return k, rng.standard_normal((grid, grid)), rng.standard_normal((grid, grid))


def entries(k: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and values of the same matrix, by rows."""
    n = k.shape[0] - 1
    i, j = (index.ravel() for index in np.indices((n, n)))
    above, left = k[i, j], k[i, j]
    below, right = k[i + 1, j], k[i, j + 1]
    sides = [(-1, 0, above), (0, -1, left), (0, 1, right), (1, 0, below)]
    inside = [(i + di >= 0) & (i + di < n) & (j + dj >= 0) & (j + dj < n) for di, dj, _ in sides]
    here = i * n + j
    row = np.concatenate([here, *(here[m] for m in inside)])
    column = np.concatenate([here, *((here + di * n + dj)[m] for (di, dj, _), m in zip(sides, inside, strict=True))])
    value = np.concatenate(
        [1 + STEP * (above + left + below + right), *(-STEP * v[m] for (_, _, v), m in zip(sides, inside, strict=True))]
    )
    order = np.lexsort((column, row))
    return row[order], column[order], value[order]


def compared(
    what: str, forward: Call, backward: Call, peers: dict[str, Call | None], settings: Settings
) -> Iterator[Row]:
    """`backward` beside `forward` and beside each peer, whose gradients are seen to be the same."""
    pair = (per_call(backward), per_call(forward))
    yield Row(what, "its forward solve", compare(*pair, settings.repeats), budget=BUDGET)
    for peer, call in peers.items():
        if call is None:
            yield Row(what, peer, missing="not installed")
            continue
        for mine, theirs in zip(backward(), call(), strict=True):
            mine, theirs = np.asarray(mine), np.asarray(theirs)
            difference = np.linalg.norm(mine - theirs) / np.linalg.norm(theirs)
            if not difference < 1e-4:
                raise RuntimeError(f"{what}: the gradients of krylix and {peer} differ by {difference:.1e}")
        yield Row(what, peer, compare(per_call(backward), per_call(call), settings.repeats))


def jax_rows(settings: Settings) -> Iterator[Row]:
    import jax
    import jax.numpy as jnp
    from jax.experimental import sparse

    from . import peers_jax

    k, b, w = (jnp.asarray(v) for v in numbers(settings.grid_of_gradients))
    row, column, values = entries(np.asarray(k))
    index = jnp.asarray(np.stack([row, column], 1).astype(np.int32))
    shape = (b.size, b.size)

    def stencil(x: Any, k: Any) -> Any:
        return diffusion(x, k, lambda x: jnp.pad(x, 1))

    def matrix(values: Any) -> Any:
        return sparse.BCOO((values, index), shape=shape, indices_sorted=True, unique_indices=True)

    def by_function(solver: Callable[[Callable[[Any], Any], Any], Any]) -> Callable[..., Any]:
        return lambda k, b: jnp.sum(w * solver(lambda x: stencil(x, k), b))

    def by_matrix(solver: Callable[[Callable[[Any], Any], Any], Any]) -> Callable[..., Any]:
        return lambda values, b: jnp.sum(w.ravel() * solver(lambda x: matrix(values) @ x, b))

    def ours(values: Any, b: Any) -> Any:
        return jnp.sum(w.ravel() * linear_solve(matrix(values), b, **CG).x)

    def call(program: Any, *p: Any) -> Call:
        return lambda: jax.block_until_ready(program(*p))

    def gradient(loss: Callable[..., Any], *p: Any) -> Call:
        program = jax.jit(jax.value_and_grad(loss, (0, 1)))
        return lambda: jax.block_until_ready(program(*p))[1]

    others = {"jax.scipy cg": peers_jax.jax_scipy_in(RTOL), "lineax CG": peers_jax.lineax_in(RTOL)}
    usable = {name: solver for name, solver in others.items() if not missing(name.split()[0].split(".")[0])}
    mine = by_function(lambda A, b: linear_solve(A, b, **CG).x)
    for what, loss, p, make in (
        (f"function, {settings.grid_of_gradients}²", mine, (k, b), by_function),
        (f"BCOO, {settings.grid_of_gradients}²", ours, (jnp.asarray(values), b.ravel()), by_matrix),
    ):
        peers = {name: gradient(make(usable[name]), *p) if name in usable else None for name in others}
        yield from compared(
            f"gradient of CG, JAX in jit, {what}", call(jax.jit(loss), *p), gradient(loss, *p), peers, settings
        )


def torch_rows(settings: Settings) -> Iterator[Row]:
    import torch

    k, b, w = (torch.as_tensor(v) for v in numbers(settings.grid_of_gradients))
    row, column, values = entries(k.numpy())
    starts = np.searchsorted(row, np.arange(b.numel() + 1))
    parts = (torch.as_tensor(v) for v in (starts, column, values))
    csr = torch.sparse_csr_tensor(*parts, (b.numel(), b.numel()), check_invariants=False)

    def stencil(k: Any, b: Any) -> Any:
        pad = torch.nn.functional.pad
        return torch.sum(w * linear_solve(lambda x: diffusion(x, k, lambda x: pad(x, (1, 1, 1, 1))), b, **CG).x)

    def matrix(A: Any, b: Any) -> Any:  # A itself is differentiated: not what torch makes of the values it is made of
        return torch.sum(w.ravel() * linear_solve(A, b, **CG).x)

    for name, loss, p in (("function", stencil, (k, b)), ("CSR", matrix, (csr, b.ravel()))):
        tracked = tuple(v.detach().clone().requires_grad_() for v in p)

        def backward(loss: Any = loss, tracked: Any = tracked) -> Any:
            return torch.autograd.grad(loss(*tracked), tracked)

        what = f"gradient of CG, PyTorch, {name}, {settings.grid_of_gradients}²"
        yield from compared(what, lambda loss=loss, p=p: loss(*p), backward, {}, settings)


def tensorflow_rows(settings: Settings) -> Iterator[Row]:
    import tensorflow as tf

    k, b, w = (tf.constant(v) for v in numbers(settings.grid_of_gradients))
    row, column, values = entries(k.numpy())
    index, n = tf.constant(np.stack([row, column], 1)), int(tf.size(b))

    def stencil(k: Any, b: Any) -> Any:
        A = lambda x: diffusion(x, k, lambda x: tf.pad(x, [[1, 1], [1, 1]]))  # noqa: E731
        return tf.reduce_sum(w * linear_solve(A, b, **CG).x)

    def matrix(values: Any, b: Any) -> Any:
        return tf.reduce_sum(tf.reshape(w, [-1]) * linear_solve(tf.SparseTensor(index, values, (n, n)), b, **CG).x)

    cases = (("function", stencil, (k, b)), ("SparseTensor", matrix, (tf.constant(values), tf.reshape(b, [-1]))))
    for name, loss, p in cases:

        def backward(*p: Any, loss: Any = loss) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(p)
                value = loss(*p)
            return tape.gradient(value, p)

        programs = [tf.function(f, autograph=False) for f in (loss, backward)]
        forward, both = (lambda f=f, p=p: [v.numpy() for v in tf.nest.flatten(f(*p))] for f in programs)
        what = f"gradient of CG, TensorFlow in tf.function, {name}, {settings.grid_of_gradients}²"
        yield from compared(what, forward, both, {}, settings)
