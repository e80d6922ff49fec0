"""Rules for operations that move elements. Views are not among them: they are places in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...engine import coefficients as co
from ...engine.linear import Linear, linear_among, reshape
from ...engine.operands import spread
from ...engine.operations.replace import cut
from ...engine.positions import select
from ...engine.refusals import static, static_needed
from ...engine.structural import broadcast_to, concatenate, pad, reverse, stack, tile
from ..steps import Step


def _where(step: Step, condition: Any, a: Any, b: Any) -> Any:
    if isinstance(condition, Linear):
        raise static_needed("condition", condition)
    example = linear_among([a, b], "where")
    cases = [spread(example.bk, np.asarray(case) if co.known(case) else case, step.shape) for case in (b, a)]
    return select(np.broadcast_to(np.asarray(condition, bool), step.shape), cases)


def _masked_fill(step: Step, x: Any, mask: Any, value: Any) -> Any:
    return _where(step, static("mask", mask), value, x)


def _triangle(of: Callable[..., np.ndarray]) -> Callable[..., Any]:
    def rule(step: Step, x: Linear, diagonal: int = 0) -> Any:
        mask = of(np.ones(x.shape[-2:], bool), diagonal)
        return select(np.broadcast_to(mask, x.shape), [np.zeros(x.shape, x.dtype), x])

    return rule


def _pad(step: Step, x: Linear, widths: Sequence[int], value: Any = 0) -> Any:
    pairs = list(zip(widths[::2], widths[1::2]))[::-1]
    config = [(0, 0, 0)] * (x.ndim - len(pairs)) + [(int(lo), int(hi), 0) for lo, hi in pairs]
    return pad(x, config, value)


def _pad_by_index(index: Callable[[int, int, int], np.ndarray]) -> Callable[..., Any]:
    """Padding by elements of the array: `index(n, before, after)` along each axis."""

    def rule(step: Step, x: Linear, widths: Sequence[int]) -> Any:
        pairs = list(zip(widths[::2], widths[1::2]))
        for axis, (lo, hi) in zip(range(x.ndim - 1, -1, -1), pairs):
            x = along(x, axis, index(x.shape[axis], int(lo), int(hi)))
        return x

    return rule


def _replicated(n: int, lo: int, hi: int) -> np.ndarray:
    return np.clip(np.arange(-lo, n + hi), 0, n - 1)


def _reflected(n: int, lo: int, hi: int) -> np.ndarray:
    index = np.abs(np.arange(-lo, n + hi))
    return np.where(index >= n, 2 * (n - 1) - index, index)


def along(x: Linear, axis: int, index: np.ndarray) -> Linear:
    """Elements along an axis, by pieces in which the index rises or falls by one, or stays."""
    if not index.size:
        return cut(x, axis, 0, 0)
    pieces: list[Linear] = []
    start = 0
    while start < len(index):
        step = int(index[start + 1] - index[start]) if start + 1 < len(index) else 0
        step = step if step in (1, -1) else 0
        expected = index[start] + step * np.arange(len(index) - start)
        same = index[start:] == expected
        end = start + (len(same) if same.all() else int(np.argmin(same)))
        low, high = sorted((int(index[start]), int(index[end - 1])))
        piece = cut(x, axis, low, high + 1)
        if step == 0:
            piece = broadcast_to(piece, [end - start if a == axis else n for a, n in enumerate(x.shape)])
        pieces.append(reverse(piece, [axis]) if step < 0 else piece)
        start = end
    return pieces[0] if len(pieces) == 1 else concatenate(pieces, axis)


def _roll(step: Step, x: Linear, shifts: Any, dims: Any = ()) -> Any:
    shifts, dims = (list(v) if isinstance(v, Sequence) else [v] for v in (shifts, dims))
    if not x.size:
        return x
    if not dims:
        return reshape(_roll(step, reshape(x, (x.size,)), shifts, [0]), x.shape)
    for shift, axis in zip(shifts, dims):
        n = x.shape[axis]
        begin = -shift % n
        if begin:
            x = concatenate([cut(x, axis % x.ndim, begin, n), cut(x, axis % x.ndim, 0, begin)], axis)
    return x


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
    "tril": _triangle(np.tril),
    "triu": _triangle(np.triu),
    "constant_pad_nd": _pad,
    **{f"replication_pad{d}d": _pad_by_index(_replicated) for d in (1, 2, 3)},
    **{f"reflection_pad{d}d": _pad_by_index(_reflected) for d in (1, 2, 3)},
    "roll": _roll,
    "flip": _flip,
    "cat": _concatenate,
    "stack": _stack,
    "repeat": _repeat,
}
