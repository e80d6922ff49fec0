"""The table of rules: what each operation of JAX does to an array that depends on the input.

A rule gets the equation and its operands, at least one of them a `Linear`, and returns the result, or a list where the
operation has several. Operations that are missing here are not linear, or say why they cannot be traced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .arithmetic import ARITHMETIC
from .indexing import INDEXING
from .products import PRODUCTS
from .structure import STRUCTURE

Rule = Callable[[Any, Sequence[Any]], Any]
RULES: dict[str, Rule] = {**ARITHMETIC, **STRUCTURE, **INDEXING, **PRODUCTS}
