"""Random NumPy programs that write in place and through views: their matrices against the programs themselves."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

from krylix.sparse.tracing.front_end import front_end_of
from krylix.sparse.tracing.matrix_from_function import traced_matrix
from random_examples import random_examples
from unit_vectors import matrix_of

MOST = 150  # elements of any array
SHAPES = [(7,), (4, 5), (3, 4, 2), (1, 6), (12,), (2, 2, 3), ()]
Rng = np.random.Generator
Step = Callable[[Rng, Any], Any]


def numbers(rng: Rng, shape: Any) -> np.ndarray:
    """Small integers, some zero: their sums are exact."""
    return rng.integers(-3, 4, shape).astype(float)


def key_of(rng: Rng, shape: tuple[int, ...]) -> Any:
    """An index of every kind."""
    kind = rng.integers(6)
    if kind == 0 and shape:
        return rng.random(shape) > 0.5
    if kind == 1 and shape:
        return rng.integers(-shape[0], shape[0], int(rng.integers(1, 5)))
    if kind == 2:
        return ...
    parts: list[Any] = []
    for n in shape[: int(rng.integers(len(shape) + 1))]:
        choice = rng.integers(4)
        start, stop = sorted(int(i) for i in rng.integers(-n, n + 1, 2))
        if choice == 0:
            parts.append(int(rng.integers(-n, n)))
        elif choice == 1:
            parts.append(slice(None, None, int(rng.choice([-2, -1, 2]))))
        elif choice == 2 and not any(isinstance(p, np.ndarray) for p in parts):
            parts.append(rng.integers(0, n, 3))
        else:
            parts.append(slice(start, stop))
    return tuple(parts)


def axis_of(rng: Rng, u: Any) -> int:
    return int(rng.integers(u.ndim))


def written(rng: Rng, u: Any) -> Any:
    if u.ndim == 0:
        return u
    y = u.copy() if rng.random() < 0.5 else np.zeros_like(u)
    key = key_of(rng, u.shape)
    value = (2 * u)[key]
    y[key] = value if rng.random() < 0.7 else 3.0
    return y + u


def accumulated(rng: Rng, u: Any) -> Any:
    if u.ndim == 0:
        return np.array(2.0) * u
    y = 2 * u
    for _ in range(2):
        key = key_of(rng, u.shape)
        value = u[key] * 2
        if rng.random() < 0.5:
            y[key] += value
        else:
            y[key] -= value[::-1] if np.ndim(value) else value
    return y


def through_view(rng: Rng, u: Any) -> Any:
    if u.ndim == 0:
        return u
    y = u.copy()
    views = [y.T, y[::-1], y.reshape(-1), y[..., None], y.swapaxes(0, -1), np.moveaxis(y, 0, -1), np.atleast_2d(y)]
    v = views[int(rng.integers(len(views)))]
    w = v[key_of(rng, v.shape)]
    if isinstance(w, float) or w.ndim == 0 or not w.size:
        return y
    w *= 2
    w[0] = 1 if rng.random() < 0.3 else w[-1]
    v += w.sum()
    return y


def added_at(rng: Rng, u: Any) -> Any:
    if u.ndim == 0:
        return u
    y = np.zeros_like(u)
    index = rng.integers(0, u.shape[0], int(rng.integers(1, 6)))
    np.add.at(y, index, u[: len(index)][0] if rng.random() < 0.5 else u[index[::-1]])
    return y - u


def overlapping(rng: Rng, u: Any) -> Any:
    y = 2 * u
    if u.ndim and len(u) > 1:
        y[1:] = y[:-1]
        y[:-1] += y[1:]
    return y


def masked(rng: Rng, u: Any) -> Any:
    mask = rng.random(u.shape) > 0.5
    y = np.where(mask, u, numbers(rng, u.shape))
    np.copyto(y, 2 * u, where=~mask) if y.ndim else None
    return np.add(y, u, out=y, where=mask) if y.ndim else y


def moved(rng: Rng, u: Any) -> Any:
    if u.ndim == 0:
        return u[None]
    axis = axis_of(rng, u)
    return [
        lambda: np.roll(u, int(rng.integers(-9, 9)), axis),
        lambda: np.pad(u, [(int(rng.integers(3)), int(rng.integers(3))) for _ in u.shape], mode="edge"),
        lambda: np.pad(u, 1, mode="wrap"),
        lambda: np.concatenate([u, numbers(rng, u.shape), u[::-1]], axis),
        lambda: np.stack([u, u[::-1]], axis),
        lambda: np.take(u, rng.integers(0, u.shape[axis], 4), axis),
        lambda: np.repeat(u, 2, axis),
        lambda: np.flip(u, axis),
        lambda: u.reshape(-1, 1) if u.shape[0] != 1 else u[0],
        lambda: np.split(u, [1], axis)[1],
        lambda: np.diagonal(u) if u.ndim > 1 else u,
    ][int(rng.integers(11))]()


def summed(rng: Rng, u: Any) -> Any:
    if u.ndim == 0:
        return u * 2 + 1
    axis = axis_of(rng, u)
    return [
        lambda: u.sum(axis),
        lambda: np.cumsum(u, axis),
        lambda: u - u.mean(axis, keepdims=True),
        lambda: np.diff(u, axis=axis),
        lambda: np.sum(u, axis=axis, keepdims=True) + u,
        lambda: np.gradient(u, axis=axis) if u.shape[axis] > 1 else u,
    ][int(rng.integers(6))]()


def multiplied(rng: Rng, u: Any) -> Any:
    if u.ndim == 0:
        return u * numbers(rng, 3)
    n = u.shape[0]
    return [
        lambda: numbers(rng, u.shape) * u,
        lambda: numbers(rng, (3, *u.shape)) * u - 1,
        lambda: numbers(rng, (2, n)) @ u if u.ndim < 3 else u,
        lambda: np.tensordot(numbers(rng, (2, n)), u, (1, 0)),
        lambda: np.einsum("i...,ij->j...", u, numbers(rng, (n, 2))),
        lambda: sp.csr_array(numbers(rng, (n, n))) @ u if u.ndim < 3 else -u,
        lambda: u / 2.0 + u * np.float64(3),
    ][int(rng.integers(7))]()


STEPS: list[Step] = [written, accumulated, through_view, added_at, overlapping, masked, moved, summed, multiplied]


def program(seed: int, steps: list[int]) -> Callable[[Any], Any]:
    def run(u: Any) -> Any:
        rng = np.random.default_rng(seed)
        for step in steps:
            new = STEPS[step](rng, u)
            if new.size > MOST or new.size == 0:
                continue
            u = new
        return u

    return run


@random_examples(
    60,
    300,
    5000,
    shape=st.sampled_from(SHAPES),
    seed=st.integers(0, 2**31),
    steps=st.lists(st.integers(0, len(STEPS) - 1), min_size=1, max_size=6),
)
def test_random_programs(shape: tuple[int, ...], seed: int, steps: list[int]) -> None:
    f = program(seed, steps)
    expected, bias = matrix_of(f, shape)
    matrix, constant = traced_matrix(front_end_of("numpy"), f, np.empty(shape), verify=False)
    scale = max(1, np.abs(expected).max(), np.abs(bias).max())  # of what is subtracted
    np.testing.assert_allclose(matrix.toarray(), expected, atol=1e-12 * scale)
    np.testing.assert_allclose(np.ravel(constant), np.ravel(bias), atol=1e-12 * max(1, np.abs(bias).max()))
