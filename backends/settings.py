"""Settings of the process that a `with` block overrides, followed by JAX's compiled functions: precision, on_failure.

`on_failure` also decides whether compiled programs may call the host.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Generic, Literal, TypeAlias, TypeVar, get_args

import numpy as np

T = TypeVar("T")


class Setting(Generic[T]):
    """A value for the process, and one for each thread and task inside `with setting.local(value):`.

    Args:
        compiled: programs depend on it. `jax.jit` then traces a function once for each value that it is called with
            (`jax.make_user_context`, where JAX has it): otherwise the value of its first call would hold for all.
    """

    def __init__(self, name: str, default: T, *, compiled: bool) -> None:
        self._local: ContextVar[tuple[T] | None] = ContextVar(f"krylix_{name}", default=None)
        self._global = default
        self._compiled = compiled
        self._context: Any = None
        # JAX compiles again what it compiled before this context existed, so it is made as early as possible.
        self._in_jax()

    def get(self) -> T:
        """The value in force here."""
        local = self._local.get()
        return self._global if local is None else local[0]

    def set_global(self, value: T) -> None:
        """Set the value of the process."""
        context = self._in_jax()
        self._global = value
        if context is not None:
            context.set_global(value)

    @contextmanager
    def local(self, value: T) -> Iterator[None]:
        """Set the value inside the `with` block, per thread and task."""
        context = self._in_jax()
        token = self._local.set((value,))
        try:
            with nullcontext() if context is None else context(value):
                yield
        finally:
            self._local.reset(token)

    def _in_jax(self) -> Any:
        """The setting as part of the cache key of JAX's compiled functions, once JAX is imported."""
        make = getattr(sys.modules.get("jax"), "make_user_context", None) if self._compiled else None
        if self._context is None and make is not None:
            self._context = make(self._global)
        return self._context


# --- the precision in which krylix computes, and the limits of each dtype

_BITS = (16, 32, 64, None)
_COMPLEX: dict[int, np.dtype] = {32: np.dtype(np.complex64), 64: np.dtype(np.complex128)}
_FLOAT: dict[int, np.dtype] = {16: np.dtype(np.float16), 32: np.dtype(np.float32), 64: np.dtype(np.float64)}
_EXPONENT_BITS: dict[int, tuple[np.dtype, int]] = {  # by the bytes of a real number
    4: (np.dtype(np.int32), 0x7F800000),
    8: (np.dtype(np.int64), 0x7FF0000000000000),
}

_precision: Setting[int | None] = Setting("precision", None, compiled=True)


def _checked_precision(bits: int | None) -> int | None:
    if bits not in _BITS:
        raise ValueError(
            f"precision must be 16, 32, 64 (bits of a real number) or None (follow the inputs); got {bits!r}."
        )
    return bits


def get_precision() -> int | None:
    """Bits of a real floating-point number in force here (16, 32, 64), or None: follow the inputs.

    Examples:
        >>> import krylix
        >>> with krylix.precision(32):
        ...     print(krylix.get_precision())
        32
    """
    return _precision.get()


def set_global_precision(bits: int | None) -> None:
    """Set the precision for the whole process; `precision(bits)` overrides it locally.

    Args:
        bits: 16, 32 or 64 bits for a real number (a complex one takes twice that); None follows the inputs.

    Raises:
        ValueError: `bits` is not 16, 32, 64 or None.

    Examples:
        >>> import krylix
        >>> krylix.set_global_precision(64)
        >>> krylix.get_precision()
        64
        >>> krylix.set_global_precision(None)  # follow the inputs
    """
    _precision.set_global(_checked_precision(bits))


@contextmanager
def precision(bits: int | None) -> Iterator[None]:
    """Compute in this precision inside the `with` block (per thread and task).

    A function of `jax.jit` that is called inside is compiled for it (where there is `jax.make_user_context`). Other
    compiled functions keep the precision that held when they were traced.

    Args:
        bits: 16, 32 or 64 bits for a real number (a complex one takes twice that); None follows the inputs.

    Raises:
        ValueError: `bits` is not one of these.

    Examples:
        >>> import numpy as np, krylix
        >>> with krylix.precision(32):
        ...     x = krylix.linear_solve(np.diag([2.0, 4.0]), np.ones(2)).x
        >>> x.dtype
        dtype('float32')
    """
    with _precision.local(_checked_precision(bits)):
        yield


