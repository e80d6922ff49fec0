"""The gradient with respect to the entries of a NumPy or SciPy matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...backends import Array, get_backend
from ...sparse import (
    DenseOperator,
    Matrix,
    Operator,
    SparseMatrix,
    UnsupportedOperation,
    batch_shape,
    is_function,
    is_list_of_matrices,
    operand_dtype,
    to_operator,
)
from ...sparse.analysis.symmetry import PRODUCTS
from ...sparse.formats import places_of_values
from ..plan import Plan
from ..read.arguments import matched
from ..read.system import System
from ..results.result import Gradient
from ..run.outcome import Outcome, has_failed
from .implicit import BACKWARD, ImplicitSolve, Judge

SEVERAL_LIMITS = (
    "A solve with several limits (max_iter as a sequence) has no derivatives, because its x are not solutions. Give "
    "one limit for the solve that is to be differentiated."
)


def matrix_gradient(A: Any, y: Array, x: Array, batch: Sequence[int]) -> Any:
    """`- y x^H` summed over the systems that share entries; real where A is.

    Args:
        A: the user's matrix.
        y, x: rows `(systems, n)`, of the batch axes `batch`.

    Returns:
        A dense array shaped as a dense A; for a sparse A one of its format, with one value for each that A stores, in
        their order (CSR for formats whose values are no array); a list for a list; CSR of the rows of a member of a
        communicator; None for functions and LinearOperators.
    """
    if is_list_of_matrices(A, get_backend("numpy")):
        ys, xs = (v.reshape(-1, len(A), v.shape[1]) for v in (y, x))
        return [matrix_gradient(matrix_i, ys[:, i], xs[:, i], ys.shape[:1]) for i, matrix_i in enumerate(A)]
    if isinstance(A, SparseMatrix):
        return _of_format(A, y, x)
    if sp.issparse(A):
        return _sparse(A, y, x)
    if isinstance(A, DenseOperator):
        if A.systems is None:
            return _dense(A.shape, A.dtype, y, x, batch)
        if A.systems == len(y):  # the user's array may have had other axes
            return _dense((*batch, *A.shape), A.dtype, y, x, batch)
        return _dense((A.systems, *A.shape), A.dtype, y, x, (len(y) // max(A.systems, 1), A.systems))
    if (of_rows := getattr(A, "gradient_by_entries", None)) is not None:
        return of_rows(y, x)
    if is_function(A) or isinstance(A, Operator) or hasattr(A, "matvec"):
        return None
    matrix = np.asarray(A)
    return _dense(matrix.shape, matrix.dtype, y, x, batch)


def _of_format(A: SparseMatrix, y: Array, x: Array) -> SparseMatrix:
    values = A.form.sample(A.bk, A.index_arrays(), -y, x.conj())
    if A.systems is not None:  # the rows repeat the matrices
        values = tuple(v.reshape(-1, A.systems, *v.shape[1:]).sum(axis=0) for v in values)
    return A.with_stored_values([_kind_of(A.dtype, v) for v in values])


def _dense(shape: tuple[int, ...], dtype: np.dtype, y: Array, x: Array, batch: Sequence[int]) -> Array:
    n = shape[-1]
    if math.prod(shape[:-2]) == 1:
        return _kind_of(dtype, -(y.T @ x.conj())).reshape(shape)
    full = _kind_of(dtype, -y[:, :, None] * x.conj()[:, None, :]).reshape(*batch, n, n)
    lead = (1,) * (len(batch) + 2 - len(shape)) + shape[:-2]
    shared = tuple(i for i, (mine, all_) in enumerate(zip(lead, batch, strict=True)) if mine != all_)
    return full.sum(axis=shared, keepdims=True).reshape(shape)


def _sparse(A: Any, y: Array, x: Array) -> Any:
    if A.format in ("lil", "dok"):
        A = A.tocsr()
    rows, columns = places_of_values(A)
    inside = (rows >= 0) & (rows < A.shape[0])  # a stored diagonal may be longer than the matrix
    rows, columns = np.where(inside, rows, 0), np.where(inside, columns, 0)
    values = np.zeros(rows.shape, y.dtype)
    for yi, xi in zip(y, x.conj(), strict=True):  # one system at a time: the entries may be many
        values -= yi[rows] * xi[columns]
    gradient = A.astype(_kind_of(A.dtype, values).dtype)  # a copy
    gradient.data = np.where(inside, _kind_of(A.dtype, values), 0).reshape(A.data.shape)
    return gradient


def _kind_of(dtype: np.dtype, values: Array) -> Array:
    return values if dtype.kind == "c" else values.real


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Data of a solve that its derivatives need.

    x and residual are rows `(systems, n)`. `failed` `(systems, 1)` marks systems without derivatives, because x is no
    solution, `null_part` `(systems, 1)` is the norm of the part that was subtracted from b, and `judge` handles
    failures of the solves for derivatives.
    """

    plan: Plan
    system: System
    x: Array
    residual: Array
    failed: Array
    null_part: Array
    judge: Judge

    @classmethod
    def of(cls, plan: Plan, system: System, outcome: Outcome, judge: Judge) -> Sensitivity:
        """Without the initial guess, which derivatives do not need."""
        system = system if system.x0 is None else replace(system, x0=None)
        return cls(plan, system, outcome.x, outcome.residual, has_failed(outcome.status), outcome.null_part, judge)

    def vjp(self, cotangent: Any) -> Gradient:
        """See `SolveResult.vjp`."""
        self._check()
        system, bk = self.system, self.system.bk
        rows = system.layout.flatten(bk, bk.asarray(cotangent), system.A.dtype, "cotangent")
        lost = self.failed & np.any(rows != 0, axis=1, keepdims=True)
        y = np.where(lost, np.nan, self._backward(np.where(lost, 0, rows)))
        like_b = y if system.like.dtype.kind == "c" else y.real
        full = np.ascontiguousarray(like_b).reshape(*system.layout.batch, *system.layout.shape)
        more = full.ndim - system.like.ndim  # axes of a batch of matrices that share b
        gradient = system.layout.placed(bk, full.sum(axis=tuple(range(more))) if more else full)
        return Gradient(gradient, matrix_gradient(system.source, y, self.x, system.layout.batch))

    def jvp(self, b: Any, A: Any) -> Array:
        """See `SolveResult.jvp`."""
        if b is None and A is None:
            raise ValueError("jvp got no direction. Give the change of b, the change of A, or both.")
        self._check()
        system, bk = self.system, self.system.bk
        layout, dtype = system.layout, system.A.dtype
        rhs = bk.zeros_like(self.x) if b is None else layout.flatten(bk, bk.asarray(b), dtype, "the change of b")
        if A is not None:
            rhs = rhs - self._change_of_product(A)
        lost = self.failed & np.any(rhs != 0, axis=1, keepdims=True)
        change = self._system.tangent().solve(np.where(lost, 0, rhs))[0]
        return layout.unflatten(bk, np.where(lost, np.nan, change))

    @cached_property
    def _system(self) -> ImplicitSolve:
        plan, system = self.plan, replace(self.system, history=False, monitor=None)
        if plan.method.keeps_setup:  # one factorisation for all derivatives
            plan = plan.with_M(plan.method.setup(system.bk, system.A, plan.M))
        return ImplicitSolve.of(plan, system, self.judge)

    def _backward(self, cotangent: Array) -> Array:
        """y with A^H y = cotangent."""
        if self.plan.method.needs_hermitian and not isinstance(self.system.A.without_offset, Matrix):
            return self._backward_by_symmetry(cotangent)
        try:
            return np.conj(self._system.transpose().solve(np.conj(cotangent))[0])
        except UnsupportedOperation as error:
            raise UnsupportedOperation(
                f"vjp needs products with the transpose of A (and of the preconditioner). {error} For vjp: give a "
                "matrix, or a LinearOperator with rmatvec; for a function that is symmetric (Hermitian), CG or MINRES."
            ) from error

    def _backward_by_symmetry(self, cotangent: Array) -> Array:
        """y with A y = cotangent, for functions without a transpose; one random vector checks that A is symmetric."""
        y, (_, _, bound, *_) = replace(self._system, purpose=BACKWARD).solve(cotangent)
        u = np.random.default_rng(6).standard_normal(y.shape).astype(y.dtype)
        image, right = np.copy(self.system.A.apply(u)), self.system.A.apply(y)  # both may share a buffer
        # <A u, y> is <u, A^H y>, and <u, A y> only where A^H y = A y
        norm, dot = self.system.bk.norm, self.system.bk.dot
        error = np.abs(dot(image, y) - dot(u, right))
        allowed = 10 * bound + PRODUCTS * np.finfo(y.dtype).eps * (norm(image) * norm(y) + norm(u) * norm(right))
        if np.any(error > allowed):
            raise ValueError(
                f"{self.plan.method.name} solved A x = b, but A is not symmetric (Hermitian), so this does not "
                "solve the transposed system. Give a matrix, and use biCG-stab(2) or scipy-direct."
            )
        return y

    def _change_of_product(self, A: Any) -> Array:
        """The change of A, times x, as rows."""
        system, (systems, n) = self.system, self.x.shape
        dtype = operand_dtype(A, system.bk)
        if dtype is not None and dtype.kind == "c" and system.A.dtype.kind != "c":
            raise TypeError(f"The change of A is complex ({dtype}) in a real system; give b as a complex array.")
        if is_list_of_matrices(A, system.bk):
            A = to_operator(system.bk, A, None, system.A.dtype)
        shape = None if is_function(A) else tuple(A.shape if hasattr(A, "shape") else np.shape(A))
        if shape is not None and shape[-2:] != (n, n):
            raise ValueError(f"The change of A has the shape {shape}; expected (..., {n}, {n}), that of A.")
        if not isinstance(A, (np.ndarray, list, tuple)):
            change = to_operator(system.bk, A, system.layout, system.A.dtype, (), system.like, "dA")
            if isinstance(change, Matrix) and change.systems is not None:
                change = matched(change, batch_shape(change, system.bk), system.layout)
            return change.apply(self.x)
        batch = system.layout.batch
        image = np.matmul(np.asarray(A, system.A.dtype), self.x.reshape(*batch, n, 1))
        if image.shape != (*batch, n, 1):
            raise ValueError(f"The change of A has the shape {shape}; expected the batch axes {batch} of b, or none.")
        return image.reshape(systems, n)

    def _check(self) -> None:
        system = self.system
        if system.several:
            raise ValueError(SEVERAL_LIMITS)
        if system.given is not None:
            raise TypeError(
                "vjp and jvp are for square systems; this is a least-squares solution. Solve the normal equations, "
                "linear_solve(A.conj().T @ A, A.conj().T @ b), or use the derivatives of JAX, PyTorch or TensorFlow."
            )
        with system.bk.errstate():
            scale = system.bk.norm(system.b) + system.bk.norm(self.residual)
            change = system.bk.norm(system.b - system.A.apply(self.x) - self.residual)
        change = np.abs(change - self.null_part)  # The residual is that of the projected b.
        if np.any(change > np.sqrt(np.finfo(system.A.dtype).eps) * scale):
            raise RuntimeError(
                "A, b or x was changed after the solve, and its derivatives need what they were. Hand copies to "
                "linear_solve, or take the derivatives before the arrays are used again."
            )
