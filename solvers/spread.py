"""Sharded arrays with shardings in their types: the solve runs where the library infers shardings itself."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from ..backends import get_backend
from .setup.request import Request

T = TypeVar("T")
_FIELDS = ("A", "b", "x0", "args", "preconditioner", "rtol", "atol", "max_iter", "nullspace")  # may hold arrays


def run_where_spread(function: Callable[[Request], T], request: Request, spread: bool = True) -> T:
    """`function(request)`; where `spread`, the arrays of its result are spread as b is.

    Of JAX only: `jax.make_mesh` makes meshes with Explicit axes, where types say how arrays are spread.
    """
    if "jax" not in sys.modules or isinstance(request.b, np.ndarray):  # which does not mix with such arrays
        return function(request)

    def inside(arrays: dict[str, Any]) -> T:
        return function(replace(request, **arrays))

    arrays = {name: getattr(request, name) for name in _FIELDS}
    leaves, _ = get_backend("jax").leaves(request.b) if spread else ((None,), None)
    found: T = get_backend("jax").with_auto_axes(inside, arrays, leaves[0] if leaves else None)
    return found
