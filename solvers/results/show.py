"""A result as a dictionary, and its history as a plot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backends import choose_backend
from ..run.outcome import Status

_UNKNOWN = "unknown, because it came out of a compiled function"


def to_dict(result: Any, numbers: Sequence[str], include_x: bool) -> dict[str, Any]:
    """See `SolveResult.to_dict`."""
    record = result._record
    if not record.has_values:
        raise TypeError("This result is of a function that is being compiled, so its numbers are not known yet.")
    entries: dict[str, Any] = {"method": result.method, "preconditioner": result.preconditioner, "why": result._why}
    entries["message"] = result.message
    for name in numbers:
        entries[name] = plain(record.on_host(name))
    entries["status"] = _names(record.on_host("status").tolist())
    entries["history"] = None if result.history is None else plain(result.history)
    for name in ("least_squares", "checkpoints", "setup_time", "solve_time"):
        entries[name] = getattr(result, name)
    return {**entries, "x": plain(result.x)} if include_x else entries


def _names(status: Any) -> Any:
    return [_names(number) for number in status] if isinstance(status, list) else Status(status).name


def plain(value: Any) -> Any:
    """Arrays, in containers, as lists; numbers that JSON does not have as words that `float` reads.

    >>> plain({"a": np.array([1.0, np.nan]), "b": [np.array(-np.inf)]})
    {'a': [1.0, 'NaN'], 'b': ['-Infinity']}
    >>> plain(np.array([1 + 2j]))
    {'real': [1.0], 'imag': [2.0]}
    """
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bool | int | float):
        return value
    if not hasattr(value, "shape"):
        leaves, _ = choose_backend(value).leaves(value)  # a container of its library
        return [plain(leaf) for leaf in leaves]
    array = np.asarray(choose_backend(value).to_numpy(value))
    return plain({"real": array.real, "imag": array.imag} if np.iscomplexobj(array) else array.tolist())


def in_lines(result: Any) -> list[tuple[str, str]]:
    """Method, reason, outcome and times: a title and a line for each."""
    kind = result.preconditioner
    chosen = f"{result.method}, {'no preconditioner' if kind is None else f'preconditioner {kind}'}"
    times = f"set-up {_seconds(result.setup_time)}, solve {_seconds(result.solve_time)}"
    if result.solve_time is None:
        times = _UNKNOWN
    return [("method", chosen), ("why", result._why or _UNKNOWN), ("outcome", result.message), ("time", times)]


def _seconds(seconds: float | None) -> str:
    """A time with its unit.

    >>> _seconds(0.00123), _seconds(2.5e-5), _seconds(12.3)
    ('1.23 ms', '25 us', '12.3 s')
    """
    if seconds is None:
        return "unknown"
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


_MOST_LINES = 100  # systems that are drawn
_MOST_LABELS = 10  # systems with a colour and a label of their own
_FAINT = {"color": "C0", "alpha": 0.3, "linewidth": 1}


def plot_convergence(result: Any, ax: Any = None) -> Any:
    """See `SolveResult.plot`."""
    if result.history is None:
        raise ValueError("This result has no history to plot; solve with history=True.")
    if not result._record.has_values:
        raise ValueError("This result is of a function that is being compiled, so its history is not known yet.")
    norms, goals = (result._record.on_host(name) for name in ("history", "tolerance"))
    if result.checkpoints:
        norms, goals = norms[-1], goals[-1]
    norms = norms.reshape(len(norms), -1)
    recorded = np.flatnonzero(np.isfinite(norms).any(1))
    norms = norms[: recorded[-1] + 1 if len(recorded) else 1]  # that of a compiled function is as long as max_iter
    ax, systems = _new_axes() if ax is None else ax, norms.shape[1]
    shown = np.unique(np.linspace(0, systems - 1, min(systems, _MOST_LINES)).astype(int))
    few = len(shown) <= _MOST_LABELS
    for i in shown:
        label = f"system {i}" if few and systems > 1 else None
        ax.plot(norms[:, i], marker="." if len(norms) <= 50 else None, label=label, **({} if few else _FAINT))
    for goal in np.unique(goals.reshape(-1)[shown]):
        ax.axhline(goal, color="0.5", linestyle="--", linewidth=1, label=f"goal {goal:.1e}" if few else None)
    if np.any(norms > 0):
        ax.set_yscale("log")
    many = f", {len(shown)} of {systems} systems" if len(shown) < systems else ""
    ax.set(
        title=f"{result.method}{'' if result.preconditioner is None else f', {result.preconditioner}'}{many}",
        xlabel="iteration",
        ylabel="normal residual norm" if result.least_squares else "residual norm",
    )
    if few and systems:  # without systems there is no label
        ax.legend()
    return ax


def _new_axes() -> Any:
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        raise ModuleNotFoundError(
            "plot needs matplotlib: pip install matplotlib, or krylix[plot]", name="matplotlib"
        ) from error
    return pyplot.subplots(figsize=(6, 4), layout="constrained")[1]
