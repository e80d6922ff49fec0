"""What the errors of tracing say: the operation, its operands, the user's line and the way out.

Front ends describe what they met as an `Operation`; the words are the same for all libraries.

>>> operation = Operation("sin", "model.py:7 (rhs)", ["input-dependent"])
>>> print(unsupported(operation, "it does not. Leave it out."))
'sin' at model.py:7 (rhs) (operands: input-dependent) cannot be traced: it does not. Leave it out.
>>> print(nonlinear(operation))
'sin' at model.py:7 (rhs) (operands: input-dependent) is not linear in the input. Expected a linear ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import NonlinearError, UnsupportedOperation
from .engine.linear import Linear
from .engine.operands import NotLinear, NotStatic

UNKNOWN = "an unknown line"
HANDED_TO_NUMPY = (
    "it hands a tensor that depends on the input to NumPy, whose operations are not recorded. Write them with {}, or "
    "give a function of NumPy's arrays and a `like` of NumPy: those are followed, or evaluated."
)
_PACKAGE = Path(__file__).parents[__name__.count(".") - 1]  # wherever in the package this module lies
FOLDERS = tuple(f"{_PACKAGE / name}/" for name in ("backends", "sparse", "solvers"))


class Operation(NamedTuple):
    """One operation of a traced function.

    Attributes:
        name: in its library.
        place: `file:line (function)` of the user's code, see `place_of`, or UNKNOWN.
        operands: the `kind_of` each.
    """

    name: str
    place: str
    operands: Sequence[str]

    def __str__(self) -> str:
        kinds = list(self.operands)
        if len(kinds) > 4:
            kinds = [f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)]
        return f"'{self.name}' at {self.place} (operands: {', '.join(kinds)})"


def kind_of(value: Any, known: bool) -> str:
    """What an operand is: `known` tells whether it has values while the function is traced."""
    if isinstance(value, Linear):
        return "input-dependent"
    return "constant" if known else "traced constant"


def place_of(frames: Iterable[tuple[str, int, str]]) -> str:
    """The first of some `(file, line, function)`, from the innermost call outwards, that is the user's code."""
    for file, line, function in frames:
        if not file.startswith(FOLDERS):
            return f"{file}:{line} ({function})"
    return UNKNOWN


def nonlinear(operation: Operation, why: str | None = None) -> NonlinearError:
    """The operation is not linear in the input."""
    return _marked(
        NonlinearError,
        f"{operation} is not linear in the input{f': {why}' if why else ''}. Expected a linear or "
        "affine function; of a non-linear one, jacobian_matrix(f, x) gives the sparse Jacobian at x.",
    )


def unsupported(operation: Operation, why: str) -> UnsupportedOperation:
    """The operation may be linear, but has no sparse matrix here; `why` ends with the way out."""
    return _marked(UnsupportedOperation, f"{operation} cannot be traced: {why}")


def no_tensor(returned: Sequence[Any]) -> str:
    """What the error says of a function that returned something else."""
    kinds = ", ".join(dict.fromkeys(type(x).__name__ for x in returned)) or "nothing"
    return f"The traced function returned {kinds}; expected a tensor. Is a `return` missing?"


def opaque(operation: Operation, why: str) -> OpaqueFunction:
    """The operation takes the input where it cannot be followed; `why` ends with the way out."""
    return _marked(OpaqueFunction, f"{operation} cannot be traced: {why}")


def located(error: Exception, operation: Operation) -> Exception:
    """An error of a rule or of the engine with the place added; one from inside a call with the line of the call, if it
    has none.

    Functions of the library itself may be compiled pieces whose operations do not know the user's line.
    """
    message = str(error)
    if hasattr(error, "located"):
        return _marked(type(error), message.replace(UNKNOWN, operation.place)) if UNKNOWN in message else error
    if isinstance(error, NotLinear):
        return nonlinear(operation, message)
    if isinstance(error, NonlinearError):
        return _marked(type(error), f"{operation}: {message}")
    return unsupported(operation, message)


class Reporter(NamedTuple):
    """The errors of one front end, for operations as its library lists them.

    Attributes:
        describe: `(operation, values of its operands, another name or None)` -> `Operation`.
        how_static: what makes a value known while the function is traced.
    """

    describe: Callable[[Any, Sequence[Any], str | None], Operation]
    how_static: str = ""

    def nonlinear(self, operation: Any, why: str, name: str | None = None) -> NonlinearError:
        """It is not linear in the input."""
        return nonlinear(self.describe(operation, (), name), why)

    def unsupported(self, operation: Any, why: str, name: str | None = None) -> UnsupportedOperation:
        """It may be linear, but has no sparse matrix here; `why` ends with the way out."""
        return unsupported(self.describe(operation, (), name), why)

    def located(self, error: Exception, operation: Any, values: Sequence[Any] = ()) -> Exception:
        """An error of a rule or of the engine, which knows neither the operation nor the user's line."""
        if isinstance(error, NotStatic):
            error = UnsupportedOperation(f"{error} {self.how_static}")
        return located(error, self.describe(operation, values, None))


def named(error: Exception, function: Any) -> Exception:
    """An error that knows no line of the user's, as the function is a library's own, with the function's name instead.

    >>> import math
    >>> print(named(nonlinear(Operation("abs", UNKNOWN, ["input-dependent"])), math.fabs))
    'abs' in math.fabs (operands: input-dependent) is not linear in the input. Expected a linear or ...
    """
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    module = getattr(function, "__module__", None) or type(function).__module__
    if UNKNOWN not in str(error) or name is None or module.split(".")[0] == __name__.split(".")[0]:
        return error
    found = _marked(type(error), str(error).replace(f"at {UNKNOWN}", f"in {module}.{name}"))
    found.__dict__.update(error.__dict__)
    return found


def _marked(kind: type[Exception], message: str) -> Any:
    error: Any = kind(message)
    error.located = True
    return error


# --- opaque functions -------------------------------------------------------------------------------------------------


class OpaqueFunction(UnsupportedOperation):
    """A function takes its argument where it cannot be followed: into compiled code, or into another library.

    Attributes:
        library: whose front end may follow it, by the name of its backend; None for compiled code.
    """

    library: str | None = None

    def by(self, library: str | None) -> OpaqueFunction:
        """With the library told."""
        self.library = library
        return self


def is_linear_operator(A: Any) -> bool:
    """Is it a `LinearOperator` of SciPy, or one of the same interface?"""
    return not isinstance(A, type) and hasattr(A, "matvec") and hasattr(A, "rmatvec") and hasattr(A, "shape")
