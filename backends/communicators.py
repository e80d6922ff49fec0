"""Communicators: processes or devices that each hold a part of every vector, and backends whose sums go over them."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import cache
from threading import Lock
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from .interface.arrays import Array, scattered
from .interface.backend import Backend
from .registry import loaded_backends

T = TypeVar("T")


class Communicator(Protocol):
    """Members that hold parts of vectors; hashable, equal where it is the same group.

    All members call the same functions in the same order. Every sum and every maximum is the same number, to the last
    digit, in each of them, or they would take different branches.

    Attributes:
        size: number of members.
        rank: that of this member, an int; of a device mesh an array of the running program.
        key: equal for the same group.
        is_traced: do all members run one program, so that Python's errors are raised for all of them?
    """

    size: int
    key: Hashable
    is_traced: bool

    @property
    def rank(self) -> Any: ...

    def sum(self, x: Any) -> Any:
        """The sum of an array over the members, a new array of the same shape and dtype."""
        ...

    def max(self, x: Any) -> Any:
        """The largest of each element over the members, of real numbers without NaN."""
        ...

    def any(self, flag: bool) -> bool:
        """Does any member say True? Not of a device mesh, whose members are traced as one."""
        ...

    def sum_of_numbers(self, numbers: Sequence[int]) -> list[int]:
        """Sums of Python's integers over the members."""
        ...

    def max_of_numbers(self, numbers: Sequence[int]) -> list[int]:
        """The largest of Python's integers over the members."""
        ...


class OtherMemberFailed(RuntimeError):
    """Another member of the communicator raised an error, which stands in its own output.

    Examples:
        >>> import krylix
        >>> issubclass(krylix.OtherMemberFailed, RuntimeError)
        True
    """


def agreed(communicator: Communicator | None, what: str, work: Callable[[], T]) -> T:
    """`work()`, if no member fails in it: else its own error in each member that has one, and a word in the others.

    Cost: one message of a number.

    Args:
        communicator: None: there are no others.
        what: the work, for the message.
        work: communicates by itself in all members or in none before it may fail.

    Raises:
        OtherMemberFailed: another one failed.
    """
    if communicator is None or communicator.is_traced:
        return work()
    failure: Exception | None = None
    try:
        found = work()
    except Exception as error:
        failure = error
    failed = communicator.any(failure is not None)
    if failure is not None:
        raise failure
    if failed:
        raise OtherMemberFailed(
            f"Another member of the communicator failed in {what}, and says why. All {communicator.size} members stop "
            "here; this one had nothing to object."
        )
    return found


# --- Backends whose reductions over unknowns are summed over the members of a communicator ----------------------------
# Vectors are this member's parts. What a step of a method computes of them for all members goes through the functions
# below and through no other: sums of anything else (coefficients of a basis, counts) are the same in every member.

# While something uses them: a process group that outlived its program would end the process with an error.
_bound: WeakValueDictionary[Any, Backend] = WeakValueDictionary()
_lock = Lock()


def over_members(bk: Backend, over: Any) -> Backend:
    """The backend for parts of vectors; the same object for the same communicator, as long as something uses it.

    Args:
        over: what the user gave, see `linear_solve`.

    Raises:
        TypeError: it is none for arrays of this library.
        ValueError: it is none now.
    """
    communicator = communicator_of(bk, over)
    key = bk.name, communicator.key
    with _lock:
        found = _bound.get(key)
        if found is None:
            found = _bound[key] = _made(bk, communicator)
    return found


def find_communicator(over: Any) -> Any:
    """The `Communicator` of what a user gave, whatever the library of his arrays; None if it is none of any library."""
    for bk in loaded_backends():
        with suppress(ValueError):  # none now: said where the library of the arrays is known
            if (found := bk._communicator(over)) is not None:
                return found
    return None


def communicator_of(bk: Backend, over: Any) -> Any:
    """The `Communicator` of what a user gave, for arrays of this library.

    Raises:
        TypeError, ValueError: see `over_members`.
    """
    found = bk._communicator(over)
    if found is not None:
        return found
    got = f"over={over!r} ({type(over).__module__}.{type(over).__name__}) was given with arrays of {bk.name}"
    if bk._communicators:
        raise TypeError(f"{got}; expected {bk._communicators}.")
    raise TypeError(
        f"{got}, which has no communicators; expected arrays of NumPy (with mpi4py), PyTorch (a process group) or JAX "
        "(mesh axes inside jax.shard_map)."
    )


def _made(bk: Backend, communicator: Any) -> Backend:
    made: Backend = _class_over_members(type(bk))()
    made.__dict__.update(vars(bk), communicator=communicator, alone=bk)
    return made


@cache
def _class_over_members(cls: Any) -> Any:
    bases = (*cls._of_members, SumsOverMembers, cls)
    return type(f"{cls.__name__}OfMembers", bases, {"__module__": __name__})


