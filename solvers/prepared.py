"""`prepare`: set-up that depends on A alone, done once; `PreparedSolver`: a `Plan` and the settings of its solves."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from ..backends import Array, Backend, choose_backend, get_on_failure, of_libraries, without_compilers
from ..backends.profile.spans import span
from ..backends.public_names import PublicNames
from ..backends.settings import OnFailure, run_for
from ..backends.tracebacks import shorten
from ..sparse import (
    Matrix,
    Operator,
    UnsupportedOperation,
    batch_shape,
    to_operator,
    transposed_in_shape,
)
from ..sparse.convert import owned
from .adapters.members import prepared_over, solve_prepared_over
from .adapters.peers import communicator_of_mat, with_peers_read
from .adapters.table import run_where_spread
from .factors.inverse import DirectInverse
from .factors.sparse import HostInverse
from .gaussian.of_matrix import OfMatrix
from .judge import solve
from .methods.method import Method
from .methods.petsc.inverse import PetscInverse
from .methods.registry import METHODS, find_method, is_auto
from .names import MethodName, PreconditionerName, with_our_names
from .plan import Plan, Rung, explained, lasting, plans
from .preconditioners import Preconditioner
from .read.arguments import Request, refused_args, takes_vectors, vector_for
from .read.requirements import check_requirements
from .read.system import KnownNull, System, read_system
from .results.devices import device_notes
from .results.result import ArrayT, SolveResult, finish
from .run.watch import Callback, Progress, monitor_of
from .shortcut import solve_by_factors


@with_our_names
def prepare(
    A: Any,
    like: Any = None,
    *,
    method: MethodName | str | Method = "auto",
    preconditioner: PreconditionerName | str | object | None = None,
    rtol: float | Array | None = None,
    atol: float | Array = 0.0,
    max_iter: int | None = None,
    args: Sequence[Any] = (),
    batch_ndim: int = 0,
    axis: int | None = None,
    nullspace: Any = "auto",
    matrix_offset: complex | None = None,
    on_failure: OnFailure | None = None,
    sharding: Any = None,
    over: Any = None,
) -> PreparedSolver:
    """Set up A once for many solves, with its current values: matrices are copied.

    That is: checks and conversions, the test of linearity, the choice of the method, the preconditioner, and for
    direct methods the factorisation. `prepare(A, b).solve(b)` gives the same x as `linear_solve(A, b)` with the
    same method and preconditioner.

    Args:
        A: as for `linear_solve`.
        like: an array of the shape and dtype of the right-hand sides; for a matrix, if None, a vector of its dtype and
            its library. A function needs it.
        method: a name, a method object, or "auto".
        preconditioner: as for `linear_solve`: None chooses one that suits A where the method is "auto", and "auto" does
            so for any method.
        rtol: as for `linear_solve`.
        atol: as for `linear_solve`.
        max_iter: as for `linear_solve`.
        args: as for `linear_solve`.
        batch_ndim: as for `linear_solve`.
        axis: as for `linear_solve`, of `like` and of right-hand sides, unless `solve` gets another one.
        nullspace: as for `linear_solve`.
        matrix_offset: as for `linear_solve`.
        on_failure: as for `linear_solve`.
        sharding: as for `linear_solve`; if None that of `like`, for right-hand sides of its shape whose own is unknown.
        over: as for `linear_solve`: `like` and all right-hand sides are this member's parts. Each solve checks its
            arguments again, in 3 messages and a product, because members could differ in them.

    Returns:
        PreparedSolver: `solve(b, x0=None)` as often as needed, or called for x alone; `update(A)` for other numbers,
        `T` for the transposed matrix.

    Raises:
        ValueError: as `linear_solve`.
        TypeError: as `linear_solve`; a function without `like`.
        NoBackendFound: as `linear_solve`.
        NonlinearError: as `linear_solve`.
        UnsupportedOperation: as `linear_solve`.

    Cost: see the method and the preconditioner, and a copy of the entries. Data of a function (arrays that it closes
    over, a LinearOperator's own) are not copied, and must not be changed between the solves. Factors made where values
    are known serve compiled functions too; a host factorisation (scipy-direct) of a matrix that is computed inside a
    compiled function is made in each solve.

    Examples:
        >>> import numpy as np, scipy.sparse as sp, krylix
        >>> A = sp.diags_array([-1.0, 3.0, -1.0], offsets=[-1, 0, 1], shape=(4, 4))
        >>> solver = krylix.prepare(A)
        >>> solver.method.name
        'scipy-direct'
        >>> solver.solve(np.ones(4)).x.round(3)
        array([0.6, 0.8, 0.8, 0.6])
    """
    if not isinstance(args, list | tuple):
        raise TypeError(refused_args("A", args))
    if like is None:
        like = without_compilers(vector_for)(A, args)
    request = Request(
        A=A, b=like, args=args, method=method, preconditioner=preconditioner, rtol=rtol, atol=atol,
        max_iter=max_iter, batch_ndim=batch_ndim, axis=axis, nullspace=nullspace, matrix_offset=matrix_offset,
        on_failure=get_on_failure() if on_failure is None else on_failure, sharding=sharding, over=over,
    )  # fmt: skip
    return without_compilers(prepared)(request)


def prepare_for_one(A: Any, like: Any, **settings: Any) -> PreparedSolver:
    """As `prepare`, with the choices of `linear_solve`: for one solve whose set-up is reported separately."""
    return without_compilers(prepared)(Request(A=A, b=like, **settings), None, False)


class OtherSide(NamedTuple):
    """Data of the original solver that its transpose keeps for a second transposition.

    Attributes:
        like: an array like its right-hand sides.
        null: the null vectors of its matrix; None where they are still to be found.
        nullspace, axis: as given to `prepare`.
    """

    like: Any
    null: KnownNull | None
    nullspace: Any
    axis: int | None


@dataclass(frozen=True, eq=False, repr=False)
class PreparedSolver(OfMatrix, PublicNames):
    """A system whose matrix is known, made by `prepare`; immutable, and in JAX a container of arrays.

    It can be pickled, unless it holds a function that pickle cannot store. Factors of `scipy-direct` are stored as the
    matrix, which is factorised again when the file is read.

    Examples:
        >>> import numpy as np, krylix
        >>> solver = krylix.prepare(np.array([[2.0, 1.0], [0.0, 4.0]]))
        >>> solver(np.array([4.0, 4.0])), solver.T(np.array([4.0, 4.0]))
        (array([1.5, 1. ]), array([2. , 0.5]))
        >>> solver.shape, solver.memory
        ((2, 2), 4)
    """

    _plan: Plan
    _request: Request  # the arguments of `prepare` with the choices made; its b is like the right-hand sides
    _other: OtherSide | None = None  # of the solver whose transpose this is

    @property
    def A(self) -> Operator:  # type: ignore[override]
        """The matrix as an operator."""
        return self._plan.A

    @property
    def method(self) -> Method:
        """The method that solves."""
        return self._plan.method

    @property
    def preconditioner(self) -> Operator | None:
        """M, or the factorisation of A, which serves the transposed matrix too; None."""
        return self._plan.M

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
            return without_compilers(finish)("PreparedSolver.solve", _solve_prepared, self, b, x0, axis, history, asked)
        except Exception as error:
            __tracebackhide__ = True  # for pytest
            shorten(error)
            raise

    solve._torchdynamo_disable = True  # type: ignore[attr-defined]  # as for linear_solve

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
        return without_compilers(_transposed)(self)

    def explain(self) -> str:
        """Explain the choice of the method.

        Returns:
            str: known facts of A, the lines of the table of docs/choosing.md up to the one that holds, the
            preconditioner and the fallback.

        Examples:
            >>> import numpy as np, krylix
            >>> print(krylix.prepare(np.eye(2), method="CG").explain())
            <2x2 dense operator, float64, numpy>
            -> CG: the method was given
        """
        return explained(self._plan, self._request.notes)

    def update(self, A: Any, *, args: Sequence[Any] = ()) -> PreparedSolver:
        """A solver for another matrix of the same kind: the method stays, preconditioner and factors are made anew.

        Some kinds (`amg`) keep data that depend on the pattern of A only. A preconditioner that was given to `prepare`
        as an operator or a function stays as it is; its `note` says so.

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
        solver = without_compilers(prepared)(request, self.preconditioner)
        if self._other is not None:  # given null vectors belong to that side of every matrix
            solver = replace(solver, _other=self._other._replace(null=None))
        if is_auto(request.method):
            return solver
        plan, (first, *rest) = solver._plan, self._plan.rungs
        rungs = (plan.rungs[0]._replace(steps=first.steps), *rest)
        return replace(solver, _plan=replace(plan, rungs=rungs, why=self._plan.why, reason=self._plan.reason))

    def __copy__(self) -> PreparedSolver:
        return self

    def __deepcopy__(self, memo: Any) -> PreparedSolver:
        return self

    def __reduce__(self) -> tuple[Callable[..., PreparedSolver], tuple[Any, ...]]:
        if self._request.over is not None:
            raise pickle.PicklingError(
                "This solver holds a communicator, which no other process knows; prepare in each of its members."
            )
        again = isinstance(self.preconditioner, HostInverse)
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        state["_request"] = replace(self._request, sharding=None, seen_sharding=None)  # devices belong to this process
        state["_plan"] = replace(self._plan.with_M(None) if again else self._plan, found={})
        try:
            content = pickle.dumps(state, pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, AttributeError, TypeError) as error:  # functions raise any of the three
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
    # A function, not a method, because functions that compilers leave alone are never freed.
    plain = x0 is None and axis is None and history is False and monitored is None
    if plain and (found := solve_by_factors(solver._plan, solver._request, b)) is not None:
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
    return run_for(request.on_failure, run_where_spread, lambda given: solve_with_plan(solver._plan, given), request)


def solve_with_plan(plan: Plan, request: Request) -> SolveResult:
    """Solve for another right-hand side.

    Raises:
        ValueError: the system has another dtype with it.
    """
    with span("set-up", "read"):
        system = read_system(request, plan.method, plan.null)
    if system.A.dtype != plan.A.dtype:
        raise ValueError(
            f"This solver was prepared for {plan.A.dtype}; got a right-hand side that makes it {system.A.dtype}. "
            "Cast it, or prepare with a `like` of that dtype."
        )
    if system.is_empty:
        return solve(replace(plan, rungs=(Rung(plan.method),)), system, request.b)
    if plan.A.bk is not system.bk:
        system = replace(system, null=_moved(system.null, system, "The null space"))
        M = plan.M if plan.method.on_host else _moved(plan.M, system, "The preconditioner or factorisation")
        plan = replace(plan.with_M(M), found={})
    check_requirements(system, plan.method, plan.M)
    return solve(plan, system, request.b)


def _moved(A: Operator | None, system: System, name: str) -> Operator | None:
    """A in the library of the system, where arrays of NumPy are constants."""
    if A is None or A.bk is system.bk:
        return A
    return to_operator(system.bk, A, None, A.dtype, (), system.like, name)


def prepared(request: Request, previous: Operator | None = None, many: bool = True) -> PreparedSolver:
    """The solver for a request.

    Args:
        previous: the preconditioner or factors of another matrix, whose work is kept where their kind can.
        many: will many solves follow?
    """
    if (own := communicator_of_mat(request)) is not None:
        request = replace(request, over=own)
    with span("set-up", "prepare") as done:
        solver = _prepared(request, previous, many)
        return done(solver, method=solver.method.name)


def _prepared(request: Request, previous: Operator | None, many: bool) -> PreparedSolver:
    if request.over is not None:
        return run_for(request.on_failure, lambda: _registered(PreparedSolver(*prepared_over(request, previous))))
    request = with_peers_read(request)
    return run_for(request.on_failure, run_where_spread, lambda given: _set_up(given, previous, many), request, False)


def _registered(solver: PreparedSolver) -> PreparedSolver:
    solver.A.bk.register(PreparedSolver, _flatten, _restore)
    return solver


def _set_up(request: Request, previous: Operator | None, many: bool) -> PreparedSolver:
    request = replace(request, A=owned(request.A, choose_backend(request.b, request.A, *of_libraries(request.args))))
    method = None if is_auto(request.method) else find_method(request.method, request.A)
    # A preconditioner does not decide the library, and vectors in rows or columns are set up alike.
    axis = -1 if request.axis is None and takes_vectors(request.A) else request.axis
    with span("set-up", "read"):
        system = read_system(replace(request, preconditioner=None, axis=axis), method)
    if system.is_empty:
        return _set_up_empty(request, system, method, many)
    plan = next(plans(request, system, method, previous, many, ready=True))
    kind = request.preconditioner
    # `update` gets the kind that suited A.
    if kind is None or (isinstance(kind, str) and kind.strip().lower() == "auto"):
        kind = plan.M.kind if isinstance(plan.M, Preconditioner) else None if method is None else kind
    plan = replace(plan, A=lasting(plan.A), source=None)
    fixed = (
        request
        if plan.method.needs_grid and method is None
        else replace(request, method=plan.method, preconditioner=kind)
    )
    notes = device_notes(system, plan.method, plan.M)
    # `update` examines the values of the new A.
    return _registered(PreparedSolver(plan, replace(fixed, notes=notes, A=None, args=())))


def _set_up_empty(request: Request, system: System, method: Method | None, many: bool) -> PreparedSolver:
    """For a `like` without systems: a single matrix is set up for any number of them, others for none."""
    bk = system.bk
    if takes_vectors(request.A) and not batch_shape(request.A, bk) and system.layout.size:
        layout = system.layout if system.given is None else system.given.layout
        vector = bk.zeros((layout.size,), system.A.dtype, system.like)
        solver = _set_up(replace(request, b=vector, axis=-1, batch_ndim=0), None, many)
        as_given = {name: getattr(request, name) for name in ("b", "axis", "batch_ndim")}
        return replace(solver, _request=replace(solver._request, **as_given))
    method = method or METHODS["CG"]
    A = system.given.A if system.given is not None else system.A
    plan = Plan(lasting(A.without_offset), KnownNull(None, True), (Rung(method),))
    return _registered(PreparedSolver(plan, replace(request, A=None, args=(), method=method, preconditioner=None)))


def _transposed(solver: PreparedSolver) -> PreparedSolver:
    request, plan = solver._request, solver._plan.transpose(transposed_in_shape(solver.A))
    side = solver._other or _other_side(request, plan, solver._plan.null)
    request = replace(request, b=side.like, nullspace=side.nullspace, axis=side.axis)
    system = read_system(replace(request, A=plan.A, preconditioner=None), plan.method, side.null)
    check_requirements(system, plan.method, plan.M)
    back = OtherSide(solver._request.b, solver._plan.null, solver._request.nullspace, solver._request.axis)
    return _registered(PreparedSolver(replace(plan, null=KnownNull(system.null, system.both)), request, back))


def _other_side(request: Request, plan: Plan, before: KnownNull | None) -> OtherSide:
    """Settings of solves with the transpose, the matrix of the plan; `before`: null vectors of the original matrix."""
    A, nullspace = plan.A, request.nullspace
    if A.shape[0] != A.shape[1]:
        return OtherSide(_like_for_rows(A, request), None, nullspace, request.axis)
    if nullspace is not None and plan.null is None and before is not None:  # the transpose has others
        nullspace = "auto"
    elif nullspace is not None and not isinstance(nullspace, str) and A.dtype.kind == "c":
        vectors, structure = A.bk.leaves(nullspace)
        nullspace = A.bk.unleaves(structure, [A.bk.conj(A.bk.asarray(v, like=request.b)) for v in vectors])
    return OtherSide(request.b, plan.null, nullspace, request.axis)


def _like_for_rows(A: Operator, request: Request) -> Array:
    """Zeros like `b`, for the rows of a rectangular matrix A, the vector on the same axis."""
    given, axis = request.b, request.axis
    shape = [A.shape[0]]
    if axis is not None and hasattr(given, "shape"):
        shape = [int(length) for length in given.shape]
        shape[axis] = A.shape[0]
    return A.bk.zeros(tuple(shape), A.dtype, given if hasattr(given, "shape") else None)


def numbers_stored(bk: Backend, M: Operator | None) -> int | None:
    """Numbers that a preconditioner or factors hold, without indices; None where that is not known."""
    if M is None:
        return 0
    if isinstance(M, Preconditioner):
        if M.memory is not None:
            return M.memory
        return M.inner.nnz if isinstance(M.inner, Matrix) else None
    if isinstance(M, DirectInverse) and M.numbers is not None:
        return M.numbers
    arrays, _ = bk.flatten(M)
    return sum(int(np.prod(array.shape)) for array in arrays) if arrays else None


def _flatten(solver: PreparedSolver) -> tuple[tuple[Any, ...], Any]:
    """The arrays and operators of a solver, and its static part."""
    plan, request, M = solver._plan, solver._request, solver.preconditioner
    null, both = plan.null or (None, False)
    # Factors of the host have no arrays of a library: another solver is another program.
    factors = M if isinstance(M, HostInverse | PetscInverse) else None
    arrays = [plan.A, None if factors is not None else M, request.b, request.rtol, request.atol, null]
    again, side, other = replace(request, b=None, rtol=None, atol=None), None, solver._other
    if other is not None:
        projection, other_both = other.null or (None, None)
        arrays += [other.like, projection]
        side = other_both, other.nullspace, other.axis
    return tuple(arrays), (plan.with_M(None).rungs, plan.why, plan.reason, both, factors, again, side)


def _restore(static: Any, arrays: Sequence[Any]) -> PreparedSolver:
    rungs, why, reason, both, factors, request, side = static
    A, M, like, rtol, atol, null, *more = arrays
    plan = Plan(A, KnownNull(null, both), rungs, why, reason).with_M(M if factors is None else factors)
    other = None
    if side is not None:
        other_both, nullspace, axis = side
        other = OtherSide(more[0], None if other_both is None else KnownNull(more[1], other_both), nullspace, axis)
    return PreparedSolver(plan, replace(request, b=like, rtol=rtol, atol=atol), other)
