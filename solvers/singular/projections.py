"""Projections that remove null vectors from rows `(batch, n)`; given null vectors, checked; their basis and names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends import Array, Backend, real_dtype
from ...sparse import Composed, FunctionOperator, Layout, Matrix, Operator, storable
from ...sparse.operators.checks import products_agree


def projected_twice(projection: Operator, x: Array) -> Array:
    """Project x twice: once leaves the rounding errors of a large component, which may be all of the rest."""
    return projection.apply(projection.apply(x))


@storable("without null vectors")
@dataclass(eq=False, repr=False)
class WithoutVectors(Composed):
    """`v - Z Z^H v`, where the columns of Z are the orthonormal rows of `basis`, padded with zeros.

    `basis` is `(k, n)`, or `(systems or 1, k, n)` where systems differ. Cost: 2 k n multiplications.
    """

    parts = ("basis",)
    is_container = True

    bk: Backend
    basis: Array

    def _settle(self) -> None:
        *systems, _, n = map(int, self.basis.shape)
        self.shape, self.dtype = (n, n), np.dtype(self._library_of(self.basis).dtype(self.basis))
        self.systems = systems[0] if systems and systems[0] > 1 else None

    def apply(self, x: Array) -> Array:
        bk, rows = self.bk, self.array("basis")
        rows = bk.astype(rows, np.result_type(self.dtype, bk.dtype(x)))
        rows = rows[0, ...] if len(rows.shape) == 3 and self.systems is None else rows
        return x - bk.product(bk.matrix_transpose(rows), bk.stack_dots(bk.conj(rows), x))

    def transpose(self) -> WithoutVectors:
        return self.conj()  # type: ignore[return-value]


@dataclass(eq=False, repr=False)
class WithoutConstants(Composed):
    """v minus its mean on each region, a set of unknowns.

    `labels` `(n,)` are the regions of the unknowns, or `(systems, n)` where systems differ. `weights` `(regions,)` are
    one over their sizes, 0 for a region whose mean is kept. Cost: a sum and a difference of vectors.
    """

    parts = ("labels", "weights")
    is_container = True

    bk: Backend
    labels: Array
    weights: Array

    def _settle(self) -> None:
        n = int(self.labels.shape[-1])
        self.shape, self.dtype = (n, n), np.dtype(self._library_of(self.weights).dtype(self.weights))

    @property
    def keeps_grids(self) -> bool:  # type: ignore[override]
        return int(self.weights.shape[-1]) == 1

    def apply(self, x: Array) -> Array:
        bk, labels, weights = self.bk, self.array("labels"), self.array("weights")
        shape, count = tuple(x.shape), int(weights.shape[-1])
        weights = bk.astype(weights, real_dtype(bk.dtype(x)))
        if count == 1:
            return x - bk.sum(bk.times(weights, x), 1, keepdims=True)
        if len(labels.shape) == 2:  # regions of all systems have different labels
            size = int(labels.shape[0]) * int(labels.shape[1])
            labels, x = bk.reshape(labels, (size,)), bk.reshape(x, (-1, size))
        shares = bk.take_in_bounds(weights, labels, 0)  # multiplied first, because sums may overflow
        counted = bk.where(shares == 0, bk.zeros_like(x), bk.astype(shares, bk.dtype(x)) * x)  # 0 times NaN is NaN
        means = bk.sum_entries(counted, labels, count)
        return bk.reshape(x - bk.take_in_bounds(means, labels, 1), shape)

    def transpose(self) -> WithoutConstants:
        return self


@dataclass(eq=False, repr=False)
class WithoutConstantsInside(Composed):
    """v minus its mean over the unknowns `inside`, on these, and zero on the others.

    `inside` `(systems or 1, n)` has ones and zeros. `weights` `(systems or 1, 1)` is one over the number of ones, or 0
    where the mean is kept. `active` `(systems or 1, 1)` is 0 where v is unchanged. Cost: a sum and a difference of
    vectors.
    """

    parts = ("inside", "weights", "active")
    is_container = True
    keeps_grids = True

    bk: Backend
    inside: Array
    weights: Array
    active: Array

    def _settle(self) -> None:
        n = int(self.inside.shape[-1])
        self.shape, self.dtype = (n, n), np.dtype(self._library_of(self.inside).dtype(self.inside))

    def apply(self, x: Array) -> Array:
        bk, dtype = self.bk, self.bk.dtype(x)
        inside, weights = (bk.astype(bk.astype(self.array(name), real_dtype(dtype)), dtype) for name in self.parts[:2])
        if bk.known_cut(inside) is not None and bk.known_cut(x) is None:
            x = bk.as_rows(bk.flat(x), inside)

        def projected(x: Array) -> Array:
            kept = inside * x
            return kept - inside * bk.sum(weights * kept, 1, keepdims=True)

        return bk.cond(bk.any(self.array("active") > 0), projected, lambda x: x, x)

    def as_container(self) -> Operator:
        known = any(isinstance(self.__dict__[name], np.ndarray) for name in self.parts)
        return super().as_container() if known else self  # rows may be stored as grids

    def transpose(self) -> WithoutConstantsInside:
        return self


@dataclass(eq=False, repr=False)
class Projected(Composed):
    """`P M P`, a preconditioner restricted to the complement of the null space."""

    parts = ("projection", "inner")
    passes_grids = True

    projection: Operator
    inner: Operator

    def apply(self, x: Array) -> Array:
        return self.projection.apply(self.inner.apply(self.projection.apply(x)))

    def transpose(self) -> Projected:
        return self._map(lambda A: A.transpose())


# --- as a basis, and in words


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

    If `part` `(systems, n)`, the component that was subtracted from right-hand sides, is known, only regions in which
    it is not zero are named.
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


# --- given null vectors


def given_vectors(nullspace: Any, bk: Backend, A: Operator, layout: Layout, like: Array) -> WithoutVectors:
    """Projection that removes the null vectors that a user gives: "constant", or `(k, *shape of one right-hand side)`.

    ValueErrors and TypeErrors say what is wrong with them.
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
