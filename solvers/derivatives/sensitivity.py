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
from ..iteration.outcome import Outcome, has_failed
from ..results.result import Gradient
from ..setup.axis import matched
from ..setup.problem import Problem
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
        if attempt.problem.x0 is not None:
            attempt = replace(attempt, problem=replace(attempt.problem, x0=None))
        return cls(attempt, outcome.x, outcome.residual, has_failed(outcome.status), outcome.null_part)

    @property
    def problem(self) -> Problem:
        """What was solved."""
        return self.attempt.problem

    def vjp(self, cotangent: Any) -> Gradient:
        """See `SolveResult.vjp`."""
        self._check()
        problem, bk = self.problem, self.problem.bk
        rows = problem.layout.flatten(bk, bk.asarray(cotangent), problem.A.dtype, "cotangent")
        lost = self.failed & np.any(rows != 0, axis=1, keepdims=True)
        y = np.where(lost, np.nan, self._backward(np.where(lost, 0, rows)))
        like_b = y if problem.like.dtype.kind == "c" else y.real
        full = np.ascontiguousarray(like_b).reshape(*problem.layout.batch, *problem.layout.shape)
        more = full.ndim - problem.like.ndim  # axes of a batch of matrices, to all of which one b belongs
        gradient = problem.layout.placed(bk, full.sum(axis=tuple(range(more))) if more else full)
        return Gradient(gradient, matrix_gradient(problem.source, y, self.x, problem.layout.batch))

    def jvp(self, b: Any, A: Any) -> Array:
        """See `SolveResult.jvp`."""
        if b is None and A is None:
            raise ValueError("jvp got no direction. Give the change of b, the change of A, or both.")
        self._check()
        problem, bk = self.problem, self.problem.bk
        layout, dtype = problem.layout, problem.A.dtype
        rhs = bk.zeros_like(self.x) if b is None else layout.flatten(bk, bk.asarray(b), dtype, "the change of b")
        if A is not None:
            rhs = rhs - self._change_of_product(A)
        lost = self.failed & np.any(rhs != 0, axis=1, keepdims=True)
        found = self._system.tangent().solve(np.where(lost, 0, rhs))[0]
        return layout.unflatten(bk, np.where(lost, np.nan, found))

    @cached_property
    def _system(self) -> ImplicitSolve:
        attempt, problem = replace(self.attempt, history=False, monitor=None), self.problem
        if attempt.method.keeps_setup:  # one factorisation for all derivatives
            attempt = replace(attempt, M=attempt.method.setup(problem.bk, problem.A, attempt.M))
        return ImplicitSolve.of(attempt)

    def _backward(self, cotangent: Array) -> Array:
        """y with A^H y = cotangent."""
        if self.attempt.method.needs_hermitian and not isinstance(self.problem.A.without_offset, Matrix):
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
        image, right = np.copy(self.problem.A.apply(u)), self.problem.A.apply(y)  # which may be one buffer
        # <A u, y> is <u, A^H y>, and <u, A y> only where A^H y = A y
        norm, dot = self.problem.bk.norm, self.problem.bk.dot
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
        problem, (systems, n) = self.problem, self.x.shape
        found = operand_dtype(A, problem.bk)
        if found is not None and found.kind == "c" and problem.A.dtype.kind != "c":
            raise TypeError(f"The change of A is complex ({found}) in a real system; give b as a complex array.")
        if is_list_of_matrices(A, problem.bk):
            A = to_operator(problem.bk, A, None, problem.A.dtype)
        shape = None if is_function(A) else tuple(A.shape if hasattr(A, "shape") else np.shape(A))
        if shape is not None and shape[-2:] != (n, n):
            raise ValueError(f"The change of A has the shape {shape}; expected (..., {n}, {n}), that of A.")
        if not isinstance(A, (np.ndarray, list, tuple)):
            change = to_operator(problem.bk, A, problem.layout, problem.A.dtype, (), problem.like, "dA")
            if isinstance(change, Matrix) and change.systems is not None:
                change = matched(change, batch_shape(change, problem.bk), problem.layout)
            return change.apply(self.x)
        batch = problem.layout.batch
        image = np.matmul(np.asarray(A, problem.A.dtype), self.x.reshape(*batch, n, 1))
        if image.shape != (*batch, n, 1):
            raise ValueError(f"The change of A has the shape {shape}; expected the batch axes {batch} of b, or none.")
        return image.reshape(systems, n)

    def _check(self) -> None:
        """Raises where there are no derivatives, or what was solved is not there any more."""
        problem = self.problem
        if problem.several:
            raise ValueError(
                "A solve with several limits (max_iter as a sequence) has no derivatives, as its x are not solutions. "
                "Give one limit."
            )
        if problem.given is not None:
            raise TypeError(
                "vjp and jvp are for square systems; this is a least-squares solution. Solve the normal equations, "
                "linear_solve(A.conj().T @ A, A.conj().T @ b), or use the derivatives of JAX, PyTorch or TensorFlow."
            )
        with problem.bk.errstate():
            scale = problem.bk.norm(problem.b) + problem.bk.norm(self.residual)
            change = problem.bk.norm(problem.b - problem.A.apply(self.x) - self.residual)
        change = np.abs(change - self.null_part)  # The residual is that of the projected b.
        if np.any(change > np.sqrt(np.finfo(problem.A.dtype).eps) * scale):
            raise RuntimeError(
                "A, b or x was changed after the solve, and its derivatives need what they were. Hand copies to "
                "linear_solve, or take the derivatives before the arrays are used again."
            )