class SumsOverMembers(Backend):
    """The functions that reduce, each one message.

    Attributes:
        alone: the library's own backend, whose reductions are those of one part.
    """

    alone: Backend

    def dot(self, a: Array, b: Array) -> Array:
        return self.communicator.sum(self.alone.dot(a, b))

    def dots(self, *pairs: tuple[Array, Array]) -> tuple[Array, ...]:
        sums = self.communicator.sum(self.concat(self.alone.dots(*pairs), 1))
        return tuple(sums[:, k : k + 1] for k in range(len(pairs)))

    def square_norm(self, v: Array) -> Array:
        return self.communicator.sum(self.alone.square_norm(v))

    def axpy_norm(self, a: Array, x: Array, y: Array) -> tuple[Array, Array]:
        y, square = self.alone.axpy_norm(a, x, y)
        return y, self.communicator.sum(square)

    def stack_dots(self, stack: Array, v: Array) -> Array:
        return self.communicator.sum(self.alone.stack_dots(stack, v))

    def max_abs(self, v: Array) -> Array:
        largest = self.alone.max_abs(v)
        # of a NaN and a number, members could take one or the other
        return self.communicator.max(self.where(largest == largest, largest, self.full_like(largest, np.inf)))

    def norm(self, v: Array) -> Array:
        return Backend.norm(self, v)

    def binary_scale(self, v: Array) -> Array:
        return Backend.binary_scale(self, v)

    def by_parts(self, function: Callable[..., tuple[tuple[Array, ...], tuple[Array, ...]]], *blocks: Array) -> Any:
        return function(*blocks)  # whose sums are those of all members, so it is called once

    def unknowns(self, v: Array) -> int:
        return self.communicator.sum_of_numbers([int(v.shape[1])])[0]

    def scatter_numbers(self, n: int, dtype: np.dtype, like: Array) -> Array:
        """Other numbers in each member: vectors that repeat from part to part could be blind to some of A."""
        first = 1 + n * self.communicator.rank
        return self.asarray(scattered(np, np.arange(first, first + n, dtype=np.float64)), dtype, like)

    # --- nothing that looks at arrays of one part, or leaves its library

    def rows_on_host(self, rows: Array) -> np.ndarray | None:
        return None

    def host_view(self, x: Array) -> np.ndarray | None:
        return None

    def may_leave_to_host(self, b: Array, *arrays: Any) -> bool:
        return False

    def can_rescue(self) -> bool:
        return False

    def sets_up_by_host(self) -> bool:
        return False

    def compiles_numbers(self, x: Array) -> bool:
        return False

    def spreads_arrays(self) -> bool:
        return False

    def register(
        self,
        cls: type,
        flatten: Callable[[Any], Any],
        unflatten: Callable[[Any, Sequence[Array]], Any],
    ) -> None:
        self.alone.register(cls, flatten, unflatten)


# --- Processes that each run Python -----------------------------------------------------------------------------------


class _Processes(ABC):
    """A `Communicator` by one reduction of an array, "SUM" or "MAX"."""

    is_traced = False

    @abstractmethod
    def _reduced(self, x: Any, operation: str) -> Any: ...

    def sum(self, x: Any) -> Any:
        return self._reduced(x, "SUM")

    def max(self, x: Any) -> Any:
        return self._reduced(x, "MAX")

    def any(self, flag: bool) -> bool:
        return self.max_of_numbers([int(flag)]) == [1]

    def sum_of_numbers(self, numbers: Sequence[int]) -> list[int]:
        sums: list[int] = self._reduced(np.array(numbers, np.int64), "SUM").tolist()
        return sums

    def max_of_numbers(self, numbers: Sequence[int]) -> list[int]:
        largest: list[int] = self._reduced(np.array(numbers, np.int64), "MAX").tolist()
        return largest


class MPICommunicator(_Processes):
    """mpi4py communicators, for NumPy arrays: every reduction is one `Allreduce`, without pickling."""

    def __init__(self, comm: Any) -> None:
        from mpi4py import MPI

        self.comm, self.MPI = comm, MPI
        self.size, self.rank = comm.Get_size(), comm.Get_rank()
        self.key: Hashable = ("MPI", MPI._handleof(comm))

    def _reduced(self, x: np.ndarray, operation: str) -> np.ndarray:
        part = np.ascontiguousarray(x).reshape(np.shape(x))
        total = np.empty_like(part)
        self.comm.Allreduce(part, total, op=getattr(self.MPI, operation))
        return total


def by_mpi(over: Any) -> MPICommunicator | None:
    """The communicator; None if it is no mpi4py intracommunicator."""
    MPI: Any = sys.modules.get("mpi4py.MPI")  # not imported: then it is none of its
    is_one = MPI is not None and isinstance(over, MPI.Intracomm) and over != MPI.COMM_NULL
    return MPICommunicator(over) if is_one else None


class TorchCommunicator(_Processes):
    """Process groups of torch.distributed: every reduction is one `all_reduce` of a copy, without derivatives."""

    def __init__(self, group: Any) -> None:
        import torch
        import torch.distributed as dist

        self.group, self.dist, self.torch = group, dist, torch
        self.size, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self.key: Hashable = ("torch", group)
        # NCCL reduces memory of its devices only
        self.device = torch.device("cuda") if dist.get_backend(group) == "nccl" else torch.device("cpu")

    def _reduced(self, x: Any, operation: str) -> Any:
        tensor = self.torch.as_tensor(x, device=self.device) if isinstance(x, np.ndarray) else x.detach()
        copy = tensor.resolve_conj().resolve_neg().clone(memory_format=self.torch.contiguous_format)
        self.dist.all_reduce(copy, op=getattr(self.dist.ReduceOp, operation), group=self.group)
        return copy


def by_torch(over: Any) -> TorchCommunicator | None:
    """The communicator; None if it is no process group."""
    dist: Any = sys.modules["torch.distributed"]
    return TorchCommunicator(over) if dist.is_available() and isinstance(over, dist.ProcessGroup) else None
