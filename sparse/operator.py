"""SciPy's interface of linear operators, of every operator: `matvec`, `rmatvec`, `matmat`, `rmatmat`.

SciPy and pyamg take for a LinearOperator what has `shape`, `dtype` and these.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from ..backends import Array, Backend
from ..backends.host_math import rows_times, transposed_times
from ..backends.public_names import PublicNames
from ..backends.registry import backend_name, get_backend


class ScipyProducts:
    """Base class with SciPy's products, made of `A @ v` and `A.H`.

    NumPy's arrays and lists give NumPy's arrays, whatever the library of the operator; arrays of that give its own.
    """

    bk: Backend
    shape: tuple[int, int]
    dtype: np.dtype
    systems: int | None

    @property
    @abstractmethod
    def H(self) -> Any:
        """The conjugate transpose."""

    @abstractmethod
    def __matmul__(self, v: Array) -> Array:
        """SciPy's product: a vector `(columns,)`, or one vector per column `(columns, k)`."""

    @abstractmethod
    def astype(self, dtype: np.dtype) -> Any:
        """The operator computing in `dtype`; itself where it has no way to."""

    @abstractmethod
    def on_backend(self, bk: Backend, like: Array | None) -> Any:
        """This operator of NumPy arrays on those of `bk`; None where it has no way to."""

    def matvec(self, x: Any) -> Any:
        """`A x` of a vector, as SciPy's LinearOperator has it: SciPy and pyamg take operators for such.

        Args:
            x: a vector `(columns,)` or `(columns, 1)`, of NumPy or of the operator's library; grids are flat.

        Returns:
            `(rows,)` or `(rows, 1)`; NumPy's for NumPy's.

        Raises:
            ValueError: x has another shape, or the operator is a batch of matrices.

        Examples:
            >>> import numpy as np, scipy.sparse.linalg as sla
            >>> from krylix import as_operator
            >>> A = as_operator(np.diag([1.0, 2.0, 4.0]))
            >>> A.matvec([1, 1, 1])
            array([1., 2., 4.])
            >>> x, info = sla.cg(A, np.ones(3))
            >>> x
            array([1.  , 0.5 , 0.25])
        """
        return _product(self, x, self.shape[1], columns=False)

    def rmatvec(self, x: Any) -> Any:
        """`Aᴴ x` of a vector: of the conjugate transpose, as in SciPy.

        Args:
            x: a vector `(rows,)` or `(rows, 1)`.

        Returns:
            `(columns,)` or `(columns, 1)`.

        Raises:
            ValueError: x has another shape, or the operator is a batch of matrices.
            UnsupportedOperation: the transpose is not known.

        Examples:
            >>> import numpy as np
            >>> from krylix import as_operator
            >>> as_operator(np.array([[1, 1j], [1, 2]])).rmatvec([1, 1])
            array([2.+0.j, 2.-1.j])
        """
        return _product(self, x, self.shape[0], columns=False, adjoint=True)

    def matmat(self, X: Any) -> Any:
        """`A X` of one vector per column.

        Args:
            X: `(columns, k)`.

        Returns:
            `(rows, k)`.

        Raises:
            ValueError: X has another shape, or the operator is a batch of matrices.

        Examples:
            >>> import numpy as np
            >>> from krylix import as_operator
            >>> as_operator(np.diag([1.0, 2.0])).matmat(np.ones((2, 3)))
            array([[1., 1., 1.],
                   [2., 2., 2.]])
        """
        return _product(self, X, self.shape[1], columns=True)

    def rmatmat(self, X: Any) -> Any:
        """`Aᴴ X` of one vector per column.

        Args:
            X: `(rows, k)`.

        Returns:
            `(columns, k)`.

        Raises:
            ValueError: X has another shape, or the operator is a batch of matrices.
            UnsupportedOperation: the transpose is not known.

        Examples:
            >>> import numpy as np
            >>> from krylix import as_operator
            >>> as_operator(np.array([[1.0, 2.0]])).rmatmat(np.ones((1, 2)))
            array([[1., 1.],
                   [2., 2.]])
        """
        return _product(self, X, self.shape[0], columns=True, adjoint=True)

    def in_library_of(self, x: Any) -> Any:
        """The operator for arrays like x: one of NumPy's arrays is a constant to every library; else itself.

        Raises:
            TypeError: it has no way to the library of x.
        """
        name = None if type(x) is np.ndarray or not self.bk.on_host else backend_name(x)
        if name is None or name == self.bk.name:
            return self
        bk = get_backend(name)
        if not bk.is_array(x):
            return self
        own = bk.dtype(x)
        dtype = np.result_type(own, np.complex64) if self.dtype.kind == "c" else own
        moved = (self.astype(dtype) if dtype.kind in "fc" and dtype != self.dtype else self).on_backend(bk, x)
        if moved is None:
            raise TypeError(
                f"{self!r} was given an array of {bk.name} and has no way there. Make it of arrays of {bk.name}."
            )
        return moved


