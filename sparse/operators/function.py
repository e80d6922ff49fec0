"""Linear Python functions as operators: products, the sparse matrix that tracing finds, and the transpose."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np

from ...backends import Array, Backend, get_backend, without_compilers
from ..errors import NonlinearError, UnsupportedOperation
from ..formats import DIA, Dense, Matrix, SparseMatrix
from ..layout import Layout
from ..operator import Operator
from ..tracing.front_end import front_end_of
from ..tracing.matrix_from_function import traced_matrix
from .composed import Products, Turned, products_for_host
from .foreign import first_call


class CoupledSystems(UnsupportedOperation):
    """Error for a function that couples its systems, so that there is no matrix of one."""


def function_matrix(A: LinearFunction) -> SparseMatrix:
    """The one matrix by which a function multiplies each of its systems.

    Raises:
        NonlinearError: the function is not linear.
        CoupledSystems: it mixes its systems.
        UnsupportedOperation: it cannot be traced, or its systems have different matrices, or may have: with traced
            coefficients nobody knows.
    """
    matrix, _ = matrix_and_bias(A, A.bk.zeros((A.layout.systems, A.layout.size), A.dtype, A.like))
    shapes = [layout.shape if layout.structure is None else None for layout in (A.layout, A.image)]
    return SparseMatrix.build(
        A.bk, matrix.structure, matrix.known_or_arrays(), like=A.like, in_shape=shapes[0], out_shape=shapes[1]
    )


def matrix_and_bias(A: LinearFunction, like: Array, exact: bool = False) -> tuple[Any, Any]:
    """The matrix of `function_matrix`, and the image of zeros.

    Args:
        like: rows such as the function takes, of the library or of NumPy.
        exact: refuse a function that rounds more than its matrix does.

    Raises:
        As `function_matrix`.
    """
    systems = A.layout.systems
    matrix, bias = without_compilers(traced_matrix)(front_end_of(A.bk.name), A.apply, like, exact=exact)
    return (matrix if systems == 1 else _shared_block(matrix, systems)), bias


def _shared_block(matrix: Any, systems: int) -> Any:
    """The block that stands on the diagonal `systems` times.

    Raises:
        CoupledSystems: a system depends on another.
        UnsupportedOperation: there is none, or its values are not known.
    """
    n, m = (size // max(systems, 1) for size in matrix.shape)
    rows, cols, _ = matrix.structure.entries()
    if systems and np.any(rows // n != cols // m):
        raise CoupledSystems(
            f"The function takes {systems} systems at once, on its first axes, and mixes them, so it has no matrix of "
            "one system. Give batch_ndim=0, for one large system, or a function that keeps them apart."
        )
    if matrix.constant is None or systems == 0:
        raise UnsupportedOperation(
            f"The function takes {systems} systems at once, on its first axes. Its matrix for one system is known only "
            "if all coefficients are. Give the function of one system."
        )
    csr = matrix.to_scipy()
    first = csr[:n, :m]
    for i in range(1, systems):
        block = csr[i * n : (i + 1) * n, i * m : (i + 1) * m]
        parts = ((block.indptr, first.indptr), (block.indices, first.indices), (block.data, first.data))
        if not all(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc") for a, b in parts):
            raise UnsupportedOperation(
                f"System {i} of the function has another matrix than system 0. Give one function for each, or a dense "
                "array (systems, n, n)."
            )
    return matrix[:n, :m]


# --- Products of containers of arrays, and entries by tracing ---


class LinearFunction(Products):
    """Linear function with products, and with the entries of a matrix where it can be traced."""

    compiled: bool
    like: Array | None
    layout: Layout
    image: Layout  # of what it returns

    @property
    def in_shape(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def out_shape(self) -> tuple[int, ...]:
        return self.image.shape

    @property
    def own_grid(self) -> tuple[int, ...] | None:
        one = self.layout.structure is None and self.image.structure is None
        return self.layout.shapes[0] if one and self.layout.shapes == self.image.shapes else None

    @property
    def together(self) -> int | None:
        return self.layout.systems

    def __call__(self, x: Any) -> Any:
        if self.layout.structure is None:
            return super().__call__(x)
        rows = self.layout.flatten(self.bk, x, self.dtype, "x")  # a container of arrays
        return self.image.unflatten(self.bk, self.apply(rows))

    def _rows(self, rows: Array) -> Array:
        """The function gets arrays of the dtype that it was promised, so others are split and cast."""
        bk, dtype = self.bk, np.result_type(self.dtype, self.bk.dtype(rows))
        if dtype.kind == "c" and self.dtype.kind != "c":
            real, imaginary = (bk.astype(self._rows(bk.real(part)), dtype) for part in (rows, -1j * rows))
            return real + 1j * imaginary
        return bk.astype(self._many(bk.astype(rows, self.dtype)), dtype)

    @abstractmethod
    def matrix(self) -> SparseMatrix:
        """Its sparse matrix, that of each system, found by tracing the function.

        Raises:
            UnsupportedOperation: the function cannot be traced, or its systems have different matrices.
            NonlinearError: it is not linear.
        """

    def _matrix_or_none(self) -> SparseMatrix | None:
        try:
            return self.matrix()
        except CoupledSystems:  # products with columns in all systems would give numbers that are no entries
            raise
        except (UnsupportedOperation, NonlinearError):
            # Its entries can still be found by products, one for each column. An operation that is not linear may be
            # part of a linear function, such as an iterative solve; `linear_part` and the true residual test that.
            return None

    def dense(self) -> Array:
        matrix = self._matrix_or_none()
        if matrix is None:
            return super().dense()
        entries = matrix.dense()
        return entries if self.systems is None else self.bk.broadcast_to(entries, (self.systems, *self.shape))

    def diagonals(self) -> Array:
        bk, matrix = self.bk, self._matrix_or_none()
        if matrix is not None:
            diagonal = matrix.diagonals()
            return diagonal if self.systems is None else bk.broadcast_to(diagonal, (self.systems, diagonal.shape[1]))
        return super().diagonals()

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        try:
            return self.matrix().for_host()
        except CoupledSystems:
            if self.compiled:  # the host would get the entries of each system, and there are none
                raise
        except (UnsupportedOperation, NonlinearError):  # see `_matrix_or_none`
            pass
        return products_for_host(self, self.compiled, self.like)


# --- Functions of users ---

_SMALL = 4096  # unknowns up to which passes over memory take no time


class FunctionOperator(LinearFunction):
    """`x -> function(x, *args) - constant` on arrays of the layout's shapes, all systems at once.

    It returns arrays of `image`, which is the layout itself unless given.
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

    def _with(self, **changes: Any) -> FunctionOperator:
        """A copy with other attributes."""
        other = copy.copy(self)
        other.__dict__.update(changes)
        return other

    def with_constant(self, constant: Array | None) -> FunctionOperator:
        """The same function with `constant` `(systems, n)` subtracted from its results."""
        other = copy.copy(self)  # by itself: each solve calls it
        other.constant, other._entries, other._matrix = constant, None, None
        return other

    def lasting(self) -> FunctionOperator:
        """The same, to be kept."""
        return self._with(lasts=True)

    def as_traced(self) -> FunctionOperator:
        """The same function as it is now, whose products are a program from here on, where the library gains from that;
        in a program, parts of it. To be used for one solve, as the function may close over what changes.
        """
        if not self.bk.compiles_solves or self._traced is not None or self.is_container or self.recorded is not None:
            return self
        if self.bk.in_program():
            with suppress(Exception):  # the first product raises it, and names the function
                return self._with(recorded=self.bk.recorded(self.function, self._zeros(True), self.args))
            return self._with()
        try:
            return self._with(_traced=self.program())
        except TypeError:
            self._own_product(self._zeros())  # which names the function where it returns no arrays
            raise

    def by_its_program(self, traced: tuple[Callable[..., Any], Sequence[Array]]) -> FunctionOperator:
        """As `as_traced`, where it was traced before."""
        return self._with(_traced=traced)

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
        return self._with(function=self.function.bound(*self.args), args=())  # type: ignore[attr-defined]

    def matrix(self) -> SparseMatrix:
        if isinstance(self._matrix, Exception):
            raise self._matrix
        if self._matrix is not None:
            return self._matrix
        try:
            of = self
            if self.recorded is not None:  # whose products keep the lines of the user's source
                of = self._with(function=self.recorded.by_lines, args=(), recorded=None)
            matrix = function_matrix(of)
        except (UnsupportedOperation, NonlinearError) as error:
            self._matrix = error
            raise
        if matrix.constant is not None:  # traced values belong to the trace that is running, and may not outlive it
            self._matrix = matrix
        return matrix

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


