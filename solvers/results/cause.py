"""One thing that keeps a solve from its tolerance, in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Cause(NamedTuple):
    """What was seen, and what to do about it.

    Attributes:
        seen: a sentence without its period.
        advice: what to do, in the imperative; empty where the sentence says it.
        settles: does it explain the failure by itself? Then the general advice is left out.
    """

    seen: str
    advice: str = ""
    settles: bool = True


LookForCauses = Callable[..., "tuple[Cause, ...] | None"]
"""From how each system ended, `numbers_of` a result, to the causes that are seen; None where nothing was looked at."""
