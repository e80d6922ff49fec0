"""Derivatives of a solve on NumPy arrays, which have none of their own: `SolveResult.vjp` and `SolveResult.jvp`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ...backends import Array
from ...sparse import (
    Matrix,
    UnsupportedOperation,
    batch_shape,
    is_function,
    is_list_of_matrices,
    operand_dtype,
    to_operator,
)
from ...sparse.analysis.symmetry import PRODUCTS
from ..attempt import Attempt
from ..read.arguments import matched
from ..read.system import System
from ..results.result import Gradient
from ..run.outcome import Outcome, has_failed
from .implicit import BACKWARD, ImplicitSolve
from .matrix_gradient import matrix_gradient


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """What the derivatives of a solve need of it.

    x and residual are rows `(systems, n)`; `failed` `(systems, 1)` tells which have none, as x is no solution, and
    `null_part` `(systems, 1)` how much was taken off b.
    """

    attempt: Attempt
    x: Array
    residual: Array
    failed: Array
    null_part: Array

    @classmethod
    def of(cls, attempt: Attempt, outcome: Outcome) -> Sensitivity:
        """Without the initial guess, which derivatives have no use for."""
        if attempt.system.x0 is not None:
            attempt = replace(attempt, system=replace(attempt.system, x0=None))
        return cls(attempt, outcome.x, outcome.residual, has_failed(outcome.status), outcome.null_part)

    @property
    def system(self) -> System:
        """What was solved."""
        return self.attempt.system

    def vjp(self, cotangent: Any) -> Gradient:
        """See `SolveResult.vjp`."""
        self._check()
        system, bk = self.system, self.system.bk
        rows = system.layout.flatten(bk, bk.asarray(cotangent), system.A.dtype, "cotangent")
        lost = self.failed & np.any(rows != 0, axis=1, keepdims=True)
        y = np.where(lost, np.nan, self._backward(np.where(lost, 0, rows)))
        like_b = y if system.like.dtype.kind == "c" else y.real
        full = np.ascontiguousarray(like_b).reshape(*system.layout.batch, *system.layout.shape)
        more = full.ndim - system.like.ndim  # axes of a batch of matrices, to all of which one b belongs
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
        found = self._system.tangent().solve(np.where(lost, 0, rhs))[0]
        return layout.unflatten(bk, np.where(lost, np.nan, found))

    @cached_property
    def _system(self) -> ImplicitSolve:
        attempt, system = replace(self.attempt, history=False, monitor=None), self.system
        if attempt.method.keeps_setup:  # one factorisation for all derivatives
            attempt = replace(attempt, M=attempt.method.setup(system.bk, system.A, attempt.M))
        return ImplicitSolve.of(attempt)

    def _backward(self, cotangent: Array) -> Array:
        """y with A^H y = cotangent."""
        if self.attempt.method.needs_hermitian and not isinstance(self.system.A.without_offset, Matrix):
            return self._backward_by_symmetry(cotangent)
        try:
            return np.conj(self._system.transpose().solve(np.conj(cotangent))[0])
        except UnsupportedOperation as error:
            raise UnsupportedOperation(
                f"vjp needs products with the transpose of A (and of the preconditioner). {error} For vjp: give a "
                "matrix, or a LinearOperator with rmatvec; for a function that is symmetric (Hermitian), CG or MINRES."
            ) from error

    def _backward_by_symmetry(self, cotangent: Array) -> Array:
        """A y = cotangent, as a function of NumPy arrays has no transpose; proven with one random vector."""
        y, (_, _, bound, *_) = replace(self._system, purpose=BACKWARD).solve(cotangent)
        u = np.random.default_rng(6).standard_normal(y.shape).astype(y.dtype)
        image, right = np.copy(self.system.A.apply(u)), self.system.A.apply(y)  # which may be one buffer
        # <A u, y> is <u, A^H y>, and <u, A y> only where A^H y = A y
        norm, dot = self.system.bk.norm, self.system.bk.dot
        error = np.abs(dot(image, y) - dot(u, right))
        allowed = 10 * bound + PRODUCTS * np.finfo(y.dtype).eps * (norm(image) * norm(y) + norm(u) * norm(right))
        if np.any(error > allowed):
            raise ValueError(
                f"{self.attempt.method.name} solved A x = b, but A is not symmetric (Hermitian), so this does not "
                "solve the transposed system. Give a matrix, and use biCG-stab(2) or scipy-direct."
            )
        return y

    def _change_of_product(self, A: Any) -> Array:
        """The change of A, times x, as rows."""
        system, (systems, n) = self.system, self.x.shape
        found = operand_dtype(A, system.bk)
        if found is not None and found.kind == "c" and system.A.dtype.kind != "c":
            raise TypeError(f"The change of A is complex ({found}) in a real system; give b as a complex array.")
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
        """Raises where there are no derivatives, or what was solved is not there any more."""
        system = self.system
        if system.several:
            raise ValueError(
                "A solve with several limits (max_iter as a sequence) has no derivatives, as its x are not solutions. "
                "Give one limit."
            )
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