def _product(A: ScipyProducts, x: Any, size: int, *, columns: bool, adjoint: bool = False) -> Any:
    bk, name = A.bk, ("r" if adjoint else "") + ("matmat" if columns else "matvec")
    if A.systems is not None:
        raise ValueError(
            f"{name} is for one matrix; {A!r} is a batch. Take one of its systems, or give A(x) arrays (..., n)."
        )
    own = bk.is_array(x)
    if not own:
        x = np.asarray(x) if backend_name(x) in (None, "numpy") else x
    shape = tuple(x.shape)
    if shape[:1] != (size,) or not (len(shape) == 2 if columns else shape in ((size,), (size, 1))):
        expected = f"({size}, k)" if columns else f"({size},) or ({size}, 1)"
        raise ValueError(f"{name} of {A!r} takes {expected}; got the shape {shape}.")
    from_host = isinstance(x, np.ndarray) and not bk.on_host
    image = (A.H if adjoint else A) @ (bk.asarray(x, like=_anchor(bk, A)) if from_host else x)
    if not isinstance(x, np.ndarray) or bk.compiled(image):
        return image
    return np.array(bk.to_numpy(image))  # a copy: SciPy's methods write to what they get, which may be x


def _anchor(bk: Backend, A: Any) -> Array | None:
    """An array on the device of the operator."""
    return next(iter(bk.flatten(A)[0]), None)


# --- Base class of operators: the interface of matrices and linear functions to solvers and users ---------------------


