"""Caches of set-ups: bounded by count and bytes, shared by threads, emptied by `clear_setup_cache`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from threading import Lock
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from ..backends.settings import Setting

SETUP_CACHE = Setting("setup_cache", True, compiled=False)  # are set-ups kept for later solves?
T = TypeVar("T")
_ALL: WeakSet[Memory[Any]] = WeakSet()


class Memory(Generic[T]):
    """The most recently used things, newest first, each under a key that is compared by `==`.

    A key that holds arrays has its own `==` and arrays that nobody writes to. With several threads, a thing may be made
    twice or kept a little longer; reading takes no lock.

    Attributes:
        count: number of things that are kept at most.
        nbytes: bytes of all of them together at most; a larger one is not kept at all.
    """

    def __init__(self, count: int, nbytes: float = math.inf) -> None:
        self.count, self.nbytes = count, nbytes
        self._entries: tuple[tuple[Any, T, int], ...] = ()  # never changed, but replaced under the lock
        self._lock = Lock()
        _ALL.add(self)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[T]:
        return (thing for _, thing, _ in self._entries)

    def get(self, key: Any) -> T | None:
        """The thing of this key, which becomes the most recent one; None if there is none."""
        for i, entry in enumerate(self._entries):
            if entry[0] == key:
                if i:
                    with self._lock:
                        self._entries = tuple(sorted(self._entries, key=lambda other: other is not entry))
                return entry[1]
        return None

    def keep(self, key: Any, thing: T, nbytes: int = 0) -> None:
        """Keep a thing of this size as the most recent one, instead of an earlier one of the same key."""
        with self._lock:
            others = [entry for entry in self._entries if entry[0] != key]
            kept: list[tuple[Any, T, int]] = []
            room = self.nbytes
            for entry in ((key, thing, nbytes), *others):
                if entry[2] <= room and len(kept) < self.count:
                    kept.append(entry)
                    room -= entry[2]
            self._entries = tuple(kept)

    def drop(self, key: Any) -> None:
        """Drop the thing of this key, if there is one."""
        with self._lock:
            self._entries = tuple(entry for entry in self._entries if entry[0] != key)

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._entries = ()


def was_seen(memory: Memory[bool], key: Any) -> bool:
    """Was this key seen before, and is it worth remembering? It is remembered from now on."""
    seen = memory.get(key)
    if seen is None:
        memory.keep(key, True)
    return bool(seen)


def is_ours(thing: Any) -> bool:
    """Is it a class or function of this package, which does the same each time for the same settings?"""
    return thing is not None and thing.__module__.startswith(f"{__package__}.")


def clear_all() -> None:
    """Empty all memories."""
    for memory in tuple(_ALL):
        memory.clear()
