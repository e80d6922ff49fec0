"""Building blocks of methods: stacks of vectors, shadow vectors, and scaling by powers of two.

A stack is `(batch, k, n)`. In the state of a method it is flat, `(batch, k n)`, because the driver freezes rows. Only
eager libraries know how many of the k vectors are in use, so a stack is allocated for all of them.

Shadow vectors of bi-orthogonal methods are pseudo-random but deterministic, and change after each breakdown. Scaling by
powers of two keeps squares and powers in range without changing any digit.
"""

from __future__ import annotations

import numpy as np

from ...backends import Array, Backend, real_dtype


def bilinear(bk: Backend, a: Array, b: Array) -> Array:
    """`a^T b` `(batch, 1)`, without conjugation."""
    return bk.dot(bk.conj(a) if bk.dtype(a).kind == "c" else a, b)


def square_norm_and_dots(bk: Backend, v: Array, *others: Array) -> tuple[Array, ...]:
    """`<v, v>` and `<v, w>` for other vectors w, over a communicator in one message."""
    if bk.communicator is None:
        return (bk.square_norm(v), *(bk.dot(v, w) for w in others))
    square, *rest = bk.dots((v, v), *((v, w) for w in others))
    return (bk.real(square), *rest)


def components(bk: Backend, stack: Array, v: Array) -> Array:
    """`(batch, k)`: dot products of the vectors of the stack with v."""
    return bk.conj(bk.stack_dots(stack, bk.conj(v)))


def combination(bk: Backend, stack: Array, c: Array) -> Array:
    """`(batch, n)`: linear combination of the vectors of the stack with coefficients c `(batch, k)`."""
    return bk.product(bk.matrix_transpose(stack), c)


def positions(bk: Backend, count: int, index: Array) -> Array:
    """0, 1, ..., count - 1 as `(1, count)`, to compare with `index` `(batch, 1)`."""
    return bk.asarray(np.arange(count, dtype=bk.dtype(index))[None], like=index)


def identity(bk: Backend, count: int, like: Array) -> Array:
    """Flat stack of unit vectors for each system, in the dtype of `like`."""
    eye = bk.asarray(np.eye(count, dtype=bk.dtype(like)).reshape(1, -1), like=like)
    return bk.copy(bk.broadcast_to(eye, (int(like.shape[0]), count * count)))


def first_of_each(bk: Backend, stack: Array, c: Array, counts: Array) -> Array:
    """`combination` of the first `counts` `(batch, 1)` vectors of each system; c is zero for the others.

    If the counts are known, each sum has as many terms as for that system alone, because BLAS would add more terms in
    another order.
    """
    values = bk.concrete_value(lambda: counts)
    if values is None or not values.size:
        return combination(bk, stack, c)
    last, *others = (int(k) for k in np.unique(values)[::-1])
    total = combination(bk, stack[:, :last, :], c[:, :last])
    for k in others:
        total = bk.where(counts == k, combination(bk, stack[:, :k, :], c[:, :k]), total)
    return total


def span(bk: Backend, index: Array, live: Array, count: int) -> tuple[int, int]:
    """Smallest and largest `index` `(batch, 1)` of `live` systems if known, else 0 and `count`."""
    values = bk.concrete_value(lambda: bk.where(live, index, 0 * index - 1))
    values = None if values is None else values[values >= 0]
    return (0, count) if values is None or not values.size else (int(values.min()), int(values.max()))


def left_vector(bk: Backend, r: Array, attempt: Array) -> Array:
    """`(batch, n)`: shadow vector r, plus a pseudo-random vector after a breakdown.

    The second vector is as long as r, and longer after each `attempt` of the `Goal`.
    """
    dtype = bk.dtype(r)
    noise = bk.scatter_numbers(int(r.shape[1]), real_dtype(bk.dtype(r)), r)
    length = bk.sqrt(bk.square_norm(r) * (12.0 / max(bk.unknowns(r), 1)))
    weight = length * bk.astype(attempt, bk.dtype(length))
    return r + bk.astype(weight, dtype) * bk.astype(noise, dtype)


def left_vectors(bk: Backend, r: Array, count: int, attempt: Array) -> Array:
    """Flat stack `(batch, count n)` of pseudo-random vectors of norm about 1, complex if r is.

    They do not depend on r, and change with each attempt.
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
    """`(batch, 1)`: size of `image` relative to v, as a power of two."""
    return bk.binary_scale(image) / bk.binary_scale(v)


def to_unit_size(bk: Backend, v: Array) -> tuple[Array, Array]:
    """v divided by a power of two near its size, in new memory, and that power."""
    size = bk.binary_scale(v)
    return bk.times(1 / size, v), size
