"""Conversion of matrices, functions and LinearOperators to operators, and private copies of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from ..backends import Array, Backend, choose_backend, of_libraries, working_dtype
from .analysis.analysis import with_declared
from .formats import Dense, SparseMatrix, from_native, from_scipy, matrix_batch, pattern_from_scipy
from .formats.entries.checked import checked_scipy
from .layout import Layout
from .operator import Operator
from .operators.foreign import HostOperator
from .operators.function import FunctionOperator
from .peers.read import LibraryFunction, Read, Space
from .peers.table import TAKEN, read_peer


def as_operator(A: Any, like: Any = None, *, batch_ndim: int = 0, args: Sequence[Any] = ()) -> Operator:
    """`A` as a krylix operator: `A @ v`, `A(x)`, `.T`, `.H`, `.diagonal()`.

    A matrix is read now, whatever its format: the operator owns its entries, and later writes to the given memory do
    not reach it. `linear_solve` reads a matrix that is given to it directly at every call. Only dense tensors of
    PyTorch and `tf.Variable`s, which optimisers write to, are held themselves: writes count in every later product and
    solve.

    Args:
        A: a dense array `(n, m)` or `(k, n, m)`; a sparse matrix of SciPy, JAX, PyTorch or TensorFlow, or a batch of
            them in a type of the library; a SciPy LinearOperator, or anything with `shape` and `matvec`; an operator of
            lineax or `tf.linalg`, a sparse array of pydata/sparse, a PETSc `Mat`; a function of arrays; an operator; a
            list of k matrices of one shape, dense or sparse, as a batch. Sparse ones of different patterns are stored
            on the union of these, so that each costs as much as a matrix of that.
        like: an array of the shape and dtype that a function takes; matrices of NumPy and SciPy become operators of
            its library.
        batch_ndim: how many axes of `like` are batch axes, in front.
        args: further arguments of a function, `A(x, *args)`.

    Raises:
        ValueError: a function without `like`, or shapes that do not fit.
        TypeError: `A` is nothing that can be applied.

    Cost: a copy of the entries.

    Examples:
        >>> import numpy as np, krylix
        >>> A = krylix.as_operator(lambda u: 2 * u - np.roll(u, 1), np.ones(4))
        >>> A(np.ones(4))
        array([1., 1., 1., 1.])
        >>> A.shape
        (4, 4)
    """
    if isinstance(A, Operator) and like is None and not args:
        return A
    read = read_peer(A)
    if read is not None:
        return _of_peer(read, like, batch_ndim, args)
    bk = choose_backend(A, like, of_libraries(args))
    if isinstance(A, Operator) and not args:
        return A if A.bk is bk else _in_dtype(A, bk, A.dtype, "A", None)
    if like is None and is_function(A):
        raise ValueError("A function does not tell its shapes: give `like`, an array such as it takes.")
    found = operand_dtype(A, bk)
    if found is not None and found.kind not in "biufc":
        raise TypeError(
            f"A must be a function, a matrix or an operator; got {type(A).__name__}, {A!r:.60}. Taken are {TAKEN}."
        )
    if bk.on_host or not bk.is_array(A):
        A = owned(A, bk)
    if like is None:
        if sp.issparse(A) and not args:
            return pattern_from_scipy(bk, A, working_dtype(found), None)
        return to_operator(bk, A, None, working_dtype(found), args)
    leaves, _ = bk.leaves(like)
    arrays = [leaf if bk.is_array(leaf) else bk.asarray(leaf) for leaf in leaves]
    layout = Layout.of(bk, like if len(arrays) != 1 else arrays[0], batch_ndim, "like")
    dtype = working_dtype(np.result_type(*layout.dtypes), complex_=found is not None and found.kind == "c")
    if sp.issparse(A) and not args:
        return pattern_from_scipy(bk, A, dtype, arrays[0])
    return to_operator(bk, A, layout, dtype, args, arrays[0])


def _of_peer(read: Read, like: Any, batch_ndim: int, args: Sequence[Any]) -> Operator:
    """An object of another package; one that tells its shapes needs no `like`."""
    bk, takes, gives = read.bk, read.takes, read.gives
    if bk is None or takes is None or gives is None:
        A = read.A if bk is None else LibraryFunction(read.A, bk)  # a module is read once
        found = as_operator(A, like, batch_ndim=batch_ndim, args=args)
    else:
        if args:
            raise TypeError(f"args are passed on to a function; got an operator that takes {takes}.")
        zeros = takes.zeros(bk)
        first = bk.leaves(zeros)[0][0]
        axes = 0 if like is None else max(len(np.shape(bk.leaves(like)[0][0])) - len(first.shape), 0)
        layout = Layout.of(bk, zeros if like is None else like, axes, "like")
        if not Space(layout.shapes, layout.dtypes, layout.structure).is_like(takes):
            raise ValueError(f"like has the shapes {layout.shapes}; expected {takes}, what the operator takes.")
        image = Layout.of(bk, gives.zeros(bk, layout.batch), axes)
        dtype = working_dtype(np.result_type(*takes.dtypes, *gives.dtypes))
        found = FunctionOperator(bk, read.A, layout, dtype, (), "A(x)", first, image=image)
    if not read.declared:
        return found
    declared: Operator = with_declared(found, read.declared)
    return declared


def owned(A: Any, bk: Backend) -> Any:
    """Copy A where it is a matrix in memory that its owner may write to.

    That is of NumPy, SciPy and PyTorch, and krylix's formats in these. Functions, LinearOperators and `tf.Variable`s
    stay as they are, and whatever these read. Derivatives go on to what was given.

    Cost: one pass over the entries.
    """
    if isinstance(A, np.ndarray):
        return np.array(A)  # no subclass
    if sp.issparse(A):
        return checked_scipy(A).copy()  # SciPy's copies convert what a check refuses
    if bk.is_array(A) or bk.sparse.accepts(A):
        return bk.owned(A)
    if isinstance(A, SparseMatrix):
        return A.holding([v.copy() if isinstance(v, np.ndarray) else A.bk.owned(v) for v in A.known_or_arrays()])
    if isinstance(A, Dense):
        known = None if A.constant is None else A.constant.copy()
        return Dense(A.bk, known if A.constant is A.matrix else A.bk.owned(A.matrix), known)
    if is_list_of_matrices(A, bk):
        return [owned(one, bk) for one in A]
    return A


Kind = Literal["dense", "scipy", "native", "operator", "linear operator", "list", "function"]
_SCIPY = (sp.csr_array, sp.csr_matrix, sp.csc_array, sp.csc_matrix, sp.coo_array, sp.coo_matrix)
_KIND_OF_TYPE: dict[type, Kind] = {np.ndarray: "dense", **dict.fromkeys(_SCIPY, "scipy")}  # what the lines below say


def kind_of(A: Any, bk: Backend) -> Kind:
    """How a matrix or function was given. Native: in a sparse type of the library; dense: anything that is left."""
    kind = _KIND_OF_TYPE.get(type(A))
    if kind is not None:
        return kind
    if bk.is_array(A):
        return "dense"
    if isinstance(A, Operator):
        return "operator"
    if _is_linear_operator(A):
        return "linear operator"
    if callable(A):
        return "function"
    if sp.issparse(A):
        return "scipy"
    if bk.sparse.accepts(A):
        return "native"
    return "list" if is_list_of_matrices(A, bk) else "dense"


def is_function(A: Any) -> bool:
    """Is `A` to be called (rather than multiplied)?"""
    return callable(A) and not isinstance(A, Operator) and not _is_linear_operator(A)


def operand_dtype(A: Any, bk: Backend) -> Any:
    """NumPy dtype of a matrix; None for a function, which does not tell."""
    kind = kind_of(A, bk)
    if kind == "dense":
        return bk.dtype(A) if bk.is_array(A) else np.asarray(A).dtype
    if kind in ("scipy", "operator"):
        return np.dtype(A.dtype)
    if kind == "function":
        return None
    if kind == "native":
        return bk.sparse.dtype(A)
    return np.result_type(*(operand_dtype(one, bk) for one in A)) if kind == "list" else _declared_dtype(A)


def to_operator(
    bk: Backend,
    A: Any,
    layout: Layout | None,
    dtype: np.dtype,
    args: Sequence[Any] = (),
    like: Array | None = None,
    name: str = "A",
) -> Operator:
    """`A` as an operator of `bk` with entries of `dtype`, for unknowns of `layout`.

    Raises:
        TypeError: `A` is nothing that can be applied; `args` for a matrix.
        ValueError: a dense array with fewer than two axes.
    """
    kind = kind_of(A, bk)
    if kind == "function":
        if layout is None:
            raise ValueError("A function does not tell its shapes.")
        return FunctionOperator(bk, A, layout, dtype, args, f"{name}(x)", like)
    if args:
        raise TypeError(f"args are passed on to a function, but {name} is a {type(A).__name__}.")
    if kind == "dense":
        return _dense(bk, A, dtype, like, name)
    if kind == "scipy":
        return from_scipy(bk, A, dtype, like, name=name)
    if kind == "operator":
        return _in_dtype(A, bk, dtype, name, like)
    if kind == "native":
        return from_native(bk, A, dtype, like, name=name)
    return _stacked(bk, A, dtype, like, name) if kind == "list" else HostOperator(bk, A, dtype, name)


def batch_shape(A: Any, bk: Backend) -> tuple[int, ...]:
    """Batch axes of A: of an array or a library's own type those in front of the last two.

    Operators count their systems, lists of matrices their elements; a function knows no batch.
    """
    kind = kind_of(A, bk)
    if kind == "operator":
        return () if A.systems is None else (A.systems,)
    if kind == "list":
        return (len(A),)
    if kind not in ("dense", "native"):
        return ()
    shape = tuple(A.shape if hasattr(A, "shape") else np.shape(A))
    if None in shape:
        raise ValueError(f"A has the shape {shape}; expected one that is known. Give the sizes in its TensorSpec.")
    return tuple(map(int, shape[:-2]))


def is_list_of_matrices(A: Any, bk: Backend) -> bool:
    """Is it a list or tuple of matrices, rather than of numbers, or of rows?"""
    return isinstance(A, (list, tuple)) and any(
        isinstance(one, Operator) or sp.issparse(one) or bk.sparse.accepts(one) or callable(one)
        or len(getattr(one, "shape", ())) > 1 for one in A
    )  # fmt: skip


def _stacked(bk: Backend, A: Sequence[Any], dtype: np.dtype, like: Array | None, name: str) -> Operator:
    """Stack the matrices of a list to a batch.

    Raises:
        TypeError: something else is in it, or dense and sparse matrices.
        ValueError: their shapes differ.
    """
    for i, one in enumerate(A):
        if is_function(one) or _is_linear_operator(one) or batch_shape(one, bk):
            got = f"a batch of shape {batch_shape(one, bk)}" if batch_shape(one, bk) else type(one).__name__
            raise TypeError(
                f"{name}[{i}] is {got}; a list holds single matrices, dense or sparse. For several functions give one "
                "of all systems, with batch_ndim."
            )
    found = [to_operator(bk, one, None, dtype, (), like, f"{name}[{i}]") for i, one in enumerate(A)]
    shapes = {operator.shape: None for operator in found}
    if len(shapes) > 1:
        raise ValueError(f"{name} holds matrices of the shapes {', '.join(map(str, shapes))}; expected one shape.")
    if all(isinstance(operator, Dense) for operator in found):
        known = [operator.constant for operator in found if isinstance(operator, Dense)]
        constant = None if any(K is None for K in known) else np.array(known)
        return Dense(bk, bk.stack([operator.dense() for operator in found]), constant)
    if all(isinstance(operator, SparseMatrix) for operator in found):
        return matrix_batch([operator for operator in found if isinstance(operator, SparseMatrix)])
    kinds = ", ".join(dict.fromkeys(type(operator).__name__ for operator in found))
    raise TypeError(
        f"{name} holds matrices of the kinds {kinds}; expected only dense ones, or only sparse ones whose structure is "
        "known. Convert some of them."
    )


def _dense(bk: Backend, A: Any, dtype: np.dtype, like: Array | None, name: str) -> Dense:
    constant = None if bk.is_array(A) and bk.dtype(A).kind in "biufc" else _constant(bk, A, dtype, name)
    matrix = A if constant is None else bk.asarray(constant, like=like)
    if len(matrix.shape) < 2:
        got = f"has the shape {tuple(matrix.shape)}" if matrix.shape else f"is a number, {A!r}"
        raise ValueError(f"{name} {got}; expected a matrix (n, n) or a batch (k, n, n).")
    if like is not None and bk.device(matrix) != bk.device(like):
        raise ValueError(f"{name} is on {bk.device(matrix)} and b on {bk.device(like)}; move one of them.")
    if bk.dtype(matrix) != dtype:
        matrix = bk.astype(matrix, dtype)
    if len(matrix.shape) > 3:
        matrix = bk.reshape(matrix, (-1, *matrix.shape[-2:]))
    return Dense(bk, matrix, None if constant is None else constant.reshape(tuple(matrix.shape)))


def _constant(bk: Backend, A: Any, dtype: np.dtype, name: str) -> np.ndarray:
    try:
        values = np.asarray(A) if isinstance(A, np.ndarray) else np.array(A)  # of what only has `__array__` a copy
        if values.dtype.kind in "biufc":
            return values.astype(dtype, copy=not bk.on_host)  # libraries copy some arrays, and share others
        problem: Exception | None = None
    except (TypeError, ValueError) as error:  # a ragged list, or an object of another library that refuses
        problem = error
    raise TypeError(
        f"{name} must be a function, a matrix or an operator; got {type(A).__name__}, which is no array of {bk.name}. "
        f"Taken are {TAKEN}."
    ) from problem


def _in_dtype(A: Operator, bk: Backend, dtype: np.dtype, name: str, like: Array | None) -> Operator:
    if A.bk is not bk and not A.bk.on_host:
        raise TypeError(f"{name} is an operator on arrays of {A.bk.name}, the other arrays are of {bk.name}.")
    cast = A if A.dtype == dtype else A.astype(dtype)
    if A.bk is bk and cast.dtype == dtype:
        return cast
    moved = cast.on_backend(bk, like)
    if moved is not None and moved.dtype == dtype:
        return moved
    raise TypeError(f"{name} is an operator of {A.bk.name} on {A.dtype}; expected {bk.name} and {dtype}.")


def _is_linear_operator(A: Any) -> bool:
    """SciPy's LinearOperator, or anything else with `shape` and `matvec`; not ours, which have these too."""
    return not isinstance(A, type | Operator) and hasattr(A, "matvec") and hasattr(A, "shape")


def _declared_dtype(A: Any) -> np.dtype:
    """That of a LinearOperator; double precision where it has none.

    Raises:
        TypeError: it is no dtype of NumPy.
    """
    found = getattr(A, "dtype", None)
    try:
        return np.dtype(np.float64 if found is None else found)
    except TypeError as error:
        raise TypeError(f"A {type(A).__name__} with dtype={found!r} was given; expected one of NumPy.") from error
