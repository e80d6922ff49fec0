"""SciPy's minimisers on the host, one run for each system of a batch, with f evaluated for all systems at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import numpy as np
import scipy

_OPTIONS: dict[str, dict[str, Any]] = {
    "L-BFGS-B": {"ftol": 0.0, "maxfun": 2**31 - 1, "maxls": 40},
    "BFGS": {"norm": 2},
    "CG": {"norm": 2},
}
SCIPY_METHODS = tuple(_OPTIONS)
# Limit of evaluations of f, plus a number for each step, because line searches would not end for a function without a
# lower bound.
EVALUATIONS, EVALUATIONS_A_STEP = 100, 10
Value = tuple[float, np.ndarray]  # f and its gradient


class _OutOfEvaluations(Exception):
    """The run has used its evaluations."""


class _Stopped(Exception):
    """The run has to end, because f raised an error."""


@dataclass
class ScipyRun:
    """Search of one system, with its accepted points."""

    x: np.ndarray
    steps: int = 0
    evaluations: int = 0
    path: list[np.ndarray] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    exhausted: bool = False  # whether it ran out of evaluations
    _last: tuple[np.ndarray, float, np.ndarray] | None = None

    def recorded(self, x: np.ndarray) -> Value | None:
        """f and its gradient if x is the last evaluated point."""
        if self._last is None or not np.array_equal(self._last[0], x):
            return None
        return self._last[1], self._last[2].copy()

    def record(self, x: np.ndarray, value: float, gradient: np.ndarray) -> Value:
        self._last = x.copy(), value, gradient
        self.evaluations += 1
        return value, gradient.copy()

    def minimise(
        self, evaluate: Callable[[np.ndarray], Value], method: str, goal: float, max_iter: int, box: Any
    ) -> None:
        """Run SciPy from x until the 2-norm of the gradient is at most `goal`."""
        size = np.sqrt(self.x.size) if method == "L-BFGS-B" else 1.0  # which uses the maximum norm

        def function(x: np.ndarray) -> Value:
            if self.evaluations > EVALUATIONS + EVALUATIONS_A_STEP * len(self.path):
                raise _OutOfEvaluations
            return self.recorded(x) or self.record(x, *evaluate(x))

        def accepted(x: np.ndarray) -> None:
            last = self.recorded(x)
            self.path.append(np.array(x))
            self.values.append(np.nan if last is None else last[0])

        try:
            with np.errstate(all="ignore"):
                end = scipy.optimize.minimize(
                    function, self.x, jac=True, method=method, bounds=box, callback=accepted,
                    options={"maxiter": max_iter, "gtol": goal / size, **_OPTIONS[method]},
                )  # fmt: skip
            self.x, self.steps = np.asarray(end.x), int(end.nit)
        except _OutOfEvaluations:
            self.x, self.steps, self.exhausted = self.path[-1], len(self.path) - 1, True


def run_all(
    runs: list[ScipyRun],
    which: np.ndarray,
    evaluate: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    method: str,
    goals: np.ndarray,
    max_iter: int,
    boxes: list[Any],
) -> None:
    """Run the searches selected by `which`.

    Each has a thread, which sends the point that it wants to evaluate, or None at its end, and waits for the answer.
    When all have sent one, the caller's thread evaluates f once for the whole batch. A single search needs no thread.

    Args:
        evaluate: rows -> values `(systems,)`, gradients as rows.
    """
    rows, pending = np.array([run.x for run in runs]), set(np.flatnonzero(which).tolist())

    def minimise(i: int, evaluate: Callable[[np.ndarray], Value]) -> None:
        runs[i].minimise(evaluate, method, float(goals[i]), max_iter, boxes[i])

    def values_of(rows: np.ndarray) -> list[Value]:
        values, gradients = evaluate(rows)
        return [(float(value), gradient.copy()) for value, gradient in zip(values, gradients, strict=True)]

    if len(runs) == 1 or not pending:
        for i in pending:
            minimise(i, lambda x: values_of(x[None])[0])
        return
    points: SimpleQueue[tuple[int, np.ndarray | None]] = SimpleQueue()
    answers: list[SimpleQueue[Value | None]] = [SimpleQueue() for _ in runs]

    def in_thread(i: int) -> None:
        def ask(x: np.ndarray) -> Value:
            points.put((i, x.copy()))
            if (answer := answers[i].get()) is None:
                raise _Stopped
            return answer

        try:
            minimise(i, ask)
        finally:
            points.put((i, None))

    with ThreadPoolExecutor(len(pending)) as pool:
        searches = [pool.submit(in_thread, i) for i in sorted(pending)]
        try:
            while pending:
                for i, x in [points.get() for _ in pending]:
                    if x is None:
                        pending.discard(i)
                    else:
                        rows[i] = x
                values = values_of(rows) if pending else []
                for i in pending:
                    answers[i].put(values[i])
        finally:
            for i in pending:
                answers[i].put(None)
    for search in searches:
        search.result()  # raises the error of a run
