"""mpi4py communicators, for NumPy arrays."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from .communicator import as_integers


class MPICommunicator:
    """See `Communicator`. Every reduction is one `Allreduce` on the memory of an array, without pickling."""

    is_traced = False

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.size, self.rank = comm.Get_size(), comm.Get_rank()
        self.key: Hashable = ("MPI", MPI._handleof(comm))

    def sum(self, x: np.ndarray) -> np.ndarray:
        return self._reduced(x, MPI.SUM)

    def max(self, x: np.ndarray) -> np.ndarray:
        return self._reduced(x, MPI.MAX)

    def any(self, flag: bool) -> bool:
        return self.max_of_numbers([int(flag)]) == [1]

    def sum_of_numbers(self, numbers: Sequence[int]) -> list[int]:
        return self._reduced(as_integers(numbers), MPI.SUM).tolist()

    def max_of_numbers(self, numbers: Sequence[int]) -> list[int]:
        return self._reduced(as_integers(numbers), MPI.MAX).tolist()

    def _reduced(self, x: np.ndarray, operation: Any) -> np.ndarray:
        given = np.ascontiguousarray(x).reshape(np.shape(x))
        found = np.empty_like(given)
        self.comm.Allreduce(given, found, op=operation)
        return found


def by_mpi(over: Any) -> MPICommunicator | None:
    """The communicator; None if it is no mpi4py intracommunicator."""
    return MPICommunicator(over) if isinstance(over, MPI.Intracomm) and over != MPI.COMM_NULL else None
