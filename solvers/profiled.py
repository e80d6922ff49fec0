"""What profiles watch in solvers and matrices: solves, their set-up, traces, products and preconditioners."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

from ..backends import choose_backend
from ..backends.profile.description import CallDescription, WatchedPlace, is_traced, name_of, register_places
from ..sparse import Operator
from . import at_once
from .methods.method import Method
from .nonlinear.minimize_result import MinimizeResult
from .nonlinear.nonlinear_result import NonlinearResult
from .preconditioners import Preconditioner
from .results.failure import ConvergenceError
from .results.numbers import has_values, known_array_of
from .results.result import SolveResult
from .run import loop

_SOLVERS, _SPARSE = __package__, f"{__package__.rpartition('.')[0]}.sparse"
_PRODUCTS = ("apply", "apply_on_host", "add_to")
_SOLVES = {
    f"{_SOLVERS}.linear_solve": {"_linear_solve": "linear_solve"},
    f"{_SOLVERS}.prepared": {"_solve_prepared": "PreparedSolver.solve"},
}
_NONLINEAR = {"solve_nonlinear": "_NewtonCall", "minimize": "_MinimizeCall"}
_SETUP = {
    **dict.fromkeys((f"{_SOLVERS}.{name}" for name in ("linear_solve", "prepared", "recall")), ("read_system",)),
    f"{_SOLVERS}.plan": ("choose", "factors_now"),
}
_TRACES = (
    f"{_SPARSE}.tracing.matrix_from_function",
    f"{_SPARSE}.tracing.jacobian_matrix",
    f"{_SPARSE}.operators.host",
    f"{_SPARSE}.operators.function_matrix",
)


def places() -> Iterator[WatchedPlace]:
    """All functions that are looked up when they are called, and mean something to users."""
    for module, solves in _SOLVES.items():
        for name, title in solves.items():
            yield WatchedPlace(import_module(module), name, CallDescription("solve", title, None, _outcome))
    for name, cls in _NONLINEAR.items():
        owner = getattr(import_module(f"{_SOLVERS}.nonlinear.{name}"), cls)
        yield WatchedPlace(owner, "result", CallDescription("solve", name, None, _outcome))
    for module, names in _SETUP.items():
        for name in names:
            yield WatchedPlace(import_module(module), name, CallDescription("set-up", name))
    own = import_module(f"{_SOLVERS}.prepared")
    yield WatchedPlace(own, "prepared", CallDescription("set-up", "prepare", None, _method))
    yield WatchedPlace(
        import_module(f"{_SOLVERS}.preconditioners.build"),
        "_of_kind",
        CallDescription("set-up", _kind_asked, _backend_of, _made),
    )
    for module in _TRACES:
        yield WatchedPlace(
            import_module(module), "traced_matrix", CallDescription("trace", _function_traced, None, _matrix)
        )
    for operator in _classes(Operator):
        for name in _PRODUCTS:
            if name in vars(operator):
                yield WatchedPlace(operator, name, CallDescription(_kind_of(operator), _operator_name, _backend_of))
    for method in _classes(Method):
        if method is not Method and "setup" in vars(method):
            yield WatchedPlace(method, "setup", CallDescription("set-up", lambda args: f"{args[0].name}: factors"))


def _classes(cls: type) -> list[type]:
    """The class and all below, each once."""
    found: list[type] = [cls]
    for one in found:
        below: list[type] = one.__subclasses__()
        found.extend(sub for sub in below if sub not in found)
    return found


def _kind_of(cls: type) -> str:
    if cls.__module__.startswith(f"{_SOLVERS}.singular"):
        return "operation"
    return "preconditioner" if cls.__module__.startswith(f"{_SOLVERS}.") else "product"


def _operator_name(args: tuple[Any, ...]) -> str:
    operator = args[0]
    return operator.kind if isinstance(operator, Preconditioner) else type(operator).__name__.removesuffix("Operator")


def _backend_of(args: tuple[Any, ...]) -> Any:
    return args[0].bk


def _kind_asked(args: tuple[Any, ...]) -> str:
    return f"preconditioner {args[1]}"


def _function_traced(args: tuple[Any, ...]) -> str:
    return name_of(args[1])


def _made(found: Any) -> dict[str, Any]:
    return {"made": found.kind} if isinstance(found, Preconditioner) else {}


def _matrix(found: Any) -> dict[str, Any]:
    matrix = found[0] if isinstance(found, tuple) else None
    return {"matrix": repr(matrix)} if isinstance(matrix, Operator) else {}


def _method(found: Any) -> dict[str, Any]:
    return {"method": found.method.name} if hasattr(found, "method") else {}


def _outcome(found: Any) -> dict[str, Any]:
    """Of a result, or of the one that an error holds: of several systems the largest numbers."""
    result = found.result if isinstance(found, ConvergenceError) else found
    if not isinstance(result, SolveResult | NonlinearResult | MinimizeResult):
        return {}
    facts: dict[str, Any] = {"method": result.method, "preconditioner": getattr(result, "preconditioner", None)}
    if not has_values(result):
        return facts | {"traced": is_traced(choose_backend(result.status))}
    name = "gradient_norm" if isinstance(result, MinimizeResult) else "residual_norm"
    steps, norm, converged = (known_array_of(result, one) for one in ("iterations", name, "converged"))
    facts |= {"systems": steps.size} if steps.size != 1 else {}
    facts |= {"iterations": int(np.max(steps, initial=0)), name: float(np.max(norm, initial=0))}
    return facts | {"converged": bool(np.all(converged))}


register_places(places, loop.NUMBERS, at_once.NUMBERS)
