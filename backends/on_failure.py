"""Failure policy of solves, `on_failure`, and whether compiled programs may call the host for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from .setting import Setting

T = TypeVar("T")

OnFailure: TypeAlias = Literal["raise", "warn", "status", "nan"]
"""What a failed solve does, see `linear_solve`."""

POLICIES: tuple[OnFailure, ...] = get_args(OnFailure)
QUIET = ("status", "nan")  # the caller looks at what the solve returns

_setting: Setting[OnFailure] = Setting("on_failure", "raise", compiled=True)
_pure: ContextVar[bool | None] = ContextVar("krylix_pure_programs", default=None)


def checked_policy(policy: str) -> OnFailure:
    """
    Raises:
        ValueError: there is no such policy.
    """
    if policy not in POLICIES:
        raise ValueError(f"on_failure must be one of {', '.join(map(repr, POLICIES))}; got {policy!r}.")
    return policy


def get_on_failure() -> OnFailure:
    """The policy for failed solves without an `on_failure` argument: "raise", "warn", "status" or "nan".

    Examples:
        >>> import krylix
        >>> with krylix.on_failure("warn"):
        ...     krylix.get_on_failure()
        'warn'
    """
    return _setting.get()


def set_global_on_failure(policy: OnFailure) -> None:
    """Set what failed solves do in the whole process; `on_failure(policy)` and the argument of a solve override it.

    A function of `jax.jit` follows it (where there is `jax.make_user_context`), other compiled functions keep what held
    when they were traced, a prepared solver what held when it was prepared.

    Args:
        policy: "raise" (the default), "warn", "status" or "nan", see `linear_solve`.

    Raises:
        ValueError: there is no such policy.

    Examples:
        >>> import krylix
        >>> krylix.set_global_on_failure("warn")
        >>> krylix.get_on_failure()
        'warn'
        >>> krylix.set_global_on_failure("raise")
    """
    _setting.set_global(checked_policy(policy))


@contextmanager
def on_failure(policy: OnFailure) -> Iterator[None]:
    """Set what failed solves do inside the `with` block (per thread and task).

    A function of `jax.jit` that is called inside is compiled for it (where there is `jax.make_user_context`). Other
    compiled functions keep what held when they were traced.

    Args:
        policy: "raise", "warn", "status" or "nan", see `linear_solve`.

    Raises:
        ValueError: there is no such policy.

    Examples:
        >>> import numpy as np, krylix
        >>> with krylix.on_failure("status"):
        ...     result = krylix.linear_solve(np.diag([1.0, 2.0, 3.0]), np.ones(3), method="CG", max_iter=1)
        >>> bool(result.converged)
        False
    """
    with _setting.local(checked_policy(policy)):
        yield


def has_pure_programs() -> bool:
    """Are programs compiled without host callbacks under the policy in force?"""
    pure = _pure.get()
    return get_on_failure() == "nan" if pure is None else pure


def run_for(policy: str, function: Callable[..., T], *args: Any) -> T:
    """`function(*args)`, compiled as a solve with this policy does: with "nan" without calls of the host."""
    token = _pure.set(policy == "nan")
    try:
        return function(*args)
    finally:
        _pure.reset(token)
