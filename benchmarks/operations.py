"""Overhead of an operation by name over the library's own function, on ten numbers; the ratio is to that function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np

from krylix import choose_backend, convert

from .measure import compare, per_call
from .settings import Settings, missing
from .table import Row

N = 10
UNARY, BINARY, REDUCTION = "sin", "add", "sum"
# Microseconds more than the library's own function.
BUDGETS = {
    "numpy": {UNARY: 0.3, BINARY: 0.3, REDUCTION: 0.4},
    "torch": {UNARY: 0.3, BINARY: 0.3, REDUCTION: 0.4},
    "jax": {UNARY: 0.5, BINARY: 0.5, REDUCTION: 0.5},
    "tensorflow": {UNARY: 2.0, BINARY: 2.0, REDUCTION: 2.0},
}
MODULES = {"numpy": "numpy", "torch": "torch", "jax": "jax.numpy", "tensorflow": "tensorflow"}
OTHER_WORDS = {"tensorflow": {"sum": "reduce_sum"}}


def rows(settings: Settings) -> Iterator[Row]:
    for library, budgets in BUDGETS.items():
        if missing(library):
            yield Row(f"operations of {library}", library, missing="not installed")
            continue
        bk, module = choose_backend(library), import_module(MODULES[library])
        x = convert(np.linspace(0.0, 1.0, N, dtype=np.float32), library)
        for name, budget in budgets.items():
            own = getattr(module, OTHER_WORDS.get(library, {}).get(name, name))
            arguments = (x, x) if name == BINARY else (x,)
            yield _row(f"bk.{name}, {library}", getattr(bk.xp, name), own, arguments, budget, settings)


def _row(
    what: str,
    ours: Callable[..., Any],
    own: Callable[..., Any],
    arguments: tuple[Any, ...],
    budget: float,
    settings: Settings,
) -> Row:
    by_name = per_call(lambda: ours(*arguments), 20 * settings.calls)
    direct = per_call(lambda: own(*arguments), 20 * settings.calls)
    measured = compare(lambda: by_name() - direct(), direct, settings.repeats)
    return Row(f"overhead of {what}", own.__name__, measured, budget_seconds=budget * 1e-6)
