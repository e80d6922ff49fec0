"""Factorisations as operators that solve; one serves the transposed matrix too.

Row interchanges of LU are stored in the convention of LAPACK (from 0), in files too, and converted for each library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from ....backends import Array, Backend, get_backend
from ....backends.registry import register_container
from ....sparse import Composed, Operator, Turned, UnsupportedOperation, storable
from ....sparse.files import tree
from ....sparse.files.storable import Fields, on_host


class Solves:
    """The inverse of A, as a direct method returns it."""

    kind = "factors"  # as a preconditioner

    def save(self, path: Any) -> None:
        """Write it to a `.npz` file, which `krylix.load_preconditioner` reads.

        Raises:
            ValueError: the path has another ending; a number in it is not finite.
            UnsupportedOperation: its values are not known yet (inside a compiled function).
            OSError: it cannot be written.
        """
        tree.save_operator(path, cast(Operator, self))


@dataclass(eq=False, repr=False)
class MatrixToFactorise(Composed):
    """The matrix of A, to be factorised in its place."""

    inner: Operator

    def apply(self, x: Array) -> Array:
        return self.inner.apply(x)

    def transpose(self) -> MatrixToFactorise:
        transposed: MatrixToFactorise = self._map(lambda A: A.transpose())
        return transposed


class Factorisation(Turned, Solves):
    """Maps b to the solution of A x = b, or of the transposed or conjugated system."""


@storable("grid factors")
@dataclass(eq=False, repr=False)
class InverseFactors(Composed, Solves):
    """The inverse of A as another operator."""

    passes_grids = True

    inner: Operator

    def apply(self, x: Array) -> Array:
        return self.inner.apply(x)

    def transpose(self) -> InverseFactors:
        transposed: InverseFactors = self._map(lambda A: A.transpose())
        return transposed


class DenseFactors(Factorisation):
    """LU or Cholesky factors in arrays of the library; LU has row scales, and maybe column scales."""

    is_container = True

    def __init__(
        self,
        bk: Backend,
        factors: Sequence[Array],
        cholesky: bool,
        shape: tuple[int, int],
        dtype: np.dtype,
        systems: int | None,
        transposed: bool = False,
        conjugated: bool = False,
    ) -> None:
        self.bk, self.factors, self.cholesky = bk, tuple(factors), cholesky
        self.shape, self.dtype, self.systems = shape, dtype, systems
        self.transposed, self.conjugated = transposed, conjugated
        self._register()

    def _register(self) -> None:
        register_container(self.bk, DenseFactors, lambda f: (f.factors, f._static()), lambda static, arrays: (
            DenseFactors(static[0], arrays, *static[1:])))  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._register()  # in the process that reads it

    def _static(self) -> tuple[Any, ...]:
        return self.bk, self.cholesky, self.shape, self.dtype, self.systems, self.transposed, self.conjugated

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

    def turned(self, *, transposed: bool, conjugated: bool) -> DenseFactors:
        static = (self.cholesky, self.shape, self.dtype, self.systems)
        return DenseFactors(self.bk, self.factors, *static, transposed, conjugated)

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        if not self.bk.on_host:
            raise UnsupportedOperation("A factorisation by another library stays where it was made.")
        return (), lambda _: self

    def on_backend(self, bk: Backend, like: Array | None) -> DenseFactors:
        """Factors of NumPy in another library, whose LU may have another convention of interchanges."""
        factors = list(self.factors)
        if not self.cholesky and bk is not self.bk:
            factors[1] = from_interchanges(factors[1], bk.linalg.first_pivot)
        moved = [bk.asarray(f, like=like) for f in factors]
        static = self.cholesky, self.shape, bk.dtype(moved[0]), *self._static()[4:]
        return DenseFactors(bk, moved, *static)

    def astype(self, dtype: np.dtype) -> DenseFactors:
        """The factors in another precision; complex ones are refused for real vectors."""
        dtype = np.dtype(dtype)
        if self.dtype.kind == "c" and dtype.kind != "c":
            return self
        bk, real = self.bk, np.dtype(dtype.char.lower())
        first, *rest = self.factors
        rest = [bk.astype(f, real) if bk.dtype(f).kind == "f" else f for f in rest]
        static = self.cholesky, self.shape, dtype, *self._static()[4:]
        return DenseFactors(bk, [bk.astype(first, dtype), *rest], *static)


def check_truths(given: Fields, *names: str) -> None:
    """Raise ValueError where a field of a file is no bool."""
    for name in names:
        if not isinstance(given[name], bool):
            raise ValueError(f"{name} is {given[name]!r}; expected true or false")


_SETTINGS = ("cholesky", "shape", "systems", "transposed", "conjugated")


def _flatten(F: DenseFactors) -> Fields:
    factors = [on_host(F.bk, factor) for factor in F.factors]
    if not F.cholesky and factors[1].dtype.kind != "i":
        raise UnsupportedOperation(
            "The factors of a graph of TensorFlow are of another kind than those of all other libraries. Make them "
            "outside of the graph, or save the matrix."
        )
    if not F.cholesky:
        factors[1] = as_interchanges(factors[1], F.bk.linalg.first_pivot)
    return {"factors": tuple(factors), "dtype": F.dtype.name, **{name: getattr(F, name) for name in _SETTINGS}}


def _unflatten(given: Fields) -> DenseFactors:
    factors, (n, m), systems, dtype = given["factors"], given["shape"], given["systems"], np.dtype(given["dtype"])
    lead = () if systems is None else (systems,)
    scales = (systems or 1) * n
    expected = [(*lead, n, n)] if given["cholesky"] else [(*lead, n, n), (*lead, n)]
    fit = [tuple(f.shape) for f in factors[:2]] == expected and n == m and factors[0].dtype == dtype
    if not fit or len(factors) != (1 if given["cholesky"] else 4):
        raise ValueError(f"factors of the shapes {[f.shape for f in factors]} are given for {n} x {m}")
    if not given["cholesky"]:
        check_interchanges(factors[1])
        if any(f.dtype.kind != "f" or f.size not in (1, n, scales) for f in factors[2:]):
            raise ValueError(f"the scales of rows and columns have the shapes {[f.shape for f in factors[2:]]}")
    check_truths(given, "transposed", "conjugated", "cholesky")
    turns = given["transposed"], given["conjugated"]
    return DenseFactors(get_backend("numpy"), factors, given["cholesky"], (n, m), dtype, systems, *turns)


storable("dense factors", _flatten, _unflatten)(DenseFactors)


def as_interchanges(pivots: np.ndarray, first: int | None) -> np.ndarray:
    """Convert pivots to LAPACK's interchanges: row i was swapped with row `interchanges[..., i]`, in order.

    Args:
        pivots: `(..., n)` of a library.
        first: the number of the first row in interchanges; None: they are a permutation.
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


def check_interchanges(interchanges: np.ndarray) -> None:
    """Check interchanges, which LAPACK does not.

    Raises:
        ValueError: a row is swapped with one above, or that is not there.
    """
    n = interchanges.shape[-1]
    if interchanges.dtype.kind != "i" or np.any((interchanges < np.arange(n)) | (interchanges >= n)):
        raise ValueError("the row interchanges lie outside of the matrix")


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
