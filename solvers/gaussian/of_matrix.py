"""Determinant, entries of the inverse, and samples of the matrix of a prepared solver."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, wraps
from operator import index
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np

from ...backends import Array, without_compilers
from ...sparse import FunctionOperator, Matrix, Operator, SparseMatrix, UnsupportedOperation
from ...sparse.formats import from_entries
from ..memory import Memory
from ..read.arguments import Request
from .factorised import SINGULAR, Entries, HostMatrices, dense_singular, entries_of
from .lanczos import normal
from .logdet import LogDeterminant, LogdetMethod, log_determinant
from .square_root import times_root

Of = Literal["precision", "covariance"]
P = ParamSpec("P")
R = TypeVar("R")


def _uncompiled(method: Callable[P, R]) -> Callable[P, R]:
    """A method that runs outside compilers, see `without_compilers`."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        result: R = without_compilers(method)(*args, **kwargs)
        return result

    return call


class OfMatrix:
    """Methods of a prepared solver that need the matrix `A` itself."""

    A: Operator
    _request: Request

    @cached_property
    def _memory(self) -> Memory[Entries]:
        return Memory(1)

    def _entries(self) -> Entries:
        """The entries of A and their factors, cached unless they are traced or recorded."""
        if (entries := self._memory.get("entries")) is None:
            entries = entries_of(self._square())
            if entries[1] is not None and isinstance(entries[1].values, np.ndarray):
                self._memory.keep("entries", entries)
        return entries

    @property
    def _like(self) -> Array:
        """An array on the device of the right-hand sides."""
        return self.A.bk.leaves(self._request.b)[0][0]

    def _square(self) -> Operator:
        """A, after a check that it is the whole square matrix of the solver."""
        if self.A.shape[0] != self.A.shape[1]:
            raise ValueError(f"A has the shape {self.A.shape}; expected a square matrix, which has an inverse.")
        if self._request.over is not None:
            raise UnsupportedOperation(
                "This solver has only a part of A, over a communicator, but the determinant and the inverse need all "
                "of it. Prepare with the whole matrix, without over=."
            )
        if self._request.matrix_offset:
            raise ValueError(
                f"This solver was prepared with matrix_offset={self._request.matrix_offset}; expected none. Add it to "
                "the entries of a dense matrix."
            )
        return self.A

    @_uncompiled
    def logdet(
        self, *, method: LogdetMethod = "auto", probes: int = 32, steps: int = 100, key: Any = 0
    ) -> LogDeterminant:
        """Log determinant of A, with derivatives with respect to everything that A depends on; see `krylix.logdet`.

        Args:
            method: "exact" from factors, "lanczos" for an estimate of a positive definite A, or "auto".
            probes: number of random vectors of an estimate.
            steps: products with A for each of them.
            key: of the random vectors.

        Returns:
            LogDeterminant: `(sign, logabsdet, standard_error)`, see `krylix.logdet`.

        Raises:
            ValueError: see `krylix.logdet`.
            UnsupportedOperation: see `krylix.logdet`.
            TypeError: see `krylix.logdet`.

        Cost: that of `krylix.logdet`; factors of known values are cached.

        Examples:
            >>> import numpy as np, krylix
            >>> float(krylix.prepare(np.diag([2.0, 4.0])).logdet().logabsdet.round(6))
            2.079442
        """
        return log_determinant(self._square(), self._like, method, probes, steps, key, lambda _: self._entries())

    @_uncompiled
    def logdet_gradient(self) -> Any:
        """Derivative of `log |det A|` with respect to the entries of A, for libraries without derivatives.

        Returns:
            The entries of `A^-H` that A stores, as a dense array G for a dense A, else as a CSR matrix G (`to_scipy()`
            converts it). A change dA of the entries changes `log |det A|` by the real part of `sum(conj(G) * dA)`.

        Raises:
            ZeroDivisionError: A is singular.
            UnsupportedOperation: the entries of A cannot be found.
            ValueError: A is not square.

        Cost: for a sparse A a factorisation, and about twice as many operations for the entries of the inverse.

        Examples:
            >>> import numpy as np, krylix
            >>> krylix.prepare(np.diag([2.0, 4.0])).logdet_gradient()
            array([[0.5 , 0.  ],
                   [0.  , 0.25]])
        """
        A, host = self._entries()
        if not isinstance(A, SparseMatrix):
            return A.bk.conj(A.bk.matrix_transpose(_inverse(A)))
        rows, columns, _ = A.structure.entries()
        values = A.bk.conj(_entries_of_inverse(A, host, columns, rows))
        return from_entries(A.bk, rows, columns, values, A.shape, format="csr", prune=False, like=A.anchor())

    @_uncompiled
    def inverse_diagonal(self) -> Any:
        """Diagonal of the inverse, for example the variances of a Gaussian field with the precision A.

        Returns:
            An array, or a container of arrays, in the shape of the unknowns, with the batch axis of A in front.

        Raises:
            ZeroDivisionError: A is singular; in compiled functions the result is NaN.
            UnsupportedOperation: the entries of A cannot be found.
            ValueError: A is not square.

        Cost: that of `inverse_entries`.

        Examples:
            >>> import numpy as np, krylix
            >>> krylix.prepare(np.array([[2.0, 1.0], [1.0, 2.0]])).inverse_diagonal().round(4)
            array([0.6667, 0.6667])
        """
        diagonal = np.arange(self._square().shape[0])
        return _as_unknowns(self.A, _entries_of_inverse(*self._entries(), diagonal, diagonal))

    @_uncompiled
    def inverse_entries(self, rows: Any, columns: Any) -> Array:
        """Compute selected entries of the inverse of A.

        Args:
            rows: integer indices into the unknowns as one vector; negative ones count from the end.
            columns: the same for columns; both are broadcast to one shape.

        Returns:
            `A^-1[rows, columns]` in that shape, with the batch axis of A in front.

        Raises:
            ZeroDivisionError: A is singular; in compiled functions the result is NaN.
            UnsupportedOperation: the entries of A cannot be found.
            IndexError: an index is out of range.
            ValueError: A is not square, or the shapes do not fit.
            TypeError: an index is no integer.

        Cost: for a sparse A a factorisation on the host. Entries in at most 32 columns then take a solve for each
        column. More take about twice the operations of the factorisation for all entries in the pattern of the factors,
        which includes that of A, and a solve for each column that has others. Only a dense A has derivatives.

        Source: Takahashi, Fagan and Chen, PICA Proc. 8 (1973); Erisman and Tinney, Comm. ACM 18 (1975).

        Examples:
            >>> import numpy as np, krylix
            >>> krylix.prepare(np.array([[2.0, 1.0], [1.0, 2.0]])).inverse_entries([0, 0], [0, 1]).round(4)
            array([ 0.6667, -0.3333])
        """
        A = self._square()
        i, j = np.broadcast_arrays(*(_indices(indices, A.shape[0]) for indices in (rows, columns)))
        entries = _entries_of_inverse(*self._entries(), i.ravel(), j.ravel())
        return A.bk.reshape(entries, (*tuple(entries.shape)[:-1], *i.shape))

    @_uncompiled
    def sample(self, key: Any, shape: int | Sequence[int] = (), *, of: Of = "precision", steps: int = 200) -> Any:
        """Draw samples of a Gaussian field with mean 0, from N(0, A^-1), or with `of="covariance"` from N(0, A).

        Args:
            key: an integer seed, a key of the library (`jax.random.key(0)`), or a NumPy generator.
            shape: shape of the array of samples; `()` for one sample.
            of: whether A is the "precision" or the "covariance".
            steps: products for each sample with a function whose entries cannot be found.

        Returns:
            `(*shape, *unknowns)`, in the library, with the batch axis of A before the unknowns. Complex samples have
            `E[x x^H] = A^-1` and `E[x x^T] = 0`.

        Raises:
            ValueError: A is not Hermitian positive definite, or the steps were too few for an accuracy of 1e-3 (in
                compiled functions at run time), or an argument does not fit.
            TypeError: the derivative of a sample is requested, which only those of a dense matrix have.

        Cost: for a sparse A a factorisation `L D L^H` without exchanges on the host, and one triangular solve for each
        sample; for a function `steps` products and vectors.

        Source: Rue, J. R. Stat. Soc. B 63 (2001); Chow and Saad, SIAM J. Sci. Comput. 36 (2014), for functions.

        Examples:
            >>> import numpy as np, krylix
            >>> x = krylix.prepare(np.diag([4.0, 100.0])).sample(0, 10_000)
            >>> x.shape, x.std(axis=0).round(1)
            ((10000, 2), array([0.5, 0.1]))
        """
        A = self._square()
        if of not in ("precision", "covariance"):
            raise ValueError(f"of got {of!r}; expected 'precision' or 'covariance'.")
        lead = tuple(map(index, shape)) if isinstance(shape, Sequence) else (index(shape),)
        if any(k < 0 for k in lead):
            raise ValueError(f"shape got {shape!r}; expected integers from 0 on.")
        if isinstance(steps, bool) or index(steps) < 1:
            raise ValueError(f"steps got {steps!r}; expected an integer from 1 on.")
        each = (A.shape[0],) if A.systems is None else (A.systems, A.shape[0])
        z = normal(A.bk, (math.prod(lead), *each), A.dtype, key, self._like)
        x = times_root(A, z, of == "precision", steps, lambda _: self._entries())
        return _as_unknowns(A, A.bk.reshape(x, (*lead, *each)))


