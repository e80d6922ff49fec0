"""The SolveResult class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...backends import Array, Backend, choose_backend
from ..iteration.method import Method
from ..iteration.outcome import has_failed
from .advice import Cause, LookForCauses
from .describe import describe


class Gradient(NamedTuple):
    """What `SolveResult.vjp` returns: the gradient with respect to `b`, in its shape, and to the entries of `A`."""

    b: Array
    A: Any


@dataclass(frozen=True, eq=False, repr=False)
class SolveResult:
    """The outcome of `linear_solve`, one entry per system of the batch (a scalar without batch axes).

    With several checkpoints (`max_iter` a sequence), every array has them as a new first axis. Usable as the return
    value of compiled functions and as a container of arrays.

    Attributes:
        x: the solution, in the type, shape, dtype and device of `b`; with `on_failure="nan"` NaN where a system failed,
            of which all else here tells what was found.
        residual: `b - A x` of this x, computed at the end.
        residual_norm: its 2-norm (not in least squares, see below).
        tolerance: the residual norm that counts as converged: `max(rtol |b|, atol)`, or `attainable` where rtol was not
            given, the precision does not reach that, and `attainable` is at most 5 % of `|b|`.
        attainable: the residual norm that can be expected in this precision, twice what rounding x and the product
            makes of `A x`; 0 where it was not measured, as the solve reached its tolerance at once, or is more than
            5 % of `|b|`.
        null_part: the norm of the part of `b` in null vectors of `A^H` that are known, which no x reaches. Convergence
            is measured without it, so `tolerance` has it too, unless it is more than what was asked for and more than
            2 sqrt(eps) of `|b|`: then there is no solution. Rounding of what b was computed from makes less. 0 where no
            such null vectors are known.
        iterations: iterations of the method.
        function_evaluations: products with A, those for the true residual included.
        converged: is `residual_norm <= tolerance`?
        diverged: did the iteration leave the finite numbers?
        status: numbers of `Status`.
        singular: is the matrix known to be singular: had its factors a pivot of zero, but for rounding, or were null
            vectors given, or found? Then x has no part in those that are known.
        history: residual norms, `(iterations + 1, *batch)`, NaN after a system's last one; None unless asked for.
        method: name of the method that gave this result.
        preconditioner: kind of the preconditioner that it used, or None.
        checkpoints: have the arrays a first axis for the numbers in `max_iter`? The last one then decides whether the
            solve has failed.
        least_squares: is x the solution of a rectangular or damped problem? Then `residual_norm`, `tolerance` and
            `history` are of the normal residual `A^H (b - A x) - damp^2 x`, and relative to `A^H b`.
    """

    x: Any
    residual: Any
    residual_norm: Array
    tolerance: Array
    attainable: Array
    null_part: Array
    iterations: Array
    function_evaluations: Array
    converged: Array
    diverged: Array
    status: Array
    singular: Array
    history: Array | None
    method: str
    preconditioner: str | None = None
    least_squares: bool = False
    checkpoints: bool = False
    _no_solution: str | None = field(default=None, repr=False)  # why there is none, in words, where that was seen
    _by: Method | None = field(default=None, repr=False)  # the method, or the last one that was tried
    _time_limit: float | None = field(default=None, repr=False)  # seconds
    _causes: tuple[Cause, ...] | None = field(default=None, repr=False)  # of a failure that was looked at
    _look: LookForCauses | None = field(
        default=None, repr=False
    )  # where one may be, and nobody has looked; as `_sensitivity`
    _sensitivity: Any = field(default=None, repr=False)  # of an eager NumPy solve; no part of the container

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            later = self.__dict__.get("_later")  # see `in_library`
            if later is None or name not in later.numbers:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return later.made_for(self, name)

    @property
    def message(self) -> str:
        """What happened, in words (needs values: not inside a compiled function).

        Of a failure also its cause, as far as it can be seen: with `on_failure="status"` or "nan" that is looked for
        when this is first read, for which the result keeps A and b; at the cost of a few products, at most those of the
        solve.
        """
        bk = choose_backend(self.status)
        if bk.compiled(self.status) or not hasattr(self.status, "shape"):
            return "The message is known when the compiled function has run."
        values = [np.asarray(bk.to_numpy(a)) for a in end_state_of(self)]
        self._look_now(*values)
        return describe(*values, **said_of(self))

    def _look_now(self, *numbers: np.ndarray) -> None:
        """Diagnose a failure once, if that has not been done."""
        look = self._look
        if look is not None:
            object.__setattr__(self, "_look", None)
            if np.any(has_failed(numbers[0])):
                object.__setattr__(self, "_causes", look(*numbers))

    @property
    def at_limit_of_precision(self) -> Array:
        """Per system: did it converge to what the precision allows, as it does not allow the default tolerance?"""
        return self.converged & (self.attainable > 0) & (self.tolerance <= self.attainable)

    def __repr__(self) -> str:
        return f"<SolveResult: {self.message}>"

    def vjp(self, cotangent: Any) -> Gradient:
        """The gradient of a real function of x, given its derivative by x: for solves on NumPy arrays.

        Solves `A^H y = cotangent` with the method of this solve, its tolerance relative to the cotangent (atol counts
        as the relative tolerance that it was), and the transposed preconditioner. Complex numbers as in PyTorch: a
        gradient, and the cotangent, is dL/dRe + i dL/dIm.

        Args:
            cotangent: dL/dx, in the shape of x.

        Returns:
            Gradient: `b`, y in the shape of b; `A`, for a dense matrix `- y x^H`, summed over systems that share
            entries; for a SciPy matrix one of its format whose `data` is the gradient by A's `data` (CSR for LIL and
            DOK); None for a function or a LinearOperator, whose change dA gives `-Re(y^H dA x)`.

        Raises:
            NotConverged, Diverged: the backward solve failed, and `on_failure` is "raise".
            UnsupportedOperation: the transpose of A is not known.
            RuntimeError: A, b or x was changed in place after the solve, and there is no copy of A.
            ValueError, TypeError: several limits, least squares, arrays of another library, a wrong shape; a function
                that is not symmetric, solved by a method for symmetric ones.

        Cost: a solve, and 1 product to see that nothing was changed (1 more for a function and a method for symmetric
        ones, to see that it is). Without a transpose of its own (rmatvec), a function is evaluated once per unknown.
        A and b are kept alive by the result, after the first call also the factors of a direct method.
        """
        gradient: Gradient = self._differentiable().vjp(cotangent)
        return gradient

    def jvp(self, b: Any = None, A: Any = None) -> Any:
        """The change dx of x with changes of b and A, `A dx = db - dA x`: for solves on NumPy arrays.

        Args:
            b: db, in the shape of b; None for none.
            A: dA, a dense or sparse matrix, or a function x -> dA x of arrays as A takes them; None for none.

        Returns:
            dx, in the shape of x.

        Raises:
            As `vjp`; ValueError where both are None.

        Cost: a solve, 1 product, and 1 with dA.
        """
        return self._differentiable().jvp(b, A)

    def _differentiable(self) -> Any:
        if self._sensitivity is not None:
            return self._sensitivity
        bk = choose_backend(self.status)
        if not bk.on_host:
            instead = f"differentiates linear_solve itself: use {bk.derivatives}" if bk.has_derivatives else (
                "has no derivatives: give NumPy arrays"
            )  # fmt: skip
            raise TypeError(f"vjp and jvp are for solves on NumPy arrays; this was one on {bk.name}, which {instead}.")
        raise TypeError("This result was copied or read from a file, so A is not known. Call vjp of the original.")

    def __getstate__(self) -> dict[str, Any]:
        if self._look is not None:
            self._look_now(*(np.asarray(choose_backend(a).to_numpy(a)) for a in end_state_of(self)))
        return {**self.__dict__, "_sensitivity": None}  # which holds functions of the user: not to be pickled

    # TensorFlow asks the class itself how to take it apart.

    def __tf_flatten__(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return _static(self), arrays_of(self)

    @classmethod
    def __tf_unflatten__(cls, static: tuple[Any, ...], arrays: tuple[Any, ...]) -> SolveResult:
        return _restore(static, arrays)


_NO_PART = ("_look", "_sensitivity")  # of the container
_KNOWN = ("method", "preconditioner", "least_squares", "checkpoints", "_no_solution", "_by", "_time_limit", "_causes")
_OTHERS = (*_KNOWN, *_NO_PART)
_ARRAYS = tuple(f.name for f in fields(SolveResult) if f.name not in _OTHERS)


def end_state_of(result: SolveResult) -> tuple[Array, ...]:
    """End state for `describe`, of the last checkpoint."""
    r = result
    found = r.status, r.iterations, r.residual_norm, r.tolerance, r.attainable, r.null_part, r.singular
    return tuple(a[-1] for a in found) if result.checkpoints else found


def said_of(result: SolveResult) -> dict[str, Any]:
    """Keyword arguments of `describe` besides numbers."""
    return {
        "name": result.method, "method": result._by, "preconditioner": result.preconditioner,
        "least_squares": result.least_squares, "no_solution": result._no_solution, "causes": result._causes,
        "time_limit": result._time_limit,
    }  # fmt: skip


def arrays_of(result: SolveResult) -> tuple[Any, ...]:
    """Arrays per system (and checkpoint)."""
    values = tuple(getattr(result, name) for name in _ARRAYS)
    return values[:-1] if result.history is None else values


def with_arrays(result: SolveResult, arrays: Sequence[Any]) -> SolveResult:
    """The result with other arrays, in the order of `arrays_of`."""
    return _restore(_static(result), arrays)


def _static(result: SolveResult) -> tuple[Any, ...]:
    return tuple(getattr(result, name) for name in _KNOWN), result.history is None


def _restore(static: Any, arrays: Any) -> SolveResult:
    others, without_history = static
    values = dict(zip(_ARRAYS, (*arrays, None) if without_history else arrays, strict=True))
    return SolveResult(**values, **dict(zip(_KNOWN, others, strict=True)))


def register_result(bk: Backend) -> None:
    """Make `SolveResult` a container of arrays for this backend's transformations."""
    bk.register(SolveResult, lambda r: (arrays_of(r), _static(r)), _restore)