class Operator(ScipyProducts, PublicNames, ABC):
    """A linear map from arrays of `in_shape` to arrays of `out_shape`, immutable.

    Attributes:
        bk: the backend whose arrays it maps.
        shape: `(rows, columns)` of its matrix.
        dtype: NumPy dtype of its entries.
        systems: None when one matrix serves every system, else the number of matrices, one per system.

    Examples:
        >>> import numpy as np, krylix
        >>> A = krylix.as_operator(np.array([[1.0, 2.0], [0.0, 3.0]]))
        >>> A @ np.ones(2), A.T @ np.ones(2)
        (array([3., 3.]), array([1., 5.]))
    """

    bk: Backend
    shape: tuple[int, int]
    dtype: np.dtype
    systems: int | None = None
    products: ClassVar[int] = 1  # with the user's matrix, in one `apply`
    is_container: ClassVar[bool] = False  # do all its values live in arrays that a compiled function can take?
    materializes_input: ClassVar[bool] = (
        False  # does `apply` compute its argument once by itself, see `Backend.materialize`?
    )
    keeps_grids: bool = False  # does `apply` take rows that the library keeps as grids (`Backend.on_grid`) as they are?
    only_flat: ClassVar[bool] = False  # do methods take it apart, so that its rows are not kept as grids?
    product_advice: ClassVar[str] = "as_operator(lambda x: A @ (B @ x), like=b)"  # the product of two
    tracked: bool = False  # was a function seen to depend on something whose derivatives are being recorded?
    offset: complex = 0  # a constant that is added to every entry of `without_offset`
    analysis: Any = None  # what was found out about its entries: see `analysis_of`
    declared: tuple[tuple[str, Any], ...] = ()  # facts that its source declares, for where values are not known

    @property
    def without_offset(self) -> Operator:
        """The operator below a constant that is added to every entry."""
        return self

    @property
    def in_steps(self) -> Operator:
        """The operator that iterations multiply by; true residuals use the operator itself."""
        return self

    @property
    def own_grid(self) -> tuple[int, ...] | None:
        """Shape of the arrays with which `apply` computes, if each row is one of these before and after; else None."""
        return None

    # --- for solvers: rows of (batch, n) ------------------------------------------------------------------------------

    @abstractmethod
    def apply(self, x: Array) -> Array:
        """`(batch, columns)` -> `(batch, rows)`; the result may share memory with `x`, so never write to it."""

    def apply_on_host(self, x: np.ndarray) -> np.ndarray:
        """`apply` for rows of NumPy, where the library is an eager one on the CPU."""
        return self.bk.to_numpy(self.apply(self.bk.from_host(x)))

    @abstractmethod
    def transpose(self) -> Operator:
        """The transposed operator (not conjugated).

        Raises:
            UnsupportedOperation: it is not known (a Python function on NumPy arrays).
        """

    def add_to(self, y: Array, x: Array) -> Array:
        """`y + A x` on rows; may overwrite y, which the caller must own."""
        return self.bk.axpy(self.bk.full_like(y[:, :1], 1), self.apply(x), y)

    @abstractmethod
    def conj(self) -> Operator:
        """The operator with complex conjugate entries."""

    @abstractmethod
    def dense(self) -> Array:
        """`(rows, columns)`, or `(systems, rows, columns)`."""

    @abstractmethod
    def diagonals(self) -> Array:
        """`(1, n)`, or `(systems, n)`."""

    @abstractmethod
    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        """Arrays, and a function that rebuilds the operator on the host from their NumPy values."""

    @abstractmethod
    def per_system(self, i: int) -> Any:
        """SciPy's form of system `i`: ndarray, sparse matrix or LinearOperator. On the NumPy backend only."""

    def known(self) -> Any:
        """The matrix as a NumPy array or SciPy sparse matrix where its values are known now, else None.

        Of several systems an array `(systems, rows, columns)`, or a tuple of sparse matrices.
        """
        return None

    def known_images(self, v: np.ndarray, both: bool = True) -> tuple[np.ndarray, ...] | None:
        """`A v`, and with `both` also `Aᵀ v`, on the host, where the values are known now; else None.

        For a square matrix and one vector `(n,)`; of several systems `(systems, n)`. Cost: the products, and what
        `known` costs where that is needed.
        """
        found = self.known()
        if found is None:
            return None
        if isinstance(found, tuple):
            products = (rows_times, transposed_times) if both else (rows_times,)
            return tuple(np.array([times(matrix, v) for matrix in found]) for times in products)
        image = rows_times(found, v)
        if not both:
            return (image,)
        if isinstance(found, np.ndarray):
            return image, np.swapaxes(found, -1, -2) @ v
        return image, transposed_times(found, v)

    def is_exactly_hermitian(self) -> bool | None:
        """Cheap bitwise test of A = Aᴴ for finite entries; False leaves it open, None: values are not known now."""
        return False

    def known_diagonal(self) -> np.ndarray:
        """The diagonal on the host, of one square matrix whose values are known now."""
        return np.asarray(self.known().diagonal())

    def as_container(self) -> Operator:
        """The same operator with all its values in arrays (`is_container`), where that can be; else itself."""
        return self

    # --- for users ----------------------------------------------------------------------------------------------------

    @property
    def in_shape(self) -> tuple[int, ...]:
        """Shape of the arrays that it takes (of one system)."""
        return (self.shape[1],)

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Shape of the arrays that it returns (of one system)."""
        return (self.shape[0],)

    @property
    def together(self) -> int | None:
        """How many rows `apply` takes at once; None: any number."""
        return self.systems

    def astype(self, dtype: np.dtype) -> Operator:
        """The operator computing in `dtype`; itself where it has no way to."""
        return self

    def on_backend(self, bk: Backend, like: Array | None) -> Operator | None:
        """This operator of NumPy arrays on those of `bk`, on `like`'s device; None where it has no way to."""
        return None

    @property
    def T(self) -> Operator:
        """The transpose, not conjugated."""
        return self.transpose()

    @property
    def H(self) -> Operator:
        """The conjugate transpose."""
        return self.transpose().conj() if self.dtype.kind == "c" else self.transpose()

    def diagonal(self) -> Array:
        """The main diagonal, `(n,)`, or `(systems, n)`."""
        rows = self.diagonals()
        return rows[0, ...] if self.systems is None else rows

    def __call__(self, x: Array) -> Array:
        """Apply to an array of `in_shape`, with any batch axes in front, which end with those of its own systems.

        An array `(columns, k)` that can only hold one flat vector per column is taken as that, as SciPy's `lobpcg`
        calls operators. A square one is refused, as its vectors may be rows or columns; but the unit matrix of integers
        of NumPy, by which `lobpcg` asks for the entries, gives the matrix. An operator of NumPy's arrays takes those of
        any library, and gives it its images.

        Raises:
            ValueError: the array has another shape, or is square, with the vectors of one matrix in rows or columns.
            TypeError: it is of another library, to which the operator has no way.
        """
        own = self.in_library_of(x)
        if own is not self:
            return own(x)
        bk, size = self.bk, len(self.in_shape)
        given, x = x, bk.asarray(x)
        shape = tuple(x.shape)
        fits = shape[len(shape) - size :] == self.in_shape
        if len(shape) == 2 and shape[0] == self.shape[1] and self.systems is None and shape != self.in_shape:
            self._refuse_square(given, shape)
            if not fits or (shape[1] == shape[0] and self.shape != (1, 1)):
                return self.matmat(given)
        elif not fits:
            raise ValueError(f"The operator takes arrays whose last axes are {self.in_shape}; got the shape {shape}.")
        batch = shape[: len(shape) - size]
        rows = bk.reshape(x, (math.prod(batch), self.shape[1]))
        return bk.reshape(self._rows(rows), (*batch, *self.out_shape))

    def _refuse_square(self, x: Any, shape: tuple[int, ...]) -> None:
        """Refuse a square array but the unit matrix of integers, whose vectors are columns as in `lobpcg`."""
        n, k = shape
        if k != n or self.shape == (1, 1):
            return
        if not (type(x) is np.ndarray and x.dtype.kind in "iu" and np.array_equal(x, np.eye(n, dtype=x.dtype))):
            raise ValueError(
                f"An array of the shape {shape} was given, whose vectors may be its rows or its columns. Say which: "
                "A @ X for columns, as NumPy and SciPy read them, or (A @ X.T).T for rows."
            )

    def __matmul__(self, v: Array) -> Array:
        """SciPy's product: a vector `(columns,)`, or one vector per column `(columns, k)`.

        An operator of several systems gives the product of each, on a new first axis.

        Raises:
            ValueError: the array has another shape.
            TypeError: it is an operator or a function.
        """
        bk = self.bk
        if isinstance(v, Operator) or sp.issparse(v) or callable(v):
            what = f"the function {v!r}" if callable(v) and not isinstance(v, Operator) else repr(v)
            raise TypeError(
                f"{self!r} was multiplied by {what}; expected an array ({self.shape[1]},) or ({self.shape[1]}, k). "
                f"Give {self.product_advice}."
            )
        own = self.in_library_of(v)
        if own is not self:
            return own @ v
        v = bk.asarray(v)
        if len(v.shape) not in (1, 2) or v.shape[0] != self.shape[1]:
            m = self.shape[1]
            raise ValueError(f"A matrix of shape {self.shape} multiplies ({m},) or ({m}, k); got {tuple(v.shape)}.")
        columns = bk.reshape(v, (1, self.shape[1])) if len(v.shape) == 1 else bk.matrix_transpose(v)
        if self.systems is None:
            image = bk.matrix_transpose(self._rows(columns))
            return image[:, 0] if len(v.shape) == 1 else image
        images = self._images(columns)
        return images[..., 0] if len(v.shape) == 1 else images

    def _rows(self, rows: Array) -> Array:
        """`apply` for any number of rows of any dtype; the result has the dtype that holds both."""
        dtype = np.result_type(self.dtype, self.bk.dtype(rows))
        operator = self if dtype == self.dtype else self.astype(dtype)
        return operator._many(self.bk.astype(rows, dtype))

    def _many(self, rows: Array) -> Array:
        """`apply` for any number of rows."""
        bk, k, count, (n, m) = self.bk, self.together, int(rows.shape[0]), self.shape
        if k is None or count == k:
            return self.apply(rows)
        if k == 0 or count % k:
            raise ValueError(
                f"The operator takes {k} systems at once; got {count}. Give arrays whose last batch axes hold {k}."
            )
        if count == 0:
            return bk.zeros((0, n), bk.dtype(rows), rows)

        def group(g: Array) -> Array:
            return bk.reshape(self.apply(bk.reshape(g, (k, m))), (k * n,))

        return bk.reshape(bk.map_columns(group, bk.reshape(rows, (count // k, k * m))), (count, n))

    def __repr__(self) -> str:
        kind = type(self).__name__.removesuffix("Operator").lower()
        batch = f", {self.systems} systems" if self.systems is not None else ""
        return f"<{self.shape[0]}x{self.shape[1]} {kind} operator{batch}, {self.dtype}, {self.bk.name}>"

    def _images(self, columns: Array) -> Array:
        """`(k, columns)` -> `(systems, rows, k)`: the image of each under every system."""
        bk, systems, count = self.bk, 1 if self.systems is None else self.systems, int(columns.shape[0])
        wide = bk.broadcast_to(columns[:, None, :], (count, systems, self.shape[1]))
        found = self._rows(bk.reshape(wide, (count * systems, self.shape[1])))
        found = bk.reshape(found, (count, systems, self.shape[0]))
        return bk.stack([bk.matrix_transpose(found[:, i, :]) for i in range(systems)])
