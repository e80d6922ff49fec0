"""`SolveResult`, the outcome of a solve, and the errors that hold one.

A result is x, a `Record` of all other arrays by name, and the `Background` of its message. Libraries treat it as a
container of arrays. Only its record changes: where the user's call ends, `Record.complete`
notes the times, and from then on the numbers of one system that was solved eagerly are Python's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from ...backends import Array, Backend, choose_backend, without_compilers
from ...backends.profile.spans import RUNNING, is_traced, span
from ...backends.public_names import PublicNames
from ...sparse.notebook import html_table
from ..run.outcome import Status, has_failed
from .messages import Background, Cause, EndState, describe, methods_in_words
from .show import in_lines, plot_convergence, to_dict

ArrayT = TypeVar("ArrayT")  # type of `b`
T = TypeVar("T")
_OF_NUMPY = (np.ndarray, np.generic)


class Gradient(NamedTuple):
    """Gradient that `SolveResult.vjp` returns.

    Attributes:
        b: with respect to `b`, in its shape.
        A: with respect to the entries of `A`; None for a function.
    """

    b: Array
    A: Any


@dataclass(eq=False)
class Record:
    """The arrays of a result besides x, by the names of its attributes, and the times of the call.

    Attributes:
        arrays: of the library; where `like` is given some are still NumPy's.
        bk: the library.
        like: an array of the library on the device of the result, for arrays that are converted when they are read.
        is_one: was one system solved eagerly? Then its numbers are Python's.
        is_complete: has the user's call ended?
        diagnosis: finds the causes of a failure when the message is first read.
        causes: that it has found.
    """

    arrays: dict[str, Any]
    bk: Backend | None = None
    like: Array | None = None
    is_one: bool = False
    is_complete: bool = False
    solve_time: float | None = None
    setup_time: float | None = None
    diagnosis: Callable[[EndState], tuple[Cause, ...] | None] | None = None
    causes: tuple[Cause, ...] | None = None
    _of_python: dict[str, Any] = field(default_factory=dict)

    def complete(self, begun: float, checkpoints: bool) -> None:
        """Note the time of a call that ends now, unless it was only compiled, and make the numbers Python's."""
        status = self.arrays["status"]
        if not isinstance(status, _OF_NUMPY) and choose_backend(status).compiled(status):
            self.solve_time = None
            return
        self.is_one, self.is_complete = status.shape == () and not checkpoints, True
        if self.solve_time is not None:
            self.setup_time = max(perf_counter() - begun - self.solve_time, 0.0)

    def array(self, name: str) -> Any:
        """The array of the library, or container of arrays."""
        array = self.arrays[name]
        if self.like is None or self.bk is None or not isinstance(array, _OF_NUMPY):
            return array
        (made,) = without_compilers(self.bk.results_from_host)([np.asarray(array)], self.like)
        if not self.bk.compiled(made):  # in a program it belongs to that program
            self.arrays[name] = made
        return made

    def on_host(self, name: str) -> np.ndarray:
        """The array in NumPy, in the precision of the solve."""
        array = self.arrays[name]
        if isinstance(array, _OF_NUMPY):
            return np.asarray(array)
        bk = choose_backend(array)
        return np.asarray(type(bk).to_numpy(bk, array))  # method of the class, which profiles do not record

    def number(self, name: str, of_python: Callable[[Any], Any]) -> Any:
        """The number of each system as users see it; one whose derivatives are being recorded stays an array."""
        if not self.is_one:
            return self.array(name)
        if name in self._of_python:
            return self._of_python[name]
        array = self.arrays[name]
        if of_python is float and not isinstance(array, _OF_NUMPY) and choose_backend(array).tracks(array):
            return array
        made = self._of_python[name] = of_python(without_compilers(self.on_host)(name).item())
        return made

    @property
    def has_values(self) -> bool:
        """Are the numbers known? Not inside a function that is being compiled."""
        status = self.arrays["status"]
        if self.is_one or not hasattr(status, "shape"):
            return self.is_one
        bk = choose_backend(status)
        return bk.is_array(status) and not bk.compiled(status)  # `jax.eval_shape` has shapes without arrays

    def end_state(self, checkpoints: bool, read: Callable[[str], Any] | None = None) -> EndState:
        """How each system ended, at the last checkpoint, in arrays of the library."""
        arrays = [(read or self.array)(name) for name in EndState._fields if name in self.arrays]
        return EndState(*([a[-1] for a in arrays] if checkpoints else arrays))

    def __getstate__(self) -> dict[str, Any]:
        arrays = {
            name: self.on_host(name) if self.is_one and name in NUMBERS else self.array(name) for name in self.arrays
        }
        return {**self.__dict__, "arrays": arrays, "bk": None, "like": None, "diagnosis": None}


