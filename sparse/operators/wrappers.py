"""Operators around one other: offset, precision, grids, some systems, batches, normal equations, loops of the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ...backends import Array, Backend, get_backend
from ...backends.interface.kernels import Place
from ...backends.numpy.kernels import dia_product, symmetric_places
from ..analysis.analysis import analysis_of
from ..formats import DIA
from ..layout import Layout
from ..operator import Operator
from .composed import Composed, Products, products_for_host
from .function import DerivedFunction, FunctionOperator


@dataclass(eq=False, repr=False)
class OffsetOperator(Composed):
    """`A + c`: a constant added to every entry, without storing them."""

    passes_grids = True

    inner: Operator
    offset: complex

    @property
    def without_offset(self) -> Operator:
        return self.inner

    @property
    def own_grid(self) -> tuple[int, ...] | None:
        return self.inner.own_grid

    def apply(self, x: Array) -> Array:
        return self.inner.apply(x) + self._scalar(x) * self.bk.sum(x, 1, keepdims=True)

    def _scalar(self, like: Array) -> Array:
        return self.bk.asarray(np.asarray(self.offset, self.dtype), like=like)

    def transpose(self) -> Operator:
        return OffsetOperator(self.inner.transpose(), self.offset)

    def conj(self) -> Operator:
        return OffsetOperator(self.inner.conj(), np.conj(self.offset))

    def dense(self) -> Array:
        found = self.inner.dense()
        return found + self._scalar(found)

    def diagonals(self) -> Array:
        found = self.inner.diagonals()
        return found + self._scalar(found)


# --- Another precision ---


def in_precision(operator: Operator, dtype: np.dtype) -> Operator:
    """The operator on vectors of `dtype`: with its entries cast, or else, for functions, its arguments and results."""
    if operator.dtype == dtype:
        return operator
    cast = operator.astype(dtype)
    if cast.dtype == dtype:
        return cast
    if operator.offset:
        return OffsetOperator(in_precision(operator.without_offset, dtype), operator.offset)
    return CastOperator(operator, dtype)


@dataclass(eq=False, repr=False)
class CastOperator(Composed):
    """`inner` on vectors of another precision.

    A function is called with arrays of that precision and its result is cast. Where it refuses them, as it closes over
    arrays of its own precision that its library does not mix with others, the arguments are cast too.
    """

    inner: Operator
    dtype: np.dtype

    def _settle(self) -> None:
        dtype = self.dtype
        super()._settle()
        self.dtype, self._mixes = dtype, True

    @cached_property
    def _direct(self) -> Operator | None:
        return self._made()

    def _made(self) -> Operator | None:
        return _of_function(getattr(self.inner, "inner", self.inner), self.dtype)

    def apply(self, x: Array) -> Array:
        # what is traced belongs to the loop that is being traced
        direct = None if not self._mixes else self._made() if self.bk.compiled(x) else self._direct
        if direct is not None:
            try:
                return direct.apply(x)
            except Exception:  # a function at fault in any precision raises again below
                self._mixes = False
        return self.bk.astype(self.inner.apply(self.bk.astype(x, self.inner.dtype)), self.dtype)

    def transpose(self) -> Operator:
        return CastOperator(self.inner.transpose(), self.dtype)

    def astype(self, dtype: np.dtype) -> Operator:
        return in_precision(self.inner, dtype)

    def dense(self) -> Array:
        return self.bk.astype(self.inner.dense(), self.dtype)

    def diagonals(self) -> Array:
        return self.bk.astype(self.inner.diagonals(), self.dtype)


def _of_function(operator: Operator, dtype: np.dtype) -> Operator | None:
    """A function's operator that calls it with arrays of `dtype`; None for others."""
    if isinstance(operator, DerivedFunction):
        function = _of_function(operator.function, dtype)
        if not isinstance(function, FunctionOperator):
            return None
        return DerivedFunction(function, transposed=operator.transposed, conjugated=operator.conjugated)
    if not isinstance(operator, FunctionOperator) or getattr(operator.function, "one_dtype", False):
        return None
    bk, f = operator.bk, operator
    constant = None if f.constant is None else bk.astype(f.constant, dtype)
    return FunctionOperator(bk, f.function, f.layout, dtype, f.args, f.name, f.like, constant, f.image)


# --- Vectors in grid shape, see `Backend.on_grid` ---


@dataclass(eq=False, repr=False)
class OnGrid(Composed):
    """`inner`, whose arguments are made flat and whose images are made grids again: both are nothing where `inner`
    computes on this grid, as compilers cancel opposite reshapes.
    """

    keeps_grids = True

    inner: Operator
    grid: tuple[int, ...]

    def _settle(self) -> None:
        super()._settle()
        self.products = self.inner.products  # type: ignore[misc]

    def apply(self, x: Array) -> Array:
        bk = self.bk
        return bk.on_grid(self.inner.apply(bk.flat(x)), self.grid, bk.known_cut(x))

    def transpose(self) -> Operator:
        return self._map(lambda A: A.transpose())

    def astype(self, dtype: np.dtype) -> Operator:
        return OnGrid(in_precision(self.inner, dtype), self.grid)