# --- The transpose as a function of arrays in the shapes of users ---


class TransposedFunction(FunctionOperator):
    """The transpose of `base`: it takes what `base` returns (a grid, or a container) and returns what `base` takes.

    Where the library has no derivatives its products are those of the entries of `base`, sparse where they are found.
    """

    def __init__(self, base: FunctionOperator) -> None:
        self.base = base
        layout, image = base.image, base.layout
        name = f"the transpose of {base.name}"
        super().__init__(base.bk, _Product(base), layout, base.dtype, (), name, base.like, image=image)
        self.is_linear = True
        self.is_container = base.is_container  # type: ignore[misc]
        self.bk.register(TransposedFunction, _flatten_transposed, _restore_transposed)

    def as_container(self) -> Operator:
        base = self.base.as_container()
        return TransposedFunction(base) if isinstance(base, FunctionOperator) else self

    def matrix(self) -> SparseMatrix:
        return self.base.matrix().transpose()

    def transpose(self) -> Operator:
        return self.base


def _flatten_transposed(operator: TransposedFunction) -> tuple[tuple[Any, ...], Any]:
    return (operator.base,), None


def _restore_transposed(static: Any, parts: Sequence[Any]) -> TransposedFunction:
    return TransposedFunction(parts[0])


class _Product:
    """`x -> transpose of base x`, on arrays of users."""

    def __init__(self, base: FunctionOperator) -> None:
        self.base = base
        # made now, not in a loop of a graph, whose arrays may not leave it
        self._turned = base.transpose() if base.bk.has_derivatives else None

    def __call__(self, x: Any) -> Any:
        base = self.base
        if self._turned is None:
            self._turned = _by_entries(base)
        rows = base.image.flatten(base.bk, x, base.dtype, "the argument of a transposed function")
        return base.layout.unflatten(base.bk, self._turned.apply(rows))


