"""`profile`, `profile_function`, `get_current_profile`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..interface.backend import Backend
from ..registry import get_backend
from .spans import RUNNING, name_of

if TYPE_CHECKING:
    from .user_profile import Profile


@contextmanager
def profile(
    backends: str | Backend | Iterable[str | Backend] | None = None,
    trace: bool = True,
    blocking: bool = True,
    save: str | Path | None = None,
) -> Iterator[Profile]:
    """Record the calls of krylix inside the `with` block: solves and their parts, and operations of backends.

    All threads are recorded, each on its own track. In a program of `jax.jit` or `tf.function`, calls are seen while it
    is traced, and marked as such; when it runs, it is one event if `backend.compile` made it. While no profile runs
    nothing is recorded, and nothing is asked.

    Args:
        backends: whose operations count, by name or as backends; None: those of all libraries.
        trace: look for the lines of the user's files that made the calls, and note shapes.
        blocking: wait for the result of each call, on accelerators and in JAX. Otherwise times are those of handing
            work out.
        save: a file to write at the end, as `Profile.save` does, also after an error.

    Yields:
        Profile: to be printed and saved.

    Cost: 5 ms at the beginning, and 10 to 20 us for each call, of which `retime` leaves half.

    Examples:
        >>> import numpy as np, krylix
        >>> with krylix.profile() as prof:
        ...     result = krylix.linear_solve(np.diag([1.0, 2.0]), np.ones(2), method="CG")
        >>> [event.facts["iterations"] for event in prof.events if event.kind == "solve"]
        [2]
    """
    found: Profile = _module("user_profile").Profile(_names(backends), trace, blocking)
    try:
        with found._record():
            yield found
    finally:
        if save is not None:
            found.save(save)


def profile_function(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    backends: str | Backend | Iterable[str | Backend] | None = None,
    trace: bool = True,
    blocking: bool = True,
    retime: bool = True,
    warmup: int = 2,
    call_count: int = 1,
) -> Profile:
    """Profile `function(*args, **kwargs)`, each call as a region.

    Args:
        function: makes the same calls each time, after its first ones.
        args: its positional arguments.
        kwargs: its keyword arguments.
        backends: whose operations count, by name or as backends; None: those of all libraries.
        trace: look for the lines of the user's files that made the calls, and note shapes.
        blocking: wait for the result of each call, on accelerators and in JAX.
        retime: call it once more without looking for lines, and take the times of that, as `Profile.retime` does.
            Where it has then made other calls, the first times stay, and `notes` says so.
        warmup: how often to call it before: a first call sets up and compiles, a second one keeps what later ones
            reuse.
        call_count: how often to call it in the profile.

    Examples:
        >>> import numpy as np, krylix
        >>> A = np.diag([1.0, 2.0])
        >>> prof = krylix.profile_function(krylix.linear_solve, (A, np.ones(2)), {"method": "CG"})
        >>> len([event for event in prof.events if event.kind == "solve"])
        1
    """
    given: Mapping[str, Any] = {} if kwargs is None else kwargs
    for _ in range(warmup):
        function(*args, **given)

    def run(found: Profile) -> None:
        for _ in range(call_count):
            with found.region(name_of(function)):
                function(*args, **given)

    with profile(backends, trace, blocking) as found:
        run(found)
    if retime:
        try:
            with found.retime():
                run(found)
        except _module("recording").OtherCalls as error:
            found.add_external_message(f"Times are those of the run that looked for lines. {error}")
    return found


def get_current_profile() -> Profile | None:
    """The profile that began last and still runs; None where there is none.

    Examples:
        >>> import krylix
        >>> with krylix.profile() as prof:
        ...     print(krylix.get_current_profile() is prof)
        True
    """
    return RUNNING[-1].owner if RUNNING else None


def _names(backends: Any) -> frozenset[str] | None:
    if backends is None:
        return None
    several = (backends,) if isinstance(backends, str | Backend) else backends
    return frozenset(get_backend(one).name for one in several)


def _module(name: str) -> Any:
    """Late: an import of krylix needs none."""
    return import_module(f".{name}", __package__)
