"""Rules for operations that move elements. Views are not among them: they are places in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...engine import coefficients as co
from ...engine.linear import Linear, reshape
from ...engine.operations.along import pad_by_mode, pad_by_mode_adjoint, roll
from ...engine.operations.choice import triangle, where
from ...engine.refusals import static
from ...engine.structural import concatenate, pad, reverse, stack, tile
from ..steps import Step
from .tensors import by_first


def _where(step: Step, condition: Any, a: Any, b: Any) -> Any:
    cases = [np.asarray(case) if co.known(case) else case for case in (a, b)]
    return where(np.asarray(condition, bool) if co.known(condition) else condition, *cases)


def _masked_fill(step: Step, x: Any, mask: Any, value: Any) -> Any:
    return _where(step, static("mask", mask), value, x)


def _widths(x: Linear, widths: Sequence[int]) -> list[tuple[int, int]]:
    """Before and after along each axis; torch begins with the last one."""
    pairs = [(int(lo), int(hi)) for lo, hi in zip(widths[::2], widths[1::2])]
    return [(0, 0)] * (x.ndim - len(pairs)) + pairs[::-1]


def _pad(step: Step, x: Linear, widths: Sequence[int], value: Any = 0) -> Any:
    return pad(x, [(lo, hi, 0) for lo, hi in _widths(x, widths)], value)


def _pad_by(mode: str) -> Callable[..., Any]:
    return lambda step, x, widths: pad_by_mode(x, _widths(x, widths), mode)


def _pad_by_adjoint(mode: str) -> Callable[..., Any]:
    return by_first(lambda step, x, like, widths: pad_by_mode_adjoint(x, _widths(x, widths), mode))


def _roll(step: Step, x: Linear, shifts: Any, dims: Any = ()) -> Any:
    return roll(x, shifts, None if isinstance(dims, Sequence) and not dims else dims)


def _flip(step: Step, x: Linear, dims: Sequence[int]) -> Any:
    return reverse(x, [d % x.ndim for d in dims])


def _concatenate(step: Step, parts: Sequence[Any], dim: int = 0) -> Any:
    ndim = len(step.shape)
    kept = [part for part in parts if len(part.shape) == ndim]  # an old exception: tensors of shape (0,) do not count
    return concatenate(kept, dim % ndim)


def _stack(step: Step, parts: Sequence[Any], dim: int = 0) -> Any:
    return stack(parts, dim % len(step.shape))


def _repeat(step: Step, x: Linear, repeats: Sequence[int]) -> Any:
    x = reshape(x, (*[1] * (len(repeats) - x.ndim), *x.shape))
    return tile(x, [int(n) for n in repeats])


STRUCTURE: dict[str, Callable[..., Any]] = {
    "where": _where,
    "masked_fill": _masked_fill,
    "tril": lambda step, x, diagonal=0: triangle(x, np.tril, diagonal),
    "triu": lambda step, x, diagonal=0: triangle(x, np.triu, diagonal),
    "constant_pad_nd": _pad,
    **{f"replication_pad{d}d": _pad_by("edge") for d in (1, 2, 3)},
    **{f"reflection_pad{d}d": _pad_by("reflect") for d in (1, 2, 3)},
    **{f"replication_pad{d}d_backward": _pad_by_adjoint("edge") for d in (1, 2, 3)},
    **{f"reflection_pad{d}d_backward": _pad_by_adjoint("reflect") for d in (1, 2, 3)},
    "roll": _roll,
    "flip": _flip,
    "cat": _concatenate,
    "stack": _stack,
    "repeat": _repeat,
}
