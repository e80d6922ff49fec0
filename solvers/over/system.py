"""The problem of a solve over a communicator: this member's part of it, and what all members agree on.

First everything that one member can find wrong by itself is looked at, without a message. Then they tell each other
whether anyone has failed, and how they are set: a member that went another way would leave the others waiting for ever.
"""

from __future__ import annotations

import zlib
from dataclasses import is_dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend, agreed, choose_backend, find_communicator, of_libraries, over_members
from ...sparse import FunctionOperator, HostOperator, Operator, UnsupportedOperation, is_function
from ..methods.method import Method
from ..preconditioners import Preconditioner
from ..read.arguments import Request, find_limits
from ..read.system import System, read_system
from .methods import refuse_method
from .null_vectors import given_null_vectors, orthonormal_over
from .preconditioner import of_one_part


class SystemOfPart(NamedTuple):
    """A problem over a communicator.

    Attributes:
        system: in this member's rows, on the backend of the communicator.
        M: the preconditioner of this part, the name of one that is made of products with A, or None.
    """

    system: System
    M: Operator | str | None


def system_over(request: Request, method: Method | None) -> SystemOfPart:
    """Check, agree and complete.

    Args:
        method: None where it is still to be chosen.

    Raises:
        OtherMemberFailed: another member raised one of the following.
        ValueError, TypeError: as `read_system`; what `over` does not go with; members differ in their settings.

    Cost: 3 messages, and 1 product; more with null vectors.
    """
    communicator = find_communicator(request.over)
    bk, local, M, vectors = agreed(communicator, "the arguments", lambda: _checked(request, method))
    _agree_on_settings(bk, request, local)
    limits, several = find_limits(bk, request.max_iter, bk.unknowns(local.b), local.layout.batch)
    A = _on_members(local.A if local.given is None else local.given.A, bk)
    # vectors that are given are those of A, as everywhere
    system = replace(local, bk=bk, limits=limits, several=several, both=local.both and vectors is None)
    if system.is_empty:
        return SystemOfPart(replace(system, A=A), None)
    A, rows = _linear(bk, A, local)
    M = _preconditioner_on_members(M, bk)
    given = None
    if local.given is not None:
        given = replace(local.given, A=A, b=rows)
        A, rows = given.equations()
    null = None if vectors is None else orthonormal_over(bk, A, vectors)
    return SystemOfPart(replace(system, A=A, b=rows, given=given, null=null), M)


def _checked(request: Request, method: Method | None) -> tuple[Backend, System, Any, Array | None]:
    """What can be seen without a message.

    Returns:
        The backend of the communicator; the problem of this part alone, its preconditioner and null vectors.
    """
    alone = choose_backend(request.b, request.A, request.x0, *of_libraries(request.args))
    alone.check_numbers(request.b, "b")
    bk = over_members(alone, request.over)
    if alone.is_eager and alone.compiled():
        raise UnsupportedOperation(
            "A transformation of functions (vmap, grad, jvp) runs, which sends no messages; expected a solve outside "
            "of it. Give a batch by batch_ndim, and take derivatives by autograd."
        )
    if request.sharding is not None:
        raise ValueError(
            f"sharding={request.sharding!r} tells how a whole b is spread over devices, and with over= b is the part "
            "of one member; give one of the two."
        )
    if request.matrix_offset is not None:
        raise ValueError(
            "matrix_offset adds a number to every entry of A, and with over= it would have to be summed over all "
            "members; expected None. Add it in the function A, with a sum over the communicator."
        )
    _refuse_matrix(request.A, alone)
    if method is not None:
        refuse_method(method)
    system = read_system(request, method)
    M = of_one_part(request.preconditioner, system, method)
    return bk, system, M, given_null_vectors(request.nullspace, system)