def on_grid(A: Operator | None, grid: tuple[int, ...]) -> Any:
    """`A`, or None, for rows of this grid."""
    if A is None or A.keeps_grids:
        return A
    if isinstance(A, Composed) and A.passes_grids:
        return A._map(lambda part: on_grid(part, grid))
    return OnGrid(A, grid)


# --- Some systems of a batch: those on one device ---


def for_some_systems(A: Operator, count: int, args: Sequence[Any] | None = None) -> Operator | None:
    """The operator for `count` systems instead of all, but for its arrays; None where it is a program for all of them.

    Functions are called with `count` systems, and without the constant that is taken off.

    Args:
        args: further arguments of a function A, in place of its own.
    """
    if isinstance(A, FunctionOperator):
        return None if A._is_record else _function(A, count, A.args if args is None else args)  # a record is of all
    if isinstance(A, DerivedFunction):
        part = for_some_systems(A.function, count, args)
        if not isinstance(part, FunctionOperator):
            return None
        return DerivedFunction(part, transposed=A.transposed, conjugated=A.conjugated)
    if not isinstance(A, Composed):
        return A
    found = {id(part): for_some_systems(part, count) for part in A._operators()}
    if any(part is None for part in found.values()):
        return None
    if all(found[id(part)] is part for part in A._operators()):
        return A
    return A._map(lambda part: found[id(part)])  # type: ignore[arg-type, return-value]


def arguments_of(A: Operator) -> Sequence[Any]:
    """What a function, or the transpose of one, is called with beside x."""
    function = A.function if isinstance(A, DerivedFunction) else A
    return function.args if isinstance(function, FunctionOperator) else ()


def _function(A: FunctionOperator, count: int, args: Sequence[Any]) -> FunctionOperator:
    def some(layout: Layout) -> Layout:
        return replace(layout, batch=(count,)) if layout.batch else layout

    forms = dict.fromkeys(("constant", "_entries", "_matrix", "_traced", "recorded"))
    systems = count if A.layout.batch else None
    other = A._with(
        args=tuple(args), layout=some(A.layout), image=some(A.image), systems=systems, is_container=False, **forms
    )
    other.__dict__.pop("_only_shape", None)
    return other


# --- A batch of operators, as a vectorising transformation makes it ---


