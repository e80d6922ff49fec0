"""Functions that tracing cannot look into, although they may be linear."""

from __future__ import annotations

from typing import Any

from ..errors import UnsupportedOperation


class OpaqueFunction(UnsupportedOperation):
    """A function takes its argument where it cannot be followed: into compiled code, or into another library.

    Attributes:
        library: whose front end may follow it, by the name of its backend; None for compiled code.
    """

    library: str | None = None

    def by(self, library: str | None) -> OpaqueFunction:
        """With the library told."""
        self.library = library
        return self


def is_linear_operator(A: Any) -> bool:
    """Is it a `LinearOperator` of SciPy, or one of the same interface?"""
    return not isinstance(A, type) and hasattr(A, "matvec") and hasattr(A, "rmatvec") and hasattr(A, "shape")