def _refuse_matrix(A: Any, alone: Backend) -> None:
    """Raises TypeError for what does not tell what the unknowns of other members have to do with these."""
    if is_function(A) or isinstance(A, FunctionOperator):
        return
    if alone.on_host and hasattr(A, "matvec") and not isinstance(A, Operator):
        return
    also = ", a LinearOperator" if alone.on_host else ""
    raise TypeError(
        f"A is a {type(A).__name__}; with over= expected a function of this member's part{also}, which exchanges with "
        "other members what it needs: a matrix does not tell what their unknowns have to do with these."
    )


def _agree_on_settings(bk: Backend, request: Request, local: System) -> None:
    """Raises ValueError in all members where they are not set alike: then they would make different steps."""
    monitor = request.monitor
    told = None if monitor is None else (monitor.callback is None, monitor.time_limit is None)
    kind = request.preconditioner if isinstance(request.preconditioner, str) else type(request.preconditioner).__name__
    method = request.method if isinstance(request.method, str) else _settings_of(request.method)
    numbers = [repr(value) for value in (request.rtol, request.atol, request.max_iter)]
    null = request.nullspace if isinstance(request.nullspace, str | None) else np.shape(request.nullspace)[:1]
    settings = (method, kind, *numbers, request.x0 is None, request.history, null, told)
    mine = repr((*settings, local.layout.batch, local.A.dtype.name, request.on_failure == "nan", request.derived))
    number = zlib.crc32(mine.encode())
    most, least = bk.communicator.max_of_numbers([number, -number])
    if most != -least:
        raise ValueError(
            f"The members of the communicator are not set alike; expected one method, one preconditioner, the same "
            f"tolerances, limits, batch axes and dtype in all {bk.communicator.size}. This one has {mine}."
        )


def _settings_of(method: Method) -> str:
    return repr(method) if is_dataclass(method) else method.name


def _on_members(A: Operator, bk: Backend) -> Operator:
    """The operator on the backend of the communicator."""
    if isinstance(A, HostOperator):
        return A.of_part(bk)
    if not isinstance(A, FunctionOperator):
        raise TypeError(f"A is a {type(A).__name__}; expected a function.")
    return FunctionOperator(bk, A.function, A.layout, A.dtype, A.args, A.name, A.like, image=A.image)


def _preconditioner_on_members(M: Any, bk: Backend) -> Any:
    """A user's function likewise; all others are of this part alone, and stay so."""
    if not isinstance(M, Preconditioner) or not isinstance(M.inner, FunctionOperator):
        return M
    inner = _on_members(M.inner, bk)
    inner.may_round = True  # type: ignore[attr-defined]
    return replace(M, inner=inner)


def _linear(bk: Backend, A: Operator, local: System) -> tuple[Operator, Array]:
    """The linear part of A, and b without its constant part; all members find one, or none does."""
    b, communicator = local.b, bk.communicator
    zeros = bk.zeros((local.layout.systems, A.shape[1]), A.dtype, local.like)
    if not isinstance(A, FunctionOperator):
        agreed(communicator, "its first product with A", lambda: A.apply(zeros))
        return A, b
    if communicator.is_traced:
        A = A.as_traced()
        constant = A.apply(zeros)
    else:
        constant = agreed(communicator, "its first product with A", lambda: A.apply(zeros))
        image = bk.to_numpy(constant)
        mine = [bk.tracks(constant), bk.tracks(b)]
        is_affine = bool(np.any(image[np.isfinite(image)]))
        affine, *tracked = communicator.max_of_numbers([is_affine, *mine, *(not one for one in mine)])
        if any(yes and no for yes, no in zip(tracked[:2], tracked[2:], strict=True)):
            raise ValueError(
                "Derivatives by b, or by what A depends on, are recorded in some members of the communicator only; "
                "expected all or none: each takes part in the solve for a derivative. Set requires_grad_() in all."
            )
        A.tracked = mine[0]
        constant = constant if affine else None
    linear = A.with_constant(constant)
    linear.is_linear = True
    return linear, b if constant is None else linear.image.difference(bk, b, constant)