class MappedOperator(Products):
    """`size` operators for `systems` rows each: the first rows belong to the first operator.

    `make(arrays)` is one operator; an array whose entry in `axes` is 0 has one more axis in front, over which the
    operators differ, and one whose entry is None is shared.
    """

    def __init__(
        self,
        bk: Backend,
        make: Callable[[Sequence[Array]], Operator],
        arrays: Sequence[Array],
        axes: Sequence[int | None],
        size: int,
        systems: int,
    ) -> None:
        self.bk, self.make, self.arrays, self.axes, self.size = bk, make, tuple(arrays), tuple(axes), size
        self.each, self.rows = systems, size * systems
        self.one = make([a if axis is None else a[0] for a, axis in zip(self.arrays, self.axes, strict=True)])
        self.shape, self.dtype = self.one.shape, self.one.dtype
        shared = self.one.systems is None and all(axis is None for axis in self.axes)
        self.systems = None if shared else self.rows

    def apply(self, x: Array) -> Array:
        bk, (n, m), count = self.bk, self.shape, int(x.shape[0])
        each = 1 if self.systems is None else self.each  # one operator for all takes any number of rows
        image = bk.vmap(lambda rows, *arrays: self.make(arrays).apply(rows), (0, *self.axes))(
            bk.reshape(x, (count // each, each, m)), *self.arrays
        )
        return bk.reshape(image, (count, n))

    def transpose(self) -> Operator:
        return self._map(lambda operator: operator.transpose())

    def conj(self) -> Operator:
        return self._map(lambda operator: operator.conj())

    def astype(self, dtype: np.dtype) -> Operator:
        return self._map(lambda operator: operator.astype(dtype))

    def dense(self) -> Array:
        if self.systems is None:
            return self.one.dense()
        bk, (n, m) = self.bk, self.shape
        return bk.reshape(self._of_each(lambda operator: operator.dense(), (n, m)), (self.rows, n, m))

    def diagonals(self) -> Array:
        if self.systems is None:
            return self.one.diagonals()
        n = min(self.shape)
        return self.bk.reshape(self._of_each(lambda operator: operator.diagonals(), (n,)), (self.rows, n))

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        return products_for_host(self, self.bk.compiled(*self.arrays))

    def _map(self, change: Callable[[Operator], Operator]) -> MappedOperator:
        def make(arrays: Sequence[Array]) -> Operator:
            return change(self.make(arrays))

        return MappedOperator(self.bk, make, self.arrays, self.axes, self.size, self.each)

    def _of_each(self, part: Callable[[Operator], Array], shape: tuple[int, ...]) -> Array:
        """`part` of every operator, once for each of its systems, `(size, systems of each, *shape)`."""
        bk, each = self.bk, self.each

        def full(_: Array, *arrays: Array) -> Array:
            found = bk.reshape(part(self.make(arrays)), (-1, *shape))
            return bk.broadcast_to(found, (each, *shape))

        index = bk.zeros((self.size,), self.dtype, self.arrays[0] if self.arrays else None)
        return bk.vmap(full, (0, *self.axes))(index, *self.arrays)


# --- Normal equations ---


@dataclass(eq=False, repr=False)
class NormalOperator(Composed):
    """`A^H A + damp^2 I` for a rectangular or square A `(m, n)`: Hermitian, `(n, n)`, semi-definite; never formed.

    Cost: no entries of its own; 1 product with A and 1 with its adjoint.

    Attributes:
        inner: A.
        damp: a real number.

    Raises:
        UnsupportedOperation, TypeError: A has no transposed product.
    """

    products = 2
    only_flat = True

    inner: Operator
    damp: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.damp, _ = float(self.damp), self.adjoint_inner  # fails now if A has none

    def _settle(self) -> None:
        super()._settle()
        self.shape = (self.inner.shape[1],) * 2
        self._adjoint: Operator | None = None

    @property
    def adjoint_inner(self) -> Operator:
        """A^H; made once, but for each trace of a function that is transformed, which no array of it may outlive."""
        if self._adjoint is not None:
            return self._adjoint
        made = self.inner.H
        if not self.bk.compiled():
            self._adjoint = made
        return made

    def apply(self, x: Array) -> Array:
        image = self.adjoint_inner.apply(self.inner.apply(x))
        if not self.damp:
            return image
        damp = self.bk.asarray(np.asarray(self.damp, self.dtype))
        return image + damp * (damp * x)

    @property
    def out_shape(self) -> tuple[int, ...]:
        return self.inner.in_shape

    def transpose(self) -> Operator:
        return self.conj()

    def conj(self) -> Operator:
        return super().conj() if self.dtype.kind == "c" else self


# --- Symmetric DIA: products of NumPy that read one triangle ---
# A product of five diagonals takes 18 % less time, a solve by CG with multigrid 12 %, and plain CG 8 %.

_LEAST = 2**16  # rows from which a product waits for memory


def as_symmetric_dia(A: Operator) -> Operator:
    """Prepare A for many products: a large DIA matrix that is bitwise symmetric is read by one triangle.

    Images are the same to the last digit. Cost: a pass over the values of real matrices of diagonals in NumPy.
    """
    large = isinstance(A, DIA) and A.bk.on_host and A.systems is None and A.shape[0] >= _LEAST
    return SymmetricDIA(A) if large and A.dtype.kind == "f" and analysis_of(A).is_exactly_hermitian else A


@dataclass(eq=False, repr=False)
class SymmetricDIA(Composed):
    """The same as `inner`, real and exactly symmetric."""

    inner: Operator

    @cached_property
    def _where(self) -> list[Place]:
        own: Any = self.inner
        return symmetric_places(own.structure.offsets, own.shape[0])

    def apply(self, x: Array) -> Array:
        own: Any = self.inner
        if x.dtype != self.dtype:
            return own.apply(x)
        return dia_product(own.arrays()[0], self._where, x, own.shape[0])

    def add_to(self, y: Array, x: Array) -> Array:
        own: Any = self.inner
        same = x.dtype == y.dtype == self.dtype
        found = self.bk.dia_added(y, own.arrays()[0], self._where, x) if same else None
        return own.add_to(y, x) if found is None else found

    def transpose(self) -> SymmetricDIA:
        return self

    def astype(self, dtype: np.dtype) -> Operator:
        return self.inner.astype(dtype)

    def on_backend(self, bk: Backend, like: Array | None) -> Operator | None:
        return self.inner.on_backend(bk, like)


# --- Loops of the host ---


@dataclass(eq=False, repr=False)
class OnHost(Composed):
    """`inner` of any library for a loop of the host on rows of NumPy: each product is in its own library.

    It gets each row in an array of its library, in the same memory where that can be.
    """

    inner: Operator

    def _settle(self) -> None:
        super()._settle()
        self.bk = get_backend("numpy")
        self.products = self.inner.products  # type: ignore[misc]

    def _register(self) -> None:
        """It lives as long as a loop, and no library takes it apart."""

    @property
    def in_steps(self) -> Operator:
        return OnHost(as_symmetric_dia(self.inner.in_steps))

    def apply(self, x: np.ndarray) -> np.ndarray:
        return self.inner.apply_on_host(x)

    def transpose(self) -> Operator:
        return self._map(lambda A: A.transpose())
