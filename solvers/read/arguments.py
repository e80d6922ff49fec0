"""Arguments of a solve: the record of the call, the axes of b, tolerances and limits, refusals of unusable arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from numbers import Complex, Number
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend, choose_backend, get_precision, of_libraries, working_dtype
from ...sparse import FunctionOperator, Layout, Matrix, Operator, batch_shape, is_function, operand_dtype
from ...sparse.layout import moved_axis
from ...sparse.peers.table import read_peer
from ..methods.method import Method
from ..run.stopping import Limits
from ..run.watch import Monitor


@dataclass(frozen=True)
class Request:
    """The unchecked arguments of a call; see `linear_solve`.

    For `prepare`, `b` is an array like the right-hand sides to come. `program`: of the function A with its current
    values, if it was traced already. `declared`: facts that the package of A declares, see `Operator.declared`.
    `derived`: is it the solve for a derivative, of which only the part of b in the range of A counts? `over`: the
    communicator whose members hold the parts of all vectors, as the user gave it; None: vectors are whole.
    """

    A: Any
    b: Any
    x0: Any = None
    method: str | Method = "auto"
    preconditioner: Any = None
    rtol: float | Array | None = None
    atol: float | Array = 0.0
    max_iter: int | Sequence[int] | Array | None = None
    args: Sequence[Any] = ()
    batch_ndim: int = 0
    axis: int | None = None
    nullspace: Any = "auto"
    matrix_offset: complex | None = None
    on_failure: str = "raise"
    history: bool = False
    monitor: Monitor | None = None  # progress, callback and time_limit
    program: tuple[Callable[..., Any], Sequence[Array]] | None = None
    declared: tuple[tuple[str, Any], ...] | None = None
    derived: bool = False
    sharding: Any = None  # how b is spread over devices, as given by the caller ...
    notes: tuple[str, ...] = ()  # lines of `explain` about several devices
    seen_sharding: Any = None  # ... and as found before the solve, inside of which it may be unknown
    over: Any = None


def refused_args(name: str, args: Any) -> str:
    """The message about arguments of the function `name` that are not a tuple."""
    return f"args must be a tuple: args=(k,) for a function {name}(x, k); got an object of type {type(args).__name__}."


def takes_vectors(A: Any) -> bool:
    """Is A a matrix, which takes vectors, rather than a function of arrays of any shape?"""
    return not is_function(A) and not isinstance(A, FunctionOperator)


def right_hand_side(bk: Backend, request: Request) -> tuple[Any, Array, int | None]:
    """b in arrays of the library, with the vectors of a matrix on the last axis and one for each of its systems.

    Returns:
        b; its first array as the user gave it; and the axis of the vectors there, counted from the last one.

    Raises:
        TypeError, ValueError: b cannot be used, or its vectors may lie on two axes.
    """
    b, like = as_arrays(bk, request.b, "b")
    if b is not like:
        if type(b) not in (list, tuple) or not all(map(bk.is_array, b)) or not takes_vectors(request.A):
            return b, like, request.axis
        b = like = _stacked(bk, b)
        request = replace(request, axis=-1 if request.axis is None else request.axis)
    if not len(b.shape):
        return b, like, request.axis
    axis, vectors = request.axis, last_axis(bk, request, b)
    if axis is not None and axis >= 0:
        axis -= len(b.shape)  # more batch axes may come in front
    if takes_vectors(request.A):
        systems = batch_shape(request.A, bk)
        more = len(systems) - (len(b.shape) - 1)
        vectors = bk.broadcast_to(vectors, (*systems[:more], *vectors.shape)) if more > 0 else vectors
    return vectors, like, axis


def as_arrays(bk: Backend, given: Any, what: str, like: Array | None = None) -> tuple[Any, Array]:
    """An array or a container of arrays in the library, and the first array; those of the library stay where they are.

    Args:
        like: the array on whose device all of them have to be; None: on any.

    Raises:
        TypeError, ValueError: something in it is no array of numbers, or on another device.
    """
    if bk.is_array(given) and not isinstance(given, np.generic):
        bk.check_numbers(given, what)
        arrays, structure = [given], None
    else:
        refuse_unusable(bk, given, what)
        leaves, structure = bk.leaves(given)
        if not leaves:
            raise ValueError(f"{what} is an empty container; expected at least one array.")
        arrays = [_as_array(bk, leaf, what, like) for leaf in leaves]
    for array in arrays:
        if like is not None and bk.device(array) != bk.device(like):
            raise ValueError(f"{what} is on {bk.device(array)} and b on {bk.device(like)}; move one of them.")
    return bk.unleaves(structure, arrays), arrays[0]


def _as_array(bk: Backend, leaf: Any, what: str, like: Array | None) -> Array:
    if leaf is None or isinstance(leaf, str | bytes):
        raise TypeError(f"{what} must be an array; got {type(leaf).__name__}, {leaf!r}.")
    try:
        return leaf if bk.is_array(leaf) and not isinstance(leaf, np.generic) else bk.asarray(leaf, like=like)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{what} must be an array; got {type(leaf).__name__}, which is no array of {bk.name}."
        ) from error


def _stacked(bk: Backend, vectors: Any) -> Array:
    """`(vectors, n)`, from a list or tuple."""
    shapes = {tuple(vector.shape): None for vector in vectors}
    if len(shapes) > 1:
        raise ValueError(
            f"b is a {type(vectors).__name__} of arrays of the shapes {', '.join(map(str, shapes))}; expected vectors "
            "of one length, or one array."
        )
    dtype = np.result_type(*map(bk.dtype, vectors))
    return bk.stack([bk.astype(vector, dtype) for vector in vectors])


def last_axis(bk: Backend, request: Request, b: Array) -> Array:
    """b with its vector on the last axis.

    Raises:
        TypeError, ValueError: an axis that b does not have, or of a function; a square b that could be read either way.
    """
    axis = request.axis
    if axis is None:
        if len(b.shape) == 2:
            _refuse_ambiguous(bk, request, b)
        return b
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer):
        raise TypeError(f"axis must be an integer, the axis of b that the vector lies on; got {axis!r}.")
    if not takes_vectors(request.A):
        if axis == -1:
            return b
        raise ValueError(
            f"axis={axis} is for a matrix A; a function gets b as it is, its batch axes in front. Give b with these in "
            "front (moveaxis) and say how many they are, batch_ndim=1, or give the matrix of the function."
        )
    if not -len(b.shape) <= axis < len(b.shape):
        raise ValueError(f"axis={axis} with b of shape {tuple(b.shape)}; expected one of its axes.")
    return moved_axis(bk, b, int(axis), -1)


def expected_vectors(b: Array, m: int, axis: int | None) -> str:
    """Expected shape of b for a matrix with m rows, as the end of a message."""
    shape = tuple(b.shape)
    if axis in (None, -1):
        expected = f"expected b of shape (..., {m}), the vector on the last axis"
    else:
        expected = f"expected {m} numbers along axis={axis} of b"
    if math.prod(shape) == m:
        return f"{expected}. Give b.reshape(-1)"
    others = [i for i, length in enumerate(shape[:-1]) if length == m] + [-1] * (shape[-1] == m)
    if not others:
        return expected
    kind = {0: "one vector per column, as NumPy reads them,", -1: "the vector on the last axis"}
    return f"{expected}. For {kind.get(others[0], f'vectors along axis {others[0]}')} give axis={others[0]}"


def _refuse_ambiguous(bk: Backend, request: Request, b: Any) -> None:
    """Refuse a square b for one n x n matrix: vectors are rows here, but columns in NumPy."""
    if request.batch_ndim:
        return
    n, A = b.shape[0], request.A
    if n != b.shape[1] or n is None or n < 2 or not takes_vectors(A) or batch_shape(A, bk):
        return
    shape = A.shape if isinstance(A, Operator) or hasattr(A, "shape") else np.shape(A)
    if len(shape) == 2 and int(shape[0]) == n:
        raise ValueError(
            f"b has the shape {tuple(b.shape)} and A is one matrix with {n} rows, so the vectors of b may be its rows "
            "or its columns. Say which: axis=0 for columns, as NumPy, SciPy and PyTorch read them, or axis=-1 for "
            "rows (batch_ndim=1 says the same)."
        )


def form_of(bk: Backend, A: Any, b: Any, batch_ndim: int) -> tuple[Layout, np.dtype]:
    """The layout of b, as `right_hand_side` returns it, and the working dtype.

    Raises:
        TypeError, ValueError: b is nothing that A takes.
    """
    A_dtype = operand_dtype(A, bk)
    if type(batch_ndim) is not int or batch_ndim < 0:
        raise ValueError(f"batch_ndim must be the number of batch axes, an integer >= 0; got {batch_ndim!r}.")
    if isinstance(A, FunctionOperator):
        batch_ndim = len(A.layout.batch)
    elif A_dtype is not None:
        batch_ndim = _axes_before_vectors(bk, b, batch_ndim)
    if not bk.is_array(b):
        return _in_working_dtype(Layout.of(bk, b, batch_ndim), A_dtype, bk.default_float)
    return _form_of_array(tuple(b.shape), bk.dtype(b), batch_ndim, A_dtype, bk.default_float, get_precision())


def _axes_before_vectors(bk: Backend, b: Any, batch_ndim: int) -> int:
    if not bk.is_array(b):
        raise TypeError(
            f"A is a matrix, so b must be one array; got a {type(b).__name__}. For containers A must be a function."
        )
    axes = len(b.shape)
    if axes == 0:
        raise ValueError("b is a single number; expected a vector (n,).")
    if batch_ndim not in (0, axes - 1):
        raise ValueError(
            f"batch_ndim={batch_ndim} with a matrix A and b of shape {tuple(b.shape)}: a matrix takes vectors on "
            f"the last axis, so all {axes - 1} axes before it are batch axes. Leave batch_ndim out, or reshape b."
        )
    return axes - 1


@lru_cache(maxsize=256)
def _form_of_array(
    shape: tuple[int, ...], dtype: np.dtype, batch_ndim: int, A_dtype: Any, default: np.dtype, precision: int | None
) -> tuple[Layout, np.dtype]:
    # The working dtype depends on `precision`, which is only a key of the cache.
    return _in_working_dtype(Layout.of_shapes((shape,), (dtype,), None, batch_ndim, "b"), A_dtype, default)


def _in_working_dtype(layout: Layout, A_dtype: Any, default: np.dtype) -> tuple[Layout, np.dtype]:
    """A_dtype: of a matrix, None for a function."""
    integer = A_dtype if A_dtype is not None and A_dtype.kind in "fc" else default
    dtype = working_dtype(
        np.result_type(*layout.dtypes), complex_=A_dtype is not None and A_dtype.kind == "c", integer=integer
    )
    same = {(d.kind, d.itemsize) for d in layout.dtypes} == {(dtype.kind, dtype.itemsize)}
    return layout if same else layout.in_kind_of(dtype), dtype


def matched(operator: Matrix, batch: tuple[int, ...], layout: Layout) -> Matrix:
    """A batch of matrices, of these axes, for the batch of b; missing leading axes are repeated.

    Raises:
        ValueError: they do not fit.
    """
    if batch == layout.batch or batch == (layout.systems,):
        return operator
    fits = len(batch) <= len(layout.batch) and all(
        a in (1, c) for a, c in zip(batch[::-1], layout.batch[::-1], strict=False)
    )
    if not fits:
        raise ValueError(
            f"A is a batch {batch} of matrices and b a batch {layout.batch} of vectors; expected the same batch axes."
        )
    numbers = np.arange(operator.systems or 0, dtype=np.int32).reshape(batch)
    repeated: Matrix = operator[np.broadcast_to(numbers, layout.batch).reshape(-1)]
    return repeated


_EXPECTED = {
    "rtol": (">= 0 and below 1", "with 1 or more x = 0 would be a solution"),
    "atol": (">= 0 and finite", "0 leaves it to rtol"),
}
_MOST_BY_DEFAULT = 10_000  # iterations at most, else 10 n as in SciPy: a solve that fails should end within minutes
_LARGEST = 2**31 - 1  # iterations are 32-bit integers in compiled programs
_EXPECTED_LIMITS = (
    "expected an integer, an increasing sequence of integers (checkpoints), or an array of them with one column per "
    "system of the batch {batch}"
)


def default_rtol(dtype: np.dtype) -> float:
    """Default rtol of a solve in this dtype."""
    return 1e-5 if dtype.itemsize == (8 if dtype.kind == "c" else 4) else 1e-10


def check_tolerance_number(name: str, value: Any) -> None:
    """Refuse an invalid tolerance; anything but a number passes unchecked.

    Raises:
        TypeError: a boolean or a complex number.
        ValueError: another one that is not in the range.
    """
    if isinstance(value, bool | np.bool_ | complex):
        raise TypeError(f"{name} must be a number {_EXPECTED[name][0]}; got {value!r}.")
    if isinstance(value, Number | np.number) and not _is_valid(name, np.float64(value)):  # type: ignore[arg-type]
        _refuse(name, value)


def tolerance(
    bk: Backend, value: Any, default: float, name: str, layout: Layout, rows: Array, dtype: np.dtype
) -> Array:
    """A number, or one per system, as `(1, 1)` or `(systems, 1)` of the real `dtype`.

    A value that a compiled program gets when it runs cannot be refused: one out of range becomes NaN, and the solve
    ends as diverged.

    Raises:
        TypeError, ValueError: got / expected.
    """
    value = default if value is None else value
    if bk.on_host and isinstance(value, int | float):
        return _tolerance_number(name, value, dtype)
    if type(value) is not float or not 0 <= value < 1:  # the usual case
        check_tolerance_number(name, value)
    if isinstance(value, int | float):
        return bk.asarray(np.full((1, 1), value, dtype), like=rows)
    array = _array(bk, value, name, rows)
    if tuple(array.shape) not in ((), layout.batch):
        raise ValueError(
            f"{name} has the shape {tuple(array.shape)}; expected one number, or one per system {layout.batch}."
        )
    if bk.compiled(array):
        valid = (array >= 0) & (array < (1 if name == "rtol" else np.inf))
        array = bk.where(valid, bk.astype(array, dtype), bk.full_like(array, np.nan, dtype))
    elif not np.all(_is_valid(name, np.asarray(bk.to_numpy(array)))):
        _refuse(name, value)
    return bk.reshape(bk.astype(array, dtype), (-1, 1) if len(array.shape) else (1, 1))


@lru_cache(maxsize=256, typed=True)  # True differs from 1
def _tolerance_number(name: str, value: float, dtype: np.dtype) -> np.ndarray:
    check_tolerance_number(name, value)
    number = np.full((1, 1), value, dtype)
    number.flags.writeable = False
    return number


def _array(bk: Backend, value: Any, name: str, rows: Array) -> Array:
    words = f"{name} must be a number or one number per system; got {value!r}."
    if bk.is_array(value):
        if bk.dtype(value).kind not in "iuf":
            raise TypeError(words)
        return value
    try:
        numbers = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(words) from error
    if numbers.dtype.kind not in "iuf":
        raise TypeError(words)
    return bk.asarray(numbers.astype(np.float64), like=rows)


def _is_valid(name: str, values: np.ndarray | np.floating) -> Any:
    return (values >= 0) & (values < (1 if name == "rtol" else np.inf))


def _refuse(name: str, value: Any) -> None:
    expected, why = _EXPECTED[name]
    raise ValueError(f"{name} must be {expected}; got {value!r} ({why}).")


def find_limits(bk: Backend, max_iter: Any, n: int, batch: tuple[int, ...]) -> tuple[Limits, bool]:
    """The limits for systems of n unknowns; and whether they are checkpoints, which get an axis of their own.

    An array (of NumPy or a library) whose shape is `batch` holds one limit per system, one of shape
    `(checkpoints, *batch)` checkpoints for each; lists, tuples and ranges of integers are checkpoints.

    Raises:
        TypeError, ValueError: got / expected.
    """
    if max_iter is None:
        return Limits(((max(1, min(10 * n, _MOST_BY_DEFAULT)),),)), False
    if isinstance(max_iter, int | np.integer) and not isinstance(max_iter, bool):
        counts, several = np.array([[max_iter]], object), False
    else:
        table = _counts(bk, max_iter, batch)
        several = not (hasattr(max_iter, "shape") and table.shape in ((), batch))
        if several and not (table.ndim == 1 or (table.ndim and table.shape[1:] == batch)):
            raise ValueError(f"max_iter has the shape {table.shape}; {_EXPECTED_LIMITS.format(batch=batch)}.")
        counts = table.reshape(len(table) if several else 1, -1)
    if np.any(counts < 0) or np.any(counts > _LARGEST):
        raise ValueError(f"max_iter must be >= 0 and at most {_LARGEST}; got {max_iter!r}.")
    if np.any(counts[1:] <= counts[:-1]):
        raise ValueError(f"max_iter must be >= 0, or an increasing sequence of such integers; got {max_iter!r}.")
    return Limits.of(counts), several


def _counts(bk: Backend, max_iter: Any, batch: tuple[int, ...]) -> np.ndarray:
    if bk.is_array(max_iter) and bk.compiled(max_iter):
        raise TypeError(
            "max_iter is an array of a compiled program; it decides how many steps are compiled, so it must be known: "
            "give an int or a NumPy array."
        )
    try:
        counts = np.asarray(bk.to_numpy(max_iter) if bk.is_array(max_iter) else [*max_iter])
    except (TypeError, ValueError) as error:
        raise TypeError(f"max_iter is {max_iter!r}; {_EXPECTED_LIMITS.format(batch=batch)}.") from error
    if counts.dtype.kind not in "iuO" or not counts.size:
        raise (TypeError if counts.size else ValueError)(
            f"max_iter is {max_iter!r}; {_EXPECTED_LIMITS.format(batch=batch)}."
        )
    return counts


def refuse_unusable(bk: Backend, x: Any, what: str) -> None:
    """Refuse an `x`, or leaves of a container, that are not dense arrays with values.

    Raises:
        TypeError: a sparse matrix, or an array that is spread over processes.
        ValueError: an array without numbers, as of PyTorch's device "meta".
    """
    if bk.is_array(x):
        bk.check_numbers(x, what)
    elif sp.issparse(x) or bk.sparse.accepts(x):
        dense = "{}.toarray()" if sp.issparse(x) else bk.sparse.to_dense
        raise TypeError(
            f"{what} must be a dense array, as the solution is one; got a sparse {type(x).__name__} of shape "
            f"{tuple(x.shape)}. Give {dense.format(what)}, with the vector on the last axis."
        )
    elif isinstance(x, dict):
        for key, part in x.items():
            refuse_unusable(bk, part, f"{what}[{key!r}]")
    elif isinstance(x, list | tuple) and not all(isinstance(part, Complex) for part in x):
        for i, part in enumerate(x):
            refuse_unusable(bk, part, f"{what}[{i}]")


def checked_offset(bk: Backend, offset: Any, dtype: np.dtype) -> complex:
    """Check `matrix_offset`, and return it as a number.

    Raises:
        TypeError: it is not a number, or complex where the system is real, or not known yet.
        ValueError: it is not finite, or several numbers.
    """
    value = offset
    if bk.is_array(offset) and not bk.on_host:
        value = bk.concrete_value(lambda: offset)
        if value is None:
            raise TypeError(
                "matrix_offset depends on an argument of the compiled function; expected a number that is known. Add "
                "the constant inside a function A instead: lambda x: f(x) + c * x.sum()."
            )
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, np.ndarray | list | tuple):
        raise ValueError(f"matrix_offset must be one finite number, which is added to all entries; got {offset!r}.")
    if isinstance(value, bool | np.bool_) or not isinstance(value, Complex):
        raise TypeError(
            f"matrix_offset must be one finite number, which is added to all entries; got {type(offset).__name__}, "
            f"{offset!r}. Leave it out for none."
        )
    number = complex(value)
    if not np.isfinite(number):
        raise ValueError(f"matrix_offset must be one finite number, which is added to all entries; got {offset!r}.")
    if number.imag and dtype.kind != "c":
        raise TypeError(
            f"matrix_offset={offset!r} is complex, and the system is one of {dtype}; expected a real number. Give a "
            "complex A or b."
        )
    return number if dtype.kind == "c" else number.real


def vector_for(A: Any, args: Any, caller: str = "prepare") -> Array:
    """A zero vector like the right-hand sides of a matrix, in its library and dtype.

    Args:
        caller: the function that needs it, for messages.

    Raises:
        TypeError: A is a function, so the shape of b is unknown.
    """
    read = read_peer(A)
    if read is not None and read.gives is not None and read.bk is not None:
        zeros: Array = read.gives.zeros(read.bk)
        return zeros
    A = A if read is None else read.A
    if is_function(A) or isinstance(A, FunctionOperator):
        raise TypeError(f"{caller}(A, like) needs `like` for a function A: an array of the shape and dtype of b.")
    bk = choose_backend(A, *of_libraries(args))
    single = A[0] if isinstance(A, list | tuple) and A and hasattr(A[0], "shape") else A
    shape = single.shape if hasattr(single, "shape") else np.shape(single)
    if len(shape) < 2:
        raise ValueError(f"A has the shape {tuple(shape)}; expected a matrix (n, n).")
    dtype = operand_dtype(A, bk)
    return bk.zeros((int(shape[-2]),), dtype if dtype.kind in "fc" else bk.default_float, _array_of(bk, single))


def _array_of(bk: Backend, A: Any) -> Array | None:
    if bk.is_array(A) or bk.sparse.accepts(A):
        return A
    arrays = bk.flatten(A)[0] if isinstance(A, Operator) and A.bk is bk else ()
    return arrays[0] if arrays else None
