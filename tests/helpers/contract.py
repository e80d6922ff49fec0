"""Run one primitive of a backend in a mode, and compare what comes out with NumPy in double precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import krylix
from krylix.backends import Backend
from krylix.backends.interface.backend import Backend as Base
from krylix.backends.interface.containers import tree_map
from krylix.backends.interface.devices import Devices
from krylix.backends.interface.kernels import Linalg
from modes import array, compiled, library, to_numpy

MODES = ("numpy", "jax", "jax-jit", "torch", "tf", "tf-function")
DTYPES = ("float32", "float64", "complex64", "complex128")
LONG = 700  # NumPy takes another way for long rows
# every mode and dtype; where something is compiled, as JAX does with every operation, only one real and one complex
COMPILES = ("jax", "jax-jit", "tf-function")
CELLS = tuple((m, d) for m in MODES for d in DTYPES if m not in COMPILES or d in ("float32", "complex128"))
EAGER_FLAGS = {"numpy": False, "jax": False, "torch": False, "tf": False, "jax-jit": True, "tf-function": True}


# With tests of their own: test_operation_rules.py, test_register_backend.py, and those of implicit derivatives.
ONLY_FOR_USERS = {"complex_type", "float_type", "supports", "implicit_root"}


def public_methods() -> set[str]:
    """What a backend offers: its methods, and the functions that it takes over from the library as they are."""
    members = {
        name: value for cls in Base.__mro__[-2::-1] if cls is not Devices for name, value in vars(cls).items()
    }  # without `object`
    methods = {name for name, value in members.items() if callable(value) or isinstance(value, property)}
    taken_over = {name for name, kind in Base.__annotations__.items() if str(kind).startswith("Callable")}
    dense = {f"linalg.{name}" for name, value in vars(Linalg).items() if not name.startswith("_") and callable(value)}
    return {name for name in methods | taken_over if not name.startswith("_")} - ONLY_FOR_USERS | dense


def covers(*names: str) -> Callable[[Any], Any]:
    """Marks the test of these primitives, for the test that none is forgotten."""
    return lambda test: test


def backend(mode: str) -> Backend:
    return krylix.choose_backend(library(mode))


def run(mode: str, function: Callable[..., Any], *arrays: np.ndarray) -> Any:
    """`function(backend, *arrays)` as the mode runs it; NumPy arrays go in and come out."""
    bk = backend(mode)
    outcome = compiled(mode, lambda *native: function(bk, *native))(*(array(mode, a) for a in arrays))
    return tree_map(to_numpy, tuple(outcome) if isinstance(outcome, list) else outcome)


def run_each(mode: str, calls: Sequence[tuple[Callable[..., Any], Sequence[np.ndarray]]]) -> Any:
    """`run` of several functions, each of its own arrays, in one program."""
    ends = np.cumsum([len(arrays) for _, arrays in calls])

    def every(bk: Backend, *arrays: Any) -> tuple[Any, ...]:
        own = zip(calls, ends, strict=True)
        return tuple(function(bk, *arrays[end - len(given) : end]) for (function, given), end in own)

    return run(mode, every, *(x for _, arrays in calls for x in arrays))


def rows(dtype: str, shape: Sequence[int], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng([seed, *shape])
    x = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


def real_of(dtype: str) -> np.dtype:
    return np.empty(0, dtype).real.dtype


def tiny(dtype: str) -> float:
    return float(np.finfo(dtype).tiny)


def vectors(dtype: str, *, magnitudes: bool = False, broken: bool = True) -> list[np.ndarray]:
    """Batches of one and of many, short and long rows, zero rows; rows with NaN and inf, of tiny and huge entries."""
    found = [rows(dtype, shape) for shape in ((1, 5), (3, 5), (1, LONG), (3, LONG))]  # few shapes: each is compiled
    found[1][1] = 0
    found += [found[1][1:2]]
    if broken:
        bad, more = rows(dtype, (3, 5)), rows(dtype, (3, LONG))
        bad[0, 2], bad[2, 0], more[0, 333], more[1, -1], more[2, :2] = np.nan, np.inf, np.nan, np.inf, (np.inf, np.nan)
        found += [bad, bad[:1], bad[2:3], more]
    if magnitudes:
        limits = np.finfo(dtype)
        sizes = np.array([1e-30, 1e30, float(limits.tiny) * 1e4, float(limits.max) / 4, 1e-19, 1e19]).astype(
            real_of(dtype)
        )
        scaled = (rows(dtype, (6, 5)) / 4 * sizes[:, None]).astype(dtype)
        largest = np.eye(1, 5, dtype=dtype) * limits.max
        found += [scaled[:3], scaled[3:], *(scaled[i : i + 1] for i in range(6)), largest]
    return found


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def check(got: np.ndarray, want: Any, like: str | np.dtype, size: Any = None, what: str = "") -> None:
    """Equal up to rounding in `like`, relative to `size` (that of the exact value where None).

    Where the exact value is not finite, the value found is not finite either.
    """
    want, got = np.asarray(want), np.asarray(got)
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    with np.errstate(all="ignore"):
        finite = np.isfinite(want)
        assert np.array_equal(np.isfinite(got), finite), f"{what}: {got} is not finite where {want} is not"
        size = np.abs(want) if size is None else np.broadcast_to(np.abs(size), want.shape)
        error = np.where(finite, np.abs(wide(np.where(finite, got, 0)) - np.where(finite, want, 0)), 0)
        limit = 40 * np.finfo(like).eps * np.where(finite, size, 0)
    assert np.all(error <= limit), f"{what}: {got} differs from {want} by {error.max()}"
