"""Rules for interpolation on grids: a matrix along each axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ...engine.linear import Linear
from ...engine.operations.unit_images import along_axes
from ..steps import Step


def _separable(d: int, has_scales: bool = True, width: int = 1) -> Callable[..., Any]:
    """Interpolation in d dimensions: along one axis after the other, of images `width` wide along the others, or 1 wide
    where the result is."""

    def rule(step: Step, x: Linear, size: Sequence[int], *settings: Any) -> Any:
        flags, scales = (settings[:1], settings[1:]) if has_scales else (settings, ())

        def images(k: int, n: int, m: int) -> np.ndarray:
            others = [1 if n == 1 else width for n in size]
            units = torch.eye(n, dtype=torch.float64 if x.dtype.itemsize > 4 else torch.float32, device="cpu")
            units = units.reshape(n, 1, *[n if a == k else 1 for a in range(d)])
            units = units.expand(n, 1, *[n if a == k else others[a] for a in range(d)]).contiguous()
            own = [scale if a == k else None for a, scale in enumerate(scales)]
            found = step.function(units, [m if a == k else others[a] for a in range(d)], *flags, *own)
            return found.numpy()[(..., *[slice(None) if a == k else 0 for a in range(d)])]

        return along_axes(x, range(x.ndim - d, x.ndim), [int(m) for m in size], images)

    return rule


RESAMPLING: dict[str, Callable[..., Any]] = {
    "_adaptive_avg_pool2d": _separable(2, has_scales=False),
    "_adaptive_avg_pool3d": _separable(3, has_scales=False),
    "upsample_linear1d": _separable(1),
    "upsample_bilinear2d": _separable(2),
    "upsample_bicubic2d": _separable(2),
    "upsample_trilinear3d": _separable(3),
    "_upsample_bilinear2d_aa": _separable(2, width=2),  # torch has other weights for a result of width 1
    "_upsample_bicubic2d_aa": _separable(2, width=2),
}
