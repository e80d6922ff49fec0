"""What is raised when a solve fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .result import SolveResult


class ConvergenceError(RuntimeError):
    """A solve did not reach its tolerance. `result` holds all that it found, per system."""

    def __init__(self, message: str, result: SolveResult | None = None) -> None:
        super().__init__(message)
        self.result = result


class NotConverged(ConvergenceError):
    """The tolerance was not reached: limit of iterations, no more progress, or breakdown."""


class Diverged(ConvergenceError):
    """The iteration left the finite numbers, or its input already had."""
