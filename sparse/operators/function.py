"""Linear Python functions as operators."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np

from ...backends import Array, Backend
from ..errors import NonlinearError, UnsupportedOperation
from ..formats import DIA, Dense, SparseMatrix
from ..layout import Layout
from ..operator import Operator
from .function_matrix import function_matrix
from .guarded import first_call
from .linear_function import LinearFunction
from .products import Turned

_SMALL = 4096  # unknowns up to which passes over memory take no time


class FunctionOperator(LinearFunction):
    """`x -> function(x, *args) - constant` on arrays of the layout's shapes, all systems at once.

    It returns arrays of `image`, which is the layout itself unless given.

    `tracked` tells that the function was seen to depend on something whose derivatives are being recorded.
    """

    def __init__(
        self,
        bk: Backend,
        function: Callable[..., Any],
        layout: Layout,
        dtype: np.dtype,
        args: Sequence[Any] = (),
        name: str = "A(x)",
        like: Array | None = None,
        constant: Array | None = None,
        image: Layout | None = None,
    ) -> None:
        self.image = (layout if image is None else image).with_dtype(dtype)
        self.bk, self.function, self.layout, self.dtype = bk, function, layout.with_dtype(dtype), dtype
        self.args, self.name, self.like, self.constant = tuple(args), name, like, constant
        self.tracked = False  # does it depend on something whose derivatives are being recorded?
        self.lasts = False  # is it kept for solves to come, before which numbers in its arrays may change?
        self.is_linear = False  # is `function` known to be linear but for the constant?
        self.may_round = False  # may it return fewer digits than it gets, as a preconditioner may?
        self._looked_at = False  # was it seen not to write to its argument?
        self._is_record = False  # is `function` a record of operations, none of which writes to its argument?
        self.compiled = bk.compiled(*args, *(() if like is None else (like,)))
        self.shape = (self.image.size, layout.size)
        self.systems = layout.systems if layout.batch else None
        self._entries: Dense | None = None
        self._matrix: SparseMatrix | UnsupportedOperation | NonlinearError | None = None
        self._traced: tuple[Callable[..., Any], Sequence[Array]] | None = None  # see `as_traced`
        self.recorded: Any = None  # likewise, in a program: see `Backend.recorded`

    def with_constant(self, constant: Array | None) -> FunctionOperator:
        """The same function with `constant` `(systems, n)` subtracted from its results."""
        other = copy.copy(self)
        other.constant, other._entries, other._matrix = constant, None, None
        return other

    def lasting(self) -> FunctionOperator:
        """The same, to be kept."""
        other = copy.copy(self)
        other.lasts = True
        return other

    def as_traced(self) -> FunctionOperator:
        """The same function as it is now, whose products are a program from here on, where the library gains from that;
        in a program, parts of it. To be used for one solve, as the function may close over what changes.
        """
        if not self.bk.compiles_solves or self._traced is not None or self.is_container or self.recorded is not None:
            return self
        other = copy.copy(self)
        if self.bk.in_program():
            with suppress(Exception):  # the first product raises it, and names the function
                other.recorded = self.bk.recorded(self.function, self._zeros(True), self.args)
            return other
        try:
            other._traced = self.program()
        except TypeError:
            self._own_product(self._zeros())  # which names the function where it returns no arrays
            raise
        return other

    def by_its_program(self, traced: tuple[Callable[..., Any], Sequence[Array]]) -> FunctionOperator:
        """As `as_traced`, where it was traced before."""
        other = copy.copy(self)
        other._traced = traced
        return other

    def _zeros(self, as_given: bool = False) -> Any:
        """Rows, or what the function takes."""
        rows = self.bk.zeros((self.layout.systems, self.shape[1]), self.dtype, self.like)
        return self.layout.unflatten(self.bk, rows) if as_given else rows

    def program(self) -> tuple[Callable[..., Any], Sequence[Array]] | None:
        """`f(x, *arrays)` that computes the function, and the arrays that it gets and closes over; None: not here."""
        if self.recorded is not None:
            return self.recorded.function, self.recorded.program.consts
        return self.bk.trace(lambda x, *args: self.bk.call_user(self.function, x, args), self._zeros(True), self.args)

    def _as_program(self, constant: Array | None, is_linear: bool) -> FunctionOperator | None:
        """The container of the program; None where the function cannot be traced."""
        found = self.program() if self._traced is None else self._traced
        if found is None:
            return None
        self.bk.register(FunctionOperator, _flatten, _restore)
        static = (self.bk, found[0], self.layout, self.dtype, self.name, self.image, is_linear, self.may_round)
        return _restore(static, (tuple(found[1]), constant))

    def by_program(self, product: Callable[[FunctionOperator, Array], Array], x: Array) -> Array | None:
        """`product(self, x)` without the constant, compiled; None where products are no programs, or part of one."""
        if self._traced is None or self.bk.in_program():
            return None
        return self.bk.compile_if_faster(product, ())(self._as_program(None, True), x)

    def apply(self, x: Array) -> Array:
        own = self.bk.on_host and type(x) is np.ndarray and x.dtype == self.dtype
        rows = self._at_once(x) if own else None
        if rows is not None:
            return rows
        rows = self.by_program(FunctionOperator._own_product, x)
        if rows is None:
            rows = self._own_product(x)
        return rows if self.constant is None else self.image.difference(self.bk, rows, self.constant)

    def apply_on_host(self, x: np.ndarray) -> np.ndarray:
        rows = self._at_once(x)
        return super().apply_on_host(x) if rows is None else rows

    def _at_once(self, x: np.ndarray) -> np.ndarray | None:
        """Where arrays of one shape go in and come out, NumPy gives them that shape: in a quarter of the time."""
        bk, shape = self.bk, self._only_shape
        if shape is None or not self._looked_at or self.constant is not None or self._traced is not None:
            return None
        image = self._image(bk.from_host(x.reshape(shape)))
        if not bk.is_array(image) or image.shape != shape or bk.dtype(image) != self.dtype:
            return bk.to_numpy(self._rows_of(image))
        return bk.to_numpy(image).reshape(x.shape)

    @cached_property
    def _only_shape(self) -> tuple[int, ...] | None:
        """The shape of the only array that it takes and returns, where it is one array and the vector its last axis."""
        layout, image = self.layout, self.image
        alone = layout.structure is None and layout.axis is None
        same = image.structure is None and (layout.batch, layout.shapes) == (image.batch, image.shapes)
        return (*layout.batch, *layout.shapes[0]) if alone and same and not self.may_round else None

    def _own_product(self, x: Array) -> Array:
        given = self.layout.unflatten(self.bk, x)
        if self.recorded is not None and self.recorded.fits(given):
            image = self.recorded(given)
        elif self._looked_at:
            image = self._image(given)
        else:
            image, self._looked_at = first_call(self.bk, self.function, given, self.args, self.name)
        return self._rows_of(image)

    def _image(self, x: Any) -> Any:
        """Image under a function whose output was validated before."""
        return self.function(x, *self.args) if self._is_record else self.bk.call_user(self.function, x, self.args)

    def _rows_of(self, image: Any) -> Array:
        if image is None:
            raise TypeError(f"{self.name} returned None; expected an array. Has the function a `return`?")
        if self.may_round and self.dtype.kind == "c":
            self._check_complex(image)
        return self.image.flatten(self.bk, image, self.dtype, self.name, exact=not self.may_round)

    def _check_complex(self, image: Any) -> None:
        """Raises TypeError where a preconditioner has dropped the imaginary part of what it was given."""
        bk = self.bk
        for leaf in [image] if bk.is_array(image) else bk.leaves(image)[0]:
            if bk.is_array(leaf) and bk.dtype(leaf).kind != "c":
                raise TypeError(
                    f"{self.name} returned {bk.dtype(leaf)} for an array of {self.dtype}: the imaginary part was "
                    "dropped. Return arrays of the dtype of the argument."
                )

    def as_container(self) -> Operator:
        found = None if self.is_container else self._as_program(self.constant, self.is_linear)
        return self if found is None else found

    @property
    def in_steps(self) -> Operator:
        """The diagonals that were found, where each operation of the function is a pass over memory of its own.

        Else a program of the library computes once what is the same in every product.
        """
        A = self._matrix
        quick = self.bk.is_eager and isinstance(A, DIA) and A.systems is None and A.dtype == self.dtype
        quick = quick and self.shape[0] > _SMALL and not (self.lasts or self.tracked or self.bk.compiled())
        if quick and isinstance(A, DIA):
            return A
        if not self._is_record:
            return self
        other = copy.copy(self)
        other.function, other.args = self.function.bound(*self.args), ()  # type: ignore[attr-defined]
        return other

    def matrix(self) -> SparseMatrix:
        if isinstance(self._matrix, Exception):
            raise self._matrix
        if self._matrix is not None:
            return self._matrix
        try:
            matrix = function_matrix(self if self.recorded is None else self._by_lines())
        except (UnsupportedOperation, NonlinearError) as error:
            self._matrix = error
            raise
        if matrix.constant is not None:  # traced values belong to the trace that is running, and may not outlive it
            self._matrix = matrix
        return matrix

    def _by_lines(self) -> FunctionOperator:
        """The same, whose products tell the lines of the user's source to who traces them."""
        other = copy.copy(self)
        other.function, other.args, other.recorded = self.recorded.by_lines, (), None
        return other

    def transpose(self) -> Operator:
        return DerivedFunction(self, transposed=True, conjugated=False)

    def conj(self) -> Operator:
        return DerivedFunction(self, transposed=False, conjugated=True)

    def transposed_product(self) -> Callable[[Array], Array]:
        """`x -> transposed matrix x` on rows; where the library has no derivatives, by the entries, which are kept."""
        if self.bk.has_derivatives or self.bk.communicator is not None:  # columns of a part are none of A
            return self.bk.transpose_function(self.apply, self._zeros())
        if self._entries is None:
            self._entries = Dense(self.bk, self.dense())
        return self._entries.transpose().apply


