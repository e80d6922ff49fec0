"""The kinds of preconditioners that are made by parts."""

from __future__ import annotations

from collections.abc import Callable

from ..base import Preconditioner
from ..chebyshev import chebyshev
from ..jacobi import jacobi

BY_PARTS: dict[str, Callable[..., Preconditioner]] = {"jacobi": jacobi, "chebyshev": chebyshev}
"""Name -> function that builds it from `CutRows`."""
