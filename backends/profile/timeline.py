"""Profiles as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .event import KINDS, ProfileEvent, time_text

_COLOURS = {
    "solve": "#30588c",
    "set-up": "#8c6bb1",
    "run": "#a6bddb",
    "judge": "#bdbdbd",
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
_LEAST = 1 / 800  # of the width: shorter ones are drawn together, each kind in one bar
_LABELLED = 1 / 14

Bar = tuple[int, str, bool, float, float]  # row, kind, traced, start, duration


def draw(profile: Any, path: Path | None, ax: Any) -> Any:
    """See `Profile.plot`."""
    events, width = profile.events, max(profile.duration, 1e-9)
    rows, names = _rows(events, profile.threads)
    if ax is None:
        ax = _new_axes(path, len(rows))
    long = [event for event in events if event.duration >= _LEAST * width]
    bars = [
        (rows[event.thread, event.depth], event.kind, event.traced, event.start - profile.start, event.duration)
        for event in events
    ]
    _draw_bars(ax, [bar for bar in bars if bar[4] >= _LEAST * width], 0.4)
    _draw_bars(ax, _together([bar for bar in bars if bar[4] < _LEAST * width], _LEAST * width), 0.0)
    for event in long:
        if event.duration >= _LABELLED * width:
            _label(ax, event, profile.start, rows[event.thread, event.depth], width)
    _finish(ax, profile, names, len(rows), len(events) - len(long))
    if path is not None:
        ax.figure.savefig(path)
    return ax


def _draw_bars(ax: Any, bars: list[Bar], edge: float) -> None:
    for kind in KINDS:
        for traced in (False, True):
            alike = [bar for bar in bars if bar[1:3] == (kind, traced)]
            if alike:
                ax.barh(
                    [bar[0] for bar in alike], [1e3 * bar[4] for bar in alike], left=[1e3 * bar[3] for bar in alike],
                    height=0.92, linewidth=edge, edgecolor="white", color=_TRACED if traced else _COLOURS[kind],
                    label="traced" if traced else f"{kind}: {KINDS[kind]}",
                )  # fmt: skip


def _together(bars: list[Bar], size: float) -> list[Bar]:
    """Sum short bars of each kind in each interval of that size; one after the other."""
    sums: dict[tuple[int, int], dict[tuple[str, bool], float]] = {}
    for row, kind, traced, start, duration in bars:
        found = sums.setdefault((row, int(start / size)), {})
        found[kind, traced] = found.get((kind, traced), 0.0) + duration
    joined: list[Bar] = []
    for (row, interval), found in sums.items():
        start = interval * size
        for (kind, traced), duration in sorted(found.items()):
            joined.append((row, kind, traced, start, duration))
            start += duration
    return joined


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


def _label(ax: Any, event: ProfileEvent, start: float, row: int, width: float) -> None:
    most = int(150 * event.duration / width)  # characters
    text = event.name if len(event.name) <= most else f"{event.name[: most - 1]}…"
    dark = not event.traced and event.kind in ("solve", "set-up", "preconditioner", "host call", "compiled")
    middle = 1e3 * (event.start - start + event.duration / 2)
    colour = "white" if dark else "black"
    ax.text(middle, row, text, ha="center", va="center", fontsize=7, color=colour, clip_on=True, parse_math=False)


def _finish(ax: Any, profile: Any, names: dict[int, str], count: int, short: int) -> None:
    ax.set(xlabel="ms", xlim=(0, 1e3 * profile.duration), ylim=(count - 0.5, -0.5))
    ax.set_yticks(list(names), list(names.values()))
    note = f"; {short} short ones are drawn together" if short else ""
    ax.set_title(f"{len(profile.events)} calls in {time_text(profile.duration)}{note}", fontsize=9)
    ax.spines[["top", "right", "left"]].set_visible(False)
    handles, labels = ax.get_legend_handles_labels()
    unique = dict(zip(labels, handles))
    ax.legend(unique.values(), unique.keys(), fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2)
