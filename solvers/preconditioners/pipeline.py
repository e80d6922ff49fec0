"""From any operator to a preconditioner: the steps that all kinds share.

    the linear part of A, detached from derivatives (`constant_linear_part`, called before a kind is chosen)
    ->  its entries; a function is traced
    ->  its analysis, shared by all stages  ->  NumPy's arrays, where values are known
    ->  the kind  ->  the library and device of A

A kind is a function `(own, target, **settings) -> Preconditioner`, which the decorator `@of_operator()` turns into a
function of any operator. `own` is a matrix: on NumPy's arrays wherever its values are known, also in `jax.jit` and
`tf.function`, else on those of the library. Operators on NumPy's arrays are moved to the library afterwards; `target`
is for choices that depend on the library, such as the format of a matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, wraps
from inspect import signature
from typing import Any

import numpy as np

from ...backends import Array, Backend, real_dtype
from ...sparse import (
    Dense,
    FunctionOperator,
    Matrix,
    NonlinearError,
    Operator,
    SparseMatrix,
    UnsupportedOperation,
    linear_part,
)
from ...sparse.analysis.analysis import Analysis, analyse_anew, analysed, analysis_of, forget, on_its_grid
from ...sparse.formats.entries.integers import csr_array
from ...sparse.formats.making.build import from_csr
from ...sparse.formats.traced_coo import places_unknown
from ...sparse.operators.concrete import anchor, as_matrix, concrete, from_host, without_derivatives
from ...sparse.operators.function import LinearFunction
from .checks import check_grid
from .operators import Permuted, Preconditioner, suitable_format

Kind = Callable[..., Preconditioner]

# Relative asymmetries: those of spilu are 5e-3 and more. Rounding leaves complete factors far less, unless the
# condition number of the matrix is 1e12, or 1e5 in single precision.
_FAR, _FAR_IN_SINGLE = 1e-3, 1e-2


@dataclass(frozen=True)
class Target:
    """Where a preconditioner is applied: in the library and on the device of A, in a dtype."""

    A: Operator
    dtype: np.dtype
    formats_of: Backend | None = None  # library that NumPy's arrays are moved to later: it decides the formats

    @property
    def bk(self) -> Backend:
        return self.A.bk

    @property
    def like(self) -> Array | None:
        """An array on the device, or None where the device does not matter."""
        return anchor(self.A) if isinstance(self.A, Matrix) else getattr(self.A, "like", None)

    @property
    def stored(self) -> np.dtype:
        return self.bk.stored_dtype(self.dtype)

    def moved(self, M: Operator) -> Operator:
        """Convert an operator on NumPy's arrays; one on those of the library is returned unchanged."""
        return M if M.bk is self.bk else from_host(M, self.A)  # type: ignore[arg-type]

    def dense(self, matrix: np.ndarray) -> Dense:
        known = matrix.astype(self.stored)
        return Dense(self.bk, self.bk.asarray(known, like=self.like), known)

    def array(self, values: np.ndarray) -> Array:
        """A constant array in the dtype: NumPy's inside compiled programs and in the NumPy backend."""
        return self.placed(values.astype(self.stored))

    def placed(self, array: Array) -> Array:
        """Likewise in its own dtype; arrays of the library are returned unchanged."""
        if self.bk.on_host or self.bk.compiled() or not isinstance(array, np.ndarray):
            return array
        return self.bk.asarray(array, like=self.like)

    def matrix(self, A: Any, format: str | None = None, copy: bool = True) -> SparseMatrix:
        """Convert SciPy's CSR to a format, by default the one that suits it in the library.

        Args:
            copy: False: the result may keep and sort A.
        """
        known, format = A.astype(self.dtype, copy=copy), format or suitable_format(self.formats_of or self.bk, A)
        return from_csr(self.bk, known, prune=False, like=self.like, format=format)

    def permuted(self, inner: Operator, order: np.ndarray) -> Permuted:
        """Operator whose unknown `order[k]` is unknown k of `inner`."""
        n, places = len(order), np.argsort(order).astype(order.dtype)
        rows = np.arange(n + 1, dtype=np.int32)
        Q, back = (self.matrix(csr_array(np.ones(n), cols, rows, (n, n))) for cols in (order, places))
        return Permuted(back, inner, Q)


def of_operator(*, needs_entries: bool = True, eagerly_on_host: bool = True) -> Callable[[Kind], Kind]:
    """Decorator that turns a kind, see above, into a function of any operator.

    Args:
        needs_entries: False: where only products with A are available, `own` is A itself.
        eagerly_on_host: False: outside compiled functions `own` stays on the arrays of its library.
    """

    def decorated(kind: Kind) -> Kind:
        @wraps(kind)
        def build(A: Operator, **settings: Any) -> Preconditioner:
            check_square(A)
            entries = entries_of(A) if needs_entries else entries_or_products(A)
            return build_from_entries(A, entries, partial(kind, **settings), eagerly_on_host)

        own = signature(kind)
        A, _, *settings = own.parameters.values()
        build.__signature__ = own.replace(parameters=[A.replace(name="A"), *settings])  # type: ignore[attr-defined]
        return build

    return decorated


