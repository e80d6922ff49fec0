"""The errors of tracing for a recorded step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ...errors import NonlinearError, UnsupportedOperation
from .. import messages
from ..messages import FOLDERS, MATRIX_FREE, UNKNOWN, Operation, kind_of, place_of
from .steps import Step

LIBRARY = (f"{Path(torch.__file__).parent}/", *FOLDERS)  # code that is not the user's

_ARRAYS = ("numpy", "__array__", "tolist")
_NAMES = {"_local_scalar_dense": "item", "is_nonzero": "bool"}


def nonlinear(step: Step, values: Sequence[Any] = (), why: str | None = None) -> NonlinearError:
    """The step is not linear in the input."""
    return messages.nonlinear(_operation(step, values), why)


def unsupported(step: Step, values: Sequence[Any], why: str) -> UnsupportedOperation:
    """The step may be linear, but has no sparse matrix here; `why` ends with the way out."""
    return messages.unsupported(_operation(step, values), why)


def no_rule(step: Step, values: Sequence[Any]) -> UnsupportedOperation:
    """The step is linear, but the tables do not know it."""
    return unsupported(step, values, f"it has no rule for these operands. {MATRIX_FREE}")


def static_needed(step: Step, values: Sequence[Any], what: str, value: Any) -> Exception:
    """`value`, which decides the structure, depends on the input."""
    return messages.static_needed(_operation(step, values), what, value, "Detach it.")


def located(error: Exception, step: Step, values: Sequence[Any]) -> Exception:
    """An error of the engine with the place added."""
    return messages.located(error, _operation(step, values))


def leaves_torch(step: Step, name: str | None = None) -> NonlinearError | UnsupportedOperation:
    """A value of the input becomes a number of Python or an array of NumPy."""
    if name in _ARRAYS:
        return messages.unsupported(
            _operation(step, (), name),
            "it hands a tensor that depends on the input to NumPy, whose operations are not recorded. Write them with "
            "torch, or give a function of NumPy's arrays and a `like` of NumPy: those are followed, or evaluated.",
        )
    return messages.nonlinear(
        _operation(step, (), name or _NAMES.get(step.name, step.name)),
        "it makes a number or an array outside of torch of a tensor that depends on the input, and what follows from "
        "it is not traced. Compute with the tensor, as torch.where does",
    )


def shape_of_values(step: Step) -> NonlinearError:
    """The shape of a result depends on values of the input."""
    return messages.nonlinear(_operation(step, ()), "the shape of its result depends on the values of the input")


def random(step: Step) -> UnsupportedOperation:
    """It draws random numbers."""
    return messages.unsupported(
        _operation(step, ()), "it is random, and a matrix is the same at each call. Draw the numbers before."
    )


def writes_to_tracked(step: Step) -> UnsupportedOperation:
    """It writes to a tensor of the user's whose derivatives are recorded."""
    return messages.unsupported(
        _operation(step, ()),
        "it writes to a tensor that the function closes over and whose derivatives are recorded. Write to a clone.",
    )


def own_derivative() -> UnsupportedOperation:
    """A matrix has the derivatives of what the function does forward."""
    return UnsupportedOperation(
        "The function calls a torch.autograd.Function on values of its argument, and on tensors whose derivatives are "
        "recorded: the matrix would not have the derivatives of its `backward`. Compute the coefficients by it outside "
        "of the part that is linear, or detach them."
    )


def _operation(step: Step, values: Sequence[Any], name: str | None = None) -> Operation:
    known = [kind_of(value, not isinstance(value, torch.Tensor)) for value in values]
    place = UNKNOWN if step.line is None else place_of([step.line])
    return Operation(name or step.name, place, known or ["input-dependent"])
