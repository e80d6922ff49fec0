"""The PreparedSolver class: a system whose matrix is known."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from ...backends import without_compilers
from ...backends.on_failure import run_for
from ...backends.public_names import PublicNames
from ...backends.tracebacks import shorten
from ...sparse import Operator, UnsupportedOperation, to_operator
from ..adapters.arrays import run_where_spread
from ..adapters.members import prepared_over, solve_prepared_over
from ..attempt import AS_GIVEN, Attempt
from ..choose import Explanation
from ..gaussian.of_matrix import OfMatrix
from ..iteration_budget import Fallback
from ..known_plan import KnownPlan
from ..log import DEBUG, log
from ..methods.direct.superlu import HostFactors, provider_note
from ..methods.method import Method
from ..methods.registry import is_auto
from ..preconditioners import Preconditioner
from ..read.arguments import Request
from ..read.peers import communicator_of_mat, with_peers_read
from ..read.requirements import check_requirements
from ..read.system import KnownNull, System, read_system
from ..results.form import with_times
from ..results.result import ArrayT, SolveResult
from ..run.monitor import Callback, monitor_of
from ..run.progress import Progress
from ..solve import solve
from .container import flatten, restore
from .parts import OtherSide, PreparedParts, numbers_stored, set_up, transposed


@dataclass(frozen=True, eq=False, repr=False)
class PreparedSolver(OfMatrix, PublicNames):
    """A system whose matrix is known, made by `prepare`; immutable, and in JAX a container of arrays.

    It can be pickled, unless it holds a function that pickle cannot store. What `scipy-direct` has factorised is stored
    as the matrix, and factorised again by who reads it.

    Attributes:
        A: the matrix as an operator.
        method: the method that solves.
        preconditioner: M, or the factorisation of A, which serves the transposed matrix too; None.

    Examples:
        >>> import numpy as np, krylix
        >>> solver = krylix.prepare(np.array([[2.0, 1.0], [0.0, 4.0]]))
        >>> solver(np.array([4.0, 4.0])), solver.T(np.array([4.0, 4.0]))
        (array([1.5, 1. ]), array([2. , 0.5]))
        >>> solver.shape, solver.memory
        ((2, 2), 4)
    """

    A: Operator
    method: Method
    preconditioner: Operator | None
    _fallback: Fallback | None
    _request: Request  # what `prepare` was told, with the choices made; its b is like the right-hand sides
    _why: Explanation | None = None  # of the method, where it was chosen here
    _null: KnownNull | None = None
    _other: OtherSide | None = None  # of the solver that this is the transpose of

    def solve(
        self,
        b: ArrayT,
        x0: Any = None,
        *,
        axis: int | None = None,
        history: bool = False,
        progress: Progress = False,
        callback: Callback | None = None,
        time_limit: float | None = None,
    ) -> SolveResult[ArrayT]:
        """Solve `A x = b`; also inside compiled functions, differentiated and vectorised.

        Args:
            b: as `linear_solve` takes it; for a function A of the shape of `like`.
            x0: initial guess, zero if None.
            axis: as for `linear_solve`; if None that of `prepare`.
            history: record residual norms.
            progress: as for `linear_solve`.
            callback: as for `linear_solve`.
            time_limit: as for `linear_solve`.

        Returns:
            SolveResult: as of `linear_solve`.

        Raises:
            NotConverged: as `linear_solve`.
            Diverged: as `linear_solve`.
            ValueError: b, x0 or axis does not fit.
            TypeError: b or x0 is of a kind that cannot be used.

        Cost: the method's, without setting it up.

        Examples:
            >>> import numpy as np, krylix
            >>> krylix.prepare(np.diag([1.0, 2.0])).solve(np.ones(2)).x
            array([1. , 0.5])
        """
        monitored = not (progress is False and callback is None and time_limit is None)
        asked = (progress, callback, time_limit) if monitored else None
        try:
            return without_compilers(with_times)(_solve_prepared, self, b, x0, axis, history, asked)
        except Exception as error:
            __tracebackhide__ = True  # for pytest
            shorten(error)
            raise

    solve._torchdynamo_disable = True  # type: ignore[attr-defined]  # as of linear_solve

    def __call__(self, b: ArrayT, *, axis: int | None = None) -> ArrayT:
        """`solve(b, axis=axis).x`, as the function that SciPy's `factorized` returns."""
        return self.solve(b, axis=axis).x

    @property
    def shape(self) -> tuple[int, int]:
        """`(rows, columns)` of A."""
        return self.A.shape

    @property
    def memory(self) -> int | None:
        """Numbers that the factors or the preconditioner hold, indices not counted.

        0 where there are none, None where it is not known: of a function. Of `scipy-direct` the fill-in is counted:
        all entries of L and U; where it takes LAPACK's LU for bands, their storage, `2 l + u + 1` numbers per unknown
        for l diagonals below and u above the main one, which leave room for row exchanges.
        """
        return numbers_stored(self.A.bk, self.preconditioner)

    @property
    def T(self) -> PreparedSolver:
        """The solver for the transposed (not conjugated) matrix, with the same factors or preconditioner, transposed.

        Its `update` takes the transposed matrix. Null vectors that were named belong to A only, unless it is symmetric;
        those of the transposed matrix are looked for where `nullspace` is not None. `.T.T` solves with A again, as it
        was prepared. The transpose of a function takes and returns arrays in the shapes of `like`; where the library
        has no derivatives it is that of the entries, which are found once.

        Raises:
            UnsupportedOperation: the transpose of a function, or of a preconditioner, is not known; or vectors are cut
                over a communicator.
        """
        if self._request.over is not None:
            raise UnsupportedOperation(
                "The transpose of a solver over a communicator is not known; prepare with the transposed function."
            )
        return _made(without_compilers(transposed)(_parts_of(self)))

    @cached_property
    def _plan(self) -> KnownPlan | None:
        return KnownPlan.of(
            self.A,
            self.method,
            self.preconditioner,
            self._null or KnownNull(None, False),
            self._request,
            why=self._reason,
        )

    @property
    def _reason(self) -> str:
        return AS_GIVEN if self._why is None else self._why.reason

    def explain(self) -> str:
        """Why this method.

        Returns:
            str: what is known about A, the lines of the table of docs/choosing.md up to the one that holds, the
            preconditioner, and what is tried if it fails.

        Examples:
            >>> import numpy as np, krylix
            >>> print(krylix.prepare(np.eye(2), method="CG").explain())
            <2x2 dense operator, float64, numpy>
            -> CG: the method was given
        """
        if self._why is None:
            given = f"{self.A!r}\n-> {self.method.name}: the method was given{provider_note(self.preconditioner)}"
            return "\n   ".join((given, *self._request.told))
        with_what = "" if not isinstance(self.preconditioner, Preconditioner) else f"\n   with {self.preconditioner!r}"
        after = None if self._fallback is None else self._fallback.after
        bound = "" if after is None else f"\n   after {after} iterations, which take as long: {self._why.fallback}"
        explained = f"{self._why}{bound}{with_what}{provider_note(self.preconditioner)}"
        return "\n   ".join((explained, *self._request.told))

    def update(self, A: Any, *, args: Sequence[Any] = ()) -> PreparedSolver:
        """A solver for another matrix of the same kind: the method stays, preconditioner and factors are made anew.

        Kinds that can (`amg`) keep what depends on the pattern of A only. A preconditioner that was handed to `prepare`
        as an operator or a function stays as it is, which its `note` tells.

        Args:
            A: as `prepare` takes it.
            args: further arguments of a function, `A(x, *args)`.

        Returns:
            PreparedSolver: another one; this one stays as it is.

        Raises:
            ValueError: as `prepare`.
            TypeError: as `prepare`.

        Examples:
            >>> import numpy as np, krylix
            >>> solver = krylix.prepare(np.diag([1.0, 2.0]))
            >>> solver.update(np.diag([1.0, 4.0]))(np.ones(2))
            array([1.  , 0.25])
        """
        request = replace(self._request, A=A, args=args)
        found = without_compilers(prepared)(request, self.preconditioner)
        if self._other is not None:  # null vectors that were named belong to that side of every matrix
            found = replace(found, _other=self._other._replace(null=None))
        return found if is_auto(request.method) else replace(found, _fallback=self._fallback, _why=self._why)

    def __copy__(self) -> PreparedSolver:
        return self

    def __deepcopy__(self, memo: Any) -> PreparedSolver:
        return self

    def __reduce__(self) -> tuple[Callable[..., PreparedSolver], tuple[Any, ...]]:
        if self._request.over is not None:
            raise pickle.PicklingError(
                "This solver holds a communicator, which no other process knows; prepare in each of its members."
            )
        again = isinstance(self.preconditioner, HostFactors)
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        found["_request"] = replace(self._request, sharding=None, seen_sharding=None)  # of devices of this process
        try:
            content = pickle.dumps(found | ({"preconditioner": None} if again else {}), pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, AttributeError, TypeError) as error:  # of functions, each of the three
            raise pickle.PicklingError(
                f"This solver cannot be pickled: {error}. A function must be one that pickle finds by its name, at the "
                "top of a module, and JAX's and TensorFlow's cannot be stored at all: prepare with the matrix of the "
                "function, matrix_from_function(f, like)[0]."
            ) from error
        return _unpickled, (content, again)

    def __repr__(self) -> str:
        with_what = "" if self.preconditioner is None else f", {self.preconditioner!r}"
        return f"<PreparedSolver: {self.method.name} for {self.A!r}{with_what}>"


