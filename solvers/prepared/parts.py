"""What is done once for many solves with one matrix, and what it takes to solve with the transposed one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend, choose_backend, of_libraries
from ...sparse import FunctionOperator, Matrix, Operator, batch_shape, is_function, operand_dtype, transposed_in_shape
from ...sparse.analysis.analysis import release
from ...sparse.convert import owned
from ...sparse.peers.table import read_peer
from ..choose import Explanation, choose
from ..factors_now import factors_now
from ..iteration_budget import Fallback, with_iteration_budget
from ..log import log_choice, timed_set_up
from ..methods.direct.factorisation import DenseFactors
from ..methods.direct.superlu import HostFactors
from ..methods.method import Method, precision_for
from ..methods.registry import METHODS, find_method, is_auto
from ..preconditioners import Preconditioner, to_preconditioner
from ..read.arguments import Request, takes_vectors
from ..read.requirements import check_requirements, refuse_infinite_entries, refuse_preconditioner
from ..read.system import KnownNull, System, read_system, with_constants
from ..results.transfers import told_of_devices, warn_of_transfers


class OtherSide(NamedTuple):
    """What a transposed solver keeps of the one that it was made of, for the second transposition.

    Attributes:
        like: an array like its right-hand sides.
        null: the null vectors of its matrix; None where they are to be looked for.
        nullspace: as `prepare` was told, and ...
        axis: ... so this.
    """

    like: Any
    null: KnownNull | None
    nullspace: Any
    axis: int | None


class PreparedParts(NamedTuple):
    """What a `PreparedSolver` is made of, in its order.

    Attributes:
        A: the matrix as an operator.
        method: what solves.
        M: the preconditioner, or the factors.
        fallback: what is tried where the method fails.
        request: the arguments, with the choices made.
        why: of the method, where it was chosen.
        null: the null vectors of A.
        other: of the transposed matrix, if this is the transpose of a solver.
    """

    A: Operator
    method: Method
    M: Operator | None
    fallback: Fallback | None
    request: Request
    why: Explanation | None
    null: KnownNull | None
    other: OtherSide | None = None


def vector_for(A: Any, args: Any, caller: str = "prepare") -> Array:
    """A zero vector like the right-hand sides of a matrix, in its library and dtype.

    Args:
        caller: the function that needs it, for messages.

    Raises:
        TypeError: A is a function, which does not tell.
    """
    read = read_peer(A)
    if read is not None and read.gives is not None and read.bk is not None:
        zeros: Array = read.gives.zeros(read.bk)
        return zeros
    A = A if read is None else read.A
    if is_function(A) or isinstance(A, FunctionOperator):
        raise TypeError(f"{caller}(A, like) needs `like` for a function A: an array of the shape and dtype of b.")
    bk = choose_backend(A, *of_libraries(args))
    one = A[0] if isinstance(A, list | tuple) and A and hasattr(A[0], "shape") else A
    shape = one.shape if hasattr(one, "shape") else np.shape(one)
    if len(shape) < 2:
        raise ValueError(f"A has the shape {tuple(shape)}; expected a matrix (n, n).")
    dtype = operand_dtype(A, bk)
    return bk.zeros((int(shape[-2]),), dtype if dtype.kind in "fc" else bk.default_float, _array_of(bk, one))


def _array_of(bk: Backend, A: Any) -> Array | None:
    """An array on the device of A."""
    if bk.is_array(A) or bk.sparse.accepts(A):
        return A
    arrays = bk.flatten(A)[0] if isinstance(A, Operator) and A.bk is bk else ()
    return arrays[0] if arrays else None


def set_up(request: Request, previous: Operator | None, many: bool) -> PreparedParts:
    """Set up what depends on A alone.

    Args:
        request: its b is like the right-hand sides to come.
        previous: the preconditioner for other values of A.
        many: are many solves to come?
    """
    request = replace(request, A=owned(request.A, choose_backend(request.b, request.A, *of_libraries(request.args))))
    method = None if is_auto(request.method) else find_method(request.method, request.A)
    kind, fallback, factors, why = request.preconditioner, None, None, None
    # A preconditioner has no say in the library, and vectors in rows or columns are set up alike.
    axis = -1 if request.axis is None and takes_vectors(request.A) else request.axis
    system = read_system(replace(request, preconditioner=None, axis=axis), method)
    if system.is_empty:
        return _set_up_empty(request, system, method, many)
    refuse_infinite_entries(system, request.on_failure)
    automatic, A = kind is None or (isinstance(kind, str) and kind.strip().lower() == "auto"), system.A
    source = A
    if method is None:
        calls_host = request.on_failure in ("raise", "warn")
        choice = choose(system, not automatic, many, calls_host)
        method, fallback, factors, A = choice.method, choice.fallback, choice.factors, choice.matrix
        source = choice.source
        log_choice(choice)
        why = choice.explain()
        kind = choice.preconditioner if automatic else kind
    system = with_constants(system, method, A, request)
    refuse_preconditioner(method, kind)
    if previous is not None and isinstance(kind, Preconditioner):
        older = "made for other values of A"
        kind = replace(kind, note=older if kind.note in (None, older) else f"{kind.note}; {older}")
    M = None if kind is None else _made(kind, source, system, method, previous)
    check_requirements(system, method, M)
    if automatic and isinstance(M, Preconditioner):
        kind = M.kind  # for `update`: what it was that suited A
    if method.keeps_setup:
        M = factors or timed_set_up(f"factors of {method.name}", lambda: factors_now(system, method, previous))
    bounded = with_iteration_budget(fallback, system, method, M, A, many)
    release(A)
    if system.cut is not None:
        warn_of_transfers(system, method, M)
    again = request if factors is not None else replace(request, method=method, preconditioner=kind)
    again = replace(again, told=told_of_devices(system, method, M))
    resolved = replace(again, A=None, args=())  # what was seen in the values of A is looked for again by `update`
    null = KnownNull(system.null, system.both)
    return PreparedParts(_prepared(system), method, M, bounded, resolved, why, null)


def _made(kind: Any, A: Operator, system: System, method: Method, previous: Operator | None) -> Operator | None:
    """The preconditioner."""
    place, precision = (system.bk, system.layout, system.like), precision_for(method)
    return timed_set_up(
        f"preconditioner of {method.name}",
        lambda: to_preconditioner(kind, A, *place, previous, precision, system.spread),
    )


def _set_up_empty(request: Request, system: System, method: Method | None, many: bool) -> PreparedParts:
    """Where `like` has no systems: one matrix is made ready for any number of them, others for none."""
    bk = system.bk
    if takes_vectors(request.A) and not batch_shape(request.A, bk) and system.layout.size:
        layout = system.layout if system.given is None else system.given.layout
        one = bk.zeros((layout.size,), system.A.dtype, system.like)
        found = set_up(replace(request, b=one, axis=-1, batch_ndim=0), None, many)
        as_given = {name: getattr(request, name) for name in ("b", "axis", "batch_ndim")}
        return found._replace(request=replace(found.request, **as_given))
    method = method or METHODS["CG"]
    resolved = replace(request, A=None, args=(), method=method, preconditioner=None)
    return PreparedParts(_prepared(system), method, None, None, resolved, None, KnownNull(None, True))


def _prepared(system: System) -> Operator:
    """The operator that later solves take for A: without the offset, which they add, and as a program in JAX."""
    A = system.given.A if system.given is not None else system.A
    A = A.without_offset
    if not isinstance(A, FunctionOperator):
        return A
    return A.as_container() if system.bk.compiles_solves else A.lasting()


def transposed(parts: PreparedParts) -> PreparedParts:
    """The parts for the transposed matrix, of its factors or preconditioner.

    Raises:
        UnsupportedOperation: the transpose of A or of M is not known.
    """
    request, A = parts.request, transposed_in_shape(parts.A)
    M = None if parts.M is None else parts.M.transpose()
    side = parts.other or _other_side(parts, A)
    request = replace(request, b=side.like, nullspace=side.nullspace, axis=side.axis)
    system = read_system(replace(request, A=A, preconditioner=None), parts.method, side.null)
    check_requirements(system, parts.method, M)
    null = KnownNull(system.null, system.both)
    back = OtherSide(parts.request.b, parts.null, parts.request.nullspace, parts.request.axis)
    return PreparedParts(A, parts.method, M, parts.fallback, request, parts.why, null, back)


def _other_side(parts: PreparedParts, A: Operator) -> OtherSide:
    """What is known of the transposed matrix A from the matrix itself."""
    request, null = parts.request, parts.null
    side = OtherSide(request.b, null, request.nullspace, request.axis)
    if A.shape[0] != A.shape[1]:
        return side._replace(like=_like_for_rows(A, request), null=None)
    symmetric = parts.method.needs_hermitian and A.dtype.kind != "c"
    if null is None or null.projection is None or null.both or symmetric:
        return side
    return side._replace(null=None, nullspace="auto" if request.nullspace is not None else None)  # it has others


def _like_for_rows(A: Operator, request: Request) -> Array:
    """Zeros like `b`, for the rows of a rectangular matrix A, the vector on the same axis."""
    given, axis = request.b, request.axis
    shape = [A.shape[0]]
    if axis is not None and hasattr(given, "shape"):
        shape = [int(length) for length in given.shape]
        shape[axis] = A.shape[0]
    return A.bk.zeros(tuple(shape), A.dtype, given if hasattr(given, "shape") else None)


def numbers_stored(bk: Backend, M: Operator | None) -> int | None:
    """Numbers that a preconditioner or factors hold, without indices; None where that is not known."""
    if M is None:
        return 0
    if isinstance(M, Preconditioner):
        return _numbers_of_matrix(M.inner) if M.memory is None else M.memory
    if isinstance(M, HostFactors):
        return M.solver.numbers
    if isinstance(M, DenseFactors):
        return int(np.prod(M.factors[0].shape))
    arrays, _ = bk.flatten(M)
    return sum(int(np.prod(array.shape)) for array in arrays) if arrays else None


def _numbers_of_matrix(A: Operator) -> int | None:
    return A.nnz if isinstance(A, Matrix) else None
