"""A failed solve on the host: its inputs, and its state at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....backends import real_dtype
from ....sparse import Layout, Matrix, Operator
from ...methods.method import Method
from ...run.outcome import Status, has_failed

Image = Callable[[np.ndarray], np.ndarray]
"""Rows `(systems, n)` -> rows, as the solve computed them."""


@dataclass(frozen=True)
class EndState:
    """How each system ended, `(systems,)`; see `SolveResult`."""

    status: np.ndarray
    steps: np.ndarray
    norm: np.ndarray
    bound: np.ndarray
    attainable: np.ndarray
    null_part: np.ndarray
    consistent: np.ndarray
    singular: np.ndarray
    rung: np.ndarray | None = None

    @cached_property
    def failed(self) -> np.ndarray:
        """Which systems have not converged?"""
        return has_failed(self.status)

    @cached_property
    def worst(self) -> int:
        """The failed system that is furthest from its tolerance."""
        with np.errstate(all="ignore"):
            excess = np.where(np.isfinite(self.norm), self.norm / self.bound, np.inf)
        return int(np.argmax(np.where(self.failed, np.nan_to_num(excess, nan=np.inf), -1)))


@dataclass(frozen=True)
class Case:
    """A failed solve. None: unknown, as in a compiled function.

    Attributes:
        method: the one that failed, or the last one that was tried.
        numbers: how each system ended.
        dtype: the working dtype.
        A: the operator of the equations that were solved; in least squares of the normal equations.
        given: the matrix or function of the user: A, or what least squares are asked for.
        A_image, M_image: products of these equations and of the preconditioner.
        b, x, r: right-hand sides, what was found, and residuals of these equations: rows `(systems, n)`.
        right: the right-hand sides of the user, and their layout.
        x0: the start, or None.
        layout: of x.
        null: are null vectors of A known, and projected out of x?
        both: are they null vectors of the transpose too?
        products: number made by the solve; a diagnosis makes at most that, or a few.
    """

    method: Method
    numbers: EndState
    dtype: np.dtype
    A: Operator | None
    given: Operator | None
    A_image: Image | None = None
    M_image: Image | None = None
    M: Operator | None = None
    b: np.ndarray | None = None
    x: np.ndarray | None = None
    r: np.ndarray | None = None
    right: tuple[np.ndarray, Layout] | None = None
    x0: np.ndarray | None = None
    layout: Layout | None = None
    null: bool = False
    both: bool = False
    products: int = 0

    @property
    def status(self) -> Status:
        """Status of the worst system."""
        return Status(int(self.numbers.status[self.numbers.worst]))

    @property
    def least_squares(self) -> bool:
        """Are the equations those of a problem of least squares?"""
        return self.given is not self.A

    @property
    def name(self) -> str:
        """Name of the matrix of the equations."""
        return "A^H A" if self.least_squares else "A"

    @cached_property
    def eps(self) -> float:
        """The rounding unit."""
        return float(np.finfo(self.dtype).eps)

    @cached_property
    def matrix(self) -> Any:
        """The user's matrix on the host, of the worst system in a batch of matrices; None if unknown."""
        A = self.given
        if A is None or A.offset or not isinstance(A.without_offset, Matrix):
            return None
        found: Any = A.without_offset.known()
        if isinstance(found, tuple) or (found is not None and found.ndim == 3):
            found = found[min(self.numbers.worst, len(found) - 1)]
        return sp.csr_array(found) if sp.issparse(found) else found

    @cached_property
    def of_which(self) -> str:
        """Words that name the worst system's matrix in a batch of matrices."""
        A = self.given
        own = A is not None and isinstance(A.without_offset, Matrix) and A.without_offset.systems is not None
        return f" of system {self.numbers.worst}" if own and self.numbers.status.size > 1 else ""

    def random(self, seed: int, size: int) -> np.ndarray:
        """Rows of random numbers, the same for each system."""
        generator = np.random.default_rng(seed)
        row = generator.standard_normal(size)
        if self.dtype.kind == "c":
            row = row + 1j * generator.standard_normal(size)
        return np.broadcast_to(row.astype(self.dtype), (self.numbers.status.size, size))


def precision_name(case: Case) -> str:
    """ "float32" or "float64": what real numbers of this case have."""
    return str(real_dtype(case.dtype))


def dots(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """`<u, v>` of each row, in double precision."""
    wide = np.result_type(u.dtype, np.float64)
    return np.sum(u.conj().astype(wide) * v.astype(wide), axis=1)


def norms(u: np.ndarray) -> np.ndarray:
    """The 2-norm of each row, in double precision."""
    return np.asarray(np.linalg.norm(u.astype(np.result_type(u.dtype, np.float64)), axis=1))
