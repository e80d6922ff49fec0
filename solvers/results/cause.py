"""Cause of a failure, in words."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np


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


class LookForCauses(Protocol):
    """What can be looked at after a solve."""

    def __call__(self, *numbers: np.ndarray) -> tuple[Cause, ...] | None:
        """From how each system ended, `numbers_of` a result, to the causes; None where nothing was looked at."""

    @property
    def name(self) -> str | None:
        """The same for looks in compiled functions that see the same, in every process; None where there is none."""


def from_the_start() -> Cause:
    """Of a solve that diverged in no steps, whose right-hand side is not at hand."""
    return Cause("b is not finite, or x0 or its product with A", ("look in b (and x0) for NaN and infinity",))