def _unpickled(content: bytes, again: bool) -> PreparedSolver:
    solver = PreparedSolver(**pickle.loads(content))
    solver.A.bk.register(PreparedSolver, _flatten, _restore)  # in the process that reads it
    return solver.update(solver.A) if again else solver


def _solve_prepared(
    solver: PreparedSolver, b: Any, x0: Any, axis: int | None, history: bool, monitored: tuple[Any, Any, Any] | None
) -> SolveResult:
    """No method of the solver, as what is left alone is remembered for ever."""
    plain = (
        solver._request.over is None
        and type(b) is np.ndarray
        and x0 is None
        and axis is None
        and history is False
        and monitored is None
    )
    if plain and solver._plan is not None and (found := solver._plan.solve(b)) is not None:
        if log.isEnabledFor(DEBUG):
            log.debug("%s", found.message)
        return found
    monitor = None if monitored is None else monitor_of(*monitored)
    request = replace(
        solver._request, A=solver.A, b=b, x0=x0, axis=solver._request.axis if axis is None else axis,
        preconditioner=None, history=history, monitor=monitor,
    )  # fmt: skip
    if request.over is not None:
        return run_for(request.on_failure, solve_prepared_over, solver.A, solver.preconditioner, request)
    if request.seen_sharding is not None and np.shape(b) != np.shape(solver._request.b):
        request = replace(request, seen_sharding=None)
    return run_for(request.on_failure, run_where_spread, lambda given: _solved_again(solver, given), request)


