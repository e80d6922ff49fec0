"""`prepare`: what depends on A alone, done once for many solves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..backends import Array, get_backend, left_alone
from ..sparse import FunctionOperator, Matrix, OffsetOperator, Operator
from .attempt import Options, solve_problem
from .iteration.method import Method
from .methods.direct.refinement import Refinement
from .methods.registry import find_method, is_auto
from .preconditioners import to_preconditioner
from .results.failure import check_policy
from .results.result import SolveResult
from .setup.choose import choose
from .setup.problem import Problem, make_problem
from .setup.requirements import check_requirements, refuse_preconditioner


class _Settings(NamedTuple):
    """What `prepare` was told besides A."""

    method: str | Method
    preconditioner: Any
    rtol: Any
    atol: Any
    max_iter: Any
    batch_ndim: int
    nullspace: Any
    matrix_offset: complex | None
    on_failure: str


@dataclass(frozen=True, eq=False, repr=False)
class PreparedSolver:
    """A system whose matrix is known, made by `prepare`; immutable, and in JAX a container of arrays.

    Attributes:
        A: the matrix as an operator.
        method: the method that solves.
        preconditioner: M, or the factorisation of A, which serves the transposed matrix too; None.
    """

    A: Operator
    method: Method
    preconditioner: Operator | None
    _fallback: Method | None
    _like: Any
    _settings: _Settings

    def solve(
        self,
        b: Any,
        x0: Any = None,
        *,
        history: bool = False,
        progress: bool | Callable[[int, float, float], None] = False,
    ) -> SolveResult:
        """Solve `A x = b`; also inside compiled functions, differentiated and vectorised.

        Args:
            b: as `linear_solve` takes it; for a function A of the shape of `like`.
            x0: initial guess, zero if None.
            history, progress: as for `linear_solve`.

        Raises:
            NotConverged, Diverged, ValueError, TypeError: as `linear_solve`.

        Cost: the method's, without setting it up.
        """
        return left_alone(self._solve)(b, x0, history, progress)

    def _solve(self, b: Any, x0: Any, history: bool, progress: Any) -> SolveResult:
        settings = self._settings
        problem = _problem(self.A, b, x0, (), settings, self.method)
        if problem.A.dtype != self.A.dtype:
            raise ValueError(
                f"This solver was prepared for {self.A.dtype}; got a right-hand side that makes it {problem.A.dtype}. "
                "Cast it, or prepare with a `like` of that dtype."
            )
        options = Options(settings.on_failure, history, progress)
        return solve_problem(problem, self.method, self.preconditioner, self._fallback, options)

    solve._torchdynamo_disable = True  # type: ignore[attr-defined]  # as of linear_solve

    def update(self, A: Any, *, args: Sequence[Any] = ()) -> PreparedSolver:
        """A solver for another matrix of the same kind: the method stays, preconditioner and factors are made anew.

        A preconditioner that was handed to `prepare` as an operator or a function stays too.
        """
        return replace(left_alone(_prepare)(A, self._like, args, self._settings), _fallback=self._fallback)

    def __repr__(self) -> str:
        with_what = "" if self.preconditioner is None else f", {self.preconditioner!r}"
        return f"<PreparedSolver: {self.method.name} for {self.A!r}{with_what}>"


def prepare(
    A: Any,
    like: Any,
    *,
    method: str | Method = "auto",
    preconditioner: Any = "auto",
    rtol: float | Array | None = None,
    atol: float | Array = 0.0,
    max_iter: int | None = None,
    args: Sequence[Any] = (),
    batch_ndim: int = 0,
    nullspace: Any = "auto",
    matrix_offset: complex | None = None,
    on_failure: str = "raise",
) -> PreparedSolver:
    """Do once what solves with the same A have in common.

    That is: checks and conversions, the test of linearity, the choice of the method, the preconditioner, and for
    direct methods the factorisation. `prepare(A, b).solve(b)` gives what `linear_solve(A, b)` gives with the same
    method and preconditioner.

    Args:
        A, args, batch_ndim, matrix_offset, nullspace, rtol, atol, max_iter, on_failure: as for `linear_solve`.
        like: an array of the shape and dtype of the right-hand sides.
        method: a name, a method object, or "auto".
        preconditioner: as for `linear_solve`; "auto" takes what suits the method and A, perhaps none.

    Returns:
        PreparedSolver: `solve(b, x0=None)` as often as needed, `update(A)` for other numbers.

    Raises:
        ValueError, TypeError, NoBackendFound, NonlinearError, UnsupportedOperation: as `linear_solve`.

    Cost: see the method and the preconditioner. Factors made where values are known serve compiled functions too; a
    host factorisation (scipy-direct) of a matrix that is computed inside a compiled function is made in each solve.
    """
    check_policy(on_failure)
    settings = _Settings(method, preconditioner, rtol, atol, max_iter, batch_ndim, nullspace, matrix_offset, on_failure)
    return left_alone(_prepare)(A, like, args, settings)


def _prepare(A: Any, like: Any, args: Sequence[Any], settings: _Settings) -> PreparedSolver:
    chosen = None if is_auto(settings.method) else find_method(settings.method)
    problem = _problem(A, like, None, args, settings, chosen)
    bk, kind, fallback = problem.bk, settings.preconditioner, None
    automatic = isinstance(kind, str) and kind.strip().lower() == "auto"
    if chosen is None:
        choice = choose(problem, not (automatic or kind is None))
        chosen, fallback = choice.method, choice.fallback
        kind = choice.preconditioner if automatic else kind
    elif automatic:
        kind = "jacobi" if chosen.takes_preconditioner and _shows_diagonal(problem.A) else None
    refuse_preconditioner(chosen, kind)
    M = to_preconditioner(kind, problem.A, bk, problem.layout, problem.like)
    check_requirements(problem, chosen, M)
    if isinstance(chosen, Refinement):
        M = _factors(problem, chosen)
    bk.register(PreparedSolver, _flatten, _restore)
    resolved = settings._replace(method=chosen, preconditioner=kind)
    return PreparedSolver(_prepared(problem), chosen, M, fallback, like, resolved)


def _problem(A: Any, b: Any, x0: Any, args: Sequence[Any], settings: _Settings, method: Method | None) -> Problem:
    return make_problem(
        A, b, x0, args, None, settings.batch_ndim, settings.rtol, settings.atol, settings.max_iter,
        settings.nullspace, settings.matrix_offset, method=method,
    )  # fmt: skip


def _prepared(problem: Problem) -> Operator:
    """The operator that later solves take for A: without the offset, which they add, and as a program in JAX."""
    A = problem.given.A if problem.given is not None else problem.A
    A = A.inner if isinstance(A, OffsetOperator) else A
    return A.as_container() if problem.bk.compiles_solves and isinstance(A, FunctionOperator) else A


def _shows_diagonal(A: Operator) -> bool:
    return isinstance(A.inner if isinstance(A, OffsetOperator) else A, Matrix)


def _factors(problem: Problem, method: Refinement) -> Operator | None:
    """The factorisation, where it can be made before b is known."""
    bk, A = problem.bk, problem.A
    with bk.quiet():
        if not method.on_host:
            return None if bk.is_eager and problem.compiled else method.setup(bk, A, None)
        if problem.compiled:
            return None
        arrays, make = A.for_host()
        return method.setup(get_backend("numpy"), make([bk.to_numpy(a) for a in arrays]), None)


def _flatten(solver: PreparedSolver) -> tuple[tuple[Any, ...], Any]:
    settings = solver._settings
    parts = (solver.A, solver.preconditioner, solver._like, settings.rtol, settings.atol)
    return parts, (solver.method, solver._fallback, settings._replace(rtol=None, atol=None))


def _restore(static: Any, parts: Sequence[Any]) -> PreparedSolver:
    method, fallback, settings = static
    A, M, like, rtol, atol = parts
    return PreparedSolver(A, method, M, fallback, like, settings._replace(rtol=rtol, atol=atol))
