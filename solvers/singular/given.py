"""Null vectors: conversion and checks of given ones, and those of a projection as a basis and in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...backends import Array, Backend
from ...sparse import FunctionOperator, Layout, Matrix, Operator
from ...sparse.operators.by_record import products_agree
from .projections import WithoutConstants, WithoutConstantsInside, WithoutVectors


def basis_of(null: Operator, system: int) -> np.ndarray | None:
    """Orthonormal null vectors `(k, n)` of one system, in NumPy; None for another kind of projection."""
    if isinstance(null, WithoutVectors):
        rows = np.asarray(null.basis)
        rows = rows if rows.ndim == 2 else rows[system if null.systems is not None else 0]
        return rows if null.bk.communicator is not None else rows[np.any(rows != 0, axis=1)]  # members keep all rows
    if isinstance(null, WithoutConstants):
        labels, weights = np.asarray(null.labels), np.asarray(null.weights)
        own = labels if labels.ndim == 1 else labels[system]
        sets = [k for k in np.unique(own) if weights[k] != 0]
        return np.array([np.where(own == k, np.sqrt(weights[k]), 0) for k in sets]).reshape(len(sets), own.size)
    if isinstance(null, WithoutConstantsInside):
        fields = (np.asarray(null.inside), np.asarray(null.weights), np.asarray(null.active))
        inside, weight, active = (one[system if len(one) > 1 else 0] for one in fields)
        rows = (inside * np.sqrt(weight))[None]
        return rows if active[0] > 0 else rows[:0]
    return None


_CLEARLY = 1e-2  # relative to the largest entry of the component; regions with less are not named


def null_vectors_in_words(null: Operator, part: np.ndarray | None = None) -> str:
    """Name the null vectors that a projection removes.

    Args:
        part: component that was subtracted from right-hand sides, `(systems, n)`, if known. Only regions in which it
            is not zero are named.
    """
    if isinstance(null, WithoutVectors):
        count = int(null.basis.shape[-2])
        return "the vector of nullspace" if count == 1 else f"the {count} vectors of nullspace"
    if not isinstance(null, WithoutConstants) or int(null.weights.shape[-1]) == 1:
        return "constants"
    if part is None or len(null.labels.shape) != 1:
        return "constants on closed regions"
    labels, size = np.asarray(null.labels), np.abs(part).max(axis=0)
    regions = np.unique(labels[size > _CLEARLY * size.max()])
    members = np.flatnonzero(labels == regions[0])
    first = f"the region of unknown {members[0]}, which has {len(members)} unknowns"
    if len(members) == 1:
        first = f"unknown {members[0]}, which is coupled to no other one"
    several = "" if len(regions) == 1 else f"{len(regions)} regions, the first is "
    return f"constants on {several}{first}"


def given_vectors(nullspace: Any, bk: Backend, A: Operator, layout: Layout, like: Array) -> WithoutVectors:
    """Projection that removes the given null vectors.

    Args:
        nullspace: "constant", or basis vectors `(k, *shape of one right-hand side)`, independent.

    Raises:
        ValueError: nullspace is another string, has a wrong shape or no vectors, or its vectors are not finite,
            linearly dependent, or not null vectors of A.
        TypeError: nullspace is no array, or complex for a real system.
    """
    constant = isinstance(nullspace, str) and nullspace == "constant"
    vectors = np.ones((1, layout.size), A.dtype) if constant else _vectors(nullspace, bk, layout, A.dtype)
    q, r = np.linalg.qr(vectors.T)
    size = np.abs(np.diagonal(r))
    if size.min() <= 1e3 * np.finfo(A.dtype).eps * size.max():
        raise ValueError("The vectors of nullspace are linearly dependent; give each direction once.")
    basis = np.ascontiguousarray(q.T)
    with bk.errstate():
        for i, (mapped, most, usual) in enumerate(_images(bk, A, basis, layout, like)):
            if not mapped <= most:
                raise ValueError(
                    f"A does not map vector {i} of nullspace to zero (|A v| = {mapped:.1e}, a random v gives "
                    f"{usual:.1e}). Give vectors of the null space of A, or nullspace=None."
                )
    return WithoutVectors(bk, basis if bk.on_host or bk.compiled() else bk.asarray(basis, like=like))


def _vectors(nullspace: Any, bk: Backend, layout: Layout, dtype: np.dtype) -> np.ndarray:
    """Convert to `(k, n)`, and check that vectors are finite and non-zero."""
    allowed = "nullspace must be 'auto', None, 'constant' or an array of vectors; got"
    if isinstance(nullspace, str):
        raise ValueError(f"{allowed} {nullspace!r}.")
    vectors = np.asarray(bk.to_numpy(nullspace) if bk.is_array(nullspace) else nullspace)
    expected = f"expected (k, *{layout.shape}), k vectors"
    if vectors.dtype.kind not in "biufc":
        raise TypeError(f"{allowed} {type(nullspace).__name__}.")
    if vectors.ndim and not len(vectors):
        raise ValueError(
            f"nullspace has the shape {vectors.shape}, no vectors; {expected}. Give nullspace=None where A has no null "
            "space, or 'auto'."
        )
    if vectors.shape[1:] != layout.shape and vectors.shape[1:] != (layout.size,):
        one = vectors.shape in (layout.shape, (layout.size,))
        columns = vectors.ndim == 2 and len(vectors) == layout.size
        hint = (
            " For one vector v give v[None]." if one else " For one vector per column give its .T." if columns else ""
        )
        raise ValueError(f"nullspace has the shape {vectors.shape}; {expected}.{hint}")
    vectors = vectors.reshape(len(vectors), -1)
    for wrong, word in ((~np.isfinite(vectors), "NaN or infinity"), (~vectors.any(axis=1), "zeros only")):
        if wrong.any():
            i = int(np.argwhere(wrong)[0, 0])
            raise ValueError(f"Vector {i} of nullspace has {word}; expected finite vectors that A maps to zero.")
    if vectors.dtype.kind == "c" and dtype.kind != "c" and np.any(vectors.imag):
        raise TypeError(f"nullspace is complex, and the system is one of {dtype}; give real vectors.")
    return (vectors.real if dtype.kind != "c" else vectors).astype(dtype)


def are_of_adjoint(vectors: WithoutVectors, bk: Backend, A: Operator, layout: Layout, like: Array) -> bool:
    """Whether the adjoint of A also maps the vectors to zero. False where their images are traced.

    Cost: for a matrix a product with its transpose for each vector, and one more; for a function 2 products.
    """
    if isinstance(A, FunctionOperator):
        return products_agree(A, layout.systems, like)
    if not isinstance(A, Matrix):
        return False
    basis = np.asarray(bk.to_numpy(vectors.basis))
    with bk.errstate():
        images = list(_images(bk, A.T.conj(), basis, layout, like))
    return len(images) == len(basis) and all(mapped <= most for mapped, most, _ in images)


def _images(
    bk: Backend, A: Operator, basis: np.ndarray, layout: Layout, like: Array
) -> Iterator[tuple[float, float, float]]:
    """Yield for each vector the norm of its image, its bound, and the norm of the image of a random vector.

    Norms are those of the system with the largest error. Nothing is yielded where they are traced.
    """
    n = layout.size
    probe = np.random.default_rng(3).standard_normal(n).astype(A.dtype)

    def norms(v: np.ndarray) -> np.ndarray | None:
        tiled = np.broadcast_to(v / np.linalg.norm(v), (layout.systems, n)).astype(A.dtype)
        return bk.concrete_value(lambda: bk.norm(A.apply(bk.asarray(np.ascontiguousarray(tiled), like=like))))

    usual = norms(probe)
    for vector in basis if usual is not None else ():
        mapped = norms(vector)
        if mapped is not None and usual is not None:
            most = np.sqrt(np.finfo(A.dtype).eps) * usual
            worst = int(np.argmax(mapped - most))
            yield float(mapped[worst, 0]), float(most[worst, 0]), float(usual[worst, 0])
