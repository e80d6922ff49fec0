"""Rules for pooling and interpolation on grids: sums over windows, and a matrix along each axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ...engine.arithmetic import scale
from ...engine.linear import Linear
from ...engine.operations.unit_images import along_axes
from ...engine.reductions import window_sum
from ..steps import Step


def _average(d: int) -> Callable[..., Any]:
    """Means over windows in d dimensions."""

    def rule(
        step: Step,
        x: Linear,
        window: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        *settings: Any,
    ) -> Any:
        lead, space = x.ndim - d, step.shape[-d:]
        window, padding = (_each(v, d) for v in (window, padding))
        stride = _each(stride or window, d)
        ends = [(m - 1) * s + k - n - p for m, s, k, n, p in zip(space, stride, window, x.shape[lead:], padding)]
        sizes, steps = [1] * lead + window, [1] * lead + stride
        sums = window_sum(x, sizes, steps, [(0, 0)] * lead + list(zip(padding, ends)))
        ones = torch.ones((1,) * lead + x.shape[lead:], dtype=torch.float64, device="cpu")
        means = step.function(ones, window, stride, padding, *settings).numpy()
        return scale(sums, np.broadcast_to(means / _count(x.shape[lead:], window, stride, padding, space), sums.shape))

    return rule


def _count(
    shape: Sequence[int], window: Sequence[int], stride: Sequence[int], padding: Sequence[int], space: Sequence[int]
) -> np.ndarray:
    """How many elements of an array lie in each window."""
    found = np.ones((1,) * len(shape))
    for axis, (n, k, s, p, m) in enumerate(zip(shape, window, stride, padding, space)):
        start = np.arange(m) * s - p
        inside = np.minimum(start + k, n) - np.maximum(start, 0)
        found = found * inside.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return found


def _each(value: Any, d: int) -> list[int]:
    values = [int(v) for v in value] if isinstance(value, Sequence) else [int(value)]
    return values * d if len(values) == 1 else values


def _separable(d: int, has_scales: bool = True) -> Callable[..., Any]:
    """Interpolation in d dimensions: along one axis after the other."""

    def rule(step: Step, x: Linear, size: Sequence[int], *settings: Any) -> Any:
        flags, scales = (settings[:1], settings[1:]) if has_scales else (settings, ())

        def images(k: int, n: int, m: int) -> np.ndarray:
            units = torch.eye(n, dtype=torch.float64 if x.dtype.itemsize > 4 else torch.float32, device="cpu")
            units = units.reshape(n, 1, *[n if a == k else 1 for a in range(d)])
            own = [scale if a == k else None for a, scale in enumerate(scales)]
            return step.function(units, [m if a == k else 1 for a in range(d)], *flags, *own).numpy()

        return along_axes(x, range(x.ndim - d, x.ndim), [int(m) for m in size], images)

    return rule


RESAMPLING: dict[str, Callable[..., Any]] = {
    "avg_pool1d": _average(1),
    "avg_pool2d": _average(2),
    "avg_pool3d": _average(3),
    "_adaptive_avg_pool2d": _separable(2, has_scales=False),
    "_adaptive_avg_pool3d": _separable(3, has_scales=False),
    "upsample_linear1d": _separable(1),
    "upsample_bilinear2d": _separable(2),
    "upsample_bicubic2d": _separable(2),
    "upsample_trilinear3d": _separable(3),
}