def build_from_entries(A: Operator, entries: Operator, kind: Kind, eagerly_on_host: bool = True) -> Preconditioner:
    """Build the preconditioner for A from `entries`, in the library of A and on its device."""
    with analysed(entries):
        own = concrete(entries) if eagerly_on_host or entries.bk.compiled() else entries
        if own is not entries:
            own.analysis = Analysis(own, analysis_of(entries).facts)
        target = Target(entries, entries.dtype)
        M = kind(own, target)
    inner = target.moved(M.inner)
    M = M if inner is M.inner else replace(M, inner=inner)
    if M.entries is None:
        M.entries = stored_entries(A)  # In place, because nothing else holds it yet.
    return M


def constant_linear_part(A: Operator) -> Operator:
    """Linear part of A (an affine function minus its value at zero), detached from derivatives."""
    A = A.without_offset
    return without_derivatives(linear_part(A) if isinstance(A, FunctionOperator) else A)


def check_square(A: Operator) -> None:
    """Refuse a rectangular matrix."""
    if A.shape[0] != A.shape[1]:
        raise ValueError(f"A preconditioner was asked for a matrix of {A.shape}; expected a square one.")


def entries_of(A: Operator) -> Matrix:
    """A as a matrix; a function is traced.

    Raises:
        UnsupportedOperation: only products are available, or positions of entries are unknown.
        NonlinearError: the function is not linear.
    """
    A = A.without_offset
    if not isinstance(A, Matrix | LinearFunction):
        raise UnsupportedOperation(
            f"{A!r} gives products only, and this preconditioner is made of entries. Give the matrix, or use "
            "'chebyshev', or a function r -> M r of your own."
        )
    matrix = as_matrix(A)
    if not isinstance(matrix, SparseMatrix | Dense):
        raise places_unknown("This preconditioner")
    return matrix


def entries_or_products(A: Operator) -> Operator:
    """A as a matrix where its entries are available, else A itself."""
    try:
        return entries_of(A)
    except (UnsupportedOperation, NonlinearError):  # Only products are available.
        return A.without_offset


def grid_of(own: Operator, grid: Any, find: bool = False) -> tuple[int, ...]:
    """Grid of the unknowns: as given, as declared by the matrix, or with `find` detected from its entries."""
    if grid is None:
        if find and len(own.in_shape) == 1:
            own = on_its_grid(own)  # type: ignore[arg-type]
        return own.in_shape if all(isinstance(k, int) for k in own.in_shape) else (own.shape[0],)  # no container
    shape = check_grid(grid)
    if math.prod(shape) != own.shape[0]:
        raise ValueError(
            f"grid={shape} has {math.prod(shape)} points; expected {own.shape[0]}, the number of unknowns."
        )
    return shape


def stored_entries(A: Operator) -> int | None:
    """Number of stored entries, the unit of costs, or None if A is no matrix."""
    A = A.without_offset
    return A.nnz if isinstance(A, Matrix) else None


def far_from_hermitian(M: Preconditioner) -> float | None:
    """Relative asymmetry of a known matrix or of SuperLU factors; None if M is (nearly) Hermitian or unknown.

    Functions are examined only after a failed solve. Cost: two products with M, or solves with its factors, once.
    """
    if M.hermitian is not None or not (isinstance(M.inner, Matrix) or M.kind == "SuperLU"):
        return None
    own = M.inner if isinstance(M.inner, Matrix) else M
    if own.analysis is None:
        analyse_anew(own)
    relative = analysis_of(own).asymmetry
    single = M.dtype.itemsize < (16 if M.dtype.kind == "c" else 8)
    if relative is None or relative <= (_FAR_IN_SINGLE if single else _FAR):
        return None
    forget(own)  # The caller may write to it before trying again.
    return relative


def far_from_symmetric(M: Preconditioner) -> float | None:
    """Relative size of M - M^T, without conjugation; None if M is (nearly) symmetric, unknown or a function.

    Cost: one product with M and one with its transpose.
    """
    bk, n = M.bk, M.shape[1]
    if M.kind == "user's function" or not n or bk.in_program() or bk.compiled(*bk.flatten(M.as_container())[0]):
        return None
    try:
        v = bk.astype(bk.reshape(bk.scatter_numbers(n, real_dtype(M.dtype), None), (1, -1)), M.dtype)
        v = bk.copy(bk.broadcast_to(v, (M.systems or 1, n)))
        with bk.errstate():
            forward, backward = bk.to_numpy(M.apply(v)), bk.to_numpy(M.transpose().apply(v))
    except (TypeError, UnsupportedOperation):  # Without a transpose a failed solve reports the asymmetry.
        return None
    with np.errstate(all="ignore"):
        scale = np.linalg.norm(forward) + np.linalg.norm(backward)
        relative = float(np.linalg.norm(forward - backward) / scale) if scale > 0 else 0.0
    return relative if relative > (_FAR_IN_SINGLE if M.dtype.itemsize < 16 else _FAR) else None
