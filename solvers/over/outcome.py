"""The outcome of a solve as all members of a communicator have it, and which of them shows progress.

Without a communicator nothing is changed. `Attempt` needs this, which the rest of the folder is made of.
"""

from __future__ import annotations

from ...backends import Backend
from ..run.outcome import Outcome


def replicated(bk: Backend, outcome: Outcome) -> Outcome:
    """The outcome of parts of vectors, with numbers that are known to be those of all members."""
    alike = [name for name in Outcome._fields if name not in ("x", "residual", "history")]
    found = {name: bk.replicated(getattr(outcome, name)) for name in alike}
    lines = outcome.history if isinstance(outcome.history, tuple) else bk.replicated(outcome.history)
    return outcome._replace(**found, history=lines)


def shows_no_progress(bk: Backend) -> bool:
    """Is it a member that leaves the line of progress to the first one?"""
    return bk.communicator is not None and not bk.communicator.is_traced and bk.communicator.rank > 0
