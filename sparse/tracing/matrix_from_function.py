"""The matrix of a linear function, the Jacobian of another, and the offsets of a function on a grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...backends import Backend
from ...backends.compilers import without_compilers
from ...backends.profile.spans import name_of, span
from ...backends.tracebacks import front_door
from ..errors import NonlinearError, UnsupportedOperation
from ..formats.boxes import Shifted
from ..formats.matrix import Matrix
from ..formats.stencil import shifted_box
from .engine.linear import Linear
from .engine.terms import Box, has_axes, to_entries
from .engine.to_matrix import blocks_of, to_matrix
from .front_end import FrontEnd, front_end_for, front_end_of, opaque_front_end
from .messages import OpaqueFunction, is_linear_operator, named
from .verify import verify as verify_matrix


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
    """`matrix_from_function` by the front end of a library that is known."""
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


# --- the Jacobian of a non-linear function ----------------------------------------------------------------------------


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


# --- offsets of a function on a grid ----------------------------------------------------------------------------------
# Where coefficients are numbers they are told, too; arrays of coefficients are not looked at.

_MOST = 64  # different offsets: more are no stencil


class TracedBox(NamedTuple):
    """Part of a function.

    Attributes:
        shift: from points of the image to points of the argument.
        box: rows that have an entry, where all in a box have the coefficient `number`; None: some rows, any numbers.
        number: known, or traced.
    """

    shift: tuple[int, ...]
    box: Shifted | None
    number: Any


def traced_boxes(front_end: FrontEnd, function: Callable[[Any], Any], like: Any) -> list[TracedBox] | None:
    """The parts of a linear or affine function of one array like `like` that returns another one of its shape.

    None where it cannot be followed, or is no stencil. A row may have several parts of one offset, which add up.

    Cost: one trace; for gathers also a pass over positions.
    """
    try:
        traced = front_end.trace(function, like, (), {}, keep_zeros=False)
        grid = tuple(like.shape)
        if len(traced.outputs) != 1 or traced.out_shape != grid or not isinstance(traced.outputs[0], Linear):
            return None
        parts = [
            _parts(traced.bk, term, grid, block.base) for block in blocks_of(traced.outputs) for term in block.terms
        ]
    except (NonlinearError, UnsupportedOperation):
        return None
    found = [box for part in parts for box in part or ()]
    complete = all(part is not None for part in parts) and len({box.shift for box in found}) <= _MOST
    return found if complete else None


def _parts(bk: Backend, term: Any, grid: tuple[int, ...], base: Sequence[int]) -> list[TracedBox] | None:
    if tuple(base) != grid:
        return None
    box = shifted_box(term, grid) if isinstance(term, Box) else None
    if box is not None:
        is_number = term.mask is None and not has_axes(term.values)
        return [TracedBox(box.shift, box if is_number else None, term.coefficient if is_number else None)]
    places = to_entries(bk, term, base)
    if not places.size:
        return []
    steps = [
        there - here
        for here, there in zip(np.unravel_index(places.rows, grid), np.unravel_index(places.columns, grid), strict=True)
    ]
    return [TracedBox(tuple(map(int, shift)), None, None) for shift in np.unique(np.stack(steps), axis=1).T]
