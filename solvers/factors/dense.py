"""Dense LU and Cholesky factors in arrays of the library.

NumPy and files store row interchanges of LU in the convention of LAPACK (from 0). They are converted for each library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import lapack

from ...backends import Array, Backend, get_backend
from ...backends.host_math import cholesky_or_none
from ...sparse import Composed, DenseOperator, Operator, Turned, UnsupportedOperation, storable
from ...sparse.analysis.analysis import analysis_of
from ...sparse.files.saved import Fields, on_host
from ..singular.projections import WithoutVectors
from .inverse import DirectInverse, PseudoInverse
from .singularity import examined_factors, growth_limit, probe_vector, seems_singular


@dataclass(eq=False, repr=False)
class DenseInverse(Turned, Composed, DirectInverse):
    """LU or Cholesky factors in arrays of the library. LU has row scales, and optional column scales."""

    parts = ("factors",)
    is_container = True

    bk: Backend
    factors: tuple[Array, ...]
    cholesky: bool
    shape: tuple[int, int]
    dtype: np.dtype
    systems: int | None
    transposed: bool = False
    conjugated: bool = False

    def _settle(self) -> None:
        """All facts are fields."""

    @property
    def numbers(self) -> int:  # type: ignore[override]
        return int(np.prod(self.factors[0].shape))

    def product(self, x: Array) -> Array:
        wanted = np.result_type(self.dtype, self.bk.dtype(x))
        if wanted != self.dtype:
            return self.astype(wanted).product(self.bk.astype(x, wanted))
        x = self.bk.astype(x, wanted)
        if not self.cholesky:
            lu, pivots, *scales = self.factors
            rows, columns = (*scales, None)[:2]
            first, last = (columns, rows) if self.transposed else (rows, columns)
            return self._scaled(self.bk.linalg.lu_solve((lu, pivots), self._scaled(x, first), self.transposed), last)
        if not self.transposed:
            return self.bk.linalg.cholesky_solve(self.factors[0], x)
        return self.bk.conj(self.bk.linalg.cholesky_solve(self.factors[0], self.bk.conj(x)))

    def _scaled(self, x: Array, scales: Array | None) -> Array:
        """`(batch, n)` times a diagonal, shared or one per system."""
        return x if scales is None else self.bk.astype(self.bk.reshape(scales, (-1, self.shape[0])), self.dtype) * x

    def turned(self, *, transposed: bool, conjugated: bool) -> DenseInverse:
        return replace(self, transposed=transposed, conjugated=conjugated)

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        if not self.bk.on_host:
            raise UnsupportedOperation("A factorisation by another library stays where it was made.")
        return (), lambda _: self

    def on_backend(self, bk: Backend, like: Array | None) -> DenseInverse:
        """Convert NumPy's factors to another library, which may have another convention of interchanges."""
        factors = list(self.factors)
        if not self.cholesky and bk is not self.bk:
            factors[1] = from_interchanges(factors[1], bk.linalg.first_pivot)
        moved = tuple(bk.asarray(f, like=like) for f in factors)
        return replace(self, bk=bk, factors=moved, dtype=bk.dtype(moved[0]))

    def astype(self, dtype: np.dtype) -> DenseInverse:
        """Factors in another precision. Complex factors stay complex."""
        dtype = np.dtype(dtype)
        if self.dtype.kind == "c" and dtype.kind != "c":
            return self
        bk, real = self.bk, np.dtype(dtype.char.lower())
        first, *rest = self.factors
        rest = [bk.astype(f, real) if bk.dtype(f).kind == "f" else f for f in rest]
        return replace(self, factors=(bk.astype(first, dtype), *rest), dtype=dtype)


_SETTINGS = ("cholesky", "shape", "dtype", "systems", "transposed", "conjugated")


def _flatten(F: DenseInverse) -> Fields:
    factors = [on_host(F.bk, factor) for factor in F.factors]
    if not F.cholesky and factors[1].dtype.kind != "i":
        raise UnsupportedOperation(
            "The factors of a graph of TensorFlow are of another kind than those of all other libraries. Make them "
            "outside of the graph, or save the matrix."
        )
    if not F.cholesky:
        factors[1] = as_interchanges(factors[1], F.bk.linalg.first_pivot)
    return {**{name: getattr(F, name) for name in _SETTINGS}, "factors": tuple(factors), "dtype": F.dtype.name}


