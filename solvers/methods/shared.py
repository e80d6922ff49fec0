"""What methods are made of: stacks of vectors, shadow vectors, and products scaled by powers of two.

A stack is `(batch, k, n)`; in the state of a method it is flat, `(batch, k n)`, as the driver freezes rows. Which of
the k vectors are in use is known to eager libraries only, so a stack has room for all of them from the start.

Shadow vectors of bi-orthogonal methods are deterministic pseudo-random, and new ones after each breakdown. Scales are
powers of two, so that squares and powers neither overflow nor underflow, and no digit changes.
"""

from __future__ import annotations

import numpy as np

from ...backends import Array, Backend, real_dtype


def bilinear(bk: Backend, a: Array, b: Array) -> Array:
    """`a^T b` `(batch, 1)`, without conjugation."""
    return bk.dot(bk.conj(a) if bk.dtype(a).kind == "c" else a, b)


def square_norm_and_dots(bk: Backend, v: Array, *others: Array) -> tuple[Array, ...]:
    """`<v, v>` and `<v, w>` for other vectors w: over a communicator in one message."""
    if bk.communicator is None:
        return (bk.square_norm(v), *(bk.dot(v, w) for w in others))
    square, *rest = bk.dots((v, v), *((v, w) for w in others))
    return (bk.real(square), *rest)


def components(bk: Backend, stack: Array, v: Array) -> Array:
    """`(batch, k)`: the dot product of each vector of the stack with v."""
    return bk.conj(bk.stack_dots(stack, bk.conj(v)))


def combination(bk: Backend, stack: Array, c: Array) -> Array:
    """`(batch, n)`: the sum of the vectors of the stack with the factors c `(batch, k)`."""
    return bk.product(bk.matrix_transpose(stack), c)


def positions(bk: Backend, count: int, index: Array) -> Array:
    """0, 1, ..., count - 1 as `(1, count)`, to compare with `index` `(batch, 1)`."""
    return bk.asarray(np.arange(count, dtype=bk.dtype(index))[None], like=index)


def identity(bk: Backend, count: int, like: Array) -> Array:
    """A flat stack of the unit vectors for each system, in the dtype of `like`."""
    eye = bk.asarray(np.eye(count, dtype=bk.dtype(like)).reshape(1, -1), like=like)
    return bk.copy(bk.broadcast_to(eye, (int(like.shape[0]), count * count)))


def first_of_each(bk: Backend, stack: Array, c: Array, counts: Array) -> Array:
    """`combination` of the first `counts` `(batch, 1)` vectors of each system; c is zero beyond.

    Where the counts are known, each system's sum has as many terms as it has alone: BLAS adds more in another order.
    """
    known = bk.concrete_value(lambda: counts)
    if known is None or not known.size:
        return combination(bk, stack, c)
    last, *others = (int(k) for k in np.unique(known)[::-1])
    total = combination(bk, stack[:, :last, :], c[:, :last])
    for k in others:
        total = bk.where(counts == k, combination(bk, stack[:, :k, :], c[:, :k]), total)
    return total


def span(bk: Backend, index: Array, live: Array, count: int) -> tuple[int, int]:
    """Range of `index` `(batch, 1)` over `live` systems, if known, else 0 and `count`."""
    known = bk.concrete_value(lambda: bk.where(live, index, 0 * index - 1))
    found = None if known is None else known[known >= 0]
    return (0, count) if found is None or not found.size else (int(found.min()), int(found.max()))


def left_vector(bk: Backend, r: Array, attempt: Array) -> Array:
    """`(batch, n)`: shadow vector: r, or after a breakdown r plus a pseudo-random vector.

    That is as long as r, and longer with each attempt; `attempt` is that of the `Goal`.
    """
    dtype = bk.dtype(r)
    noise = bk.scatter_numbers(int(r.shape[1]), real_dtype(bk.dtype(r)), r)
    length = bk.sqrt(bk.square_norm(r) * (12.0 / max(bk.unknowns(r), 1)))
    weight = length * bk.astype(attempt, bk.dtype(length))
    return r + bk.astype(weight, dtype) * bk.astype(noise, dtype)


def left_vectors(bk: Backend, r: Array, count: int, attempt: Array) -> Array:
    """A flat stack `(batch, count n)` of pseudo-random vectors of norm about 1, complex where r is.

    They do not depend on r; others with each attempt.
    """
    n = int(r.shape[1])
    kind, real = bk.dtype(r), real_dtype(bk.dtype(r))
    parts = 4 if np.issubdtype(kind, np.complexfloating) else 2
    numbers = bk.reshape(bk.scatter_numbers(parts * count * n, real, r), (parts, count * n))
    vectors = [bk.astype(numbers[i : i + 1, :], kind) for i in range(parts)]
    first, other = vectors if parts == 2 else (vectors[0] + 1j * vectors[1], vectors[2] + 1j * vectors[3])
    weight = bk.astype(attempt, real)
    scale = float(np.sqrt(12 / bk.unknowns(r))) / (1 + weight)
    return bk.times(scale, first + bk.astype(weight, kind) * other) + bk.fold(bk.room_for(r, count))


def growth(bk: Backend, image: Array, v: Array) -> Array:
    """`(batch, 1)`: the growth from v to `image`, as a power of two."""
    return bk.binary_scale(image) / bk.binary_scale(v)


def to_unit_size(bk: Backend, v: Array) -> tuple[Array, Array]:
    """v divided by the power of two of its size, and that power; always new memory."""
    size = bk.binary_scale(v)
    return bk.times(1 / size, v), size