def _solved_again(solver: PreparedSolver, request: Request) -> SolveResult:
    system = read_system(request, solver.method, solver._null)
    if system.A.dtype != solver.A.dtype:
        raise ValueError(
            f"This solver was prepared for {solver.A.dtype}; got a right-hand side that makes it {system.A.dtype}. "
            "Cast it, or prepare with a `like` of that dtype."
        )
    if system.is_empty:
        return solve(Attempt.of(request, system, solver.method, None), request.b)
    M = solver.preconditioner
    if solver.A.bk is not system.bk:
        system = replace(system, null=_moved(system.null, system, "The null space"))
        M = M if solver.method.on_host else _moved(M, system, "The preconditioner or factorisation")
    check_requirements(system, solver.method, M)
    return solve(Attempt.of(request, system, solver.method, M, solver._fallback, solver._reason), request.b)


def _moved(A: Operator | None, system: System, name: str) -> Operator | None:
    """In the problem's library: what was made of NumPy's arrays is a constant to every other."""
    if A is None or A.bk is system.bk:
        return A
    return to_operator(system.bk, A, None, A.dtype, (), system.like, name)


def prepared(request: Request, previous: Operator | None = None, many: bool = True) -> PreparedSolver:
    """The solver that a request asks for; see `set_up`."""
    if (own := communicator_of_mat(request)) is not None:
        request = replace(request, over=own)
    if request.over is not None:
        return run_for(request.on_failure, lambda: _made(prepared_over(request, previous)))
    request = with_peers_read(request)
    return run_for(
        request.on_failure, run_where_spread, lambda given: _made(set_up(given, previous, many)), request, False
    )


def _made(parts: PreparedParts) -> PreparedSolver:
    parts.A.bk.register(PreparedSolver, _flatten, _restore)
    return PreparedSolver(*parts)


def _parts_of(solver: PreparedSolver) -> PreparedParts:
    return PreparedParts(*(getattr(solver, field.name) for field in fields(solver)))


def _flatten(solver: PreparedSolver) -> tuple[tuple[Any, ...], Any]:
    return flatten(_parts_of(solver))


def _restore(static: Any, arrays: Sequence[Any]) -> PreparedSolver:
    return PreparedSolver(*restore(static, arrays))
