"""What a solve does that fails: the policy in force, and whether compiled programs may call the host for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

POLICIES = ("raise", "warn", "status", "nan")
QUIET = ("status", "nan")  # the caller looks at what the solve returns

_local: ContextVar[str | None] = ContextVar("krylix_on_failure", default=None)
_global: list[str] = ["raise"]
_pure: ContextVar[bool | None] = ContextVar("krylix_pure_programs", default=None)


def checked(policy: str) -> str:
    """
    Raises:
        ValueError: there is no such policy.
    """
    if policy not in POLICIES:
        raise ValueError(f"on_failure must be one of {', '.join(map(repr, POLICIES))}; got {policy!r}.")
    return policy


def get_on_failure() -> str:
    """What a solve does here that fails and was given no `on_failure`: "raise", "warn", "status" or "nan"."""
    return _local.get() or _global[0]


def set_global_on_failure(policy: str) -> None:
    """Set what failed solves do in the whole process; `on_failure(policy)` and the argument of a solve override it.

    A compiled function keeps what held when it was traced, a prepared solver what held when it was prepared.

    Args:
        policy: "raise" (the default), "warn", "status" or "nan", see `linear_solve`.

    Raises:
        ValueError: there is no such policy.
    """
    _global[0] = checked(policy)


@contextmanager
def on_failure(policy: str) -> Iterator[None]:
    """Set what failed solves do inside the `with` block (per thread and task).

    A function that is compiled inside keeps it, one that was compiled before keeps its own. JAX traces a Python
    function once for all `jax.jit` of it.

    Args:
        policy: "raise", "warn", "status" or "nan", see `linear_solve`.

    Raises:
        ValueError: there is no such policy.
    """
    token = _local.set(checked(policy))
    try:
        yield
    finally:
        _local.reset(token)


def has_pure_programs() -> bool:
    """Are the programs that are compiled here without calls of the host, as far as it is ours to choose?"""
    pure = _pure.get()
    return get_on_failure() == "nan" if pure is None else pure


def run_for(policy: str, function: Callable[..., T], *args: Any) -> T:
    """`function(*args)`, compiled as a solve with this policy does: with "nan" without calls of the host."""
    token = _pure.set(policy == "nan")
    try:
        return function(*args)
    finally:
        _pure.reset(token)