def _unflatten(given: Fields) -> DenseInverse:
    factors, (n, m), systems, dtype = given["factors"], given["shape"], given["systems"], np.dtype(given["dtype"])
    lead = () if systems is None else (systems,)
    scales = (systems or 1) * n
    expected = [(*lead, n, n)] if given["cholesky"] else [(*lead, n, n), (*lead, n)]
    fit = [tuple(f.shape) for f in factors[:2]] == expected and n == m and factors[0].dtype == dtype
    if not fit or len(factors) != (1 if given["cholesky"] else 4):
        raise ValueError(f"factors of the shapes {[f.shape for f in factors]} are given for {n} x {m}")
    if not given["cholesky"]:
        # LAPACK does not check that a row is swapped with one below in the matrix.
        if factors[1].dtype.kind != "i" or np.any((factors[1] < np.arange(n)) | (factors[1] >= n)):
            raise ValueError("the row interchanges lie outside the matrix")
        if any(f.dtype.kind != "f" or f.size not in (1, n, scales) for f in factors[2:]):
            raise ValueError(f"the scales of rows and columns have the shapes {[f.shape for f in factors[2:]]}")
    for name in ("transposed", "conjugated", "cholesky"):
        if not isinstance(given[name], bool):
            raise ValueError(f"{name} is {given[name]!r}; expected true or false")
    turns = given["transposed"], given["conjugated"]
    return DenseInverse(get_backend("numpy"), factors, given["cholesky"], (n, m), dtype, systems, *turns)


storable("dense factors", _flatten, _unflatten)(DenseInverse)


# --- factors of a matrix


def factorise(bk: Backend, A: Operator) -> DenseInverse | PseudoInverse:
    """Factorise A; for a numerically singular A return a pseudo-inverse on its range."""
    matrix = bk.constant(A.dense())
    systems = int(matrix.shape[0]) if len(matrix.shape) == 3 else None
    dense = A if isinstance(A, DenseOperator) else DenseOperator(bk, matrix)
    if may_be_definite(bk, dense):
        factor = bk.linalg.cholesky(matrix)
        if factor is not None:
            diagonal = bk.diagonal(factor)
            pivots = diagonal * bk.conj(diagonal) / bk.diagonal(matrix)
            if not bool(bk.any(seems_singular(bk, matrix, lambda b: bk.linalg.cholesky_solve(factor, b), pivots)[0])):
                return DenseInverse(bk, (factor,), True, A.shape, A.dtype, systems)
    factors = bk.linalg.lu_factor(matrix)
    pivots = bk.diagonal(factors[0])
    suspect, _ = seems_singular(bk, matrix, lambda b: bk.linalg.lu_solve(factors, b), pivots)
    if not bk.compiled(matrix) and not bool(bk.any(suspect)):
        one = bk.full((A.shape[0], 1), 1, np.finfo(A.dtype).dtype, matrix)
        return DenseInverse(bk, (*factors, one, one), False, A.shape, A.dtype, systems)
    *found, right, left, singularity = examined_factors(bk, matrix, factors, suspect)
    inner = DenseInverse(bk, tuple(found), False, A.shape, A.dtype, systems)
    return PseudoInverse(inner, WithoutVectors(bk, right), WithoutVectors(bk, left), singularity)


def factors_to_apply_once(bk: Backend, A: Operator) -> Operator:
    """LU factors for a compiled program, NaN where A looks singular, because only the host examines that."""
    matrix = bk.constant(A.dense())
    if not bk.compiled(matrix):
        return factorise(bk, A)
    lu, pivots = bk.linalg.lu_factor(matrix)
    diagonal = bk.reshape(lu, (-1, A.shape[0] ** 2))[:, :: A.shape[0] + 1]  # a slice, cheaper than a gather
    suspect, _ = seems_singular(bk, matrix, lambda b: bk.linalg.lu_solve((lu, pivots), b), diagonal)
    systems = int(matrix.shape[0]) if len(matrix.shape) == 3 else None
    one = bk.full((int(suspect.shape[0]), A.shape[0]), 1, np.finfo(A.dtype).dtype, matrix)
    rows = bk.reshape(bk.where(suspect, np.nan * one, one), (-1, 1))
    return DenseInverse(bk, (lu, pivots, rows), False, A.shape, A.dtype, systems)


def may_be_definite(bk: Backend, A: DenseOperator) -> bool:
    """Whether A is Hermitian to working precision with a positive diagonal, so that Cholesky is worth trying."""
    if bk.compiled(A.matrix):
        return False
    diagonal = bk.real(A.diagonals())
    return bool(analysis_of(A).has_equal_triangles) and not bool(bk.any(~(diagonal > 0)))


