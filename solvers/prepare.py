"""`prepare`: set-up that depends on A alone, done once for many solves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..backends import Array, get_on_failure, without_compilers
from ..backends.on_failure import OnFailure
from .methods.method import Method
from .names import MethodName, PreconditionerName
from .other_names import with_our_names
from .prepared import PreparedSolver, prepared
from .read.arguments import Request, refused_args, vector_for


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
    """Do once what solves with the same A have in common, A as it is now: matrices are copied.

    That is: checks and conversions, the test of linearity, the choice of the method, the preconditioner, and for
    direct methods the factorisation. `prepare(A, b).solve(b)` gives what `linear_solve(A, b)` gives with the same
    method and preconditioner.

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
        axis: as for `linear_solve`, of `like` and of the right-hand sides whose `solve` is not told another one.
        nullspace: as for `linear_solve`.
        matrix_offset: as for `linear_solve`.
        on_failure: as for `linear_solve`.
        sharding: as for `linear_solve`; if None that of `like`, for right-hand sides of its shape that do not tell.
        over: as for `linear_solve`: `like` and all right-hand sides are this member's parts. Each solve looks at its
            arguments again, in 3 messages and a product, as members could differ in them.

    Returns:
        PreparedSolver: `solve(b, x0=None)` as often as needed, or called for x alone; `update(A)` for other numbers,
        `T` for the transposed matrix.

    Raises:
        ValueError: as `linear_solve`.
        TypeError: as `linear_solve`; a function without `like`.
        NoBackendFound: as `linear_solve`.
        NonlinearError: as `linear_solve`.
        UnsupportedOperation: as `linear_solve`.

    Cost: see the method and the preconditioner, and a copy of the entries. What a function reads (arrays that it closes
    over, a LinearOperator's own) is not copied, and must not be changed between the solves. Factors made where values
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
    """As `prepare`, with the choices of `linear_solve`: for one solve, whose parts are to be looked at apart."""
    return without_compilers(prepared)(Request(A=A, b=like, **settings), None, False)
