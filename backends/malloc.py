"""Allocator setting of the C library that avoids page faults of large arrays in compiled CPU programs."""

from __future__ import annotations

import ctypes
import platform
import sys

# names of <malloc.h>, and their values here
_SETTINGS = (
    (-8, 1),  # M_ARENA_MAX: one arena for all threads, as others obey no threshold for 64 MB and more
    (-3, 1 << 30),  # M_MMAP_THRESHOLD: arrays below 1 GiB come from the heap
    (-4, 0),  # M_MMAP_MAX: ... and in fact all
    (-1, (1 << 31) - 1),  # M_TRIM_THRESHOLD: what is freed stays for the next array
    (-2, 64 << 20),  # M_TOP_PAD: the heap grows by 64 MiB at least
)


def tune_malloc() -> bool:
    """Keep the memory of freed arrays in this process, so that new ones of 32 MB and more need no page faults.

    glibc asks the system for new pages for each such array, also for the temporary ones inside of a compiled program
    of JAX on the CPU. For these the time of the page faults is often ten times that of the computation: stacking five
    vectors of 8 MB took 21 ms, and 1.8 ms after this call. Call it once, before large arrays are made.

    Side effects, for the whole process and until it ends: memory that was used once is not returned to the system, so
    that the resident size stays at its peak; and all threads share one arena, so that many threads that make small
    objects of C at the same time wait for each other.

    Returns:
        Whether it was done: on Linux with glibc only. Elsewhere nothing happens, and it is False.

    Examples:
        >>> from krylix.backends import tune_malloc
        >>> _ = tune_malloc()  # once, where a script begins
    """
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(name, value) == 1 for name, value in _SETTINGS)
