"""A search by SciPy's minimisers: arrays of a library in, and out, and what counts as converged."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends import Array, Backend
from ..run.outcome import Status
from .objective import Minimum, Objective
from .scipy_runs import ScipyRun, run_all
from .user_function import UserFunction

_HOST = np.dtype(np.float64)  # in which SciPy computes


def search_by_scipy(
    objective: Objective, x: Array, rtol: Array, atol: Array, method: str, max_iter: int, history: bool
) -> Minimum:
    """Search from x until the projected gradient is at most `max(rtol |that at x|, atol)`.

    Raises:
        TypeError: this is part of a compiled function.
    """
    user = objective.user
    bk, like = user.bk, x
    _refuse_programs(bk, method, x, user.args)
    x = objective.inside(x)
    value, gradient = _evaluated(objective, x)
    first = _host(bk, bk.norm(objective.projected(x, gradient)))
    goals = np.maximum(first * _host(bk, rtol), _host(bk, atol))
    runs = [ScipyRun(row) for row in _host(bk, x)]
    numbers = zip(runs, _host(bk, value)[:, 0], _host(bk, gradient), strict=True)
    for run, one, slope in numbers:
        run.keep(run.x, float(one), slope)
        run.path.append(run.x)
        run.values.append(float(one))

    def evaluate(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, gradients = _evaluated(objective, bk.asarray(rows.astype(user.dtype), like=like))
        return _host(bk, values)[:, 0], _host(bk, gradients)

    which = (np.isfinite(first) & (first > goals) & np.isfinite(_host(bk, value)))[:, 0]
    boxes = [_box(low, high) for low, high in zip(_host(bk, objective.lower), _host(bk, objective.upper), strict=True)]
    if max_iter > 0:
        run_all(runs, which, evaluate, method, goals[:, 0], max_iter, boxes)
    shape = tuple(int(k) for k in like.shape)
    x = bk.asarray(np.array([run.x for run in runs], user.dtype).reshape(shape), like=like)
    x = objective.inside(x)
    value, gradient = _evaluated(objective, x)
    norm = bk.norm(objective.projected(x, gradient))
    steps, evaluations = (
        np.array(counts, np.int32).reshape(-1, 1)
        for counts in ([run.steps for run in runs], [run.evaluations + 1 for run in runs])
    )
    ended = (steps >= max_iter) | np.array([[run.exhausted] for run in runs], bool).reshape(-1, 1)
    status = _status(_host(bk, norm), _host(bk, value), goals, ended)
    goal, status, taken, evaluated = [
        bk.asarray(a, like=like) for a in (goals.astype(user.dtype), status, steps, evaluations)
    ]
    lines, path = _records(bk, runs, user.dtype, like) if history else ((), ())
    return Minimum(x, value, gradient, norm, goal, 0 * goal, status, taken, evaluated, lines, path)


def _evaluated(objective: Objective, rows: Array) -> tuple[Array, Array]:
    bk = objective.user.bk
    value, gradient = objective.user.compiled(
        _value_and_gradient, rows, objective.lower, objective.upper, known="value and gradient"
    )
    return bk.constant(value), bk.constant(gradient)


def _value_and_gradient(user: UserFunction, known: str, rows: Array, *box: Array) -> tuple[Array, Array]:
    return Objective(user, *box).value_and_gradient(rows)


def _status(norm: np.ndarray, value: np.ndarray, goals: np.ndarray, ended: np.ndarray) -> np.ndarray:
    status = np.where(ended, int(Status.MAX_ITER), int(Status.STAGNATED))
    status = np.where(norm <= goals, int(Status.CONVERGED), status)
    return np.where(np.isfinite(norm) & np.isfinite(value), status, int(Status.DIVERGED)).astype(np.int32)


def _refuse_programs(bk: Backend, method: str, x: Array, args: Any) -> None:
    arrays, _ = bk.flatten(args)
    if bk.in_program() or not all(_has_value(bk, array) for array in (x, *arrays)):
        raise TypeError(
            f"minimize with method={method!r} runs SciPy on the host, which needs values; this call is part of a "
            "compiled, transformed or vectorised function. Use method='GD', or call minimize outside of it."
        )


def _has_value(bk: Backend, x: Array) -> bool:
    if bk.is_concrete(x):
        return True
    try:
        return isinstance(bk.to_numpy(x), np.ndarray)
    except Exception:  # each library has its own
        return False


def _host(bk: Backend, x: Array) -> np.ndarray:
    return np.asarray(bk.to_numpy(x)).astype(_HOST)


def _box(lower: np.ndarray, upper: np.ndarray) -> Any:
    finite = np.isfinite(lower).any() or np.isfinite(upper).any()
    return list(zip(lower, upper, strict=True)) if finite else None


def _records(bk: Backend, runs: list[ScipyRun], dtype: np.dtype, like: Array) -> tuple[Array, Array]:
    """Values `(most, systems)` and points `(systems, most, n)`, NaN after a system's last ones."""
    most = max((len(run.path) for run in runs), default=1)
    values = np.full((most, len(runs)), np.nan, dtype)
    path = np.full((len(runs), most, int(like.shape[1])), np.nan, dtype)
    for i, run in enumerate(runs):
        values[: len(run.values), i] = run.values
        path[i, : len(run.path)] = run.path
    return bk.asarray(values, like=like), bk.asarray(path, like=like)
