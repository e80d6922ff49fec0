"""A prepared solver as a container of arrays, which a compiled function takes as an argument."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..methods.direct.superlu import HostFactors
from ..methods.petsc.inverse import PetscInverse
from ..read.system import KnownNull
from .parts import OtherSide, PreparedParts


def flatten(parts: PreparedParts) -> tuple[tuple[Any, ...], Any]:
    """The arrays and operators of a solver, and what of it belongs to the program that takes them."""
    request = parts.request
    null, both = parts.null or (None, False)
    M = parts.M
    factors = (
        M if isinstance(M, HostFactors | PetscInverse) else None
    )  # no arrays of a library: another solver is another program
    other, other_static = _flatten_other(parts.other)
    arrays = (parts.A, None if factors is not None else M, request.b, request.rtol, request.atol, null, *other)
    again = replace(request, b=None, rtol=None, atol=None)
    return arrays, (parts.method, parts.fallback, again, parts.why, both, factors, other_static)


def restore(static: Any, arrays: Sequence[Any]) -> PreparedParts:
    """The parts that `flatten` took apart."""
    method, fallback, request, why, both, factors, other_static = static
    A, M, like, rtol, atol, null, *more = arrays
    request = replace(request, b=like, rtol=rtol, atol=atol)
    M, other = M if factors is None else factors, _restore_other(other_static, more)
    return PreparedParts(A, method, M, fallback, request, why, KnownNull(null, both), other)


def _flatten_other(other: OtherSide | None) -> tuple[tuple[Any, ...], Any]:
    if other is None:
        return (), None
    projection, both = other.null or (None, None)
    return (other.like, projection), (both, other.nullspace, other.axis)


def _restore_other(static: Any, arrays: Sequence[Any]) -> OtherSide | None:
    if static is None:
        return None
    both, nullspace, axis = static
    like, projection = arrays
    return OtherSide(like, None if both is None else KnownNull(projection, both), nullspace, axis)
