"""Derivatives of a solve by the implicit function theorem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend, Kept, LinearSystem, get_backend, nan_of, real_dtype
from ...sparse import FunctionOperator, MappedOperator, Operator
from ...sparse.analysis.symmetry import PRODUCTS
from ...sparse.operators.function import DerivedFunction
from ..ladder import climb
from ..plan import Plan, Rung
from ..read.system import KnownNull, System
from ..run.outcome import Outcome, Status, has_failed

_WRONG = (
    "The derivative of A(x) with respect to x is not A itself, so its transpose is not that of the matrix, and the "
    "gradient of the solution would be wrong. Something in the function cuts or replaces this derivative: detach(), "
    "no_grad(), stop_gradient, or a custom gradient. Take it out, or give the matrix: krylix.matrix_from_function "
    "follows the values."
)


def with_proven_transpose(bk: Backend, A: Operator, y: Array, image: Array, on_failure: str) -> Array:
    """y, if `<A u, y>` is `<u, image>` for one pseudo-random u, which costs a product with A.

    Args:
        A: the function.
        y: rows `(batch, n)`.
        image: the transpose times y that the solve used.
        on_failure: with "nan" a compiled function calls nobody, and the result is NaN.

    Raises:
        RuntimeError: it is not, by more than rounding; of a compiled function its library's error, when that runs, and
            where none can leave it (XLA) the result is NaN.
    """
    real = real_dtype(bk.dtype(y))
    numbers = bk.reshape(bk.scatter_numbers(int(y.shape[1]), real, y), (1, -1))
    u = bk.times(numbers, bk.full_like(y, 1))
    wrong = _differ(bk, u, A.apply(u), y, image)
    if on_failure == "nan" and bk.compiled(wrong):
        return bk.where(wrong, bk.full_like(y, nan_of(bk.dtype(y))), y)
    return bk.guard(wrong, _refuse, y, kept=Kept("adjoint", "raise", _WRONG))


def _differ(bk: Backend, u: Array, forward: Array, y: Array, image: Array) -> Array:
    """Do `<forward, y>` and `<u, image>` differ by more than rounding, in some system?"""
    bk, (u, forward, y, image) = numbers_of(bk, u, forward, y, image)
    # bilinear, for the transpose: `dot` conjugates its first argument
    with bk.errstate():
        left, right = bk.dot(bk.conj(forward), y), bk.dot(bk.conj(u), image)
        size = bk.norm(forward) * bk.norm(y) + bk.norm(u) * bk.norm(image)
        return bk.any(bk.abs(left - right) > PRODUCTS * float(np.finfo(bk.dtype(y)).eps) * size)


def numbers_of(bk: Backend, *rows: Array) -> tuple[Backend, Sequence[Array]]:
    """NumPy and views of the rows where possible, because its small operations take less time; else bk and the rows."""
    seen = [bk.rows_on_host(v) for v in rows]
    return (get_backend("numpy"), seen) if all(v is not None for v in seen) else (bk, rows)


def _refuse(*_: Any) -> None:
    raise RuntimeError(_WRONG)


DERIVATIVE, BACKWARD = "the solve for a derivative of ", "the backward solve of "  # and then the method


Judge = Callable[[Plan, System, Outcome, str], Outcome]


class Parts(NamedTuple):
    """Parts of a problem that may depend on traced or recorded arrays."""

    A: Operator
    M: Operator | None
    x0: Array | None
    rtol: Array
    atol: Array
    relative: Array  # the tolerance of derivatives: atol has no meaning for them
    null: Operator | None  # see `System`


@dataclass(frozen=True)
class ImplicitSolve(LinearSystem):
    """One solve and its derivatives.

    Attributes:
        plan, system: of the solve; `make` gives the parts that depend on arrays.
        judge: handles a failure at run time: (plan, system, outcome, purpose) -> the outcome.
        make: arrays -> Parts.
        as_found: the original parts, with which JAX solves first: more may be known of them than of parts made again.
        is_explicit: see `LinearSystem`.
        transposed: is it the transposed matrix that this solves with?
        purpose: of a solve for a derivative, in words; none for the solve itself.
        many: are there more systems than the method was checked for?
    """

    plan: Plan
    system: System
    judge: Judge
    make: Callable[[Sequence[Array]], Parts]
    arrays: Sequence[Array]
    differentiable: Sequence[bool]
    transposed: bool = False
    purpose: str = ""
    many: bool = False
    as_found: Parts | None = None
    is_explicit: bool = True

    @classmethod
    def of(cls, plan: Plan, system: System, judge: Judge) -> ImplicitSolve:
        """A planned system; its arrays are collected where the backend needs them as arguments."""
        bk, M = system.bk, plan.M
        if plan.method.name == "direct" and not system.is_empty and not (system.compiled and bk.is_eager):
            with bk.errstate():  # one factorisation for the solve and its derivatives
                M = plan.method.setup(bk, system.A, M)
        x0 = None if system.x0 is None else bk.constant(system.x0)
        rtol, atol, relative = map(bk.constant, (system.rtol, system.atol, _relative(system)))
        apart = system.cut is not None and not system.cut.all_names  # functions get the systems of one device
        A, null, as_found = system.A if apart else system.A.as_container(), None, None
        if not bk.explicit_derivatives:
            if not apart:
                M = None if M is None else M.as_container()
            null = None if system.null is None else system.null.as_container()
            if M is not None and not (apart and _is_function(M)):  # it has no derivatives
                arrays, make_M = bk.flatten(M)
                M = make_M([bk.constant(a) for a in arrays])
            as_found = Parts(system.A, M, x0, rtol, atol, relative, system.null)
        elif M is not None and system.compiled:
            M = M.as_container()
        entries, make_A = bk.flatten(A)
        others, make_others = bk.flatten((M, x0, rtol, atol, relative, null))
        count = len(entries)

        own_null = None if as_found is not None else system.null

        def make(arrays: Sequence[Array]) -> Parts:
            parts = Parts(make_A(arrays[:count]), *make_others(arrays[count:]))
            return parts if own_null is None else parts._replace(null=own_null)

        differentiable = (*(bk.dtype(a).kind in "fc" for a in entries), *(False for _ in others))
        others = others if as_found is not None else list(map(bk.constant, others))
        explicit = all(operator is None or operator.is_container for operator in (A, M, null))
        return cls(
            plan, system, judge, make, (*entries, *others), differentiable, as_found=as_found, is_explicit=explicit
        )

    def parts(self) -> Parts:
        return self.make(self.arrays) if self.as_found is None else self.as_found

    @property
    def grid(self) -> tuple[int, ...] | None:  # type: ignore[override]
        return self.system.A.own_grid

    @property
    def hermitian(self) -> bool:
        """Does the method ask for A^H = A?"""
        return self.plan.method.needs_hermitian

    def outcome(self) -> Outcome:
        """The outcome of the plan, with derivatives of x."""
        bk = self.system.bk
        x, rest = bk.implicit_solve(self, self.system.b)
        lines = (bk.matrix_transpose(rest[-1]),) if self.system.history else ((),)
        outcome = Outcome(*(x, *rest[: len(Outcome._fields) - 2], *lines))
        if not self.system.compiled:
            return outcome
        return without_derivatives(bk, outcome, self.system.on_failure, self.system.may_be_stopped)

    def product(self, x: Array) -> Array:
        A = self.parts().A
        return (A.transpose() if self.transposed else A).apply(x)

    def factors(self, x: Array) -> Sequence[Array]:
        plan = self._planned(self.parts())
        return (plan.A.apply(x), *(() if plan.M is None else (plan.M.apply(x),)))

    def _planned(self, parts: Parts) -> Plan:
        plan = replace(self.plan, A=parts.A, null=None).with_M(parts.M)  # `_without_null_vectors` has these
        return plan.transpose(parts.A.transpose()) if self.transposed else plan

    def solve(self, b: Array, given: Array | None = None) -> tuple[Array, tuple[Array, ...]]:
        bk = self.system.bk
        parts = self.parts()
        _, _, x0, rtol, atol, relative, null = parts
        plan = self._planned(parts)
        A = plan.A
        if self.purpose:
            x0, rtol, atol = None, relative, 0 * relative
        elif given is not None:  # x0 and atol are for the given right-hand side only
            if x0 is not None:
                x0 = x0 if self.grid is None else bk.on_grid(x0, self.grid)
                x0 = bk.where(given, x0, bk.zeros_like(x0))
            rtol, atol = bk.where(given, rtol, relative), bk.where(given, atol, 0 * atol)
        system = replace(
            self.system, A=A, b=b, x0=x0, rtol=rtol, atol=atol, null=null, compiled=bk.compiled(b),
            derived=bool(self.purpose),
        )  # fmt: skip
        if self.purpose and system.null is not None:
            system = self._without_null_vectors(system)
        derived_transpose = self.transposed and bk.explicit_derivatives and _is_function(A)
        start = self._by_symmetry(system) if derived_transpose and self.hermitian else None
        outcome = None if start is None else _verified_outcome(system, start)
        if outcome is None:
            outcome = self._run(plan, system if start is None else replace(system, x0=bk.flat(start.x)))
            outcome = outcome._replace(x=bk.flat(outcome.x), residual=bk.flat(outcome.residual))
        if derived_transpose:  # JAX knows no transpose of operators that are cut
            # Factors may have projected b, so b minus the residual need not be the image of x.
            image = A.apply(outcome.x) if self.plan.method.factorises else system.b - outcome.residual
            x = with_proven_transpose(bk, parts.A, outcome.x, image, self.system.on_failure)
            outcome = outcome._replace(x=x)
        history = () if isinstance(outcome.history, tuple) else (bk.matrix_transpose(outcome.history),)
        return self._checked(b, outcome, given), (*outcome[1:-1], *history)

    def _checked(self, b: Array, outcome: Outcome, given: Array | None) -> Array:
        """x, with NaN where a derivative failed and failures do not raise.

        For a zero right-hand side it is zero whatever A is: the caller has left the system out.
        """
        bk = self.system.bk
        if self.system.on_failure == "raise" or (given is None and not self.purpose):
            return outcome.x
        size = bk.norm(b)
        failed = has_failed(outcome.status, self.system.may_be_stopped) & ((size > 0) | ~bk.isfinite(size))
        failed = failed if given is None or self.purpose else failed & ~given
        return bk.where(failed, bk.full_like(outcome.x, nan_of(bk.dtype(outcome.x))), outcome.x)

    def _run(self, plan: Plan, system: System) -> Outcome:
        derived = bool(self.purpose)
        if self.many:
            plan.method.check(system.A, plan.M)
        # JAX wants the same outputs of all solves
        recorded = system.history and not (derived and system.bk.explicit_derivatives)
        system = replace(system, history=recorded, monitor=None if derived else system.monitor)
        outcome = climb(plan, system)
        if not derived and not self.system.compiled:
            return outcome  # its failure is judged eagerly
        return self.judge(self.plan, system, outcome, self.purpose)  # the host may know the original M

    def _by_symmetry(self, system: System) -> Outcome:
        """The outcome with the conjugate of A in place of its transpose.

        A product with a function costs half as much as one with the transpose that the library derives. One of these
        then checks the outcome, or a solve continues from it.
        """
        A, M, *_ = self.parts()
        if A.dtype.kind == "c":
            A, M = A.conj(), None if M is None else M.conj()
        return self._run(replace(self.plan, A=A, found={}).with_M(M), replace(system, A=A))

    def _without_null_vectors(self, system: System) -> System:
        # x is orthogonal to the null space of A, and so is its cotangent; likewise b where the transpose shares it.
        if system.null is None:
            return system
        null = system.null.conj() if self.transposed else system.null
        both = system.both or self.hermitian
        b = null.apply(system.b) if self.transposed or both else system.b
        return replace(system, b=b, null=null if both or not self.transposed else None)

    def tangent(self) -> ImplicitSolve:
        return replace(self, purpose=BACKWARD if self.transposed else DERIVATIVE)

    def transpose(self) -> ImplicitSolve:
        return replace(self, transposed=not self.transposed).tangent()

    def with_arrays(self, arrays: Sequence[Array]) -> ImplicitSolve:
        return replace(self, arrays=tuple(arrays), as_found=None)

    def without_arrays(self) -> ImplicitSolve:
        system, M, bk = self.system, self.plan.M, self.system.bk
        no: Any = None
        given = None if system.given is None else replace(system.given, A=no, b=no)
        system = replace(system, A=no, b=no, x0=no, like=no, rtol=no, atol=no, null=no, source=no, given=given)
        if M is not None and any(bk.is_array(leaf) and not bk.is_concrete(leaf) for leaf in bk.flatten(M)[0]):
            M = None  # no cause of a failure is looked for in it
        plan = replace(self.plan.with_M(M), A=no, null=no, source=no)
        return replace(self, plan=plan, system=system, arrays=(), as_found=None)

    def started_at(self, x: Array) -> ImplicitSolve:
        return replace(self, make=lambda arrays: self.make(arrays)._replace(x0=x), as_found=None)

    def mapped(self, size: int, axes: Sequence[int | None]) -> ImplicitSolve:
        layout, make = self.system.layout, self.make

        def many(arrays: Sequence[Array]) -> Parts:
            return _mapped(self.system, make, arrays, axes, size)

        wide = replace(layout, batch=(size, *layout.batch))
        return replace(self, system=replace(self.system, layout=wide), make=many, many=True)


def without_derivatives(bk: Backend, outcome: Outcome, on_failure: str, stops: bool) -> Outcome:
    """The outcome, whose x has the derivative NaN in the systems that have failed, where that does not raise.

    Args:
        stops: may a callback have stopped it? Its x has derivatives, like that of a loose tolerance.
    """
    if on_failure == "raise":
        return outcome
    return outcome._replace(x=bk.without_derivatives(outcome.x, has_failed(outcome.status, stops)))


def _verified_outcome(system: System, outcome: Outcome) -> Outcome | None:
    """The outcome, if one product shows that a solve from its x ends there; None where it does not, or is unknown."""
    bk, b, x = system.bk, system.b, system.bk.flat(outcome.x)
    if system.null is not None or bk.compiled(b, x) or not bk.is_concrete(b):
        return None
    residual = b - system.A.apply(x)
    near, (r, right, rtol, atol) = numbers_of(bk, residual, b, system.rtol, system.atol)
    with near.errstate():
        norm, size = near.norm(r), near.norm(right)
        bound = near.maximum(rtol * size, atol)
        if near.any(~((norm <= bound) & near.isfinite(norm) & near.isfinite(bound))):
            return None
    norm, bound = (bk.asarray(a, like=b) for a in (norm, bound))
    none = bk.zeros_like(outcome.steps)
    return outcome._replace(
        x=x, residual=residual, norm=norm, bound=bound, attainable=0 * norm, status=none + int(Status.CONVERGED),
        steps=none, products=none + system.A.products,
    )  # fmt: skip


def _relative(system: System) -> Array:
    """The rtol of solves for derivatives; without `atol` independent of b, or JAX could not transpose the solve."""
    if not system.has_atol:
        return system.rtol
    bk = system.bk
    size = bk.norm(system.b)
    size = bk.where(bk.isfinite(size), size, bk.zeros_like(size))  # a NaN in b says nothing about derivatives
    return bk.maximum(system.rtol, bk.safe_divide(system.atol, size))


def _is_function(A: Operator) -> bool:
    return isinstance(A.without_offset, FunctionOperator | DerivedFunction)


def _mapped(
    system: System,
    make: Callable[[Sequence[Array]], Parts],
    arrays: Sequence[Array],
    axes: Sequence[int | None],
    size: int,
) -> Parts:
    """The parts of a batch of `size` problems."""
    bk, systems = system.bk, system.layout.systems
    single = make([a if axis is None else a[0] for a, axis in zip(arrays, axes, strict=True)])

    def operators(name: str) -> Operator | None:
        operator = getattr(single, name)
        if operator is None or (operator.together is None and all(axis is None for axis in axes)):
            return operator
        return MappedOperator(bk, lambda arrays: getattr(make(arrays), name), arrays, axes, size, systems)

    def rows(name: str) -> Array:
        value = getattr(single, name)
        if value is None:
            return None
        shape = (systems, int(value.shape[1]))
        index = bk.zeros((size,), system.A.dtype, system.like)
        values = bk.vmap(lambda _, *arrays: bk.broadcast_to(getattr(make(arrays), name), shape), (0, *axes))
        return bk.reshape(values(index, *arrays), (size * systems, shape[1]))

    A = operators("A")
    if A is None:
        raise TypeError("A system without a matrix.")
    x0, rtol, atol, relative = map(rows, ("x0", "rtol", "atol", "relative"))
    return Parts(A, operators("M"), x0, rtol, atol, relative, single.null)


_NO_ARRAYS: dict[str, Any] = dict.fromkeys(("A", "b", "x0", "like", "rtol", "atol", "null", "given", "source"))


def differentiated(plan: Plan, system: System, judge: Judge) -> Outcome:
    """The outcome of a plan, with derivatives of x.

    Where a transformation runs eagerly in a library that compiles, a solve and its derivatives are one program:
    `jax.grad` outside `jit` runs each operation separately, and would compile the loops again in every call. A
    compiled function is differentiated once, and its derivative is compiled once, however often it is called.
    """
    A, M, bk = system.A, plan.M, system.bk
    if bk.compiles_solves and not bk.in_program() and system.monitor is None:
        A, M = A.as_container(), None if M is None else M.as_container()
        if A.is_container and (M is None or (M.is_container and M.bk is bk)):  # JAX cannot hold factors of the host
            arrays = (system.b, system.x0, system.rtol, system.atol)
            null = None if system.null is None else system.null.as_container()
            known = replace(system, **_NO_ARRAYS, compiled=True), plan.with_M(None).rungs, judge
            return bk.compile_if_faster(_program, ("known",))(A, M, *arrays, null, known=known)
    return ImplicitSolve.of(plan, system, judge).outcome()


def _program(
    A: Operator,
    M: Operator | None,
    b: Array,
    x0: Array | None,
    rtol: Array,
    atol: Array,
    null: Operator | None,
    known: tuple[System, tuple[Rung, ...], Judge],
) -> Outcome:
    """`known`: the static part of the solve; hashable."""
    rest, rungs, judge = known
    system = replace(rest, A=A, b=b, x0=x0, like=b, rtol=rtol, atol=atol, null=null)
    return ImplicitSolve.of(Plan(A, KnownNull(null, rest.both), rungs).with_M(M), system, judge).outcome()
