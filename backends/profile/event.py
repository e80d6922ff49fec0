"""One call in a profile."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .source_lines import SourceLine

KINDS = {
    "solve": "a call of linear_solve, of a prepared solver, of solve_nonlinear or minimize",
    "set-up": "checks, the choice of a method, preconditioners and factors",
    "run": "the iterations of a solve, or an application of factors",
    "judge": "the outcome as a result; of a failure what `on_failure` says, and its cause",
    "trace": "the matrix of a function",
    "product": "A x",
    "preconditioner": "M r, or an application of factors",
    "operation": "an operation on arrays",
    "user": "a function of the user, called by krylix",
    "host call": "a function on the host, called by a program",
    "compiled": "a compiled function; its first call includes compiling it",
    "derivative": "a function that backend.jacobian or hessian made",
    "region": "what the user has named",
}
"""Kind of an event -> what it is."""


@dataclass(eq=False, slots=True)
class ProfileEvent:
    """One call.

    Attributes:
        name: of the function.
        kind: a key of `KINDS`.
        library: name of the backend, or None.
        thread: number of the thread, in order of appearance.
        parent: the call around it, or None.
        lines: of the user's files, the outermost first, the calling one last.
        traced: was it recorded into a program instead of run? Its time is then that of tracing.
        start, end: in seconds of `time.perf_counter`; end is None while it runs.
        inside: seconds of the calls that it made.
        facts: shapes and dtypes of its arrays, and for a solve its outcome.
    """

    name: str
    kind: str
    library: str | None
    thread: int
    parent: ProfileEvent | None = None
    lines: tuple[SourceLine, ...] = ()
    traced: bool = False
    start: float = 0.0
    end: float | None = None
    inside: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def duration(self) -> float:
        """Seconds, with the calls that it made."""
        return 0.0 if self.end is None else self.end - self.start

    @property
    def own_time(self) -> float:
        """Seconds without the calls that it made."""
        return max(self.duration - self.inside, 0.0)

    @property
    def depth(self) -> int:
        """Number of calls around it."""
        return 0 if self.parent is None else self.parent.depth + 1

    def __repr__(self) -> str:
        traced = ", traced" if self.traced else ""
        return f"<{self.kind} {self.name}: {time_text(self.duration)}{traced}>"


def time_text(seconds: float) -> str:
    """Three digits, in a unit that suits them."""
    unit, factor = next(((u, f) for u, f in (("s", 1), ("ms", 1e3)) if seconds * f >= 1), ("us", 1e6))
    return f"{seconds * factor:.3g} {unit}"
