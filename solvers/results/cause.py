"""Cause of a failure, in words."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np


class Cause(NamedTuple):
    """A cause and what to do about it.

    Attributes:
        seen: the finding, a sentence without its period.
        advice: what to do, alternatives in the imperative.
        settles: does it explain the failure by itself? Then the general advice is left out.
    """

    seen: str
    advice: tuple[str, ...] = ()
    settles: bool = True


class LookForCauses(Protocol):
    """Protocol of diagnoses after a solve."""

    def __call__(self, *numbers: np.ndarray) -> tuple[Cause, ...] | None:
        """Find the causes for the end states of the systems; None if nothing could be examined."""

    @property
    def name(self) -> str | None:
        """Name of a diagnosis in compiled functions, equal across processes; None if there is none."""


def from_the_start() -> Cause:
    """Cause of a solve that diverged in 0 steps, with an unknown right-hand side."""
    return Cause("b is not finite, or x0 or its product with A", ("look in b (and x0) for NaN and infinity",))
