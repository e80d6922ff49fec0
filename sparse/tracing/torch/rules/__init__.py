"""What each ATen operator does to tensors that depend on the input.

A rule gets the step and the operator's arguments, with a `Linear` or a coefficient in place of each tensor, at least
one of them a `Linear`. It returns the result, or a list where the operator has several. Dtypes are the interpreter's
part, as are views, operators that write in place (`add_` is found as `add`) and all that does not depend on the input.

>>> import numpy as np
>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine.linear import identity
>>> u = identity(get_backend("torch"), (4,), float)
>>> RULES["flip"](None, u, [0]).terms
(Box(lo=(0,), shape=(4,), offset=3, strides=(-1,), factor=1, values=None, mask=None),)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .arithmetic import ARITHMETIC
from .layers import LAYERS
from .products import PRODUCTS
from .structure import STRUCTURE

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {**ARITHMETIC, **STRUCTURE, **PRODUCTS, **LAYERS}
