"""Numbers of a result: how each system ended, as arrays of the library, of NumPy, or as Python's numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend, choose_backend, get_backend, without_compilers
from ..run.outcome import Status

PYTHON: dict[str, Callable[[Any], Any]] = {
    "residual_norm": float, "tolerance": float, "attainable": float, "null_part": float, "consistent": bool,
    "iterations": int, "function_evaluations": int, "converged": bool, "diverged": bool, "status": Status,
    "singular": bool,
}  # fmt: skip
"""Attributes of `SolveResult` that are one number per system, and their types for one system."""

_HOST = get_backend("numpy")
_NORMS = ("residual_norm", "tolerance", "attainable", "null_part")


class EndState(NamedTuple):
    """How each system ended, `(*batch,)`: attributes of `SolveResult`; `rung` where several methods may have made x."""

    status: Any
    iterations: Any
    residual_norm: Any
    tolerance: Any
    attainable: Any
    null_part: Any
    consistent: Any
    singular: Any
    rung: Any = None

    @classmethod
    def in_numpy(cls, arrays: Sequence[Any]) -> EndState:
        """Arrays of NumPy with at least one axis, all of one shape."""
        return cls(*np.broadcast_arrays(*map(np.atleast_1d, arrays)))

    def arrays(self) -> tuple[Array, ...]:
        return tuple(self[:8] if self.rung is None else self)

    def worst(self, which: np.ndarray) -> int:
        """Flat index of the one among these systems that is furthest from its tolerance."""
        with np.errstate(all="ignore"):
            excess = np.where(np.isfinite(self.residual_norm), self.residual_norm / self.tolerance, np.inf)
        return int(np.argmax(np.where(which, np.nan_to_num(excess, nan=np.inf), -1)))


@dataclass(frozen=True, eq=False)
class Later:
    """Attributes of a result that are made when they are read."""

    bk: Backend
    numbers: dict[str, Array]  # by name: the library's, or NumPy's if `like` is given
    like: Array | None = None  # of the library, on the device of the result

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
        return Later, (_HOST, {name: self.on_host(name) for name in self.numbers})


def with_python_numbers(result: Any) -> bool:
    """Make the numbers of an eager result of one system Python's, in place; False for one of a compiled function.

    A norm whose derivatives are being recorded, by `tf.GradientTape` say, stays an array.
    """
    fields = result.__dict__
    status = fields["status"]
    bk = _HOST if isinstance(status, np.ndarray | np.generic) else choose_backend(status)
    if bk is not _HOST and bk.compiled(status):
        return False
    if status.shape == () and not fields["checkpoints"]:
        tracked = () if bk.on_host else [name for name in _NORMS if bk.tracks(fields[name])]
        fields["_later"] = Later(bk, {name: fields.pop(name) for name in PYTHON if name not in tracked})
    return True


def array_of(result: Any, name: str) -> Array:
    """The attribute as an array of the library, also where users see one of Python's numbers."""
    later = result.__dict__.get("_later")
    if later is not None and name in later.numbers and (name in PYTHON or name not in result.__dict__):
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
    # By the class, whose functions no profile records: this is not part of a solve.
    return np.asarray(type(bk).to_numpy(bk, array))


def has_values(result: Any) -> bool:
    """Are the numbers of the result known? Not inside a function that is being compiled."""
    if "_later" in result.__dict__:
        return True
    status = result.status
    if not hasattr(status, "shape"):
        return isinstance(status, int)
    bk = choose_backend(status)
    return bk.is_array(status) and not bk.compiled(status)  # `jax.eval_shape` has shapes without arrays


def end_state_of(result: Any, read: Callable[[Any, str], Any] = array_of) -> EndState:
    """End state of the last checkpoint, in arrays of the library."""
    names = (*EndState._fields[:8], *(() if result._rung is None else ("_rung",)))
    arrays = (read(result, name) for name in names)
    return EndState(*(a[-1] for a in arrays) if result.checkpoints else arrays)


def known_end_state_of(result: Any) -> EndState:
    """`end_state_of` in NumPy."""
    return EndState.in_numpy(end_state_of(result, known_array_of).arrays())


SAID = ("_made_by", "least_squares", "_no_solution", "_causes", "_time_limit", "_parts")


def said_of(result: Any) -> dict[str, Any]:
    """Arguments of `describe` besides the end state."""
    return {name.removeprefix("_"): getattr(result, name) for name in SAID}
