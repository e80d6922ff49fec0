"""Shadow vectors of bi-orthogonal methods: deterministic pseudo-random, and new ones after each breakdown."""

from __future__ import annotations

import numpy as np

from ....backends import Array, Backend, real_dtype


def left_vector(bk: Backend, r: Array, attempt: Array) -> Array:
    """`(batch, n)`: shadow vector: r, or after a breakdown r plus a pseudo-random vector.

    That is as long as r, and longer with each attempt; `attempt` is that of the `Goal`.
    """
    n = r.shape[1]
    dtype = bk.dtype(r)
    noise = bk.scatter_numbers(n, real_dtype(bk.dtype(r)), r)
    length = bk.sqrt(bk.square_norm(r) * (12.0 / max(n, 1)))
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
    vectors = [bk.astype(numbers[i : i + 1], kind) for i in range(parts)]
    first, other = vectors if parts == 2 else (vectors[0] + 1j * vectors[1], vectors[2] + 1j * vectors[3])
    weight = bk.astype(attempt, real)
    scale = float(np.sqrt(12 / n)) / (1 + weight)
    return bk.times(scale, first + bk.astype(weight, kind) * other) + bk.fold(bk.room_for(r, count))