def _flatten(operator: FunctionOperator) -> tuple[tuple[Any, ...], Any]:
    static = (operator.bk, operator.function, operator.layout, operator.dtype, operator.name, operator.image)
    return (operator.args, operator.constant), (*static, operator.is_linear, operator.may_round)


def _restore(static: Any, arrays: Sequence[Any]) -> FunctionOperator:
    bk, function, layout, dtype, name, image, is_linear, may_round = static
    operator = FunctionOperator(bk, function, layout, dtype, arrays[0], name, None, arrays[1], image)
    operator.is_linear, operator.may_round = is_linear, may_round
    operator.is_container = True  # type: ignore[misc]
    operator._looked_at = operator._is_record = hasattr(function, "bound")
    return operator


def _transposed_product(operator: FunctionOperator, x: Array) -> Array:
    return operator.transposed_product()(x)


class DerivedFunction(Turned, LinearFunction):
    """The transpose, the conjugate or both of a function."""

    def __init__(self, function: FunctionOperator, *, transposed: bool, conjugated: bool) -> None:
        self.function, self.transposed, self.conjugated = function, transposed, conjugated
        self.bk, self.dtype, self.systems = function.bk, function.dtype, function.systems
        self.compiled, self.like = function.compiled, function.like
        self.shape, self.layout, self.image = function.shape, function.layout, function.image
        if transposed:
            self.shape, self.layout, self.image = function.shape[::-1], function.image, function.layout
        self._product: Callable[[Array], Array] = function.transposed_product() if transposed else function.apply

    def product(self, x: Array) -> Array:
        found = self.function.by_program(_transposed_product, x) if self.transposed else None
        return self._product(x) if found is None else found

    def matrix(self) -> SparseMatrix:
        matrix = self.function.matrix()
        if self.transposed:
            matrix = matrix.transpose()
        return matrix.conj() if self.conjugated else matrix

    def turned(self, *, transposed: bool, conjugated: bool) -> Operator:
        if not transposed and not conjugated:
            return self.function
        return DerivedFunction(self.function, transposed=transposed, conjugated=conjugated)
