"""Errors about operators."""

from __future__ import annotations


class NonlinearError(ValueError):
    """A function that should be linear (or affine) is not.

    Examples:
        >>> import numpy as np, krylix
        >>> try:
        ...     krylix.matrix_from_function(lambda u: u * u, np.ones(3))
        ... except krylix.NonlinearError as error:
        ...     print("not linear")
        not linear
    """


class UnsupportedOperation(TypeError):
    """An operator cannot do what a method or preconditioner needs of it; the message names a way out.

    Examples:
        >>> import numpy as np, krylix
        >>> try:
        ...     krylix.jacobian_matrix(lambda x: x**2, np.ones(5))
        ... except krylix.UnsupportedOperation:
        ...     print("NumPy has no derivatives")
        NumPy has no derivatives
    """
