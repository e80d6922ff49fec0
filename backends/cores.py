"""Parallel loops over blocks of large arrays, one thread a block, on all cores of this process.

Where a block begins depends on the array alone, so that results are the same, to the last digit, for any number of
threads. What works on a block is mostly in NumPy's or SciPy's compiled loops, which other threads need not wait for.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Condition, Lock
from typing import Any

import numpy as np

_MOST = 8  # threads; more would wait for memory, and for each other


def available() -> int:
    """Cores that this process may use, but no more than the environment's OMP_NUM_THREADS says."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return min(cores, int(asked)) if asked.isdigit() and int(asked) else cores


class Cores:
    """Threads of this process, started when they are first needed."""

    def __init__(self, threads: int | None = None) -> None:
        self.use(threads)

    def use(self, threads: int | None) -> None:
        """So many from now on; None: as many as there are cores."""
        self._given = threads
        self.forget()

    def forget(self) -> None:
        """As new: a process that was forked has none of the threads of the one before."""
        self._lock = Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._count = self._given

    @property
    def count(self) -> int:
        """Threads that may work at a time, the caller's own among them."""
        if self._count is None:
            self._count = min(available(), _MOST)
        return self._count

    @property
    def started(self) -> bool:
        """Are there threads besides the caller's?"""
        return self._pool is not None

    def in_blocks(self, work: Callable[[int, int], object], n: int, block: int) -> None:
        """`work(start, end)` for each block of n numbers, in any order, and at the same time; its errors come out.

        It may be called by several threads, and by `work` itself: whoever calls it works, and takes what help there is.
        """
        helpers = min(self.count, -(-n // block)) - 1
        if helpers < 1:
            for start in range(0, n, block):
                work(start, min(start + block, n))
            return
        job = _Job(work, n, block)
        with suppress(RuntimeError):  # the interpreter is about to end, or the system has no thread left
            pool = self._threads()
            for _ in range(helpers):
                pool.submit(job.help)
        job.finish()

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.count - 1, "krylix")
            return self._pool


class _Job:
    """The blocks of one array, which each thread that is free takes one of."""

    def __init__(self, work: Callable[[int, int], object], n: int, block: int) -> None:
        self.work, self.n, self.block = work, n, block
        self.left = deque(range(0, n, block))
        self.error: BaseException | None = None
        self.at_work, self.changed = 0, Condition()
        self.settings: Any = {**np.geterr(), "call": np.geterrcall()}  # of the caller: each thread has its own

    def help(self) -> None:
        """Take blocks until there are none; a thread that comes late finds none."""
        with self.changed:
            if not self.left:
                return
            self.at_work += 1
        try:
            with np.errstate(**self.settings):
                self._take_blocks()
        finally:
            with self.changed:
                self.at_work -= 1
                self.changed.notify()

    def finish(self) -> None:
        """Take blocks, and wait for the others to end theirs."""
        self._take_blocks()
        with self.changed:
            self.changed.wait_for(lambda: not self.at_work)
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = None  # whose traceback refers to this, and this to arrays

    def _take_blocks(self) -> None:
        try:
            while (start := self._next()) is not None:
                self.work(start, min(start + self.block, self.n))
        except BaseException as error:
            self.error = error
            self.left.clear()

    def _next(self) -> int | None:
        try:
            return self.left.popleft()
        except IndexError:
            return None


shared = Cores()
"""Those of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=shared.forget)
