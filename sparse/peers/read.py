"""Objects of other packages as krylix takes them: a matrix, or a linear function of arrays, with its declared facts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends import Backend

Declared = tuple[tuple[str, Any], ...]  # names of `Analysis`, and their values


@dataclass(frozen=True)
class Space:
    """The arrays that a function takes or returns, of one system.

    Attributes:
        shapes: of each array.
        dtypes: of each.
        structure: their container, as `Backend.leaves` returns it; None for one array.
    """

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype, ...]
    structure: Any = None

    def zeros(self, bk: Backend, batch: tuple[int, ...] = ()) -> Any:
        """Arrays of zeros of this space."""
        arrays = [bk.zeros((*batch, *shape), dtype) for shape, dtype in zip(self.shapes, self.dtypes, strict=True)]
        return arrays[0] if self.structure is None else bk.unleaves(self.structure, arrays)

    def is_like(self, other: Space) -> bool:
        """Have both the same container of arrays of the same shapes?"""
        one, two = self.structure, other.structure
        if one is None or two is None:  # which containers of JAX refuse to be compared with
            return one is two and self.shapes == other.shapes
        return bool(one == two) and self.shapes == other.shapes

    def __str__(self) -> str:
        arrays = [f"{dtype}{list(shape)}" for shape, dtype in zip(self.shapes, self.dtypes, strict=True)]
        return arrays[0] if self.structure is None else f"a container of {', '.join(arrays)}"


@dataclass(frozen=True)
class Read:
    """An object of another package as krylix takes it.

    Attributes:
        A: a matrix, a krylix operator, or a function of arrays, batch axes in front.
        bk: the library of the arrays that a function takes; None for a matrix.
        takes: what a function takes; None where it does not tell, and for a matrix.
        gives: what it returns, likewise.
        declared: facts that its package declares; they count where krylix cannot find them in the values.
    """

    A: Any
    bk: Backend | None = None
    takes: Space | None = None
    gives: Space | None = None
    declared: Declared = ()


class LibraryFunction:
    """A function that takes arrays of one library only: NumPy's are converted for it, and its images back."""

    def __init__(self, function: Callable[..., Any], bk: Backend) -> None:
        self.function, self.bk = function, bk

    def __call__(self, x: Any, *args: Any) -> Any:
        return self.function(x, *args)


def declared_facts(symmetric: bool, definite: bool) -> Declared:
    """`symmetric`: Hermitian, if complex; `definite`: and its eigenvalues have one sign."""
    hermitian = (("asymmetry", 0.0), ("is_hermitian_by_entries", True)) if symmetric or definite else ()
    return hermitian + ((("one_sign", True), ("maybe_definite", True)) if definite else ())
