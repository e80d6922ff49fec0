"""First solve with a function in a compiling library: NumPy solves with its matrix, and nothing is compiled.

A program takes seconds to compile, which pays only where a solve like this one comes again, so it is compiled then.
Only a hash of a first solve is stored, to recognise the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...backends import Backend, choose_backend, get_precision
from ...sparse import FunctionOperator, Layout, NonlinearError, UnsupportedOperation, is_function
from ...sparse.operators.function import FunctionByMatrix, by_matrix
from ...sparse.tracing.engine.limits import entries_at_most, operations_at_most
from ..choose import MOST_ENTRIES
from ..memory import Memory, is_ours, was_seen
from ..methods.method import Method
from ..methods.registry import find_method, is_auto
from ..preconditioners import PRECONDITIONERS
from ..read.arguments import Request
from ..results.result import SolveResult, converted, in_library

MOST_NUMBERS = 1 << 18  # of b; for more, compiling takes less time than the program saves in one solve
MOST_STEPPED = 1 << 16  # the same for a method that may take thousands of steps
# Limits of the matrix and of unrolled loops: recording more takes nearly as long as compiling.
LEAST_ENTRIES, MAX_ENTRIES, MAX_OPERATIONS = 1 << 18, 1 << 22, 1000
_WITH_ARRAYS = ("b", "x0", "rtol", "atol", "max_iter", "nullspace")
_SETTINGS = (*_WITH_ARRAYS, "batch_ndim", "on_failure", "history", "preconditioner")

_REFUSALS = (UnsupportedOperation, NonlinearError, TypeError, ValueError, NotImplementedError, MemoryError)

SEEN: Memory[bool] = Memory(64)  # hashes of solves; a library keeps no more programs either


def solve_first_call(request: Request, solve: Callable[[Request], SolveResult]) -> tuple[SolveResult | None, Request]:
    """Solve with NumPy in a first call; None, and the request for the library, where the library is to solve.

    Args:
        solve: solves requests on NumPy arrays.

    Raises:
        NotConverged, Diverged: as in the library.
    """
    bk = _library_of(request)
    if bk is None:
        return None, request
    try:
        method = "auto" if is_auto(request.method) else find_method(request.method, request.A)
        if not _is_for_host(request, method):
            return None, request
        program = bk.trace(lambda x, *args: bk.call_user(request.A, x, args), request.b, request.args)
    except Exception:  # The solve by the library raises the error of the function or the setting.
        return None, request
    if program is None or getattr(program[0], "acts", True):
        return None, request
    request = replace(request, program=program)
    settings = (_form(getattr(request, name)) for name in _SETTINGS)
    this = hash((program[0], type(method), method, *settings))  # methods without settings hash alike
    return None if was_seen(SEEN, this) else solve_on_numpy(request, solve), request


def solve_on_numpy(request: Request, solve: Callable[[Request], SolveResult]) -> SolveResult | None:
    """Solve with NumPy and the matrix of the function; the result is in the library of b. None where that cannot be.

    Args:
        request: as `solve_first_call` returns it; without a program the result is None.
        solve: solves requests on NumPy arrays.

    Raises:
        NotConverged, Diverged: as in the library.
    """
    program = request.program
    if program is None:
        return None
    bk = choose_backend(request.b)
    try:
        with np.errstate(all="ignore"):
            A = _recorded(bk, request, lambda x: program[0](x, *program[1]))
        if A is None:
            return None
        arrays = {name: _on_host(bk, getattr(request, name)) for name in _WITH_ARRAYS}
        on_host = replace(request, A=A, args=(), program=None, **arrays)

        def back(result: SolveResult) -> SolveResult:
            (x,) = bk.results_from_host([np.asarray(result.x)], request.b)
            return in_library(bk, result, x, request.b)

        return converted(lambda: solve(on_host), back)
    except _REFUSALS:  # the library reports them
        return None


def _library_of(request: Request) -> Backend | None:
    """The backend of b, if it compiles solves and NumPy may compute in its place; else None."""
    A, b = request.A, request.b
    usual = request.axis is None and request.matrix_offset is None and request.monitor is None
    usual = usual and request.sharding is None
    if not (usual and is_function(A)) or not hasattr(b, "dtype") or get_precision() is not None:
        return None
    bk = choose_backend(b)
    arrays = [getattr(request, name) for name in _WITH_ARRAYS]
    if not bk.compiles_solves or not bk.is_array(b) or not bk.may_leave_to_host(*arrays, request.args):
        return None
    return bk if bk.dtype(b).char in "fdFD" else None


def _is_for_host(request: Request, method: str | Method) -> bool:
    """Whether NumPy takes the same steps in about the same time. Methods from outside krylix count as slower."""
    kind, count = request.preconditioner, int(np.prod(request.b.shape))
    if not (kind is None or kind == "auto" or (isinstance(kind, str) and is_ours(PRECONDITIONERS.get(kind)))):
        return False
    if isinstance(method, str):
        return 0 < count <= MOST_NUMBERS
    most = MOST_NUMBERS if method.factorises or method.on_host else MOST_STEPPED
    return 0 < count <= most and is_ours(type(method))


def _form(value: Any) -> Any:
    """The part of a setting on which the program depends: shape and dtype of an array."""
    if hasattr(value, "shape"):
        return tuple(value.shape), str(value.dtype)
    if isinstance(value, float | complex):
        return type(value)
    return tuple(map(_form, value)) if isinstance(value, list | tuple) else value


def _recorded(bk: Backend, request: Request, function: Callable[[Any], Any]) -> FunctionByMatrix | None:
    layout = Layout.of(bk, request.b, request.batch_ndim)
    A = FunctionOperator(bk, function, layout, bk.dtype(request.b), (), "A(x)")
    entries = max(LEAST_ENTRIES, min(MOST_ENTRIES * layout.size * layout.systems, MAX_ENTRIES))
    with entries_at_most(entries), operations_at_most(MAX_OPERATIONS):
        return by_matrix(A)


def _on_host(bk: Backend, value: Any) -> Any:
    return bk.to_numpy(value) if bk.is_array(value) else value
