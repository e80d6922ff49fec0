"""The sparse matrix of a linear or affine function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...backends.compilers import without_compilers
from ...backends.profile.spans import name_of, span
from ...backends.tracebacks import front_door
from ..errors import NonlinearError, UnsupportedOperation
from ..formats.matrix import Matrix
from .engine.to_matrix import to_matrix
from .front_end import FrontEnd, front_end_for, front_end_of, opaque_front_end
from .messages import named
from .opaque import OpaqueFunction, is_linear_operator
from .verify.check import verify as verify_matrix


@front_door
def matrix_from_function(
    f: Callable[..., Any],
    like: Any,
    *args: Any,
    format: str | None = None,
    prune: bool = True,
    verify: bool = True,
    **kwargs: Any,
) -> tuple[Matrix, Any]:
    """The matrix and bias for which `f(x, *args, **kwargs) == matrix @ x + bias`.

    The function is traced, not sampled: each of its operations becomes an operation on sparse linear maps. JAX and
    TensorFlow list them, PyTorch's calls are recorded while the function runs once, and in NumPy an object in place of
    the array records them. Inside `jax.jit`, `grad` or `vmap` and `tf.function` coefficients that depend on arguments
    are traced arrays with derivatives, and so are those made of tensors whose derivatives PyTorch or a tape of
    TensorFlow records; all others are NumPy arrays, so that `matrix.constant` is known while the program is compiled.

    Functions on arrays of NumPy that cannot be followed, as they call compiled code, and SciPy's `LinearOperator`s are
    evaluated instead: with impulses, which show a stencil, else with random groups of columns; with one vector for each
    set of columns that no row meets twice; and with random vectors, which the matrix must reproduce.

    Args:
        f: a linear or affine function of its first argument: of one array of JAX, PyTorch, TensorFlow or NumPy of any
            shape, or of a container of them; or a `LinearOperator`, with a `like` of as many elements as it has
            columns.
        like: an array, a `jax.ShapeDtypeStruct`, a tensor on the device `"meta"`, a `tf.TensorSpec`,
            `numpy.empty(shape, dtype)`, or a container of these: the shape and dtype of x, float or complex. A
            function of JAX may be given one of NumPy.
        *args: further arguments of `f`; derivatives reach them through the matrix.
        format: `"dia"`, `"csr"`, `"dense"`, ...; None chooses, and `matrix.explain()` says why.
        prune: leave out known zeros. False keeps every position that the operations touch, whatever the coefficients
            are, so that the structure is the same for all of them. Only the zeros of a known matrix or kernel in a
            product or convolution, and rounding errors of known transforms, are left out all the same.
        verify: multiply the matrix by a random vector and compare with the function, where all values are known or at
            hand. What was found by evaluations is always compared.
        **kwargs: keyword arguments of `f`.

    Returns:
        The matrix `(n, m)`: columns count the elements of x, rows those of `f(x)`, both in row order, containers leaf
        after leaf. And the bias, in the shape (and container) of `f(x)`: tensors for PyTorch and TensorFlow; for JAX,
        NumPy where it is known, else an array of JAX.

    Raises:
        NonlinearError: `f` is neither linear nor affine; the message names the operation and the line.
        UnsupportedOperation: an operation cannot be traced, or the matrix would have too many entries, or evaluations
            do not tell it.
        TypeError: x or `f(x)` is not an array of floating or complex numbers; f is no function.

    Cost: one trace of `f` (a millisecond) and a pass over the entries; nothing is compiled. In PyTorch and NumPy one
        evaluation of `f`, and one for `verify`. A function that cannot be followed: 13 evaluations for a 5-point
        stencil, about 12 for each entry of the fullest row of any other matrix, and never more than 10 000.

    Examples:
        >>> import numpy as np, krylix
        >>> def laplace(u):
        ...     p = np.pad(u, 1)
        ...     return 2 * u - p[2:] - p[:-2]
        >>> matrix, bias = krylix.matrix_from_function(laplace, np.ones(3))
        >>> matrix.toarray()
        array([[ 2., -1.,  0.],
               [-1.,  2., -1.],
               [ 0., -1.,  2.]])
        >>> bias
        array([0., 0., 0.])
    """
    options: dict[str, Any] = {"format": format, "prune": prune}
    return without_compilers(_of_any_function)(f, like, args, kwargs, options, verify)


def _of_any_function(
    f: Callable[..., Any],
    like: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: dict[str, Any],
    verify: bool,
) -> tuple[Matrix, Any]:
    check_function(f)
    if is_linear_operator(f):
        return traced_matrix(opaque_front_end(), f, like, args, kwargs, **options, verify=False)
    front_end = front_end_for(like, args, kwargs)
    try:
        return traced_matrix(front_end, f, like, args, kwargs, **options, verify=verify)
    except OpaqueFunction as error:
        library = error.library
    if library is not None:  # a function of another library, which may take arrays of NumPy
        return traced_matrix(front_end_of(library), f, like, args, kwargs, **options, verify=verify)
    return traced_matrix(opaque_front_end(), f, like, args, kwargs, **options, verify=False)  # it has its own test


def check_function(f: Any) -> None:
    """Raises TypeError for what cannot be called, as a matrix."""
    if is_linear_operator(f) or callable(f):
        return
    matrix = hasattr(f, "shape")
    hint = "It is a matrix already: as_operator(f) makes an operator of it." if matrix else "Give x -> A x."
    raise TypeError(f"f must be a function of an array, or a LinearOperator; got {type(f).__name__}. {hint}")


def traced_matrix(
    front_end: FrontEnd,
    f: Callable[..., Any],
    like: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    format: str | None = None,
    prune: bool = True,
    verify: bool = True,
    exact: bool = False,
) -> tuple[Matrix, Any]:
    """`matrix_from_function` by the front end of a library that is known.

    Raises:
        UnsupportedOperation: also, where `exact`, of a function that rounds more than its matrix does.
    """
    with span("trace", name_of(f)) as done:
        try:
            traced = front_end.trace(f, like, args, kwargs or {}, keep_zeros=not prune)
        except (NonlinearError, UnsupportedOperation) as error:
            raise named(error, f) from None
        if exact and traced.precision > np.finfo(traced.dtype).eps:
            raise UnsupportedOperation(
                f"The function computes with fewer digits than {traced.dtype} has, so its matrix is not as exact as "
                "it. Let it compute in the dtype of its argument."
            )
        matrix, biases = to_matrix(
            traced.outputs,
            traced.columns,
            traced.bk,
            traced.dtype,
            traced.in_shape,
            traced.out_shape,
            format=None if format == "dense" else format,
            prune=prune,
            like=traced.like,
        )
        if verify:
            verify_matrix(front_end, traced, matrix, biases)
        found = matrix.to(format) if format == "dense" else matrix
        done(found, matrix=repr(found))
    return found, traced.pack([traced.own(bias) for bias in biases])
