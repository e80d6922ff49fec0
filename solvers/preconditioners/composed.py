"""Composed preconditioners: `M1 + M2`, `c * M` and multiplicative combinations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, SuperLU

from ...backends import Array, get_backend
from ...sparse import Composed, Operator, UnsupportedOperation, as_operator, is_function, storable, to_operator
from ...sparse.analysis.analysis import analysis_of
from ...sparse.operators.concrete import kept
from .operators import Preconditioner
from .pipeline import constant_linear_part, stored_entries

_NOISE = 1e3  # times the rounding unit: admissible difference of <u, M v> and <M u, v> of a symmetric M


@storable("sum")
@dataclass(eq=False, repr=False)
class Sum(Composed):
    """Additive combination `first + second`."""

    parts = ("first", "second")
    passes_grids = True

    first: Operator
    second: Operator

    def apply(self, x: Array) -> Array:
        return self.first.apply(x) + self.second.apply(x)

    def transpose(self) -> Operator:
        return self._map(lambda A: A.transpose())

    def dense(self) -> Array:
        return self.first.dense() + self.second.dense()

    def diagonals(self) -> Array:
        return self.first.diagonals() + self.second.diagonals()


def operator_sum(first: Any, second: Any) -> Preconditioner:
    """Sum of two preconditioners."""
    pair = in_one_library([first, second])
    facts = [M.hermitian for M in pair]
    hermitian = None if None in facts or facts == [False, False] else all(facts)  # two others may have a symmetric sum
    grids = {M.grid for M in pair} - {None}
    return Preconditioner(
        Sum(pair[0].inner, pair[1].inner), " + ".join(_in_brackets(M.kind, ", then ") for M in pair), hermitian,
        _total(pair, "memory"), _total(pair, "work"), next((M.entries for M in pair if M.entries is not None), None),
        note=_joint_note(pair), grid=grids.pop() if len(grids) == 1 else None,
    )  # fmt: skip


@storable("multiple")
@dataclass(eq=False, repr=False)
class ScalarMultiple(Composed):
    """`factor` times an operator; the factor is a Python number, complex only for a complex operator."""

    passes_grids = True

    inner: Operator
    factor: complex

    def apply(self, x: Array) -> Array:
        return self._scalar() * self.inner.apply(x)

    def transpose(self) -> Operator:
        return replace(self, inner=self.inner.transpose())

    def conj(self) -> Operator:
        return replace(self, inner=self.inner.conj(), factor=self.factor.conjugate())

    def dense(self) -> Array:
        return self._scalar() * self.inner.dense()

    def diagonals(self) -> Array:
        return self._scalar() * self.inner.diagonals()

    def _scalar(self) -> Array:
        return self.bk.asarray(np.asarray(self.factor, self.dtype))


def operator_multiple(M: Preconditioner, factor: Any) -> Preconditioner:
    """Scalar multiple of a preconditioner."""
    if not isinstance(factor, (int, float, complex, np.number)) or isinstance(factor, bool):
        raise TypeError(f"A preconditioner was multiplied by {factor!r}; expected a number. For products: M @ r.")
    try:
        number = complex(factor)
    except OverflowError as error:
        raise ValueError(f"A preconditioner was multiplied by {factor}, which no {M.dtype} can hold.") from error
    with np.errstate(all="ignore"):
        stored = complex(np.asarray(number).astype(np.result_type(M.dtype, np.complex64)))
    if not np.isfinite(stored) or stored == 0:
        raise ValueError(
            f"A preconditioner was multiplied by {factor}; expected a finite number that is not 0 in {M.dtype}."
        )
    if number.imag != 0 and M.dtype.kind != "c":
        raise TypeError(f"A preconditioner of {M.dtype} was multiplied by {factor}; expected a real number.")
    plain = number.real if number.imag == 0 else number
    hermitian = M.hermitian
    if number.imag != 0:  # A Hermitian M is Hermitian no longer, and another may become so.
        hermitian = False if hermitian else None
    shown = f"({plain:g})" if number.imag else f"{plain:g}"
    kind = f"{shown} * {_in_brackets(M.kind)}"
    return replace(M, inner=ScalarMultiple(M.inner, plain), kind=kind, hermitian=hermitian)


Preconditioner.plus, Preconditioner.times = staticmethod(operator_sum), staticmethod(operator_multiple)


@storable("one after the other")
@dataclass(eq=False, repr=False)
class Successive(Composed):
    """Multiplicative combination: `y = first r`, then `y + second (r - A y)`. Cost: 1 product with A."""

    parts = ("A", "first", "second")

    A: Operator
    first: Operator
    second: Operator

    def apply(self, x: Array) -> Array:
        y = self.first.apply(x)
        return y + self.second.apply(x - self.A.apply(y))

    def transpose(self) -> Operator:
        return Successive(self.A.transpose(), self.second.transpose(), self.first.transpose())


def multiplicative(A: Any, *pieces: Any, symmetric: bool = False, like: Any = None) -> Preconditioner:
    """Apply preconditioners for A one after the other: `x = M1 r`, then `x = x + M2 (r - A x)`, and so on.

    Args:
        A: the preconditioned matrix or function.
        pieces: two or more operands as for `M1 + M2`, or one with `symmetric`.
        symmetric: go back through the adjoints of all but the last: M1, M2, M1^H. This is Hermitian if A and the last
            piece are. It is positive definite if they are and the iteration `x = x + M1 (b - A x)` does not diverge,
            which is so for every coarse correction.
        like: an array of the shape and dtype that a function A takes.

    Raises:
        ValueError: there are too few pieces, or their sizes differ.

    Cost: that of the pieces, and one product with A for each piece but the first.

    Source: Smith, Bjorstad & Gropp, Domain Decomposition, 1996, section 1.2.
    """
    if len(pieces) < (1 if symmetric else 2):
        raise ValueError(f"{len(pieces)} preconditioners were given to be applied one after the other; expected two.")
    *every, given = in_one_library(pieces, A, like)
    operator = kept(given)
    if symmetric:
        every += [M.H for M in reversed(every[:-1])]
    inner = reduce(lambda y, M: Successive(operator, y, M), (M.inner for M in every[1:]), every[0].inner)
    entries, work = stored_entries(operator), _total(every, "work")
    if work is not None:
        work = None if entries is None else work + (len(every) - 1) * entries
    middle = every[len(every) // 2]
    hermitian = True if symmetric and middle.hermitian and analysis_of(operator.without_offset).hermitian else None
    kind, memory = ", then ".join(_in_brackets(M.kind) for M in every), _total(every, "memory")
    M = Preconditioner(inner, kind, hermitian, memory, work, entries, note=_joint_note(every))
    return M.on_grid_of(operator)


def _in_brackets(kind: str, *marks: str) -> str:
    """Parenthesise a name that contains one of the marks, by default those of all combinations."""
    return f"({kind})" if any(mark in kind for mark in marks or (" + ", ", then ")) else kind


def _total(preconditioners: Sequence[Preconditioner], name: str) -> int | None:
    costs = [getattr(M, name) for M in preconditioners]
    return None if None in costs else sum(costs)


def _joint_note(preconditioners: Sequence[Preconditioner]) -> str | None:
    return "; ".join(dict.fromkeys(M.note for M in preconditioners if M.note)) or None


# --- operands ---


def in_one_library(pieces: Sequence[Any], A: Any = None, like: Any = None) -> list[Any]:
    """Convert the pieces (and A, which then comes last) to operators of one library and dtype.

    Pieces are preconditioners, matrices, operators, factors of SciPy or hierarchies of pyamg.

    Raises:
        TypeError: they are of two libraries other than NumPy, or one is a function, whose shape is unknown.
        ValueError: their sizes differ.
    """
    operators: list[Operator] = [_as_piece(M) for M in pieces]
    if A is not None:
        operators.append(constant_linear_part(as_operator(A, like)))
    shapes = list(dict.fromkeys(M.shape for M in operators))
    if len(shapes) > 1 or shapes[0][0] != shapes[0][1]:
        raise ValueError(
            f"Operators of the shapes {', '.join(map(str, shapes))} were combined; expected square ones of one size."
        )
    counts = {M.systems for M in operators} - {None}
    if len(counts) > 1:
        raise ValueError(f"Operators for {' and '.join(map(str, counts))} systems were combined; expected as many.")
    bk = next((M.bk for M in operators if not M.bk.on_host), get_backend("numpy"))
    dtype = bk.stored_dtype(np.result_type(*(M.dtype for M in operators)))
    anchor = next((array for M in operators if M.bk is bk for array in bk.flatten(M)[0]), None)  # on the device
    return [to_operator(bk, M, None, dtype, (), anchor, "a part of the preconditioner") for M in operators]


def _as_piece(M: Any) -> Preconditioner:
    if isinstance(M, Preconditioner):
        return M
    foreign = foreign_piece(M)
    if foreign is None and is_function(M):
        raise TypeError(
            f"A function was given as a part of a preconditioner: {M!r}; expected an operator, which has a size. Give "
            "as_operator(function, like=b), with an array of the shape and dtype that it takes."
        )
    return foreign or Preconditioner(as_operator(M), "user's matrix")


def foreign_piece(M: Any) -> Preconditioner | None:
    """Factors of SuperLU or a hierarchy of pyamg as a preconditioner on NumPy arrays; None for anything else.

    A hierarchy becomes one V-cycle from zero, whose symmetry is tested with two random vectors.
    """
    if isinstance(M, SuperLU):
        return Preconditioner(as_operator(_SuperLUInverse(M)), "SuperLU", memory=int(M.nnz))
    pyamg = sys.modules.get("pyamg.multilevel")  # whoever has a hierarchy has imported it
    if pyamg is None or not isinstance(M, pyamg.MultilevelSolver):
        return None
    cycle = _PyamgCycle(M)
    return Preconditioner(as_operator(cycle), "pyamg", cycle.hermitian, sum(int(level.A.nnz) for level in M.levels))


class _SuperLUInverse(LinearOperator):
    def __init__(self, factors: SuperLU) -> None:
        self.factors = factors
        super().__init__(factors.solve(np.zeros(factors.shape[0], np.float32)).dtype, factors.shape)

    def _matvec(self, x: np.ndarray) -> np.ndarray:
        return _in_dtype(self.factors.solve, x, self.dtype)

    def _rmatvec(self, x: np.ndarray) -> np.ndarray:
        return _in_dtype(lambda v: self.factors.solve(v, "H"), x, self.dtype)

    _matmat, _rmatmat = _matvec, _rmatvec


class _PyamgCycle(LinearOperator):
    def __init__(self, hierarchy: Any) -> None:
        A = hierarchy.levels[0].A
        self.cycle = hierarchy.aspreconditioner(cycle="V")
        super().__init__(A.dtype, A.shape)
        u, v = np.random.default_rng(6).standard_normal((2, self.shape[0])).astype(self.dtype)
        Mu, Mv = self._matvec(u), self._matvec(v)
        noise = _NOISE * np.finfo(self.dtype).eps * np.linalg.norm(u) * np.linalg.norm(Mv)
        self.hermitian = bool(abs(np.vdot(u, Mv) - np.vdot(Mu, v)) <= noise)

    def _matvec(self, x: np.ndarray) -> np.ndarray:
        return _in_dtype(self.cycle.matvec, np.ravel(x), self.dtype)

    def _rmatvec(self, x: np.ndarray) -> np.ndarray:
        if self.hermitian:
            return self._matvec(x)
        raise UnsupportedOperation(
            "This needs the transpose of the preconditioner, and that of pyamg's cycle is not known, because the cycle "
            "is not symmetric. Build the hierarchy of a symmetric matrix with symmetric smoothing, such as presmoother="
            "postsmoother=('gauss_seidel', {'sweep': 'symmetric'}), or use another preconditioner."
        )


def _in_dtype(apply: Callable[[np.ndarray], np.ndarray], x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Apply a linear function of arrays of `dtype` to x; a real one acts on both parts of a complex x."""
    if x.dtype.kind == "c" and dtype.kind != "c":
        return _in_dtype(apply, x.real, dtype) + 1j * _in_dtype(apply, x.imag, dtype)
    return apply(np.ascontiguousarray(x, dtype))
