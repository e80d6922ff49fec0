"""Solves in another process, which can be stopped: factors that never end, or that take more memory than there is."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..activity import Activity
from .combinations import Combination
from .comparison import NONE, ComparisonRow, Settings, measure

_PEAK = Path("/proc/self/status")  # of Linux
_RESET = Path("/proc/self/clear_refs")


class Trials:
    """Context: a process that solves one system in several ways, one after the other.

    Args:
        A, b: the system.
        settings: of all solves.
        limit: seconds that each may take, set-up and solve together.
    """

    def __init__(self, A: Any, b: np.ndarray, settings: Settings, limit: float) -> None:
        self.system, self.limit = (A, b, settings), limit
        self._process: Any = None
        self._pipe: Connection | None = None

    def __enter__(self) -> Trials:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()

    def run(self, combination: Combination, part: tuple[int, int]) -> ComparisonRow:
        """Solve once; a solve that takes too long, or ends its process, is a row that says so."""
        method, kind = combination
        with Activity(f"{method}, {kind}", part):
            pipe = self._pipe or self._start()
            try:
                pipe.send(combination)
                if not pipe.poll(None if self.limit == float("inf") else self.limit):
                    self._stop()
                    return ComparisonRow(kind, f"stopped after {self.limit:g} s (--time-limit)", method)
                found: ComparisonRow = pipe.recv()
                return found
            except (EOFError, OSError):
                code = self._stop()
                return ComparisonRow(kind, f"its process ended with code {code}, for lack of memory perhaps", method)

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        self._pipe, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there,), daemon=True)
        with _without_interrupts():  # Ctrl-C is this process's, which stops that one
            self._process.start()
        there.close()
        self._pipe.send(self.system)
        self._pipe.recv()  # it has imported what it needs
        return self._pipe

    def _stop(self) -> int | None:
        if self._process is None:
            return None
        self._process.kill()
        self._process.join()
        code: int | None = self._process.exitcode
        self._process, self._pipe = None, None
        return code


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """What is started here does not see Ctrl-C. Elsewhere than in the main thread signals are left as they are."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _serve(pipe: Connection) -> None:
    """What the other process does."""
    import pyamg  # noqa: F401  # takes a second, which is not that of a set-up

    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    A, b, settings = pipe.recv()
    for method in ("CG", "scipy-direct"):  # imports what these need
        measure(sp.csr_array(np.eye(3)), np.ones(3), method, NONE, settings)
    pipe.send(None)
    while True:
        try:
            method, kind = pipe.recv()
        except EOFError:
            return
        before = _reset_peak()
        row = measure(A, b, method, kind, settings)
        after = _memory("VmHWM")
        peak = None if before is None or after is None else max(0, after - before)
        pipe.send(replace(row, peak=peak))


def _reset_peak() -> int | None:
    """Bytes in use now, from which the largest number is counted anew; None where the system cannot."""
    gc.collect()
    with suppress(OSError, AttributeError):  # what the C library keeps for itself would hide what is taken
        ctypes.CDLL(None).malloc_trim(0)
    try:
        _RESET.write_text("5")
    except OSError:
        return None
    return _memory("VmRSS")


def _memory(name: str) -> int | None:
    try:
        lines = _PEAK.read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)
