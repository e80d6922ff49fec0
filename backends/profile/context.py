"""`profile`, `profile_function`, `get_current_profile`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..interface.backend import Backend
from ..registry import get_backend
from .spans import NO_SPAN, RUNNING, name_of

if TYPE_CHECKING:
    from .recording import Profile

Backends = str | Backend | Iterable[str | Backend] | None


@contextmanager
def profile(
    backends: Backends = None, trace: bool = True, blocking: bool = True, save: str | Path | None = None
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

    Cost: 5 ms at the beginning (the first profile of a process: 0.1 s), and 10 to 20 us for each call, of which
    `retime` leaves half.

    Examples:
        >>> import numpy as np, krylix
        >>> with krylix.profile() as prof:
        ...     result = krylix.linear_solve(np.diag([1.0, 2.0]), np.ones(2), method="CG")
        >>> [event.facts["iterations"] for event in prof.events if event.kind == "solve"]
        [2]
    """
    several = (backends,) if isinstance(backends, str | Backend) else backends
    libraries = None if several is None else {get_backend(backend).name for backend in several}
    running: Profile = _recording().Profile(libraries, trace, blocking)
    try:
        with running.record():
            yield running
    finally:
        if save is not None:
            running.save(save)


def profile_function(
    function: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    backends: Backends = None,
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

    def call(times: int, running: Profile | None = None) -> None:
        for _ in range(times):
            with NO_SPAN if running is None else running.region(name_of(function)):
                function(*args, **(kwargs or {}))

    call(warmup)
    with profile(backends, trace, blocking) as running:
        call(call_count, running)
    if retime:
        try:
            with running.retime():
                call(call_count, running)
        except _recording().OtherCalls as error:
            running.add_external_message(f"Times are those of the run that looked for lines. {error}")
    return running


def get_current_profile() -> Profile | None:
    """The profile that began last and still runs; None where there is none.

    Examples:
        >>> import krylix
        >>> with krylix.profile() as prof:
        ...     print(krylix.get_current_profile() is prof)
        True
    """
    return RUNNING[-1] if RUNNING else None


def _recording() -> Any:
    """Late: an import of krylix needs none."""
    return import_module(".recording", __package__)
