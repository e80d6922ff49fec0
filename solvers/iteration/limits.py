"""Iteration limits of each system, and its checkpoints."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Limits:
    """Iteration limits; hashable, as programs depend on them.

    Attributes:
        rows: `(checkpoints, 1)` or, with limits of its own for each system, `(checkpoints, systems)`; increasing along
            the first axis. The last one ends the solve.
    """

    rows: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, counts: np.ndarray) -> Limits:
        """From an array `(checkpoints, 1 or systems)`."""
        return cls(tuple(tuple(int(c) for c in row) for row in counts))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def most(self) -> int:
        """Largest limit of any system."""
        return max(self.rows[-1], default=0)

    @property
    def last(self) -> int | np.ndarray:
        """Final limit: one number, or `(systems, 1)`."""
        return self.rows[-1][0] if len(self.rows[-1]) == 1 else np.array(self.rows[-1], np.int32)[:, None]

    def of_systems(self, count: int) -> Limits:
        """Limits of a batch that repeats the systems, as under vmap."""
        own = len(self.rows[-1])
        return self if own <= 1 else Limits(tuple(row * (count // own) for row in self.rows))

    def table(self) -> np.ndarray:
        """`(1 or systems, checkpoints)`."""
        return np.array(self.rows, np.int32).T