def _indices(indices: Any, n: int) -> np.ndarray:
    """Indices as non-negative integers below n."""
    indices = np.asarray(indices)
    if indices.dtype.kind not in "iu" and indices.size:
        raise TypeError(f"Indices of entries got an array of {indices.dtype}; expected integers.")
    indices = indices.astype(np.int64)
    outside = (indices < -n) | (indices >= n)
    if outside.any():
        raise IndexError(f"Indices of entries got {indices[outside].flat[0]}; expected integers from {-n} to {n - 1}.")
    return np.where(indices < 0, indices + n, indices)


def _entries_of_inverse(A: Matrix, host: HostMatrices | None, rows: np.ndarray, columns: np.ndarray) -> Array:
    """`(A^-1)[rows, columns]`, `(k,)` or `(systems, k)`."""
    if host is not None:
        return host.inverse_entries(rows, columns)
    n, inverse = A.shape[0], _inverse(A)
    flat = A.bk.reshape(inverse, (*tuple(inverse.shape)[:-2], n * n))
    return A.bk.take_in_bounds(flat, rows.astype(np.int64) * n + columns, len(flat.shape) - 1)


def _inverse(A: Matrix) -> Array:
    """Dense inverse; for a singular matrix NaN in compiled functions, else ZeroDivisionError."""
    bk, dense = A.bk, A.dense()
    singular = dense_singular(bk, dense)
    if singular is not None and not bk.compiled(singular):
        raise ZeroDivisionError(SINGULAR)
    inverse = bk.xp.linalg.inv(dense)
    return inverse if singular is None else bk.where(singular[..., None, None], np.nan * inverse, inverse)


def _as_unknowns(A: Operator, x: Array) -> Any:
    """Convert vectors `(..., n)` to arrays, or containers of them, in the shape of the unknowns."""
    bk, lead = A.bk, tuple(x.shape)[:-1]
    if not isinstance(A, FunctionOperator) or A.layout.structure is None:
        return bk.reshape(x, (*lead, *A.in_shape))
    layout = replace(A.layout, batch=lead)
    return layout.unflatten(bk, bk.reshape(x, (layout.systems, layout.size)))
