"""What a solve returns."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ..backends import Array, Backend, choose_backend
from .describe import describe


@dataclass(frozen=True, eq=False, repr=False)
class SolveResult:
    """The outcome of `linear_solve`, one entry per system of the batch (a scalar without batch axes).

    With several checkpoints (`max_iter` a sequence), every array has them as a new first axis. Usable as the return
    value of compiled functions and as a container of arrays.

    Attributes:
        x: the solution, in the type, shape, dtype and device of `b`.
        residual: `b - A x` of this x, computed at the end.
        residual_norm: its 2-norm (not in least squares, see below).
        tolerance: the residual norm that counts as converged, `max(rtol |b|, atol)`.
        iterations: iterations of the method.
        function_evaluations: products with A, those for the true residual included.
        converged: is `residual_norm <= tolerance`?
        diverged: did the iteration leave the finite numbers?
        status: numbers of `Status`.
        history: residual norms, `(iterations + 1, *batch)`, NaN after a system's last one; None unless asked for.
        method: name of the method that gave this result.
        preconditioner: kind of the preconditioner that it used, or None.
        least_squares: is x the solution of a rectangular or damped problem? Then `residual_norm`, `tolerance` and
            `history` are of the normal residual `A^H (b - A x) - damp^2 x`, and relative to `A^H b`.
    """

    x: Any
    residual: Any
    residual_norm: Array
    tolerance: Array
    iterations: Array
    function_evaluations: Array
    converged: Array
    diverged: Array
    status: Array
    history: Array | None
    method: str
    preconditioner: str | None = None
    least_squares: bool = False

    @property
    def message(self) -> str:
        """What happened, in words (needs values: not inside a compiled function)."""
        bk = choose_backend(self.status)
        if bk.compiled(self.status) or not hasattr(self.status, "shape"):
            return "The message is known when the compiled function has run."
        values = [
            np.asarray(bk.to_numpy(a)) for a in (self.status, self.iterations, self.residual_norm, self.tolerance)
        ]
        return describe(self.method, *values, least_squares=self.least_squares)

    def __repr__(self) -> str:
        return f"<SolveResult: {self.message}>"

    # TensorFlow asks the class itself how to take it apart.

    def __tf_flatten__(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return _static(self), _arrays(self)

    @classmethod
    def __tf_unflatten__(cls, static: tuple[Any, ...], arrays: tuple[Any, ...]) -> SolveResult:
        return _restore(static, arrays)


_ARRAYS = tuple(f.name for f in fields(SolveResult) if f.name not in ("method", "preconditioner", "least_squares"))


def _arrays(result: SolveResult) -> tuple[Any, ...]:
    values = tuple(getattr(result, name) for name in _ARRAYS)
    return values[:-1] if result.history is None else values


def _static(result: SolveResult) -> tuple[str, str | None, bool, bool]:
    return result.method, result.preconditioner, result.least_squares, result.history is None


def _restore(static: Any, arrays: Any) -> SolveResult:
    method, preconditioner, least_squares, without_history = static
    values = dict(zip(_ARRAYS, (*arrays, None) if without_history else arrays, strict=True))
    return SolveResult(**values, method=method, preconditioner=preconditioner, least_squares=least_squares)


def register_result(bk: Backend) -> None:
    """Make `SolveResult` a container of arrays for this backend's transformations."""
    bk.register(SolveResult, lambda r: (_arrays(r), _static(r)), _restore)
