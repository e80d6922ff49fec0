"""Null vectors of which each member gives its part: made orthonormal by sums over the members."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends import Array, Backend
from ...sparse import Operator
from ..null_space.projections import WithoutVectors
from ..read.system import System

_DEPENDENT = 1e3  # times eps: what is left of a vector without its part in the others


def given_null_vectors(nullspace: Any, system: System) -> Array | None:
    """`(k, n)`, parts of null vectors; None where none are given: "auto" looks at entries, so it finds none here.

    Raises:
        ValueError: another string, a wrong shape, or no numbers.
        TypeError: complex vectors of a real system.
    """
    bk, n, dtype = system.bk, system.layout.size, system.A.dtype
    if nullspace is None or (isinstance(nullspace, str) and nullspace == "auto"):
        return None
    if isinstance(nullspace, str):
        if nullspace != "constant":
            raise ValueError(f"nullspace must be 'auto', None, 'constant' or an array of vectors; got {nullspace!r}.")
        return bk.full((1, n), 1, dtype, system.like)
    vectors = nullspace if bk.is_array(nullspace) else bk.asarray(np.asarray(nullspace), like=system.like)
    shape = tuple(vectors.shape)
    if not shape or not shape[0] or shape[1:] not in (system.layout.shape, (n,)):
        raise ValueError(
            f"nullspace has the shape {shape}; expected (k, *{system.layout.shape}), this member's part of k vectors."
        )
    if bk.dtype(vectors).kind == "c" and dtype.kind != "c":
        raise TypeError(f"nullspace is complex, and the system is one of {dtype}; give real vectors.")
    return bk.astype(bk.reshape(vectors, (shape[0], n)), dtype)


def orthonormal_over(bk: Backend, A: Operator, vectors: Array) -> WithoutVectors:
    """Projection that removes the vectors, by Gram-Schmidt, twice.

    Raises:
        ValueError: they are dependent, or A does not map them to zero, as far as is known now; in all members.

    Cost: 2 messages for each vector and 2 for each pair, and outside of programs 1 product for each.
    """
    with bk.errstate():
        rows: list[Array] = []
        for i in range(int(vectors.shape[0])):
            v = vectors[i : i + 1, :]
            v = bk.times(1 / bk.norm(v), v)
            for _ in range(2):
                for u in rows:
                    v = v - bk.dot(u, v) * u
            length = bk.norm(v)
            if not bk.communicator.is_traced and not bk.to_numpy(length).min() > _DEPENDENT * np.finfo(A.dtype).eps:
                raise ValueError(
                    "The vectors of nullspace are zero, not finite or linearly dependent; give each direction once."
                )
            rows.append(bk.times(1 / length, v))
        basis = bk.concat(rows, 0)
        if not bk.communicator.is_traced:
            _check(bk, A, basis)
    return WithoutVectors(bk, bk.constant(basis))


def _check(bk: Backend, A: Operator, basis: Array) -> None:
    """Raises ValueError where A maps one to something else than zero."""
    systems = A.systems or 1
    numbers = bk.reshape(bk.scatter_numbers(A.shape[1], np.dtype(bk.dtype(bk.real(basis))), basis), (1, -1))
    probe = bk.times(1 / bk.norm(numbers), bk.astype(numbers, A.dtype))

    def size(v: Array) -> float:
        rows = bk.copy(bk.broadcast_to(v, (systems, int(v.shape[1]))))
        return float(np.max(bk.to_numpy(bk.norm(A.apply(rows)))))

    usual = size(probe)
    for i in range(int(basis.shape[0])):
        mapped = size(basis[i : i + 1, :])
        if mapped > np.sqrt(np.finfo(A.dtype).eps) * usual:
            raise ValueError(
                f"A does not map vector {i} of nullspace to zero (|A v| = {mapped:.1e}, a random v gives {usual:.1e}). "
                "Give this member's parts of null vectors of A, or nullspace=None."
            )
