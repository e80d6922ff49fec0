"""The sparse Jacobian of a non-linear function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...backends.compilers import without_compilers
from ...backends.tracebacks import front_door
from ..errors import UnsupportedOperation
from ..formats.matrix import Matrix
from .front_end import front_end_for
from .matrix_from_function import check_function, traced_matrix


@front_door
def jacobian_matrix(
    f: Callable[..., Any], x: Any, *args: Any, format: str | None = None, prune: bool = True, **kwargs: Any
) -> Matrix:
    """The Jacobian of `f(x, *args, **kwargs)` by x, as a sparse matrix.

    JAX, PyTorch or TensorFlow differentiates `f` at x, and the derivative, which is linear, is traced as by
    `matrix_from_function`. Inside `jax.jit` and `tf.function` the values are traced arrays; the structure is static.

    Args:
        f: a differentiable function of one array of JAX, PyTorch or TensorFlow of any shape, or of a container of them.
        x: where to differentiate: float or complex; a complex `f` must be holomorphic.
        *args: further arguments of `f`.
        format: as in `matrix_from_function`.
        prune: leave out entries that are zero at this x by their value. False gives the same structure for every x,
            up to branches that depend on it, and zeros of known factors in products of arrays and convolutions.
        **kwargs: keyword arguments of `f`.

    Returns:
        The matrix `(n, m)`: rows count the elements of `f(x)`, columns those of x, in row order.

    Raises:
        UnsupportedOperation: an operation cannot be traced, or the matrix would have too many entries.
        TypeError: x or `f(x)` is not an array of floating or complex numbers.

    Cost: as `matrix_from_function` of a function about twice as long.

    Examples:
        >>> import jax.numpy as jnp, krylix
        >>> J = krylix.jacobian_matrix(lambda u: u**2, jnp.array([1.0, 2.0]))
        >>> J.toarray()
        array([[2., 0.],
               [0., 4.]]...
    """
    return without_compilers(_jacobian)(f, x, args, kwargs, format, prune)


def _jacobian(
    f: Callable[..., Any], x: Any, args: Sequence[Any], kwargs: Mapping[str, Any], format: str | None, prune: bool
) -> Matrix:
    check_function(f)
    front_end = front_end_for(x, args, kwargs)
    try:
        derivative, like = front_end.forward_derivative(f, x, args, kwargs)
        return traced_matrix(front_end, derivative, like, format=format, prune=prune)[0]
    except (TypeError, UnsupportedOperation) as error:
        if not front_end.has_only_reverse_rule(error):
            raise
    derivative, like = front_end.reverse_derivative(f, x, args, kwargs)
    transposed = traced_matrix(front_end, derivative, like, prune=prune)[0].T
    return transposed if format is None else transposed.to(format)
