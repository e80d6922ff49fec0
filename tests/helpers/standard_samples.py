"""Random calls of the array API standard, made of the signatures in array_api_strict: arguments by parameter name."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Iterator
from functools import cache, reduce
from typing import Any, NamedTuple

import array_api_strict as strict
import numpy as np

from standard import DTYPES, GROUPS, calls_of

SHAPES = ((), (0,), (1,), (4,), (2, 0, 3), (1, 3), (3, 1), (2, 3, 4))
NUMBERS = {
    "b": [True, False],
    "u": range(8),
    "i": range(-3, 8),
    "f": [0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, 1.5, -2.5, 0.5, 0.125, 30.0, -1.0, 3.0],
    "c": [0, 1.5, -2 + 0.5j, 1j, 3 - 1j, 0.25],
}


class Sample(NamedTuple):
    """Arguments as NumPy arrays and Python's objects."""

    name: str
    args: tuple[Any, ...]
    keywords: dict[str, Any]

    def __str__(self) -> str:
        given = [*map(_text, self.args), *(f"{key}={_text(value)}" for key, value in self.keywords.items())]
        return f"xp.{self.name}({', '.join(given)})"


def _text(x: Any) -> str:
    return f"{x.dtype}{list(x.shape)} {x.tolist()}" if isinstance(x, np.ndarray) else repr(x)


def function_of(name: str) -> Callable[..., Any]:
    """The function in array_api_strict."""
    return reduce(getattr, name.split("."), strict)  # type: ignore[return-value]


def samples(names: list[str], count: int) -> Iterator[Sample]:
    """Calls of each function, always the same ones; fewer where a drawn shape does not suit."""
    for name in names:
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        dtypes = [dtype for dtype in DTYPES if np.dtype(dtype).kind in _kinds()[name] and dtype != "uint16"]
        for i in range(count):
            found = _Draw(rng, name, dtypes[(i + len(name)) % len(dtypes)]).sample()
            if found is not None:
                yield found


def drawn() -> list[str]:
    """The functions all of whose parameters can be drawn."""
    return [name for name in _kinds() if all(map(_drawable, _parameters(name))) and name not in SHAPED]


def _drawable(parameter: str) -> bool:
    return parameter in _SIMPLE or hasattr(_Draw, f"{parameter}_")


# What wants shapes that fit, or numbers in order, is in the table of calls.
SHAPED = {
    "matmul", "tensordot", "vecdot", "searchsorted", "stack", "meshgrid", "linalg.matmul", "linalg.outer",
    "linalg.tensordot", "linalg.vecdot", "linalg.cross", "linalg.inv", "linalg.det", "linalg.eigh", "linalg.eigvalsh",
    "linalg.slogdet", "linalg.solve", "linalg.svdvals", "linalg.cholesky", "linalg.matrix_power",
}  # fmt: skip
_DIVIDING = ("divide", "floor_divide", "remainder")


@cache
def _kinds() -> dict[str, str]:
    """For each function the kinds of dtypes with which the table calls it."""
    found: dict[str, str] = {}
    for group in GROUPS:
        for call in calls_of(group):
            found[call.name] = found.get(call.name, "") + call.kinds
    return found


@cache
def _parameters(name: str) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function_of(name)).parameters)


class _Unsuited(Exception):
    """No argument suits the shape that was drawn."""


