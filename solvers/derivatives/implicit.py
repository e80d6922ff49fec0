"""A solve as a function of arrays, which backends differentiate by the implicit function theorem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...backends import Array, LinearSystem
from ...sparse import FunctionOperator, MappedOperator, OffsetOperator, Operator
from ...sparse.operators.function import DerivedFunction
from ..iteration.driver import Outcome
from ..setup.nullspace import projection
from ..setup.problem import Problem

Run = Callable[[Problem, "Operator | None", bool, bool], Outcome]


class Parts(NamedTuple):
    """What of a problem may depend on traced or recorded arrays."""

    A: Operator
    M: Operator | None
    x0: Array | None
    rtol: Array
    atol: Array
    relative: Array  # the tolerance of derivatives: atol has no meaning for them


@dataclass(frozen=True)
class ImplicitSolve(LinearSystem):
    """One solve and its derivatives.

    Attributes:
        problem: the right-hand side, and what no array decides.
        run: solves a problem with a preconditioner, for a derivative or not, for a reverse one or not.
        make: arrays -> Parts.
    """

    problem: Problem
    run: Run
    make: Callable[[Sequence[Array]], Parts]
    arrays: Sequence[Array]
    differentiable: int
    hermitian: bool
    transposed: bool = False
    derived: bool = False

    @classmethod
    def of(cls, problem: Problem, M: Operator | None, hermitian: bool, run: Run) -> ImplicitSolve:
        """The system of `problem`; its arrays are found where the backend needs them as arguments."""
        bk = problem.bk
        size = bk.norm(problem.b)
        size = bk.where(bk.isfinite(size), size, bk.zeros_like(size))  # a NaN in b says nothing about derivatives
        relative = bk.maximum(problem.rtol, bk.safe_divide(problem.atol, size))
        x0 = None if problem.x0 is None else bk.constant(problem.x0)
        parts = Parts(problem.A, M, x0, *map(bk.constant, (problem.rtol, problem.atol, relative)))
        if not bk.explicit_derivatives:
            if M is not None:
                arrays, make_M = bk.take_apart(M.as_container())
                parts = parts._replace(M=make_M([bk.constant(a) for a in arrays]))
            return cls(problem, run, lambda _: parts, (), 0, hermitian)
        A, M = problem.A.as_container(), M if M is None or not problem.compiled else M.as_container()
        entries, make_A = bk.take_apart(A)
        others, make_others = bk.take_apart((M, *parts[2:]))
        own = [i for i, a in enumerate(entries) if bk.dtype(a).kind in "fc"]
        rest = [i for i in range(len(entries)) if i not in own]
        order = [*own, *rest]
        back = sorted(range(len(order)), key=order.__getitem__)

        def make(arrays: Sequence[Array]) -> Parts:
            values = [arrays[i] for i in back]
            return Parts(make_A(values), *make_others(arrays[len(order) :]))

        return cls(problem, run, make, (*(entries[i] for i in order), *map(bk.constant, others)), len(own), hermitian)

    def product(self, x: Array) -> Array:
        A = self.make(self.arrays).A
        return (A.transpose() if self.transposed else A).apply(x)

    def factors(self, x: Array) -> Sequence[Array]:
        M = self.make(self.arrays).M
        if M is not None and self.transposed:
            M = M.transpose()
        return (self.product(x), *(() if M is None else (M.apply(x),)))

    def solve(self, b: Array) -> tuple[Array, tuple[Array, ...]]:
        bk = self.problem.bk
        A, M, x0, rtol, atol, relative = self.make(self.arrays)
        if self.transposed:
            A, M = A.transpose(), None if M is None else M.transpose()
        if self.derived:
            x0, rtol, atol = None, relative, 0 * relative
        elif not bk.explicit_derivatives:
            # JAX calls this for derivatives too; x0 and atol are for the given right-hand side only.
            known = bk.constant(self.problem.b)
            given = bk.sum(bk.where(b == known, bk.zeros_like(rtol), 1 + bk.zeros_like(rtol)), 1, keepdims=True) == 0
            x0 = None if x0 is None else bk.where(given, x0, bk.zeros_like(x0))
            rtol, atol = bk.where(given, rtol, relative), bk.where(given, atol, 0 * atol)
        problem = replace(self.problem, A=A, b=b, x0=x0, rtol=rtol, atol=atol, compiled=bk.compiled(b))
        if self.derived and problem.null_basis is not None:
            problem = self._without_null_vectors(problem)
        if self.transposed and self.hermitian and bk.explicit_derivatives and _is_function(A):
            problem = replace(problem, x0=self._by_symmetry(problem))
        outcome = self.run(problem, M, self.derived, self.transposed)
        history = () if isinstance(outcome.history, tuple) else (bk.matrix_transpose(outcome.history),)
        return outcome.x, (*outcome[1:-1], *history)

    def _by_symmetry(self, problem: Problem) -> Array:
        """The solution with A as it is where its transpose should be the same but for conjugation.

        A product with a function costs half of one with the transpose that the library derives. The solve that starts
        from here sees with the transpose that this is right, in no iterations, or goes on.
        """
        A, M, *_ = self.make(self.arrays)
        if A.dtype.kind == "c":
            A, M = A.conj(), None if M is None else M.conj()
        return self.run(replace(problem, A=A), M, True, True).x

    def _without_null_vectors(self, problem: Problem) -> Problem:
        """x has no part in the null space of A, so neither has its cotangent; likewise b where A is Hermitian."""
        if problem.null_basis is None:
            return problem
        basis = problem.null_basis.conj() if self.transposed else problem.null_basis
        b = problem.b
        if self.transposed or self.hermitian:
            b = projection(basis, problem.bk, b)(b)
        return replace(problem, b=b, null_basis=None if self.transposed and not self.hermitian else basis)

    def tangent(self) -> ImplicitSolve:
        return replace(self, derived=True)

    def transpose(self) -> ImplicitSolve:
        return replace(self, transposed=not self.transposed, derived=True)

    def with_arrays(self, arrays: Sequence[Array]) -> ImplicitSolve:
        return replace(self, arrays=tuple(arrays))

    def started_at(self, x: Array) -> ImplicitSolve:
        return replace(self, make=lambda arrays: self.make(arrays)._replace(x0=x))

    def mapped(self, size: int, axes: Sequence[int | None]) -> ImplicitSolve:
        layout, make = self.problem.layout, self.make

        def many(arrays: Sequence[Array]) -> Parts:
            return _mapped(self.problem, make, arrays, axes, size)

        wide = replace(layout, batch=(size, *layout.batch))
        return replace(self, problem=replace(self.problem, layout=wide), make=many)


def _is_function(A: Operator) -> bool:
    return isinstance(A.inner if isinstance(A, OffsetOperator) else A, FunctionOperator | DerivedFunction)


def _mapped(
    problem: Problem,
    make: Callable[[Sequence[Array]], Parts],
    arrays: Sequence[Array],
    axes: Sequence[int | None],
    size: int,
) -> Parts:
    """`size` times the parts of a problem."""
    bk, systems = problem.bk, problem.layout.systems
    one = make([a if axis is None else a[0] for a, axis in zip(arrays, axes, strict=True)])

    def operators(name: str) -> Operator | None:
        operator = getattr(one, name)
        if operator is None or (operator.together is None and all(axis is None for axis in axes)):
            return operator
        return MappedOperator(bk, lambda arrays: getattr(make(arrays), name), arrays, axes, size, systems)

    def rows(name: str) -> Array:
        value = getattr(one, name)
        if value is None:
            return None
        shape = (systems, int(value.shape[1]))
        index = bk.zeros((size,), problem.A.dtype, problem.like)
        values = bk.vmap(lambda _, *arrays: bk.broadcast_to(getattr(make(arrays), name), shape), (0, *axes))
        return bk.reshape(values(index, *arrays), (size * systems, shape[1]))

    A = operators("A")
    if A is None:
        raise TypeError("A problem without a matrix.")
    return Parts(A, operators("M"), *(rows(name) for name in Parts._fields[2:]))
