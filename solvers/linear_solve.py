"""`linear_solve`: the one function that solves A x = b."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..backends import Array, left_alone
from ..sparse import Operator, UnsupportedOperation, asymmetry
from .choose import choose
from .failure import apply_policy, check_policy
from .iterate import Outcome
from .method import Method
from .preconditioners import Preconditioner, to_preconditioner
from .problem import Problem, make_problem
from .progress import make_report
from .registry import find_method
from .result import SolveResult, register_result
from .run import run
from .status import Status

_NOT_SYMMETRIC = 1e-4  # relative asymmetry from which on methods for symmetric matrices refuse


class _Options(NamedTuple):
    on_failure: str
    history: bool
    progress: bool | Callable[[int, float, float], None]


def linear_solve(
    A: Any,
    b: Any,
    *,
    x0: Any = None,
    method: str | Method = "auto",
    preconditioner: Any = None,
    rtol: float | Array | None = None,
    atol: float | Array = 0.0,
    max_iter: int | Sequence[int] | None = None,
    args: Sequence[Any] = (),
    batch_ndim: int = 0,
    nullspace: Any = "auto",
    matrix_offset: complex | None = None,
    on_failure: str = "raise",
    history: bool = False,
    progress: bool | Callable[[int, float, float], None] = False,
) -> SolveResult:
    """Solve `A x = b`; with "LSMR" and "CGLS" also least squares, `min |b - A x|^2 + damp^2 |x|^2`.

    Converged means `|b - A x| <= max(rtol |b|, atol)` in the 2-norm, for the true residual of the returned x, whatever
    the method, the preconditioner and the start; for a rectangular A or with damping it means the same for the normal
    equations `(A^H A + damp^2 I) x = A^H b`, whose residual norm the result then has. Every system of a batch has its own count, status and history.

    Args:
        A: a linear function of arrays shaped like `b`, called with all systems at once, batch axes in front (an affine
            one, A x + c, is solved for A x = b - c); a dense matrix `(n, n)` or `(*batch, n, n)`; a sparse matrix of
            SciPy, JAX, PyTorch or TensorFlow; a SciPy LinearOperator; a krylix operator. NumPy and SciPy matrices go
            with arrays of any library.
        b: right-hand side. For a function: any shape (in JAX any container of arrays). For a matrix: `(..., n)`, the
            vector on the last axis, all others batch axes. Real or complex, single or double precision.
        x0: initial guess, shaped as x; zero if None. For a rectangular function A it tells the shape of x.
        method: a name ("auto", "CG", "CG-adaptive", "biCG-stab", "biCG-stab(2)", ..., "direct", "scipy-direct",
            "scipy-GMres", ...; `krylix.solvers.METHODS` has all), upper and lower case alike, or a method object.
        preconditioner: M, an approximation of the inverse of A: a name ("jacobi"), a `Preconditioner`, a function
            `r -> M r` on arrays shaped as `b`, a matrix, or None.
        rtol: relative tolerance, one number or one per system; 1e-5 in single and 1e-10 in double precision if None.
        atol: absolute tolerance, one number or one per system.
        max_iter: limit of iterations, 10 n but at most 10 000 if None. An increasing sequence returns the state at each
            of these counts on a new first axis of every array.
        args: further arguments of a function, `A(x, *args)`.
        batch_ndim: for a function A, how many leading axes of `b` are independent systems.
        nullspace: "constant", or independent null vectors `(k, *shape of one system)` of A: the solution then has no
            part in them. "auto" and None take whatever solution the method finds.
        matrix_offset: a constant added to every entry of A.
        on_failure: "raise", "warn" or "status" (leave it to the caller to look at the result).
        history: record residual norms.
        progress: True shows a line on stderr; a function is called with (iteration, residual norm, goal).

    Returns:
        SolveResult; `x` has the type, shape, dtype and device of `b` (complex if A is).

    Raises:
        NotConverged, Diverged: the tolerance was not reached (`.result` has what was); a compiled function raises its
            library's error with the same text when it runs.
        ValueError, TypeError, NoBackendFound, NonlinearError, UnsupportedOperation: an input that cannot be used,
            before any iteration.

    Cost: see the method. On top: 1 product for the true residual (2 with x0); for a function whose values are known, 1
    evaluation to take off a constant part and 3 to test linearity when it is seen for the first time.
    """
    solve = left_alone(_linear_solve)
    inputs = (A, b, x0, args, preconditioner, batch_ndim, rtol, atol, max_iter, nullspace, matrix_offset)
    return solve(inputs, method, _Options(on_failure, history, progress))


linear_solve._torchdynamo_disable = True  # type: ignore[attr-defined]  # torch.compile: make a graph break of the call


def _linear_solve(inputs: tuple[Any, ...], method: str | Method, options: _Options) -> SolveResult:
    check_policy(options.on_failure)
    chosen = None if isinstance(method, str) and method.strip().lower() == "auto" else find_method(method)
    problem = make_problem(*inputs, method=chosen)
    preconditioner = inputs[4]
    register_result(problem.bk)
    if chosen is not None:
        result = _solve_with(problem, chosen, preconditioner, options)
    else:
        result = _solve_automatically(problem, preconditioner, options)
    if not (problem.compiled and problem.is_implicit):  # the solve of a compiled function saw to its failure by itself
        result = apply_policy(problem.bk, result, options.on_failure)
    if problem.is_tracked and not problem.is_implicit:
        sources = (problem.b, *problem.bk.take_apart(problem.A.as_container())[0])
        return replace(result, x=problem.bk.refuse_derivatives(result.x, sources))
    return result


def _solve_automatically(problem: Problem, preconditioner: Any, options: _Options) -> SolveResult:
    choice = choose(problem, preconditioner is not None)
    M = choice.preconditioner if preconditioner is None else preconditioner
    result = _solve_with(problem, choice.method, M, options)
    if choice.fallback is None or np.all(problem.bk.to_numpy(result.status) == Status.CONVERGED):
        return result
    second = _solve_with(problem, choice.fallback, None, options)
    return replace(second, method=f"{second.method} (after {result.method} had failed)")


def _solve_with(problem: Problem, method: Method, preconditioner: Any, options: _Options) -> SolveResult:
    M = None
    if preconditioner is not None:
        if not method.takes_preconditioner:
            raise ValueError(f"{method.name} takes no preconditioner; got {preconditioner!r}. Leave it out.")
        M = to_preconditioner(preconditioner, problem.A, problem.bk, problem.layout, problem.like)
    _check_requirements(problem, method, M)

    def guarded(this: Problem, outcome: Outcome, name: str) -> Outcome:
        result = replace(_result(this, method, M, outcome), method=name, x=outcome.x)
        return outcome._replace(x=apply_policy(this.bk, result, options.on_failure).x)

    outcome = run(problem, method, M, options.history, make_report(options.progress, method.name), guarded)
    result = _result(problem, method, M, outcome)
    if problem.given is None:
        return result
    rows = outcome.x[None] if problem.several and len(problem.limits) == 1 else outcome.x
    return problem.given.restore(problem.bk, result, rows, problem.null_basis is not None)


def _check_requirements(problem: Problem, method: Method, M: Operator | None) -> None:
    if not method.takes_complex and problem.A.dtype.kind == "c":
        raise TypeError(
            f"{method.name} takes real systems only; this one is {problem.A.dtype}. Use biCG-stab(2) or scipy-GMres."
        )
    method.check(problem.A, M)
    if method.needs_transpose:
        _check_transpose(problem.A, method)
        if M is not None:
            _check_transpose(M, method)
    if not method.needs_hermitian:
        return
    relative = asymmetry(problem.A)
    if relative is not None and relative > _NOT_SYMMETRIC:
        word, adjoint = (
            ("symmetric", "transpose") if problem.A.dtype.kind != "c" else ("Hermitian", "conjugate transpose")
        )
        raise ValueError(
            f"{method.name} needs a {word} matrix; this one differs from its {adjoint} by a relative {relative:.1e}. "
            "Use biCG-stab(2), scipy-GMres or scipy-direct."
        )
    if isinstance(M, Preconditioner) and M.hermitian is False:
        raise ValueError(f"{method.name} needs a symmetric preconditioner; {M!r} is not. Use biCG-stab(2).")


def _check_transpose(operator: Operator, method: Method) -> None:
    try:
        operator.transpose()
    except TypeError as error:
        raise UnsupportedOperation(f"{method.name} needs products with the transpose. {error}") from error


def _result(problem: Problem, method: Method, M: Operator | None, outcome: Outcome) -> SolveResult:
    bk, layout = problem.bk, problem.layout
    lead = (len(problem.limits),) if len(problem.limits) > 1 else ()
    if problem.several and not lead:
        outcome = Outcome(*(() if isinstance(a, tuple) else a[None] for a in outcome))
        lead = (1,)

    def per_system(values: Array) -> Array:
        return bk.reshape(values, (*lead, *layout.batch))

    status = per_system(outcome.status)
    steps = per_system(outcome.steps)
    return SolveResult(
        x=layout.unflatten(bk, outcome.x, lead),
        residual=layout.unflatten(bk, outcome.residual, lead),
        residual_norm=per_system(outcome.norm),
        tolerance=per_system(outcome.bound),
        iterations=steps,
        function_evaluations=per_system(outcome.products),
        converged=status == int(Status.CONVERGED),
        diverged=status == int(Status.DIVERGED),
        status=status,
        history=None if isinstance(outcome.history, tuple) else _history(problem, outcome.history, steps, lead),
        method=method.name,
        preconditioner=M.kind if isinstance(M, Preconditioner) else None,
        least_squares=problem.given is not None,
    )


def _history(problem: Problem, lines: Array, steps: Array, lead: tuple[int, ...]) -> Array:
    """`(*lead, iterations + 1, *batch)`, cut after the last iteration where that is known."""
    bk = problem.bk
    if not problem.compiled and not bk.compiled(steps):
        longest = int(np.max(bk.to_numpy(steps), initial=0)) + 1
        lines = lines[..., :longest, :]
    return bk.reshape(lines, (*lead, int(lines.shape[-2]), *problem.layout.batch))