class _Number(Generic[T]):
    """A number for each system: of Python for one that was solved eagerly, fetched when it is first read."""

    def __init__(self, of_python: Callable[[Any], T]) -> None:
        self.of_python = of_python

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, result: Any, owner: Any = None) -> T | Any:
        return self if result is None else result._record.number(self.name, self.of_python)


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
    _record: Record
    _background: Background
    checkpoints: bool = False
    _why: str | None = None  # the reason for the method
    _sensitivity: Any = None  # derivatives of an eager NumPy solve

    residual_norm = _Number(float)
    tolerance = _Number(float)
    attainable = _Number(float)
    null_part = _Number(float)
    consistent = _Number(bool)
    iterations = _Number(int)
    function_evaluations = _Number(int)
    converged = _Number(bool)
    diverged = _Number(bool)
    status = _Number(Status)
    singular = _Number(bool)

    @property
    def residual(self) -> ArrayT:
        residual: ArrayT = self._record.array("residual")
        return residual

    @property
    def history(self) -> Array | None:
        return self._record.array("history") if "history" in self._record.arrays else None

    @property
    def least_squares(self) -> bool:
        return self._background.least_squares

    @property
    def setup_time(self) -> float | None:
        return self._record.setup_time

    @property
    def solve_time(self) -> float | None:
        return self._record.solve_time

    @property
    def method(self) -> str:
        """Name of the method that made x, and of one that failed before; in a batch, with the number of systems.

        In a function that is being compiled, the name of the first method, which a fallback may follow.

        Examples:
            >>> import numpy as np, krylix
            >>> krylix.linear_solve(np.eye(2), np.ones(2)).method
            'direct'
        """
        return methods_in_words(self._background.made_by, self._known_rung())

    @property
    def preconditioner(self) -> str | None:
        """Kind of the preconditioner that this method used, or None.

        Examples:
            >>> import numpy as np, krylix
            >>> krylix.linear_solve(np.eye(2), np.ones(2), method="CG", preconditioner="jacobi").preconditioner
            'jacobi'
        """
        rung, made_by = self._known_rung(), self._background.made_by
        return made_by[0 if rung is None else int(np.min(rung, initial=len(made_by) - 1))].preconditioner

    def _known_rung(self) -> np.ndarray | None:
        return self._record.on_host("rung") if "rung" in self._record.arrays and self._record.has_values else None

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
        if not self._record.has_values:
            return "The message is known when the compiled function has run."
        return describe(*self._ending())

    def _ending(self) -> tuple[EndState, Background]:
        """How each system ended, in NumPy, after a search for the causes of a failure."""
        record = self._record
        end = EndState.in_numpy(record.end_state(self.checkpoints, record.on_host).arrays())
        if record.diagnosis is not None and np.any(has_failed(end.status)):
            record.causes, record.diagnosis = record.diagnosis(end), None
        causes = record.causes
        return end, self._background if causes is None else self._background._replace(causes=causes)

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
        return to_dict(self, NUMBERS, include_x)

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
        was solved by a method for symmetric ones). Without its own transpose (rmatvec), a function is evaluated
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
        if self._record.diagnosis is not None:
            self._ending()  # functions of the user do not pickle, so the causes of a failure are found now
        return {**self.__dict__, "_sensitivity": None}

    # TensorFlow calls these methods of the class.

    def __tf_flatten__(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return _static(self), arrays_of(self)

    @classmethod
    def __tf_unflatten__(cls, static: tuple[Any, ...], arrays: tuple[Any, ...]) -> SolveResult:
        return _restore(static, arrays)


NUMBERS = tuple(name for name, value in vars(SolveResult).items() if isinstance(value, _Number))
"""Attributes that are one number per system."""


# --- a result as a container of arrays


def arrays_of(result: SolveResult) -> tuple[Any, ...]:
    """All arrays: x first, then those of the record."""
    return result.x, *(result._record.array(name) for name in result._record.arrays)


def with_arrays(result: SolveResult, arrays: Sequence[Any]) -> SolveResult:
    """The result with other arrays, in the order of `arrays_of`."""
    return _restore(_static(result), arrays)


def changed(result: SolveResult, x: Any, **arrays: Any) -> SolveResult:
    """The result with another x, and other arrays of its record."""
    record = result._record
    return replace(result, x=x, _record=replace(record, arrays={**record.arrays, **arrays}, _of_python={}))


def _static(result: SolveResult) -> tuple[Any, ...]:
    return result._background, result.checkpoints, tuple(result._record.arrays)


def _restore(static: Any, arrays: Any) -> SolveResult:
    # The arrays may be anything: a transformation puts None in their place, or shapes.
    background, checkpoints, names = static
    x, *others = arrays
    return SolveResult(x, Record(dict(zip(names, others, strict=True))), background, checkpoints)


def register_result(bk: Backend) -> None:
    """Make `SolveResult` a container of arrays for this backend's transformations."""
    bk.register(SolveResult, lambda r: (arrays_of(r), _static(r)), _restore)


# --- between libraries


def in_library(bk: Backend, result: SolveResult, x: Array, like: Array) -> SolveResult:
    """Convert a NumPy result to the library, on the device of `like`: x is given, other arrays follow when read."""
    register_result(bk)
    record = result._record
    record.bk, record.like = bk, like
    return SolveResult(x, record, result._background, result.checkpoints, result._why)


def in_numpy(bk: Backend, result: SolveResult) -> SolveResult:
    """Convert the result to NumPy; unchanged if x is traced, or has derivatives, which would be lost."""
    leaves, _ = bk.leaves(result.x)
    if any(bk.tracks(leaf) or bk.compiled(leaf) for leaf in leaves) or bk.concrete_value(lambda: leaves[0]) is None:
        return result

    def on_host(value: Any) -> Any:
        parts, structure = bk.leaves(value)
        return bk.unleaves(structure, [np.array(bk.to_numpy(part)) for part in parts])

    return changed(result, on_host(result.x), **{name: on_host(a) for name, a in result._record.arrays.items()})


# --- the errors


class ConvergenceError(RuntimeError):
    """A solve did not reach its tolerance: the base class of `NotConverged` and `Diverged`.

    Attributes:
        result: the `SolveResult`, as without the error; None where it is not known.

    Examples:
        >>> import numpy as np, krylix
        >>> try:
        ...     krylix.linear_solve(np.diag([1.0, 2.0]), np.ones(2), method="CG", max_iter=1)
        ... except krylix.ConvergenceError as error:
        ...     print(type(error).__name__, error.result.status.name, error.result.iterations)
        NotConverged MAX_ITER 1
    """

    result: SolveResult

    def __init__(self, message: str, result: Any = None) -> None:  # None: pickle sets it afterwards
        super().__init__(message)
        self.result = result


class NotConverged(ConvergenceError):
    """The tolerance was not reached: limit of iterations or of time, no more progress, or breakdown.

    Attributes:
        result: all that the solve found.

    Examples:
        >>> import numpy as np, krylix
        >>> A = np.diag([1.0, 2.0, 4.0])
        >>> try:
        ...     x = krylix.linear_solve(A, np.ones(3), method="CG", max_iter=2).x
        ... except krylix.NotConverged as error:
        ...     x = krylix.linear_solve(A, np.ones(3), x0=error.result.x).x
        >>> x
        array([1.  , 0.5 , 0.25])
    """


class Diverged(ConvergenceError):
    """The iteration produced NaN or infinity, or its input had them.

    Attributes:
        result: all that the solve found.

    Examples:
        >>> import numpy as np, krylix
        >>> try:
        ...     krylix.linear_solve(np.eye(3), np.array([1.0, np.nan, 1.0]), method="CG")
        ... except krylix.Diverged as error:
        ...     print(error.result.converged, error.result.iterations)
        False 0
    """


def finish(title: str, function: Callable[..., SolveResult], *args: Any) -> SolveResult:
    """`function(*args)`, the user's call, whose result is completed, also in an error.

    Args:
        title: the name of the solve in profiles.

    Raises:
        NotConverged, Diverged: as the function.
    """
    begun = perf_counter()
    try:
        if RUNNING:
            with span("solve", title, facts=outcome_facts) as done:
                result = done(function(*args))
        else:  # a span would slow down a solve of 14 us
            result = function(*args)
    except ConvergenceError as error:
        if (failed := result_of_this_solve(error)) is not None:
            failed._record.complete(begun, failed.checkpoints)
        raise
    record = result._record
    if record.is_one and record.solve_time is not None:  # from `shortcut.py`
        record.setup_time, record.is_complete = max(perf_counter() - begun - record.solve_time, 0.0), True
    else:
        record.complete(begun, result.checkpoints)
    return result


def converted(solve: Callable[[], SolveResult], back: Callable[[SolveResult], SolveResult]) -> SolveResult:
    """`back(solve())`, also of the result in an error of this solve."""
    try:
        result = solve()
    except ConvergenceError as error:
        if (failed := result_of_this_solve(error)) is not None:
            error.result = back(failed)
        raise
    return back(result)


def result_of_this_solve(error: ConvergenceError) -> SolveResult | None:
    """The result in an error of this solve.

    The error may be that of another solve (inside this one, or older), whose result is complete, or of a user's
    function, without a result.
    """
    result: Any = error.result
    return None if not isinstance(result, SolveResult) or result._record.is_complete else result


def outcome_facts(result: Any) -> dict[str, Any]:
    """Facts of a solve in profiles, given its result or error: of several systems the largest numbers.

    Args:
        result: of `linear_solve`, `solve_nonlinear` or `minimize`.
    """
    if isinstance(result, BaseException):
        if not isinstance(result, ConvergenceError):
            return {}
        result = result.result
    facts: dict[str, Any] = {"method": result.method, "preconditioner": getattr(result, "preconditioner", None)}
    size = "gradient_norm" if hasattr(result, "gradient_norm") else "residual_norm"
    names = ("status", "iterations", size, "converged")
    record = result._record if isinstance(result, SolveResult) else Record({n: getattr(result, n) for n in names})
    if not record.has_values:
        return facts | {"traced": is_traced(choose_backend(record.arrays["status"]))}
    iterations, norm, converged = map(record.on_host, names[1:])
    facts |= {"systems": iterations.size} if iterations.size != 1 else {}
    facts |= {"iterations": int(np.max(iterations, initial=0)), size: float(np.max(norm, initial=0))}
    return facts | {"converged": bool(np.all(converged))}
