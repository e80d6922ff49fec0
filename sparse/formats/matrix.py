"""Base class of matrices: operators with stored entries, formats, arithmetic and indexing."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend, choose_backend
from ..analysis.facts import is_positive_definite
from ..analysis.symmetry import is_hermitian
from ..errors import UnsupportedOperation
from ..notebook import matrix_html
from ..operator import Operator

FORMATS: dict[str, Any] = {}  # the class of each format, by the word that `to` understands


def format_class(word: str) -> Any:
    """The class of the matrices of a format.

    Raises:
        ValueError: there is no such format.
    """
    if word not in FORMATS:
        raise ValueError(f"The format {word!r} was asked for; there are {', '.join(FORMATS)}.")
    return FORMATS[word]


class Matrix(Operator):
    """An operator whose entries are stored.

    Sums, products and parts of a matrix are matrices. Where the values are known they are computed at once, by SciPy;
    else they are arrays of the library, with derivatives, on a structure that is known all the same.
    """

    __array_ufunc__ = None  # NumPy leaves `array * A` to the matrix
    picture: ClassVar[Callable[..., Any]]  # what draws one: set where pictures are made, which lies above

    if TYPE_CHECKING:  # of a matrix they are matrices

        def transpose(self) -> Matrix: ...
        def conj(self) -> Matrix: ...
        def on_backend(self, bk: Backend, like: Array | None) -> Matrix | None: ...
        @property
        def T(self) -> Matrix: ...
        @property
        def H(self) -> Matrix: ...

    @property
    @abstractmethod
    def format(self) -> str:
        """The word that `to` understands."""

    @property
    @abstractmethod
    def nnz(self) -> int:
        """Number of stored entries, without padding."""

    @abstractmethod
    def to(self, format: str) -> Matrix:
        """The same matrix in another format: "csr", "csc", "coo", "dia", "ell", "hyb" or "dense".

        Raises:
            ValueError: there is no such format.
        """

    @abstractmethod
    def with_values(self, values: Any) -> Matrix:
        """The same pattern with other values, shaped as `values`; with one more axis in front a batch of matrices.

        They come in the order in which the values of the pattern were given. NumPy arrays are copied.

        Raises:
            ValueError: they have another shape.
        """

    @abstractmethod
    def native(self, backend: Any = None) -> Any:
        """The library's own sparse matrix: SciPy `csr_array`, JAX `BCOO`, torch CSR, `tf.SparseTensor`.

        Of CSC it is SciPy's `csc_array` and torch's CSC, of a batch CSR; JAX and TensorFlow have none.

        Args:
            backend: name of another library, for which the values must be known.

        Raises:
            UnsupportedOperation: the library has none for this matrix, or the values are not known.
        """

    @abstractmethod
    def explain(self) -> str:
        """Size, structure and memory of the matrix, and why it has its format."""

    @abstractmethod
    def _plus(self, other: Any) -> Matrix: ...

    @abstractmethod
    def _scaled(self, c: Any, divide: bool = False) -> Matrix: ...

    @abstractmethod
    def _times(self, other: Any) -> Matrix: ...

    @abstractmethod
    def _part(self, key: Any) -> Any: ...

    @abstractmethod
    def _chosen(self, systems: np.ndarray | int) -> Matrix:
        """Select one matrix of a batch by its number, or several, as a batch."""

    def to_scipy(self) -> sp.csr_array:
        """The matrix in SciPy. The memory of CSR is shared, so do not write to it; other formats give a copy.

        Raises:
            UnsupportedOperation: it is a batch, or its values are not known yet (inside a compiled function).
        """
        self._single("A matrix of SciPy")
        found = self._found()
        if not sp.issparse(found):
            return sp.csr_array(found)
        return found if self.format == "csr" else found.copy()

    def toarray(self) -> np.ndarray:
        """The matrix as a dense NumPy array, `(n, m)`, or for a batch `(systems, n, m)`.

        Raises:
            UnsupportedOperation: its values are not known yet (inside a compiled function).
        """
        found = self._found()
        if isinstance(found, tuple):
            return np.array([one.toarray() for one in found], self.dtype).reshape(len(found), *self.shape)
        return found.toarray() if sp.issparse(found) else np.array(found)

    def is_hermitian(self) -> bool:
        """Is it proven from its values that A = Aᴴ, entry by entry and up to rounding? Cost: one transposition.

        A batch is if all its matrices are.

        Raises:
            UnsupportedOperation: its values are not known yet (inside a compiled function).
        """
        return all(map(is_hermitian, self._each_in_scipy()))

    def is_positive_definite(self) -> bool | None:
        """True where symmetry and diagonal dominance prove it (of a batch for all its matrices), else None: not proven.

        Raises:
            UnsupportedOperation: its values are not known yet (inside a compiled function).
        """
        return True if all(map(is_positive_definite, self._each_in_scipy())) else None

    # --- means and extremes; entries that are not stored count as 0 ---

    @abstractmethod
    def sum(self, axis: int | None = None) -> Array:
        """The sum of all entries, or of each column (axis 0, `(m,)`) or row (axis 1, `(n,)`)."""

    def mean(self, axis: int | None = None) -> Array:
        """The mean of all entries, or of each column (axis 0, `(m,)`) or row (axis 1, `(n,)`).

        Raises:
            ValueError: there are none.
        """
        return self.sum(axis) / self._count(axis, "mean")

    def max(self, axis: int | None = None) -> Array:
        """The largest of all entries, or of each column (axis 0, `(m,)`) or row (axis 1, `(n,)`); NaN where one is.

        It has derivatives by the values; where several stored entries are the largest, one of the subgradients.

        Raises:
            ValueError: there are none.
            TypeError: they are complex.
        """
        return self._of_ordered(axis, "max")

    def min(self, axis: int | None = None) -> Array:
        """The smallest of all entries, or of each column or row; see `max`."""
        return self._of_ordered(axis, "min")

    def _of_ordered(self, axis: int | None, name: str) -> Array:
        self._count(axis, name)
        if self.dtype.kind == "c":
            raise TypeError(f"{name} of a complex matrix was asked for; expected real entries, which have an order.")
        return self._extreme(axis, name == "max")

    @abstractmethod
    def _extreme(self, axis: int | None, largest: bool) -> Array:
        """`max` or `min` of real entries, of which there is one at least along the axis."""

    def _count(self, axis: int | None, name: str) -> int:
        """Number of entries of all, of a column (axis 0) or of a row (axis 1)."""
        check_axis(axis)
        n, m = self.shape
        count = n * m if axis is None else self.shape[axis]
        if not count:
            where = "" if axis is None else f" along axis {axis}"
            raise ValueError(f"{name} of a matrix of shape {self.shape} was asked for, which has no entries{where}.")
        return count

    def plot(self, kind: str = "spy", ax: Any = None, *, grid: Sequence[int] | None = None) -> Any:
        """Draw the matrix with matplotlib, which `pip install "krylix[plot]"` brings; returns the Axes.

        Args:
            kind: "spy", the places of its entries, or "stencil", the coefficients of a typical inner point of a grid.
            ax: where to draw; None: new Axes.
            grid: shape of the grid that the columns lie on, last axis fastest; default: `in_shape`.

        Raises:
            ValueError: there is no such kind, or no grid for a stencil.
            UnsupportedOperation: its values are not known yet (inside a compiled function).
        """
        return type(self).picture(self, kind, ax, grid=grid)

    def _repr_html_(self) -> str:
        return matrix_html(self)

    def _found(self) -> Any:
        found = self.known()
        if found is None:
            raise self._unknown()
        return found

    def _unknown(self) -> UnsupportedOperation:
        return UnsupportedOperation(
            "The values of this matrix are not known before the compiled function runs. Ask for them outside of it, or "
            "compute them from constants."
        )

    def _each_in_scipy(self) -> list[sp.csr_array]:
        """The matrix, or those of a batch."""
        found = self._found()
        matrices = [found] if self.systems is None else list(found)
        return [A if sp.issparse(A) else sp.csr_array(A) for A in matrices]

    def _single(self, what: str) -> None:
        """Raises UnsupportedOperation for what a batch of matrices has no way to."""
        if self.systems is not None:
            raise UnsupportedOperation(
                f"{what} of a batch of {self.systems} matrices was asked for; expected one matrix. Take one of them, "
                "A[i], or work on the array A.values."
            )

    def __add__(self, other: Any) -> Matrix:
        if _is_zero(other):
            return self
        return self._plus(other) if is_matrix(other) else NotImplemented

    __radd__ = __add__

    def __neg__(self) -> Matrix:
        return self._scaled(-1)

    def __sub__(self, other: Any) -> Matrix:
        if _is_zero(other):
            return self
        return self._plus(-other) if is_matrix(other) else NotImplemented

    def __rsub__(self, other: Any) -> Matrix:
        return (-self).__add__(other)

    def __mul__(self, c: Any) -> Matrix:
        return self._scaled(c)

    __rmul__ = __mul__

    def __truediv__(self, c: Any) -> Matrix:
        return self._scaled(c, divide=True)

    def __matmul__(self, v: Any) -> Any:
        """With a vector `(m,)`, columns `(m, k)`, or another sparse matrix, which gives a matrix.

        Raises:
            ValueError: the shapes do not fit.
        """
        if is_matrix(v):
            return self._times(v)
        other = self.in_library_of(v)
        return super().__matmul__(v) if other is self else other @ v

    def __call__(self, x: Any) -> Any:
        """Apply to an array of `in_shape`, with any batch axes in front; see `Operator`."""
        other = self.in_library_of(x)
        return super().__call__(x) if other is self else other(x)

    def in_library_of(self, x: Any) -> Any:
        """This matrix for the arrays of x's library, if its own values are of NumPy: constants to all others."""
        if not self.bk.on_host or isinstance(x, np.ndarray | np.generic) or not hasattr(x, "shape"):
            return self
        bk = choose_backend(x)
        return (None if bk is self.bk else self.on_backend(bk, x)) or self

    def __rmatmul__(self, v: Any) -> Any:
        """A vector `(n,)` or rows `(k, n)` times the matrix; of a batch times each, on a new first axis."""
        if sp.issparse(v):
            return (self.T @ v.T).T
        if len(np.shape(v)) < 2:
            return self.T @ v
        return self.bk.matrix_transpose(self.T @ self.bk.matrix_transpose(self.bk.asarray(v)))

    def __getitem__(self, key: Any) -> Any:
        """Rows `A[rows]` or a part `A[rows, columns]` by slices, index arrays, masks, as in SciPy.

        One row or column, or several single entries, come as a dense array of the library; one entry as a number.
        Of a batch, `A[i]` is matrix i, and `A[numbers]`, by a slice, an index array or a mask, a smaller batch.

        Raises:
            IndexError: something is out of range.
        """
        return self._part(key) if self.systems is None else self._chosen(self._numbers(key))

    def _numbers(self, key: Any) -> np.ndarray | int:
        if isinstance(key, tuple) or np.ndim(key) > 1 or (key is None or key is Ellipsis):
            raise IndexError(
                f"{key!r} was given for a batch of {self.systems} matrices; expected the numbers of some of them. For "
                "a part of matrix i write A[i][rows, columns]."
            )
        found = np.arange(self.systems or 0, dtype=np.int32)[key]
        return found if found.ndim else int(found)

    def __iter__(self) -> Any:
        if self.systems is not None:
            return (self[i] for i in range(self.systems))
        raise TypeError("A matrix is not iterated over; use A[i], or A.toarray() for all its rows.")


def is_matrix(x: Any) -> bool:
    """Is `x` a matrix of krylix or of SciPy?"""
    return isinstance(x, Matrix) or sp.issparse(x)


def _is_zero(x: Any) -> bool:
    return isinstance(x, (int, float)) and x == 0  # where `sum` of Python starts


def check_axis(axis: int | None) -> None:
    """Check the axis of a sum, mean or extreme.

    Raises:
        ValueError: there is no such axis.
    """
    if axis not in (None, 0, 1, -1, -2):
        raise ValueError(f"axis={axis!r} was given; expected 0 (for each column), 1 (for each row) or None.")
