"""`linear_solve`: the one function that solves A x = b."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..backends import Array, get_on_failure, without_compilers
from ..backends.profile.spans import span
from ..backends.settings import OnFailure, run_for
from ..sparse import Operator, UnsupportedOperation
from ..sparse.analysis.analysis import forget
from ..sparse.peers.table import NO_PEERS
from .adapters.first_call import solve_first_call, solve_on_numpy
from .adapters.members import solve_over
from .adapters.peers import with_peers_read
from .adapters.table import run_where_spread, solve_adapted
from .judge import solve
from .log import log
from .methods.method import Method
from .methods.registry import find_method, is_auto
from .names import MethodName, PreconditionerName, with_our_names
from .plan import plans
from .plan_cache import PlannedResult, solve_or_recall
from .read.arguments import Request, refused_args
from .read.system import read_system
from .results.result import ArrayT, SolveResult, finish
from .run.watch import Callback, Progress, monitor_of
from .shortcut import solve_small_dense


@with_our_names
def linear_solve(
    A: Any,
    b: ArrayT,
    *,
    x0: Any = None,
    method: MethodName | str | Method = "auto",
    preconditioner: PreconditionerName | str | object | None = None,
    rtol: float | Array | None = None,
    atol: float | Array = 0.0,
    max_iter: int | Sequence[int] | Array | None = None,
    args: Sequence[Any] = (),
    batch_ndim: int = 0,
    axis: int | None = None,
    nullspace: Any = "auto",
    matrix_offset: complex | None = None,
    on_failure: OnFailure | None = None,
    sharding: Any = None,
    history: bool = False,
    progress: Progress = False,
    callback: Callback | None = None,
    time_limit: float | None = None,
    over: Any = None,
) -> SolveResult[ArrayT]:
    """Solve `A x = b`; with "LSMR" and "CGLS" also least squares, `min |b - A x|^2 + damp^2 |x|^2`.

    Converged means `|b - A x| <= max(rtol |b|, atol)` in the 2-norm, for the true residual of the returned x, whatever
    the method, the preconditioner and the start; for a rectangular A or with damping it means the same for the normal
    equations `(A^H A + damp^2 I) x = A^H b`, whose residual norm the result then has. Where rtol is not given, a
    residual at the limit of the precision counts too (`SolveResult.attainable`), up to 5 % of `|b|`. Every
    system of a batch has its own count, status and history.

    Args:
        A: a linear function of arrays shaped like `b`, called with all systems at once, batch axes in front (an affine
            one, A x + c, is solved for A x = b - c); a dense matrix `(n, n)` or `(*batch, n, n)`; a sparse matrix of
            SciPy, JAX, PyTorch or TensorFlow; a SciPy LinearOperator; a krylix operator, or a batch of matrices
            (values `(batch, ...)`); an operator of lineax or `tf.linalg`, a sparse array of pydata/sparse, a PETSc
            `Mat`, or anything with `shape` and `matvec` (docs/matrices.md has the table). NumPy and SciPy matrices go
            with arrays of any library. A list of k matrices of one shape, all dense or all sparse, is a batch `(k,)`;
            sparse ones of different patterns are stored and multiplied on the union of these.
        b: right-hand side. For a function: any shape, or a container of arrays (dictionary, list, tuple, pytree).
            For a matrix: `(..., n)`, the vector on the last axis (see `axis`), all others batch axes, which end with
            those of a batch of matrices; where b has fewer, it serves all of these. A list of vectors is one array with
            a vector in each row. Real or complex, single or double precision.
        x0: initial guess, shaped as x; zero if None. For a rectangular function A it gives the shape of x.
        method: a name ("auto", "CG", "CG-adaptive", "biCG-stab", "biCG-stab(2)", ..., "direct", "scipy-direct",
            "scipy-GMres", ...; `krylix.solvers.METHODS` has all), upper and lower case alike, its name in other
            libraries ("bicgstab", "pcg", "lu", "spsolve", ...), or a method object.
        preconditioner: M, an approximation of the inverse of A: a name ("jacobi", "ilu", ...), a `Preconditioner`, a
            function `r -> M r` on arrays shaped as `b`, a matrix or operator as for A, factors of SciPy's `splu` or
            `spilu`, a hierarchy of pyamg, or None.
        rtol: relative tolerance below 1, one number or one per system, which is kept; if None 1e-5 in single and 1e-10
            in double precision, or the attainable accuracy.
        atol: absolute tolerance, one number or one per system.
        max_iter: limit of iterations, 10 n but at most 10 000 if None. An increasing sequence (a list, tuple or range)
            returns the state at each of these counts on a new first axis of every array; only the last one may be
            called a failure. An array of the shape of the batch axes gives each system its own limit, one of
            `(checkpoints, *batch)` its own sequence.
        args: further arguments of a function, `A(x, *args)`.
        batch_ndim: for a function A, how many leading axes of `b` are independent systems.
        axis: for a matrix A, the axis of b that the vector lies on, -1 if None: `axis=0` with b of shape `(n, k)` is
            NumPy's layout, k columns. x, x0 and residual are laid out as b, numbers per system as the other axes
            of b. For one matrix and b of shape `(n, n)`, which could be read both ways, it has to be given.
        nullspace: "constant", or independent null vectors `(k, *shape of one system)` of A: the solution then has no
            part in them, nor b while it is solved for, if they are null vectors of the adjoint, too. "auto" finds those
            that are constants on closed regions, where the values of A are known; None takes the system as it stands:
            whatever solution the method finds, and if there is none a failure.
        matrix_offset: a constant added to every entry of A.
        on_failure: "raise", "warn", "status" (the caller checks the result) or "nan": x of a system
            that failed, and its derivatives, are NaN, and compiled programs call no host for it. If None the
            policy of `krylix.on_failure` or `krylix.set_global_on_failure`, else "raise".
        sharding: of JAX, how b is spread over several devices, where it does not tell by itself, as a traced array
            whose mesh has Auto axes: a `NamedSharding`, or a `PartitionSpec` for the mesh of `jax.set_mesh`. Arrays
            with values and those of meshes with Explicit axes tell. Sums over all unknowns are then one reduction
            each, whatever the mesh (see docs/how_to/several_devices.md).
        history: record residual norms.
        progress: True shows a line on stderr; a function is called with (iteration, residual norm, goal).
        callback: a function that is called after each iteration with an `IterationState` (iterations, residual_norm,
            goal, x). If it returns True the solve stops: the status is STOPPED, which is no failure, unless x is within
            the tolerance. None and False continue; anything else is refused.
        time_limit: seconds from the call after which the solve stops, at the end of an iteration, with the status
            TIME_LIMIT: a failure. No other method is tried then. In a compiled function from the start of each solve.
        over: the communicator whose members each hold a part of all vectors: one of mpi4py (NumPy), a process group
            (PyTorch), or the name of a mesh axis or a tuple of them inside `jax.shard_map`. A is then a function of
            this member's part, which exchanges with others what it needs; b, x0, x and M's argument are parts, numbers
            those of the whole. Krylov methods only; M is a function, a matrix of this part, or "chebyshev". With
            "petsc" A is a matrix: the rows of this member, `(local rows, n)`, or all rows, which are cut. All members
            call with the same settings, and a failure raises in all. docs/how_to/several_devices.md has more.

    x has exact derivatives of any order with respect to b, the entries of a matrix, args and what a function closes
    over; x0, the preconditioner and the tolerances have none. A backward solve has the same relative tolerance and
    failure policy.

    Returns:
        SolveResult: `x` has the type, shape, dtype and device of `b` (complex if A is, or one array of a container).

    Raises:
        NotConverged: the tolerance was not reached (`.result` has the last x); a compiled function raises its library's
            error with the same text when it runs.
        Diverged: likewise, because numbers were not finite.
        ValueError: an input that cannot be used: a shape, a setting, a name. This and the next are raised before any
            iteration.
        TypeError: an input of a kind that cannot be used.
        NoBackendFound: arrays of two libraries.
        OtherMemberFailed: with `over`, another member raised one of these before the iteration.
        NonlinearError: the function A is not linear.
        UnsupportedOperation: the method needs something of A that is not known, such as its transpose.

    Cost: see the method. On top: 1 product for the true residual (2 with x0), and where that misses the tolerance 1 to
    measure the attainable accuracy; for a function whose values are known, 1 evaluation to subtract a constant part, 3
    to test linearity and 2 to look for null vectors in its first solve. With "auto" a function of more than 5000
    unknowns is traced, see docs/choosing.md, and where its values are known in the solve only, so are the sums of its
    rows. The cause of a failure is looked for in no more products than the solve has made, or a few.

    Examples:
        >>> import numpy as np, krylix
        >>> def A(x):  # of vectors on the last axis
        ...     y = 3 * x
        ...     y[..., 1:] -= x[..., :-1]
        ...     y[..., :-1] -= x[..., 1:]
        ...     return y
        >>> result = krylix.linear_solve(A, np.ones(4), method="CG")
        >>> result.converged, result.iterations
        (True, 2)
        >>> result.x.round(3)
        array([0.6, 0.8, 0.8, 0.6])
    """
    request = Request(
        A=A, b=b, x0=x0, args=args, method=method, preconditioner=preconditioner, rtol=rtol, atol=atol,
        max_iter=max_iter, batch_ndim=batch_ndim, axis=axis, nullspace=nullspace, matrix_offset=matrix_offset,
        on_failure=get_on_failure() if on_failure is None else on_failure, history=history, sharding=sharding,
        over=over,
    )  # fmt: skip
    monitored = not (progress is False and callback is None and time_limit is None)
    asked = (progress, callback, time_limit) if monitored else None
    return without_compilers(finish)("linear_solve", _linear_solve, request, asked)


linear_solve._torchdynamo_disable = True  # type: ignore[attr-defined]  # torch.compile: make a graph break of the call
# The message where no graph break is allowed.
linear_solve._torchdynamo_disable_msg = (  # type: ignore[attr-defined]
    "krylix.linear_solve runs between two graphs; krylix.torch.solve(A, b) with a matrix A is a node of a graph"
)


def solve_for_derivative(A: Any, b: Any, *, on_failure: str, **settings: Any) -> SolveResult:
    """`linear_solve` with the adjoint A and a cotangent b, of which only the part in the range of A counts."""
    return without_compilers(finish)(
        "linear_solve", _linear_solve, Request(A=A, b=b, on_failure=on_failure, derived=True, **settings), None
    )


def _linear_solve(request: Request, monitored: tuple[Any, Any, Any] | None) -> SolveResult:
    if not isinstance(request.args, list | tuple):
        raise TypeError(refused_args("A", request.args))
    if not NO_PEERS.issuperset((type(request.A), type(request.preconditioner))):
        request = with_peers_read(request)
    if monitored is not None:
        request = replace(request, monitor=monitor_of(*monitored))
    if request.over is not None:
        return run_for(request.on_failure, solve_over, request)
    result = solve_small_dense(request)
    if result is not None:
        return result
    return run_for(request.on_failure, run_where_spread, lambda given: solve_adapted(given, _solve), request)


def _solve(request: Request) -> SolveResult:
    first, request = solve_first_call(request, _solve_on_numpy)
    if first is not None:
        return first
    try:
        return solve_or_recall(request, _plan_and_solve)
    except _NO_TRANSPOSE:  # JAX has no transpose either: the second call is then solved as the first one
        result = solve_on_numpy(request, _solve_on_numpy)
        if result is None:
            raise
        return result


_NO_TRANSPOSE = (UnsupportedOperation, NotImplementedError, ValueError)  # JAX raises the last two


def _solve_on_numpy(request: Request) -> SolveResult:
    return _plan_and_solve(request)[0]


def _plan_and_solve(request: Request, many: bool = False, previous: Operator | None = None) -> PlannedResult:
    """The result, the plan and the system.

    Args:
        many: will many solves with A follow? Then the plan has factors that can be used again, and facts of A are kept.
        previous: the preconditioner of a matrix of the same pattern.
    """
    method = None if is_auto(request.method) else find_method(request.method, request.A)
    with span("set-up", "read"):
        system = read_system(request, method)
    try:
        candidates = plans(request, system, method, previous, many)
        plan = next(candidates)
        while True:
            null, both = plan.null or (None, False)
            own = replace(system, null=null, both=both)
            try:
                return solve(plan, own, request.b), plan, own
            except UnsupportedOperation:  # known only now, for example in a program with values as arguments
                following = next(candidates, None)
                if following is None:
                    raise
                log.info("%s cannot be used for this system; the next choice is tried", plan.method.name)
                plan = following
    finally:
        if not many:
            forget(system.A.without_offset)
