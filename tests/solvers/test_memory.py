"""`Memory`: what is kept, in which order, how much of it, and by several threads at once."""

from __future__ import annotations

import gc
from threading import Thread
from typing import Any
from weakref import ref

import numpy as np

import krylix
from krylix.solvers.memory import Memory


def test_the_last_used_stay() -> None:
    memory: Memory[str] = Memory(3)
    for key in "abc":
        memory.keep(key, key.upper())
    assert memory.get("a") == "A" and [*memory] == ["A", "C", "B"]
    memory.keep("d", "D")
    assert memory.get("b") is None and [*memory] == ["D", "A", "C"]
    memory.keep("c", "new")
    assert [*memory] == ["new", "D", "A"] and len(memory) == 3
    memory.drop("d")
    memory.drop("never kept")
    assert [*memory] == ["new", "A"]


def test_bytes_are_bounded() -> None:
    """All things together; a thing too large for itself pushes nothing else out."""
    memory: Memory[int] = Memory(10, nbytes=100)
    for size in (60, 30, 20, 101):
        memory.keep(size, size, size)
    assert [*memory] == [20, 30]
    memory.keep(30, 30, 95)
    assert [*memory] == [30]


class Bits:
    """A key that compares arrays bit by bit."""

    def __init__(self, array: np.ndarray) -> None:
        self.content = array.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bits) and self.content == other.content

    __hash__ = None  # type: ignore[assignment]


def test_keys_are_compared_by_content() -> None:
    memory: Memory[int] = Memory(2)
    a = np.array([0.0, np.nan])
    memory.keep(Bits(a), 1)
    assert memory.get(Bits(a.copy())) == 1
    assert memory.get(Bits(np.array([-0.0, np.nan]))) is None


def test_clear_setup_cache_empties_all() -> None:
    memory: Memory[int] = Memory(2)
    memory.keep("a", 1)
    krylix.clear_setup_cache()
    assert not memory
    alive = ref(memory)
    del memory
    gc.collect()
    assert alive() is None  # the list of all memories keeps none


def test_threads() -> None:
    memory: Memory[int] = Memory(8)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(2000):
            key = int(rng.integers(12))
            found = memory.get(key)
            if found not in (None, -key) or len(memory) > 8:
                wrong.append((key, found))
            if rng.random() < 0.1:
                memory.drop(key)
            else:
                memory.keep(key, -key)

    workers = [Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong and len({*memory}) == len(memory)
