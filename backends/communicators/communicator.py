"""The Communicator protocol: what a reduction over unknowns needs of MPI, torch.distributed or a device mesh."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

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


def as_integers(numbers: Sequence[int]) -> np.ndarray:
    """An array of Python's integers, for a message."""
    return np.array(numbers, np.int64)
