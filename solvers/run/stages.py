"""State of the iteration between rounds and within one; see `Iteration`."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from ...backends import Array, Backend
from ...sparse import Operator
from ..methods.method import Goal, Method


class StageSolve(Protocol):
    """Constants of a solve; see `Iteration`."""

    @property
    def bk(self) -> Backend: ...
    @property
    def method(self) -> Method: ...
    @property
    def A(self) -> Operator: ...
    @property
    def in_steps(self) -> Operator: ...
    @property
    def M(self) -> Operator | None: ...
    @property
    def b(self) -> Array: ...
    @property
    def started(self) -> bool: ...
    @property
    def by_default(self) -> bool: ...
    def without_null(self, x: Array) -> Array: ...
    def in_range(self, r: Array) -> Array: ...


class Tally(NamedTuple):
    """Counts and norms per system, `(batch, 1)`, and the history."""

    status: Array
    steps: Array
    products: Array
    history: Any
    kept: Any  # at checkpoints, or ()


class Between(NamedTuple):
    """State between two rounds: x and its true residual."""

    x: Array
    r: Array
    norm: Array
    attempt: Array  # rounds that ended in a breakdown or without progress
    size: Array  # norm of b
    asked: Array  # residual norm by the tolerances
    bound: Array  # residual norm that counts as converged
    goal: Array  # goal of the next round
    attainable: Array  # see Outcome
    tally: Tally


class Round(NamedTuple):
    """State within a round that started at `start`."""

    start: Between
    scale: Array
    goal: Goal
    state: Any
    tally: Tally
