"""Values that decide the structure of the matrix: they must be known while the function is traced."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from ..engine import coefficients as co
from .messages import static_needed


def static(op: tf.Operation, what: str, value: Any) -> np.ndarray:
    """The values of an operand; `what` it is, "index" or the like, is for the message.

    Raises:
        NonlinearError: it depends on the input.
        UnsupportedOperation: it is not known.
    """
    if not co.known(value):
        raise static_needed(op, [value], what, value)
    return np.asarray(value)


def integers(op: tf.Operation, what: str, value: Any) -> list[int]:
    """As `static`, a list of numbers of Python."""
    return [int(n) for n in static(op, what, value).reshape(-1)]
