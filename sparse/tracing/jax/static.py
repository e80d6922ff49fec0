"""Values that decide the structure of the matrix: they must be known while the function is traced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .known.table import is_known
from .messages import static_needed


def static(equation: Any, values: Sequence[Any], what: str, value: Any) -> np.ndarray:
    """The values of an operand; `what` it is, "index" or the like, is for the message.

    Raises:
        NonlinearError: it depends on the input.
        UnsupportedOperation: it is not known.
    """
    if not is_known(value):
        raise static_needed(equation, values, what, value)
    return np.asarray(value)
