"""What members of a communicator do together at the end of an iteration; without one, nothing."""

from __future__ import annotations

from collections.abc import Callable

from ...backends import Backend, agreed
from ..iteration.outcome import Outcome


def replicated(bk: Backend, outcome: Outcome) -> Outcome:
    """The outcome of parts of vectors, with numbers that are known to be those of all members."""
    alike = [name for name in Outcome._fields if name not in ("x", "residual", "history")]
    found = {name: bk.replicated(getattr(outcome, name)) for name in alike}
    lines = outcome.history if isinstance(outcome.history, tuple) else bk.replicated(outcome.history)
    return outcome._replace(**found, history=lines)


def raise_in_all(bk: Backend, what: str, check: Callable[[], None]) -> None:
    """`check()`, and an error in all members where it raises one in any.

    Raises:
        OtherMemberFailed: it did in another one.
    """
    agreed(bk.communicator, what, check)


def shows_no_progress(bk: Backend) -> bool:
    """Is it a member that leaves the line of progress to the first one?"""
    return bk.communicator is not None and not bk.communicator.is_traced and bk.communicator.rank > 0
