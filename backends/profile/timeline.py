"""Profiles as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .event import KINDS, ProfileEvent

_COLOURS = {
    "solve": "#30588c",
    "set-up": "#8c6bb1",
    "trace": "#c994c7",
    "product": "#e08214",
    "preconditioner": "#2c9c69",
    "operation": "#9ecae1",
    "user": "#fdd49e",
    "host call": "#d7301f",
    "compiled": "#66608f",
    "derivative": "#a1d99b",
    "region": "#d9d9d9",
}
_TRACED = "#f0e442"
_LEAST = 1 / 4000  # of the width: what is shorter cannot be seen
_LABELLED = 1 / 14


def draw(profile: Any, path: Path | None, ax: Any) -> Any:
    """See `Profile.plot`."""
    events = profile.events
    rows, names = _rows(events, profile.threads)
    if ax is None:
        ax = _new_axes(path, len(rows))
    width = max(profile.duration, 1e-9)
    shown = [event for event in events if event.duration >= _LEAST * width]
    for (kind, traced), alike in _by_colour(shown).items():
        colour = _TRACED if traced else _COLOURS[kind]
        bars = [1e3 * (event.start - profile.start) for event in alike]
        ax.barh(
            [rows[event.thread, event.depth] for event in alike],
            [1e3 * event.duration for event in alike],
            left=bars, height=0.92, color=colour, edgecolor="white", linewidth=0.3,
            label="traced" if traced else f"{kind}: {KINDS[kind]}",
        )  # fmt: skip
    for event in shown:
        if event.duration >= _LABELLED * width:
            _label(ax, event, profile.start, rows[event.thread, event.depth], width)
    _finish(ax, profile, names, len(rows), len(events) - len(shown))
    if path is not None:
        ax.figure.savefig(path)
    return ax


def _new_axes(path: Path | None, count: int) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("Profile.plot needs matplotlib, which is not installed: pip install matplotlib.") from error
    size = (11, min(1.8 + 0.35 * count, 20))
    if path is not None:
        return Figure(figsize=size, dpi=150, layout="constrained").add_subplot()
    import matplotlib.pyplot as plt

    return plt.figure(figsize=size, layout="constrained").add_subplot()


def _rows(events: list[ProfileEvent], threads: list[str]) -> tuple[dict[tuple[int, int], int], dict[int, str]]:
    """Row of each thread and depth, and the names of threads by their first rows."""
    deepest = [max((event.depth for event in events if event.thread == k), default=0) for k in range(len(threads))]
    rows: dict[tuple[int, int], int] = {}
    names: dict[int, str] = {}
    for thread, depth in enumerate(deepest):
        names[len(rows)] = threads[thread]
        for level in range(depth + 1):
            rows[thread, level] = len(rows)
    return rows, names


def _by_colour(events: list[ProfileEvent]) -> dict[tuple[str, bool], list[ProfileEvent]]:
    found: dict[tuple[str, bool], list[ProfileEvent]] = {}
    for kind in KINDS:
        for traced in (False, True):
            alike = [event for event in events if event.kind == kind and event.traced is traced]
            if alike:
                found[kind, traced] = alike
    return found


def _label(ax: Any, event: ProfileEvent, start: float, row: int, width: float) -> None:
    most = int(150 * event.duration / width)  # characters
    text = event.name if len(event.name) <= most else f"{event.name[: most - 1]}…"
    dark = not event.traced and event.kind in ("solve", "set-up", "preconditioner", "host call", "compiled")
    middle = 1e3 * (event.start - start + event.duration / 2)
    colour = "white" if dark else "black"
    ax.text(middle, row, text, ha="center", va="center", fontsize=7, color=colour, clip_on=True, parse_math=False)


def _finish(ax: Any, profile: Any, names: dict[int, str], count: int, left_out: int) -> None:
    ax.set(xlabel="ms", xlim=(0, 1e3 * profile.duration), ylim=(count - 0.5, -0.5))
    ax.set_yticks(list(names), list(names.values()))
    short = f", {left_out} of them too short to be seen" if left_out else ""
    ax.set_title(f"{len(profile.events)} calls in {1e3 * profile.duration:.3g} ms{short}", fontsize=9)
    ax.spines[["top", "right", "left"]].set_visible(False)
    handles, labels = ax.get_legend_handles_labels()
    unique = dict(zip(labels, handles))
    ax.legend(unique.values(), unique.keys(), fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2)
