"""The errors of tracing for a recorded step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ...errors import NonlinearError, UnsupportedOperation
from ..messages import FOLDERS, UNKNOWN, Operation, Reporter, kind_of, place_of
from .steps import Step

LIBRARY = (f"{Path(torch.__file__).parent}/", *FOLDERS)  # code that is not the user's

_ARRAYS = ("numpy", "__array__", "tolist")
_NAMES = {"_local_scalar_dense": "item", "is_nonzero": "bool"}


def leaves_torch(step: Step, name: str | None = None) -> NonlinearError | UnsupportedOperation:
    """A value of the input becomes a number of Python or an array of NumPy."""
    if name in _ARRAYS:
        return REPORTER.unsupported(
            step,
            "it hands a tensor that depends on the input to NumPy, whose operations are not recorded. Write them with "
            "torch, or give a function of NumPy's arrays and a `like` of NumPy: those are followed, or evaluated.",
            name,
        )
    return REPORTER.nonlinear(
        step,
        "it makes a number or an array outside of torch of a tensor that depends on the input, and what follows from "
        "it is not traced. Compute with the tensor, as torch.where does",
        name or _NAMES.get(step.name),
    )


def shape_of_values(step: Step) -> NonlinearError:
    """The shape of a result depends on values of the input."""
    return REPORTER.nonlinear(step, "the shape of its result depends on the values of the input")


def random(step: Step) -> UnsupportedOperation:
    """It draws random numbers."""
    return REPORTER.unsupported(step, "it is random, and a matrix is the same at each call. Draw the numbers before.")


def writes_to_tracked(step: Step) -> UnsupportedOperation:
    """It writes to a tensor of the user's whose derivatives are recorded."""
    return REPORTER.unsupported(
        step,
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
    kinds = [kind_of(value, not isinstance(value, torch.Tensor)) for value in values]
    place = UNKNOWN if step.line is None else place_of([step.line])
    return Operation(name or step.name, place, kinds or ["input-dependent"])


REPORTER = Reporter(_operation, "Detach it.")
