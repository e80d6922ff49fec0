"""One thing that keeps a solve from its tolerance, in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Cause(NamedTuple):
    """What was seen, and what to do about it.

    Attributes:
        seen: a sentence without its period.
        advice: what to do, alternatives in the imperative.
        settles: does it explain the failure by itself? Then the general advice is left out.
    """

    seen: str
    advice: tuple[str, ...] = ()
    settles: bool = True


LookForCauses = Callable[..., "tuple[Cause, ...] | None"]
"""From how each system ended, `numbers_of` a result, to the causes that are seen; None where nothing was looked at."""


def from_the_start() -> Cause:
    """Of a solve that diverged in no steps, whose right-hand side is not at hand."""
    return Cause("b is not finite, or x0 or its product with A", ("look in b (and x0) for NaN and infinity",))
