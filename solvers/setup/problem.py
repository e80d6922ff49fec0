"""The arguments of a solve as given (Request), and the checked arrays and operators that they become (Problem)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ...backends import Array, Backend, Cut
from ...sparse import Layout, Operator
from ..iteration.method import Method
from ..iteration.monitor import Monitor
from ..iteration.stopping import Limits
from ..preconditioners.base import Spread
from .normal_equations import Given


@dataclass(frozen=True)
class Request:
    """The arguments as they were given, unchecked; `linear_solve` says what they mean.

    For `prepare`, `b` is an array like the right-hand sides to come. `program`: that of the function A, as it is
    in this solve, if it was traced already. `declared`: facts that the package of A declares, see `Operator.declared`.
    `derived`: is it the solve for a derivative, of which only the part of b in the range of A counts? `over`: the
    communicator whose members hold the parts of all vectors, as the user gave it; None: vectors are whole.
    """

    A: Any
    b: Any
    x0: Any = None
    method: str | Method = "auto"
    preconditioner: Any = None
    rtol: float | Array | None = None
    atol: float | Array = 0.0
    max_iter: int | Sequence[int] | Array | None = None
    args: Sequence[Any] = ()
    batch_ndim: int = 0
    axis: int | None = None
    nullspace: Any = "auto"
    matrix_offset: complex | None = None
    on_failure: str = "raise"
    history: bool = False
    monitor: Monitor | None = None  # progress, callback and time_limit
    program: tuple[Callable[..., Any], Sequence[Array]] | None = None
    declared: tuple[tuple[str, Any], ...] | None = None
    derived: bool = False
    sharding: Any = None  # how b is spread over devices, as the caller says ...
    told: tuple[str, ...] = ()  # of several devices, for `explain`
    seen_sharding: Any = None  # ... and as was seen before the solve, in which it may not tell
    over: Any = None


class KnownNull(NamedTuple):
    """Projection that removes known null vectors of A, and whether the transpose has them too."""

    projection: Operator | None
    both: bool


@dataclass(frozen=True)
class Problem:
    """A x = b in rows of `(systems, n)`."""

    bk: Backend
    A: Operator
    b: Array
    x0: Array | None
    layout: Layout
    like: Array
    rtol: Array
    atol: Array
    by_default: bool  # default rtol? Then the attainable accuracy counts as converged too
    has_atol: bool  # may atol be more than zero? If it is known to be zero, it needs no scaling for derivatives
    limits: Limits
    several: bool  # was max_iter a sequence?
    null: Operator | None  # projects known null vectors of A out of rows, and ...
    both: bool  # ... those that the transpose has too
    compiled: bool
    derived: bool = False  # is it the solve for a derivative?
    least_squares: bool = False  # are A x = b the normal equations of a problem of least squares, which is ...
    given: Given | None = None  # ... this one?
    source: Any = None  # what the user called A
    cut: Cut | None = None  # how `(systems, *shape of one system)` is distributed over devices, where that is known

    @property
    def spread(self) -> Spread | None:
        """How its vectors are spread over devices, where that is known."""
        return None if self.cut is None else Spread(self.layout.shapes[0], self.cut)

    @property
    def is_empty(self) -> bool:
        """Are there no systems, or no unknowns? Then there is nothing to factorise, and no entry to look at."""
        whole = self.bk.communicator is None  # a part may have none, and takes part
        return not (self.layout.systems and (self.layout.size or not whole))

    def spread_rows(self, rows: Array) -> Array:
        """Rows shaped as x, distributed as b is; those from the host lie on one device."""
        fits = int(rows.shape[-1]) == self.layout.size and self.given is None
        return self.bk.on_grid(rows, self.layout.shapes[0], self.cut) if fits else rows

    @property
    def is_implicit(self) -> bool:
        """May x have derivatives, which one solve has by the implicit function theorem?"""
        return len(self.limits) == 1 and (self.compiled or self.is_tracked)

    @cached_property
    def is_tracked(self) -> bool:
        """Are derivatives of what the problem was made of being recorded (in a library that records)?"""
        bk = self.bk
        return bk.explicit_derivatives and (
            bk.tracks(self.b) or self.A.tracked or any(map(bk.tracks, bk.flatten(self.A)[0]))
        )


def refused_args(name: str, args: Any) -> str:
    """The message about arguments of the function `name` that are no tuple."""
    return f"args must be a tuple: args=(k,) for a function {name}(x, k); got an object of type {type(args).__name__}."
