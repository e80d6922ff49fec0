"""What each operation of TensorFlow does to tensors that depend on the input.

A rule gets the operation and its operands in order, with a `Linear` or a coefficient in place of each tensor, at least
one of them a `Linear`, and asks the operation for its attributes. It returns the result, or a list where the operation
has several. Dtypes are the interpreter's part, as is all that does not depend on the input. Operations that ask for
shapes only are in structure.py, lists of tensors in lists.py, calls, branches and loops in interpreter.py.

>>> import numpy as np
>>> import tensorflow as tf
>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine.linear import identity
>>> u = identity(get_backend("tensorflow"), (4,), float)
>>> with tf.Graph().as_default():
...     op = tf.reverse(tf.zeros(4), [0]).op
>>> RULES["ReverseV2"](op, u, np.array([0])).terms
(Box(lo=(0,), shape=(4,), offset=3, strides=(-1,), factor=1, values=None, mask=None),)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .arithmetic import ARITHMETIC
from .products import PRODUCTS
from .structure import STRUCTURE

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {**ARITHMETIC, **STRUCTURE, **PRODUCTS}