# --- small matrices of NumPy, by LAPACK

Apply = Callable[[np.ndarray], np.ndarray]

_LEAST_PIVOT = {"d": 1e-10, "D": 1e-10, "f": 1e-4, "F": 1e-4}  # smallest pivot relative to the largest
_ALLOWED = {code: growth_limit(1, code) for code in "fdFD"}  # divided by sqrt(n) below
_ASYMMETRIC = 0.05  # difference of transposed entries relative to the largest, above which Cholesky is not tried
_GETRF = {"f": lapack.sgetrf, "d": lapack.dgetrf, "F": lapack.cgetrf, "D": lapack.zgetrf}
_GETRS = {"f": lapack.sgetrs, "d": lapack.dgetrs, "F": lapack.cgetrs, "D": lapack.zgetrs}
_POTRS = {"f": lapack.spotrs, "d": lapack.dpotrs, "F": lapack.cpotrs, "D": lapack.zpotrs}
_largest = np.maximum.reduce  # the method of arrays goes through Python and takes twice as long


def regular_factors_of_small(matrix: DenseOperator) -> Apply | None:
    """Solve function by Cholesky or LU factors; None where the matrix may be singular."""
    A: np.ndarray = matrix.matrix
    rows = _largest(abs(A), 1)  # If one is zero or not finite, so is a pivot or the image below.
    bound, adjoint, code = _ASYMMETRIC * _largest(rows), A.T.conj(), A.dtype.char
    solve: Apply
    # The first off-diagonal pair mostly tells, and equal triangles need no analysis.
    if abs(A[0, 1] - adjoint[0, 1]) > bound or _largest(abs(A - adjoint), None) > bound:
        definite = False
    elif (adjoint == A).all():
        definite = bool((A.diagonal().real > 0).all())
    else:
        definite = may_be_definite(matrix.bk, matrix)
    if definite:
        factor = cholesky_or_none(A)
        if factor is None:
            return None
        upper, potrs, diagonal = factor.T.conj(), _POTRS[code], factor.diagonal().real
        solve, pivots = lambda v: potrs(upper, v)[0], diagonal * diagonal / A.diagonal().real
    else:
        getrs, (lu, interchanges, _) = _GETRS[code], _GETRF[code](A)  # a zero pivot is detected below
        solve, pivots = lambda v: getrs(lu, interchanges, v)[0], abs(lu.diagonal())
    image = solve((rows * probe_vector(len(A), rows.dtype.char)[0]).astype(A.dtype, copy=False))
    regular = np.minimum.reduce(pivots) > _LEAST_PIVOT[code] * _largest(pivots)
    return solve if regular and _largest(abs(image)) < _ALLOWED[code] / len(A) ** 0.5 else None


# --- interchanges of rows


def as_interchanges(pivots: np.ndarray, first: int | None) -> np.ndarray:
    """Convert pivots `(..., n)` to LAPACK's interchanges: row i was swapped with row `interchanges[..., i]`, in order.

    `first` is the number of the first row in interchanges of the library, None if its pivots are a permutation.
    """
    if first is not None:
        return (pivots - first).astype(np.int32)
    found = [_interchanges(one) for one in pivots.reshape(-1, pivots.shape[-1])]
    return np.array(found, np.int32).reshape(pivots.shape)


def from_interchanges(interchanges: np.ndarray, first: int | None) -> np.ndarray:
    """Convert LAPACK's interchanges to the convention of a library."""
    if first is not None:
        return (interchanges + first).astype(np.int32)
    found = [_permutation(one) for one in interchanges.reshape(-1, interchanges.shape[-1])]
    return np.array(found, np.int32).reshape(interchanges.shape)


def _interchanges(permutation: np.ndarray) -> np.ndarray:
    order, place = np.arange(len(permutation)), np.arange(len(permutation))  # order[place[k]] == k
    found = np.zeros(len(permutation), np.int32)
    for i, row in enumerate(permutation):
        found[i] = j = place[row]
        other = order[i]
        order[i], order[j], place[row], place[other] = row, other, i, j
    return found


def _permutation(interchanges: np.ndarray) -> np.ndarray:
    order = np.arange(len(interchanges), dtype=np.int32)
    for i, j in enumerate(interchanges):
        order[[i, j]] = order[[j, i]]
    return order
