"""Charts and tables of what `python -m benchmarks --json` measured, from the files in docs/benchmarks/."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import indent
from typing import Any

from matplotlib import pyplot as plt

from method_pages import svg
from places import DOCS

FOLDER = DOCS / "benchmarks"
GROUPS = {
    "tolerance": (
        "A whole solve",
        "Whole calls, to a relative residual of 1e-6, on a bar of finite elements and on a grid.",
    ),
    "iteration": (
        "One iteration",
        "Seconds of one iteration on 1024² unknowns: the difference of a longer and a shorter solve, so that what is "
        "done once cancels.",
    ),
    "gradients": (
        "A gradient",
        "Value and gradient of a solve with a matrix that depends on parameters, 512² unknowns, beside the value alone "
        '("its forward solve", where 2 is what two solves cost) and beside other libraries.',
    ),
    "poisson": (
        "A function handed over, and nothing else said",
        "Systems on grids, solved by `linear_solve(f, b)`, beside pyamg's classical multigrid with CG and beside fast "
        "transforms.",
    ),
}
"""Title of each benchmark, and what it measures. Others are shown under their own name."""
_OURS, _PEER = "#3b82c4", "#e07b28"


def files() -> list[dict[str, Any]]:
    """What the files hold."""
    return [json.loads(path.read_text()) | {"file": path.name} for path in sorted(FOLDER.glob("*.json"))]


def page() -> str:
    """The page of all benchmarks."""
    parts = [
        "---\ntitle: Benchmarks\n---\n\n# Benchmarks",
        "A bar is krylix's time divided by that of the peer: shorter than 1 is faster than the peer, longer is slower. "
        "Both are measured in turns, in one process, and the bar is the median of the ratios of the pairs. "
        "Every row that was measured is shown; where a run was ended before its last rows, its note says so.",
        "Measure on your machine: `pip install -r requirements/benchmarks.txt && python -m benchmarks --json FILE`.",
    ]
    for content in files():
        parts += _of_file(content)
    return "\n\n".join(parts) + "\n"


def _of_file(content: dict[str, Any]) -> list[str]:
    name, note = content["file"], f" {content['note'][0].upper() + content['note'][1:]}." if content["note"] else ""
    about = (
        f"Measured on {content['machine']} Medians of {content['pairs']} pairs, {content['clock']}.{note} "
        f"Raw numbers: [{name}](benchmarks/{name})."
    )
    parts = [f'<p class="measured" markdown="1">{about}</p>']
    for group in dict.fromkeys(row["group"] for row in content["rows"]):
        title, meaning = GROUPS.get(group, (group.replace("_", " ").capitalize(), f"`python -m benchmarks {group}`."))
        rows = [row for row in content["rows"] if row["group"] == group]
        parts += [f"## {title}", meaning, _chart(rows, title), f'??? note "Numbers"\n\n{indent(_table(rows), "    ")}']
    return parts


def _chart(rows: list[dict[str, Any]], title: str) -> str:
    """Bars as elements of the page, whose text stays readable on narrow screens."""
    shown = [row for row in rows if "ratio" in row]
    most = max(1.25, *(row["ratio"] for row in shown))
    bars = [
        f'<div class="{"faster" if row["ratio"] <= 1 else "slower"}"><span>{row["what"]}, beside <b>{row["peer"]}</b>: '
        f'{row["ratio"]:.2f}</span><i style="width: {100 * row["ratio"] / most:.1f}%"></i></div>'
        for row in shown
    ]
    label = f"{title}: krylix's time divided by that of other libraries"
    style = f"--one: {100 / most:.2f}%"
    return f'<div class="bars" role="img" aria-label="{label}" style="{style}">\n' + "\n".join(bars) + "\n</div>"


def _table(rows: list[dict[str, Any]]) -> str:
    lines = ["| what | krylix | peer | ratio |", "|---|---|---|---|"]
    for row in rows:
        if "ratio" in row:
            lines.append(
                f"| {row['what']} | {duration(row['seconds'])} | {row['peer']}: {duration(row['peer_seconds'])} |"
                f" {row['ratio']:.2f} |"
            )
        else:
            lines.append(f"| {row['what']} | | {row['peer']}: {row['missing']} | |")
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """Three digits, in a unit that fits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(seconds) >= size:
            return f"{seconds / size:#.3g} {unit}".replace(". ", " ")
    return f"{seconds / 1e-6:#.3g} µs".replace(". ", " ")


def beside_peers() -> str:
    """One chart for the front page: whole solves on a grid, by library."""
    rows = [row for content in files() for row in content["rows"] if row["group"] == "tolerance" and "ratio" in row]
    rows = [row for row in rows if row["what"].startswith("Poisson")]
    if not rows:
        return ""
    figure, axes = plt.subplots(figsize=(6.4, 0.8 + 0.5 * len(rows)))
    for i, row in enumerate(rows[::-1]):
        for shift, key, colour in ((0.19, "seconds", _OURS), (-0.19, "peer_seconds", _PEER)):
            axes.barh(i + shift, 1e3 * row[key], height=0.36, color=colour)
        axes.text(1e3 * row["peer_seconds"], i - 0.19, f" {row['peer']}", va="center", fontsize=8)
        axes.text(1e3 * row["seconds"], i + 0.19, " krylix", va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [_compared(row) for row in rows[::-1]], fontsize=8)
    axes.set(xlabel="ms, conjugate gradients to 1e-6 on 256 × 256 unknowns")
    axes.margins(x=0.16)
    return svg(figure, "Time of a solve by conjugate gradients in krylix and in other libraries")


def _compared(row: dict[str, Any]) -> str:
    """What is solved, and who else solves it."""
    return f"{row['what'].partition(', CG, ')[2]}\nbeside {row['peer'].removesuffix(' CG').removesuffix(' cg')}"


def copy_raw(folder: Path) -> None:
    """The raw files, for readers."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in FOLDER.glob("*.json"):
        (folder / path.name).write_bytes(path.read_bytes())
