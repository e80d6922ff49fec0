"""The Request class: arguments of `linear_solve` and `prepare` as given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...backends import Array
from ..iteration.method import Method

Progress = bool | Callable[[int, float, float], None]


@dataclass(frozen=True)
class Request:
    """The arguments as they were given, unchecked; `linear_solve` says what they mean.

    For `prepare`, `b` is an array like the right-hand sides to come. `program`: that of the function A, as it is
    in this solve, if it was traced already.
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
    progress: Progress = False
    program: tuple[Callable[..., Any], Sequence[Array]] | None = None
