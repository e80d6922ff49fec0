"""Values that decide the structure of the matrix: they must not depend on the input."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...engine.linear import Linear
from ..messages import static_needed
from ..steps import Step


def static(step: Step, what: str, value: Any) -> np.ndarray:
    """The values of an operand; `what` it is, "index" or the like, is for the message.

    Raises:
        NonlinearError: it depends on the input.
    """
    if isinstance(value, Linear):
        raise static_needed(step, [value], what, value)
    return np.asarray(value)
