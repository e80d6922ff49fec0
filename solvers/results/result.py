"""The SolveResult class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from ...backends import Array, Backend, choose_backend
from ...backends.public_names import PublicNames
from ...sparse.notebook import html_table
from ..run.outcome import Status, has_failed
from .numbers import PYTHON, SAID, EndState, array_of, has_values, known_array_of, known_end_state_of, said_of
from .show import in_lines, plot_convergence, to_dict
from .words import Cause, LookForCauses, MadeBy, describe, made_by_in_words

ArrayT = TypeVar("ArrayT")  # what `b` is


class Gradient(NamedTuple):
    """Gradient that `SolveResult.vjp` returns.

    Attributes:
        b: with respect to `b`, in its shape.
        A: with respect to the entries of `A`; None for a function.
    """

    b: Array
    A: Any


@dataclass(frozen=True, eq=False, repr=False)
class SolveResult(PublicNames, Generic[ArrayT]):
    """The outcome of `linear_solve`.

    Quantities per system are arrays with an entry for each system of a batch. For one system that is solved eagerly
    they are Python's `int`, `float`, `bool` or `Status`; inside compiled, differentiated and vectorised functions, and
    in what these return, arrays without axes. A norm that a `tf.GradientTape` watches stays an array as well.
    With several checkpoints (`max_iter` a sequence) they are a new first axis of every array. Compiled functions may
    return a result, and transformations treat it as a container of arrays; `ArrayT` is the type of `b`.

    Attributes:
        x: the solution, in the type, shape, dtype and device of `b`. With `on_failure="nan"` NaN where a system failed;
            the other attributes then describe the x that was found.
        residual: `b - A x` of this x, computed at the end; where null vectors are known, with b less its `null_part`.
        residual_norm: its 2-norm (in least squares see below).
        tolerance: the residual norm that counts as converged: `max(rtol |b|, atol)`. Where rtol was not given and the
            precision does not reach that, `attainable`, if this is at most 5 % of `|b|`.
        attainable: the residual norm that can be expected in this precision, twice the effect of rounding x and the
            product on `A x`. 0 where it was not measured, because the solve reached its tolerance at once, or where it
            is more than 5 % of `|b|`.
        null_part: norm of the component of `b` in known null vectors of `A^H`, which no x reaches. It was subtracted
            from `b`: residual and tolerance are those of the remaining b. 0 where no such null vectors are known.
        consistent: is that component at most rounding (`sqrt(eps) |b|`)? If not, x is a least-squares solution, and a
            `SingularMatrixWarning` says so.
        iterations: iterations of the method.
        function_evaluations: products with A, including those for the true residual.
        converged: is `residual_norm <= tolerance`?
        diverged: did the iteration produce NaN or infinity?
        status: a `Status`; in arrays its numbers.
        singular: is the matrix known to be singular, by a zero pivot of its factors (up to rounding) or by null vectors
            that were given or found? Then x is orthogonal to those that are known.
        history: residual norms, an array `(iterations + 1, *batch)`, NaN after a system's last one; None unless
            requested.
        least_squares: is x the solution of a rectangular or damped problem? Then `residual_norm`, `tolerance` and
            `history` are those of the normal residual `A^H (b - A x) - damp^2 x`, relative to `A^H b`.
        checkpoints: have the arrays a first axis for the numbers in `max_iter`? The last one then decides whether the
            solve has failed.
        setup_time: seconds of the call without the solve: checks, tracing, the choice of the method, preconditioner and
            factors, also those of a fallback. None for a compiled function.
        solve_time: seconds of the solve. In JAX this includes compiling its program, and the factors of `direct` and
            `banded-direct`, which the program makes. Where a library computes asynchronously (on a GPU, with
            `on_failure="status"`), the seconds until the call returned. None for a compiled function.

    Examples:
        >>> import numpy as np, krylix
        >>> result = krylix.linear_solve(np.diag([1.0, 2.0, 4.0]), np.ones(3), method="CG")
        >>> result.converged, result.iterations, result.status.name
        (True, 3, 'CONVERGED')
        >>> result.x
        array([1.  , 0.5 , 0.25])
        >>> if not result.converged:
        ...     print(result.message)
    """

    x: ArrayT
    residual: ArrayT
    residual_norm: float | Array
    tolerance: float | Array
    attainable: float | Array
    null_part: float | Array
    consistent: bool | Array
    iterations: int | Array
    function_evaluations: int | Array
    converged: bool | Array
    diverged: bool | Array
    status: Status | Array
    singular: bool | Array
    history: Array | None
    _made_by: tuple[MadeBy, ...] = field(
        repr=False
    )  # the methods that may have made x, by the numbers of `Outcome.rung`
    _rung: Array | None = field(default=None, repr=False)  # which of them did; None where the first one made all
    least_squares: bool = False
    checkpoints: bool = False
    _no_solution: str | None = field(default=None, repr=False)  # why there is none, where that is known
    _time_limit: float | None = field(default=None, repr=False)  # seconds
    _parts: bool = field(default=False, repr=False)  # are vectors cut over the members of a communicator?
    _causes: tuple[Cause, ...] | None = field(default=None, repr=False)  # of a failure that was diagnosed
    # Not part of the container:
    setup_time: float | None = None
    solve_time: float | None = None
    _why: str | None = field(default=None, repr=False)  # the reason for the method
    _look: LookForCauses | None = field(default=None, repr=False)  # a diagnosis to be made when it is asked for
    _sensitivity: Any = field(default=None, repr=False)  # derivatives of an eager NumPy solve

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            later = self.__dict__.get("_later")  # see `in_library`
            if later is None or name not in later.numbers:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return later.made_for(self, name)

    @property
    def method(self) -> str:
        """Name of the method that made x, and of one that failed before; in a batch, with the number of systems.

        In a function that is being compiled, the name of the first method, which a fallback may follow.

        Examples:
            >>> import numpy as np, krylix
            >>> krylix.linear_solve(np.eye(2), np.ones(2)).method
            'direct'
        """
        return made_by_in_words(self._made_by, self._known_rung())

    @property
    def preconditioner(self) -> str | None:
        """Kind of the preconditioner that this method used, or None.

        Examples:
            >>> import numpy as np, krylix
            >>> krylix.linear_solve(np.eye(2), np.ones(2), method="CG", preconditioner="jacobi").preconditioner
            'jacobi'
        """
        rung = self._known_rung()
        return self._made_by[0 if rung is None else int(np.min(rung, initial=len(self._made_by) - 1))].preconditioner

    def _known_rung(self) -> np.ndarray | None:
        return known_array_of(self, "_rung") if self._rung is not None and has_values(self) else None

    @property
    def message(self) -> str:
        """What happened, in words (needs values: not inside a compiled function).

        For a failure also its cause where one is found. With `on_failure="status"` or "nan" the search is made when
        this is first read, for which the result keeps A and b; it costs a few products, at most those of the solve.

        Examples:
            >>> import numpy as np, krylix
            >>> krylix.linear_solve(np.eye(2), np.ones(2)).message
            'direct converged in 1 iteration: residual norm 0.000e+00, tolerance 1.414e-10.'
        """
        if not has_values(self):
            return "The message is known when the compiled function has run."
        end = known_end_state_of(self)
        self._diagnose(end)
        return describe(end, **said_of(self))

    def _diagnose(self, end: EndState) -> None:
        look = self._look
        if look is not None:
            object.__setattr__(self, "_look", None)
            if np.any(has_failed(end.status)):
                object.__setattr__(self, "_causes", look(end))

    @property
    def at_limit_of_precision(self) -> Array:
        """Per system: did it converge to the attainable accuracy only, which exceeds the default tolerance?

        Examples:
            >>> import numpy as np, krylix
            >>> krylix.linear_solve(np.eye(2), np.ones(2)).at_limit_of_precision
            False
        """
        return self.converged & (self.attainable > 0) & (self.tolerance <= self.attainable)

    def to_dict(self, *, include_x: bool = False) -> dict[str, Any]:
        """The result as a dictionary that `json.dumps` accepts, also with `allow_nan=False`.

        Arrays are (nested) lists, complex ones a dictionary of "real" and "imag", statuses their names. NaN and
        infinity, which JSON does not have, are "NaN", "Infinity" and "-Infinity", which `float` reads.

        Args:
            include_x: also include the solution?

        Returns:
            dict: method, preconditioner, why (the reason for the method), message, the numbers per system, history,
            least_squares, checkpoints, setup_time, solve_time, and x if requested.

        Raises:
            TypeError: the result is that of a function that is being compiled.

        Examples:
            >>> import json, numpy as np, krylix
            >>> result = krylix.linear_solve(np.eye(2), np.ones(2))
            >>> found = json.loads(json.dumps(result.to_dict(include_x=True)))
            >>> found["status"], found["iterations"], found["x"]
            ('CONVERGED', 1, [1.0, 1.0])
        """
        return to_dict(self, include_x)

    def plot(self, ax: Any = None) -> Any:
        """Draw the convergence: residual norms against iterations, one line per system, and the tolerance.

        Of more than 100 systems, 100 evenly spaced ones are drawn; of several checkpoints the last one.

        Args:
            ax: axes of matplotlib; a new figure of pyplot if None.

        Returns:
            The matplotlib axes.

        Raises:
            ValueError: the result has no history (`history=True`), or is that of a function that is being compiled.
            ModuleNotFoundError: matplotlib is not installed (`pip install krylix[plot]`).

        Examples:
            >>> import numpy as np, krylix
            >>> result = krylix.linear_solve(np.diag([1.0, 2.0]), np.ones(2), method="CG", history=True)
            >>> ax = result.plot()  # doctest: +SKIP
        """
        return plot_convergence(self, ax)

    def __repr__(self) -> str:
        return f"<SolveResult: {self.message}>"

    def __str__(self) -> str:
        return "\n".join(f"{title}: {line}" for title, line in in_lines(self))

    def _repr_html_(self) -> str:
        return html_table("SolveResult", in_lines(self))

    def vjp(self, cotangent: Any) -> Gradient:
        """The gradient of a real function of x with respect to b and A, for solves on NumPy arrays.

        Solves `A^H y = cotangent` with the method of this solve, its tolerance relative to the cotangent (atol is
        converted to a relative tolerance), and the transposed preconditioner. Complex numbers as in PyTorch: gradients
        and cotangents are dL/dRe + i dL/dIm.

        Args:
            cotangent: dL/dx, in the shape of x.

        Returns:
            Gradient: `b`, y in the shape of b; `A`, for a dense matrix `- y x^H`, summed over systems that share
            entries; for a SciPy matrix one of its format whose `data` is the gradient with respect to A's `data` (CSR
            for LIL and DOK); None for a function or a LinearOperator, whose change dA gives `-Re(y^H dA x)`.

        Raises:
            NotConverged, Diverged: the backward solve failed, and `on_failure` is "raise".
            UnsupportedOperation: the transpose of A is not known.
            RuntimeError: A, b or x was changed in place after the solve, and there is no copy of A.
            ValueError, TypeError: several limits, least squares, arrays of another library, a wrong shape; a function
                that is not symmetric, solved by a method for symmetric ones.

        Cost: a solve, and 1 product to check that nothing was changed (1 more to check the symmetry of a function that
        was solved by a method for symmetric ones). Without a transpose of its own (rmatvec), a function is evaluated
        once per unknown. The result keeps A and b alive, after the first call also the factors of a direct method.

        Examples:
            >>> import numpy as np, krylix
            >>> result = krylix.linear_solve(np.diag([1.0, 2.0]), np.ones(2))
            >>> result.vjp(np.ones(2)).b
            array([1. , 0.5])
        """
        gradient: Gradient = self._differentiable().vjp(cotangent)
        return gradient

    def jvp(self, b: Any = None, A: Any = None) -> Any:
        """The change dx of x for changes of b and A, `A dx = db - dA x`, for solves on NumPy arrays.

        Args:
            b: db, in the shape of b; None for none.
            A: dA, a dense or sparse matrix, or a function x -> dA x of arrays as A takes them; None for none.

        Returns:
            dx, in the shape of x.

        Raises:
            As `vjp`; ValueError where both are None.

        Cost: a solve, 1 product, and 1 with dA.

        Examples:
            >>> import numpy as np, krylix
            >>> result = krylix.linear_solve(np.diag([1.0, 2.0]), np.ones(2))
            >>> result.jvp(b=np.ones(2))
            array([1. , 0.5])
        """
        return self._differentiable().jvp(b, A)

    def _differentiable(self) -> Any:
        if self._sensitivity is not None:
            return self._sensitivity
        bk = choose_backend(self.x)
        if not bk.on_host:
            instead = f"differentiates linear_solve itself: use {bk.derivatives}" if bk.has_derivatives else (
                "has no derivatives: give NumPy arrays"
            )  # fmt: skip
            raise TypeError(f"vjp and jvp are for solves on NumPy arrays; this was one on {bk.name}, which {instead}.")
        raise TypeError("This result was copied or read from a file, so A is not known. Call vjp of the original.")

    def __getstate__(self) -> dict[str, Any]:
        if self._look is not None:
            self._diagnose(known_end_state_of(self))
        arrays = {name: getattr(self, name) for name in ("x", "residual")}  # these may be made later
        return {**self.__dict__, **arrays, "_sensitivity": None}  # it holds functions of the user, which do not pickle

    # TensorFlow asks the class itself for its arrays.

    def __tf_flatten__(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return _static(self), arrays_of(self)

    @classmethod
    def __tf_unflatten__(cls, static: tuple[Any, ...], arrays: tuple[Any, ...]) -> SolveResult:
        return _restore(static, arrays)


_STATIC = (*SAID, "checkpoints")
_ARRAYS = ("x", "residual", *PYTHON, "history", "_rung")


def arrays_of(result: SolveResult) -> tuple[Any, ...]:
    """Arrays per system (and checkpoint)."""
    return tuple(array_of(result, name) for name in _present(result))


def _present(result: SolveResult) -> tuple[str, ...]:
    # Not by their values: a transformation may have put None in the place of an array.
    present = {"history": result.history is not None, "_rung": len(result._made_by) > 1}
    return tuple(name for name in _ARRAYS if present.get(name, True))


def with_arrays(result: SolveResult, arrays: Sequence[Any]) -> SolveResult:
    """The result with other arrays, in the order of `arrays_of`."""
    return _restore(_static(result), arrays)


def _static(result: SolveResult) -> tuple[Any, ...]:
    return tuple(getattr(result, name) for name in _STATIC), _present(result)


def _restore(static: Any, arrays: Any) -> SolveResult:
    others, present = static
    values = {"history": None, **dict(zip(present, arrays, strict=True))}
    return SolveResult(**values, **dict(zip(_STATIC, others, strict=True)))


def register_result(bk: Backend) -> None:
    """Make `SolveResult` a container of arrays for this backend's transformations."""
    bk.register(SolveResult, lambda r: (arrays_of(r), _static(r)), _restore)