class _Draw:
    """One call: a method for each name of a parameter, or a row of `_SIMPLE`."""

    def __init__(self, rng: np.random.Generator, name: str, dtype: str) -> None:
        self.rng, self.name, self.dtype = rng, name, np.dtype(dtype)
        self.shape = SHAPES[rng.integers(len(SHAPES))]
        self.keywords: dict[str, Any] = {}

    def sample(self) -> Sample | None:
        args = []
        try:
            for key, parameter in _parameters(self.name).items():
                value = _SIMPLE[key](self) if key in _SIMPLE else getattr(self, f"{key}_")()
                if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                    args += value
                elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                    self.keywords[key] = value
                else:
                    args.append(value)
        except _Unsuited:
            return None
        return Sample(self.name, tuple(args), self.keywords)

    def one_of(self, *choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def array(self, shape: tuple[int, ...]) -> np.ndarray:
        numbers = np.array(list(NUMBERS[self.dtype.kind]))
        if self.name.startswith("fft"):  # NaN or an infinity in one part of a sum is in either
            numbers = numbers[np.isfinite(numbers)]
        return np.asarray(numbers[self.rng.integers(len(numbers), size=shape)]).astype(self.dtype)

    def beside(self) -> np.ndarray:
        """An array that is broadcast with x."""
        shape = tuple(self.one_of(1, n) for n in self.shape[self.one_of(0, 0, len(self.shape) // 2) :])
        return self.array(shape)

    def x_(self) -> Any:
        return self.array(self.shape)

    def x1_(self) -> Any:
        """No complex 0, of which libraries raise complex powers as they like."""
        x = self.x_()
        return np.where(x == 0, 1, x).astype(x.dtype) if self.name == "pow" and self.dtype.kind == "c" else x

    def x2_(self) -> Any:
        """Of integers what is defined: no negative exponents and shifts, no divisor 0."""
        x = self.beside()
        if self.dtype.kind in "iu" and ("shift" in self.name or self.name == "pow"):
            return np.abs(x)
        if self.name in _DIVIDING and self.dtype.kind in "iuc":
            return np.where(x == 0, 1, x).astype(x.dtype)
        return x

    def condition_(self) -> Any:
        return np.asarray(self.rng.integers(2, size=self.shape)).astype(bool)

    def arrays_(self) -> Any:
        return [self.array(self.shape), self.array(self.shape)]

    def axis_(self) -> Any:
        count = len(self.shape) + (self.name == "expand_dims")
        default = _parameters(self.name)["axis"].default
        if self.name == "squeeze":
            places = [a for a, n in enumerate(self.shape) if n == 1]
        else:
            places = list(range(-count, count))
        choices = [*places, *([None] if default is None or self.name == "concat" else [])]
        if "tuple" in str(_parameters(self.name)["axis"].annotation) and count > 1 and self.name != "expand_dims":
            choices += [(0, -1), (-1,), ()] if self.name not in ("squeeze", "roll") else []
        choices = [a for a in choices if a is None or self._has_elements(a)]
        if not choices or ("cumulative" in self.name and not self.shape):
            raise _Unsuited
        return choices[self.rng.integers(len(choices))]

    def _has_elements(self, axis: Any) -> bool:
        """Along an axis of a transform: of none NumPy's `irfft` makes numbers of memory that nobody wrote to."""
        return not self.name.startswith("fft") or self.shape[axis] > 0

    def repeats_(self) -> Any:
        """A number, or one for each part along an axis, which is drawn with it."""
        self.axis_ = lambda: self.keywords.get("axis")  # type: ignore[method-assign]
        if not self.shape or self.one_of(True, False):
            return int(self.rng.integers(0, 3))
        axis = int(self.rng.integers(-len(self.shape), len(self.shape)))
        self.axis_ = lambda: axis  # type: ignore[method-assign]
        return self.rng.integers(0, 3, size=self.shape[axis])

    def indices_(self) -> Any:
        """Places along the last axis."""
        if not self.shape or not self.shape[-1] or self.name != "take":
            raise _Unsuited
        axis, n = self.one_of(-1, len(self.shape) - 1), self.shape[-1]
        self.axis_ = lambda: axis  # type: ignore[method-assign]
        return self.rng.integers(-n, n, size=self.rng.integers(4))

    def axes_(self) -> tuple[int, ...]:
        if "shift" in self.name and not self.shape:
            raise _Unsuited
        order = self.rng.permutation(len(self.shape))
        return tuple(int(a) - self.one_of(0, len(self.shape)) for a in order)


def _flag(draw: _Draw) -> bool:
    return bool(draw.rng.integers(2))


def _beyond(draw: _Draw) -> Any:
    return draw.one_of(None, draw.array(draw.shape)) if draw.shape else None


_SIMPLE: dict[str, Callable[[_Draw], Any]] = {
    **dict.fromkeys(("keepdims", "descending", "include_initial", "upper"), _flag),
    **dict.fromkeys(("prepend", "append"), _beyond),
    "stable": lambda draw: True,  # else several results are right
    "correction": lambda draw: draw.one_of(0.0, 1.0, 0.5),
    "dtype": lambda draw: draw.one_of(None, {"f": "float64", "c": "complex128"}.get(draw.dtype.kind, "int64")),
    "k": lambda draw: int(draw.rng.integers(-3, 4)),
    "offset": lambda draw: int(draw.rng.integers(-1, 2)),
    "shift": lambda draw: int(draw.rng.integers(-5, 6)),
    "repetitions": lambda draw: tuple(int(n) for n in draw.rng.integers(0, 3, size=draw.rng.integers(1, 4))),
    "shape": lambda draw: (draw.one_of(2, 1), *draw.shape) if draw.name == "broadcast_to" else (*draw.shape[::-1], 1),
    "copy": lambda draw: draw.one_of(None, True),
    "min": lambda draw: draw.one_of(None, 1, np.minimum(draw.beside(), 40).astype(draw.dtype)),
    "max": lambda draw: draw.one_of(None, 50),  # below the minimum is undefined
    "n": lambda draw: int(draw.rng.integers(4)) if draw.name == "diff" else int(draw.rng.integers(1, 6)),
    "norm": lambda draw: draw.one_of("backward", "ortho", "forward"),
}
