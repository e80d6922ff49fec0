"""Convergence plot of a result. Needs matplotlib."""

from __future__ import annotations

from typing import Any

import numpy as np

from .later import has_values, known_array_of

_MOST_LINES = 100  # systems that are drawn
_MOST_LABELS = 10  # systems with a colour and a label of their own


def plot_convergence(result: Any, ax: Any = None) -> Any:
    """See `SolveResult.plot`."""
    if result.history is None:
        raise ValueError("This result has no history to plot; solve with history=True.")
    if not has_values(result):
        raise ValueError("This result is of a function that is being compiled, so its history is not known yet.")
    norms, goals = _lines(result)
    ax = new_axes() if ax is None else ax
    systems = norms.shape[1]
    shown = np.unique(np.linspace(0, systems - 1, min(systems, _MOST_LINES)).astype(int))
    few = len(shown) <= _MOST_LABELS
    for i in shown:
        label = f"system {i}" if few and systems > 1 else None
        ax.plot(norms[:, i], marker="." if len(norms) <= 50 else None, label=label, **({} if few else _FAINT))
    for goal in np.unique(goals[shown]):
        ax.axhline(goal, color="0.5", linestyle="--", linewidth=1, label=f"goal {goal:.1e}" if few else None)
    if np.any(norms > 0):
        ax.set_yscale("log")
    many = f", {len(shown)} of {systems} systems" if len(shown) < systems else ""
    ax.set(
        title=f"{result.method}{'' if result.preconditioner is None else f', {result.preconditioner}'}{many}",
        xlabel="iteration",
        ylabel="normal residual norm" if result.least_squares else "residual norm",
    )
    if few and systems:  # of no systems there is nothing to name
        ax.legend()
    return ax


_FAINT = {"color": "C0", "alpha": 0.3, "linewidth": 1}


def _lines(result: Any) -> tuple[np.ndarray, np.ndarray]:
    """Norms `(iterations + 1, systems)` and goals `(systems,)`, of the last checkpoint."""
    norms, goals = (known_array_of(result, name) for name in ("history", "tolerance"))
    if result.checkpoints:
        norms, goals = norms[-1], goals[-1]
    norms = norms.reshape(len(norms), -1)
    lengths = np.flatnonzero(np.isfinite(norms).any(1))
    norms = norms[: lengths[-1] + 1] if len(lengths) else norms[:1]  # of a compiled function it is as long as max_iter
    return norms, np.broadcast_to(goals, known_array_of(result, "tolerance").shape[result.checkpoints :]).reshape(-1)


def new_axes() -> Any:
    """Axes of a new figure of pyplot.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        raise ModuleNotFoundError(
            "plot needs matplotlib: pip install matplotlib, or krylix[plot]", name="matplotlib"
        ) from error
    return pyplot.subplots(figsize=(6, 4), layout="constrained")[1]
