"""Numbers of a result that are made when they are asked for, and the state at the end of an iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends import Array, Backend, choose_backend, get_backend, without_compilers
from ..run.outcome import Status

PYTHON: dict[str, Callable[[Any], Any]] = {
    "residual_norm": float,
    "tolerance": float,
    "attainable": float,
    "null_part": float,
    "consistent": bool,
    "iterations": int,
    "function_evaluations": int,
    "converged": bool,
    "diverged": bool,
    "status": Status,
    "singular": bool,
}
"""Attributes of `SolveResult` that are one number per system, and their types for one system."""

_HOST = get_backend("numpy")
_NORMS = ("residual_norm", "tolerance", "attainable", "null_part")


@dataclass(frozen=True, eq=False)
class Later:
    """Attributes of a result that are made when they are read.

    Attributes:
        bk: the library of the result.
        numbers: arrays by name: the library's, or NumPy's if `like` is given.
        like: an array of the library on the device of the result; None where nothing is to be converted to it.
    """

    bk: Backend
    numbers: dict[str, Array]
    like: Array | None = None

    def made_for(self, result: Any, name: str) -> Any:
        """Make one, and keep it, unless it is an array that was made inside a trace."""
        of_python = PYTHON.get(name)
        if of_python is None:
            made = self.array(name)
            if self.bk.compiled(made):
                return made
        else:
            made = of_python(without_compilers(self.on_host)(name).item())
        result.__dict__[name] = made
        return made

    def array(self, name: str) -> Array:
        """The array of the library."""
        array = self.numbers[name]
        if self.like is None:
            return array
        (made,) = without_compilers(self.bk.results_from_host)([np.asarray(array)], self.like)
        return made

    def on_host(self, name: str) -> np.ndarray:
        """The array in NumPy."""
        array = self.numbers[name]
        return np.asarray(array) if self.like is not None else _to_numpy(self.bk, array)

    def __reduce__(self) -> tuple[Callable[..., Later], tuple[Any, ...]]:
        return _on_host, ({name: self.on_host(name) for name in self.numbers},)


def _on_host(numbers: dict[str, np.ndarray]) -> Later:
    return Later(_HOST, numbers)


def with_python_numbers(result: Any) -> bool:
    """Make the numbers of an eager result of one system Python's, in place; False for one of a compiled function.

    A norm whose derivatives are being recorded stays an array: of `tf.GradientTape`, say.
    """
    found = result.__dict__
    status = found["status"]
    bk = _HOST if isinstance(status, np.ndarray | np.generic) else choose_backend(status)
    if bk is not _HOST and bk.compiled(status):
        return False
    if status.shape == () and not found["checkpoints"]:
        kept = () if bk.on_host else [name for name in _NORMS if bk.tracks(found[name])]
        found["_later"] = Later(bk, {name: found.pop(name) for name in PYTHON if name not in kept})
    return True


def array_of(result: Any, name: str) -> Array:
    """The attribute as an array of the library, also where users see one of Python's numbers."""
    found = result.__dict__
    later = found.get("_later")
    if later is not None and name in later.numbers and (name in PYTHON or name not in found):
        return later.array(name)
    value = getattr(result, name)
    return int(value) if isinstance(value, Status) else value


def known_array_of(result: Any, name: str) -> np.ndarray:
    """The attribute as an array of NumPy in the precision of the solve."""
    later = result.__dict__.get("_later")
    if later is not None and name in later.numbers:
        return later.on_host(name)
    value = getattr(result, name)
    return _to_numpy(choose_backend(value), value) if hasattr(value, "shape") else np.asarray(value)


def _to_numpy(bk: Backend, array: Array) -> np.ndarray:
    """By way of the class, whose functions no profile watches: this is no part of a solve."""
    return np.asarray(type(bk).to_numpy(bk, array))


def has_values(result: Any) -> bool:
    """Are the numbers of the result known: not those of a function that is being compiled?"""
    if "_later" in result.__dict__:
        return True
    status = result.status
    if not hasattr(status, "shape"):
        return isinstance(status, int)
    bk = choose_backend(status)
    return bk.is_array(status) and not bk.compiled(status)  # of `jax.eval_shape` it is none


NUMBERS = ("status", "iterations", "residual_norm", "tolerance", "attainable", "null_part", "consistent", "singular")


def end_state_of(result: Any) -> tuple[Array, ...]:
    """End state for `describe`, of the last checkpoint."""
    found = tuple(array_of(result, name) for name in _numbers(result))
    return tuple(a[-1] for a in found) if result.checkpoints else found


def known_end_state_of(result: Any) -> tuple[np.ndarray, ...]:
    """`end_state_of` in NumPy."""
    found = tuple(known_array_of(result, name) for name in _numbers(result))
    return tuple(np.asarray(a[-1]) for a in found) if result.checkpoints else found


def _numbers(result: Any) -> tuple[str, ...]:
    return NUMBERS if result._rung is None else (*NUMBERS, "_rung")


def said_of(result: Any) -> dict[str, Any]:
    """Keyword arguments of `describe` besides numbers."""
    return {
        "made_by": result._made_by, "least_squares": result.least_squares, "no_solution": result._no_solution,
        "causes": result._causes, "time_limit": result._time_limit, "parts": result._parts,
    }  # fmt: skip
