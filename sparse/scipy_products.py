"""SciPy's interface of linear operators, of every operator: `matvec`, `rmatvec`, `matmat`, `rmatmat`.

SciPy and pyamg take for a LinearOperator what has `shape`, `dtype` and these.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from ..backends import Array, Backend
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