def exponent_bits(dtype: np.dtype) -> tuple[np.dtype, int]:
    """The integer dtype as wide as a real one, and the mask of its exponent bits."""
    return _EXPONENT_BITS[dtype.itemsize]


def real_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of the real part."""
    return np.empty(0, dtype).real.dtype


def working_dtype(dtype: np.dtype, *, complex_: bool = False, integer: np.dtype | None = None) -> np.dtype:
    """The dtype in which a solve with a right-hand side of `dtype` computes.

    Floats keep their width (unless `precision` says otherwise); integers and booleans become `integer`, a float
    dtype (double precision where None); `complex_=True` asks for the complex dtype of that width.
    """
    bits = get_precision()
    if bits is None:
        if dtype.kind in "fc":
            bits = 8 * real_dtype(dtype).itemsize
        elif dtype.kind in "biu":
            bits = 8 * real_dtype(integer).itemsize if integer is not None else 64
        else:
            raise TypeError(
                f"krylix computes with real and complex floating-point numbers; got an array of dtype {dtype}."
            )
    if bits not in _COMPLEX:
        raise TypeError(
            f"krylix solves in single or double precision; got {bits}-bit numbers ({dtype}), in which no useful "
            "tolerance can be met. Cast the inputs to float32 or float64, or use krylix.precision(32)."
        )
    return _COMPLEX[bits] if complex_ or dtype.kind == "c" else _FLOAT[bits]


# --- what failed solves do

OnFailure: TypeAlias = Literal["raise", "warn", "status", "nan"]
"""Policies for solves that fail, see `linear_solve`."""

POLICIES: tuple[OnFailure, ...] = get_args(OnFailure)
QUIET = ("status", "nan")  # the caller looks at what the solve returns

_on_failure: Setting[OnFailure] = Setting("on_failure", "raise", compiled=True)
_pure: ContextVar[bool | None] = ContextVar("krylix_pure_programs", default=None)


def checked_policy(policy: str) -> OnFailure:
    """
    Raises:
        ValueError: there is no such policy.
    """
    if policy not in POLICIES:
        raise ValueError(f"on_failure must be one of {', '.join(map(repr, POLICIES))}; got {policy!r}.")
    return policy


def get_on_failure() -> OnFailure:
    """The policy for failed solves without an `on_failure` argument: "raise", "warn", "status" or "nan".

    Examples:
        >>> import krylix
        >>> with krylix.on_failure("warn"):
        ...     krylix.get_on_failure()
        'warn'
    """
    return _on_failure.get()


def set_global_on_failure(policy: OnFailure) -> None:
    """Set what failed solves do in the whole process; `on_failure(policy)` and the argument of a solve override it.

    A function of `jax.jit` follows it (where there is `jax.make_user_context`), other compiled functions keep what held
    when they were traced, a prepared solver what held when it was prepared.

    Args:
        policy: "raise" (the default), "warn", "status" or "nan", see `linear_solve`.

    Raises:
        ValueError: there is no such policy.

    Examples:
        >>> import krylix
        >>> krylix.set_global_on_failure("warn")
        >>> krylix.get_on_failure()
        'warn'
        >>> krylix.set_global_on_failure("raise")
    """
    _on_failure.set_global(checked_policy(policy))


@contextmanager
def on_failure(policy: OnFailure) -> Iterator[None]:
    """Set what failed solves do inside the `with` block (per thread and task).

    A function of `jax.jit` that is called inside is compiled for it (where there is `jax.make_user_context`). Other
    compiled functions keep what held when they were traced.

    Args:
        policy: "raise", "warn", "status" or "nan", see `linear_solve`.

    Raises:
        ValueError: there is no such policy.

    Examples:
        >>> import numpy as np, krylix
        >>> with krylix.on_failure("status"):
        ...     result = krylix.linear_solve(np.diag([1.0, 2.0, 3.0]), np.ones(3), method="CG", max_iter=1)
        >>> bool(result.converged)
        False
    """
    with _on_failure.local(checked_policy(policy)):
        yield


def has_pure_programs() -> bool:
    """Whether programs are compiled without host callbacks under the current policy."""
    pure = _pure.get()
    return get_on_failure() == "nan" if pure is None else pure


def run_for(policy: str, function: Callable[..., T], *args: Any) -> T:
    """`function(*args)`, compiled as a solve with this policy does: with "nan" without calls of the host."""
    token = _pure.set(policy == "nan")
    try:
        return function(*args)
    finally:
        _pure.reset(token)


# --- Allocator setting of the C library that avoids page faults of large arrays in compiled CPU programs --------------

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