def _by_entries(base: FunctionOperator) -> Operator:
    """The transpose of the sparse matrix of a function, if that is found, else of all its entries."""
    try:
        return base.matrix().transpose()
    except (UnsupportedOperation, NonlinearError):
        return base.transpose()


def transposed_in_shape(A: Operator) -> Operator:
    """The transpose, which takes arrays in the shapes that A takes: of functions of anything but vectors a function.

    Raises:
        UnsupportedOperation: the transpose is not known.
    """
    if not isinstance(A, FunctionOperator) or isinstance(A, TransposedFunction):
        return A.transpose()
    vectors = all(one.structure is None and len(one.shapes[0]) == 1 for one in (A.layout, A.image))
    return A.transpose() if vectors else TransposedFunction(A)


# --- Products by the traced matrix, in NumPy ---

_FULL = 8  # a matrix of which one entry in so many is stored is multiplied faster with all of them


class FunctionByMatrix(FunctionOperator):
    """A linear function whose products are those of its matrix.

    It has what is known of a function, and no more: choices are those for the function itself.

    Attributes:
        entries: the matrix of each of its systems as it multiplies: dense, where there are so many.
    """

    def __init__(self, matrix: SparseMatrix, layout: Layout, constant: np.ndarray | None) -> None:
        full = matrix.nnz * _FULL >= matrix.shape[0] * matrix.shape[1]
        self.entries: Matrix = Dense(matrix.bk, matrix.dense()) if full else matrix
        super().__init__(matrix.bk, self.entries.apply, layout, matrix.dtype, constant=constant)
        self._matrix, self.is_linear = matrix, True

    def apply(self, x: Array) -> Array:
        return self.entries.apply(x)

    def transposed_product(self) -> Callable[[Array], Array]:
        return self.entries.transpose().apply


def by_matrix(A: FunctionOperator) -> FunctionByMatrix | None:
    """Trace the matrix of A, and multiply by it in NumPy; None where its entries are not known now, or not all finite.

    Raises:
        UnsupportedOperation, NonlinearError: it cannot be recorded.
        ValueError, TypeError: it returns other arrays than it gets.
    """
    host, systems = get_backend("numpy"), A.layout.systems
    matrix, bias = matrix_and_bias(A, np.empty((systems, A.layout.size), A.dtype), exact=True)
    if matrix.constant is None or not isinstance(bias, np.ndarray) or matrix.dtype != A.dtype:
        return None
    if not all(np.isfinite(values).all() for values in (*matrix.constant, bias)):
        return None
    shape = A.layout.shape
    found = SparseMatrix.build(host, matrix.structure, matrix.constant, in_shape=shape, out_shape=shape)
    return FunctionByMatrix(found, A.layout, bias.astype(A.dtype, copy=False) if bias.any() else None)
