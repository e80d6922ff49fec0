"""SciPy's minimisers, one run for each system, with f called for all systems at once.

Each run has a thread, which waits for the values of f that it asks for; when all runs wait, or have ended, the thread
of the caller evaluates f once for the whole batch. One system needs no thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.optimize

Evaluate = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]  # rows -> values (systems,), gradients as rows
_OPTIONS: dict[str, dict[str, Any]] = {
    "L-BFGS-B": {"ftol": 0.0, "maxfun": 2**31 - 1, "maxls": 40},
    "BFGS": {"norm": 2},
    "CG": {"norm": 2},
}
SCIPY_METHODS = tuple(_OPTIONS)
# A run may evaluate f so often, and so often for each step: the line searches of a function without a lower bound
# would go on for ever.
EVALUATIONS, EVALUATIONS_A_STEP = 100, 10


class _OutOfEvaluations(Exception):
    """The run has used its evaluations."""


class _Stopped(Exception):
    """The other threads are to end, as f has raised an error."""


@dataclass
class ScipyRun:
    """One run: the points that it asked for, and those that it accepted."""

    x: np.ndarray
    steps: int = 0
    evaluations: int = 0
    path: list[np.ndarray] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    exhausted: bool = False  # did it stop because it had used its evaluations?
    error: BaseException | None = None
    _last: tuple[np.ndarray, float, np.ndarray] | None = None

    def known(self, x: np.ndarray) -> tuple[float, np.ndarray] | None:
        """f and its gradient, if x was the last point."""
        if self._last is None or not np.array_equal(self._last[0], x):
            return None
        return self._last[1], self._last[2].copy()

    def keep(self, x: np.ndarray, value: float, gradient: np.ndarray) -> None:
        """Remember the last point."""
        self._last = x.copy(), value, gradient
        self.evaluations += 1

    def minimise(
        self, ask: Callable[[np.ndarray], tuple[float, np.ndarray]], method: str, goal: float, max_iter: int, box: Any
    ) -> None:
        """Run SciPy from x; `goal` is the 2-norm of the gradient that is small enough."""
        size = np.sqrt(self.x.size) if method == "L-BFGS-B" else 1.0  # whose norm is the largest entry

        def accepted(x: np.ndarray) -> None:
            found = self.known(x)
            self.path.append(np.array(x))
            self.values.append(np.nan if found is None else found[0])

        def ask_within_limit(x: np.ndarray) -> tuple[float, np.ndarray]:
            if self.evaluations > EVALUATIONS + EVALUATIONS_A_STEP * len(self.path):
                raise _OutOfEvaluations
            return ask(x)

        try:
            with np.errstate(all="ignore"):
                found = scipy.optimize.minimize(
                    ask_within_limit, self.x, jac=True, method=method, bounds=box, callback=accepted,
                    options={"maxiter": max_iter, "gtol": goal / size, **_OPTIONS[method]},
                )  # fmt: skip
            self.x, self.steps = np.asarray(found.x), int(found.nit)
        except _OutOfEvaluations:
            self.x, self.steps, self.exhausted = self.path[-1], len(self.path) - 1, True


def run_all(
    runs: list[ScipyRun], which: np.ndarray, evaluate: Evaluate, method: str, goals: np.ndarray, max_iter: int,
    boxes: list[Any],
) -> None:  # fmt: skip
    """Run those of the runs that `which` names.

    Raises:
        Exception: what f has raised.
    """
    places = [int(i) for i in np.flatnonzero(which)]
    if not places:
        return
    if len(runs) == 1:
        for i in places:
            alone = _Batch(runs, evaluate)
            runs[i].minimise(alone.ask_alone, method, float(goals[i]), max_iter, boxes[i])
        return
    batch = _Batch(runs, evaluate)
    threads = [
        threading.Thread(target=batch.run, args=(i, method, float(goals[i]), max_iter, boxes[i]), daemon=True)
        for i in places
    ]
    batch.running = set(places)
    try:
        for thread in threads:
            thread.start()
        batch.serve()
    finally:
        batch.stop()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    for run in runs:
        if run.error is not None:
            raise run.error


class _Batch:
    """What the threads of a batch share."""

    def __init__(self, runs: list[ScipyRun], evaluate: Evaluate) -> None:
        self.runs, self.evaluate = runs, evaluate
        self.rows = np.stack([run.x for run in runs])
        self.running: set[int] = set()
        self._asked: dict[int, np.ndarray] = {}
        self._stopped = False
        self._changed = threading.Condition()

    def ask_alone(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """f and its gradient, of the only system."""
        run = self.runs[0]
        if (found := run.known(x)) is not None:
            return found
        values, gradients = self.evaluate(x[None])
        run.keep(x, float(values[0]), gradients[0])
        return float(values[0]), gradients[0].copy()

    def run(self, i: int, *settings: Any) -> None:
        """What the thread of system i does."""
        try:
            self.runs[i].minimise(lambda x: self._ask(i, x), *settings)
        except _Stopped:
            pass
        except BaseException as error:
            self.runs[i].error = error
        finally:
            with self._changed:
                self.running.discard(i)
                self._changed.notify_all()

    def _ask(self, i: int, x: np.ndarray) -> tuple[float, np.ndarray]:
        run = self.runs[i]
        if (found := run.known(x)) is not None:
            return found
        with self._changed:
            self._asked[i] = x.copy()
            self._changed.notify_all()
            self._changed.wait_for(lambda: i not in self._asked or self._stopped)
            if self._stopped:
                raise _Stopped
        found = run.known(x)
        return (np.nan, np.full(x.shape, np.nan)) if found is None else found

    def serve(self) -> None:
        """Evaluate f whenever all threads wait for it, until all have ended."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.running <= self._asked.keys())
                if not self.running:
                    return
                for i, x in self._asked.items():
                    self.rows[i] = x
            values, gradients = self.evaluate(self.rows)
            with self._changed:
                for i, x in self._asked.items():
                    self.runs[i].keep(x, float(values[i]), gradients[i].copy())
                self._asked.clear()
                self._changed.notify_all()

    def stop(self) -> None:
        """End all threads that still wait."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
