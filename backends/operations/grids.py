"""Operations on regular grids: interpolation, correlation, Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from itertools import product
from typing import Any

from ..interface.arrays import Array
from .gathering import folded, known_shape

_EXTRAPOLATIONS = ("zeros", "boundary", "periodic", "symmetric", "reflect", "undefined")


def grid_sample(bk: Any, grid: Array, coordinates: Array, extrapolation: str = "zeros") -> Array:
    """Linear interpolation of `(batch, spatial..., channels)` at places `(batch, any..., axes)`, counted from 0.

    Args:
        extrapolation: what is outside: "zeros", "boundary" (the nearest), "periodic", "symmetric" or "reflect"
            (mirrored with the last entry twice or once), or "undefined".
    """
    if extrapolation not in _EXTRAPOLATIONS:
        raise ValueError(
            f"grid_sample got extrapolation={extrapolation!r}; expected one of {', '.join(_EXTRAPOLATIONS)}."
        )
    sizes = known_shape("grid_sample", grid)[1:-1]
    if not sizes or int(coordinates.shape[-1]) != len(sizes):
        raise ValueError(
            f"grid_sample got a grid of shape {tuple(grid.shape)} and coordinates {tuple(coordinates.shape)}; expected "
            f"a last axis of {len(sizes)} coordinates."
        )
    coordinates = bk.asarray(coordinates, like=grid)
    coordinates = coordinates if bk.dtype(coordinates).kind == "f" else bk.to_float(coordinates)
    floors = bk.xp.floor(coordinates)
    part = coordinates - floors
    mode = "boundary" if extrapolation in ("zeros", "undefined") else extrapolation
    low = [_as_integers(bk, floors[..., axis], n, mode) for axis, n in enumerate(sizes)]
    corners = []
    for corner in product((0, 1), repeat=len(sizes)):
        at = [own + up for own, up in zip(low, corner, strict=True)]
        weights = [part[..., axis] if up else 1 - part[..., axis] for axis, up in enumerate(corner)]
        if extrapolation == "zeros":
            weights = [_inside_only(bk, w, i, n) for w, i, n in zip(weights, at, sizes, strict=True)]
        places = bk.xp.stack([folded(bk.xp, i, n, mode) for i, n in zip(at, sizes, strict=True)], axis=-1)
        found = bk.gather_nd(grid, places, True)
        corners.append(bk.xp.multiply(found, reduce(lambda a, b: a * b, weights)[..., None]))
    return reduce(lambda a, b: a + b, corners)


def _as_integers(bk: Any, floors: Array, n: int, mode: str) -> Array:
    """Whole numbers as integers; of any size, as far away nothing changes or all comes again."""
    if mode == "boundary":
        floors = bk.xp.clip(floors, -2, n + 1)
    else:
        floors = bk.xp.remainder(floors, {"periodic": n, "symmetric": 2 * n}.get(mode, max(2 * n - 2, 1)))
    return bk.xp.astype(bk.xp.where(bk.xp.isfinite(floors), floors, 0), bk.xp.int32)  # the weights are NaN there


def _inside_only(bk: Any, weight: Array, place: Array, n: int) -> Array:
    """The weight where the place is inside, else 0; NaN stays."""
    return bk.xp.where(bk.xp.logical_and(place >= 0, place < n), weight, weight * 0)


def conv(bk: Any, value: Array, kernel: Array, zero_padding: bool = True) -> Array:
    """Correlation of `(batch, channels, spatial...)` with kernels `(batch, out, channels, spatial...)`.

    Each entry of the result `(batch, out, spatial...)` is a sum of neighbours times the kernel, which is not turned.

    Args:
        kernel: its batch, or that of `value`, may be 1.
        zero_padding: keep the size, by zeros around, one more after than before for kernels of even length; else only
            where the kernel fits.
    """
    value, kernel = bk.auto_cast(value, kernel, bool_to_int=True)
    sizes = known_shape("conv", kernel)[3:]
    if len(value.shape) != len(kernel.shape) - 1 or int(value.shape[1]) != int(kernel.shape[2]) or not sizes:
        raise ValueError(
            f"conv got values of shape {tuple(value.shape)} and kernels {tuple(kernel.shape)}; expected "
            "(batch, channels, spatial...) and (batch, out, channels, spatial...)."
        )
    if zero_padding:
        value = bk.pad(value, [(0, 0), (0, 0), *(((k - 1) // 2, k // 2) for k in sizes)])
    batch, (_, channels, *own) = bk.broadcast_size((value, kernel), 0), known_shape("conv", value)
    out = [max(n - k + 1, 0) for n, k in zip(own, sizes, strict=True)]
    total = None
    for tap in product(*map(range, sizes)):
        part = value[(slice(None), slice(None), *(slice(t, t + n) for t, n in zip(tap, out, strict=True)))]
        weights = kernel[(slice(None), slice(None), slice(None), *tap)]
        flat = bk.xp.matmul(weights, bk.xp.reshape(part, (int(value.shape[0]), channels, math.prod(out))))
        total = flat if total is None else total + flat
    return bk.xp.reshape(total, (batch, int(kernel.shape[1]), *out))


def fft(bk: Any, x: Array, axes: Sequence[int] | None = None) -> Array:
    """The discrete Fourier transform along some axes, or all; complex. `bk.xp.fft` has the standard's functions."""
    return bk.xp.fft.fftn(x, axes=None if axes is None else tuple(axes))


def ifft(bk: Any, x: Array, axes: Sequence[int] | None = None) -> Array:
    """The inverse of `fft`."""
    return bk.xp.fft.ifftn(x, axes=None if axes is None else tuple(axes))
