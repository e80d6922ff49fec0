"""The array API standard on PyTorch: what differs from PyTorch's own functions."""

from __future__ import annotations

import builtins
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ..standard.library import ArrayLibrary, axes_of, check_lengths, named, one_axis
from ..standard.namespace import Namespace
from ..standard.promotion import UniqueAll, parts_of
from .tensors import NUMPY_DTYPE, TORCH_DTYPE

Axis = int | Sequence[int] | None
_Reduce = Callable[..., torch.Tensor]

_NO_ARITHMETIC = "PyTorch stores such integers and does not compute with them: use uint8 or a wider signed integer."


class TorchLibrary(ArrayLibrary):
    """Unsigned integers of 16 bits and more are refused: PyTorch has hardly any operation on them."""

    name, module = "PyTorch", "torch"
    natives = TORCH_DTYPE
    extra_kinds = {torch.bfloat16: "f"}  # noqa: RUF012
    refused = dict.fromkeys(("uint16", "uint32", "uint64"), _NO_ARITHMETIC)

    @property
    def default_float(self) -> np.dtype:
        return NUMPY_DTYPE[torch.get_default_dtype()]

    @property
    def default_unsigned(self) -> np.dtype:
        return np.dtype(np.int64)

    def is_array(self, x: Any) -> bool:
        return isinstance(x, torch.Tensor)

    def cast(self, x: Any, dtype: Any) -> Any:
        return x.to(dtype)

    def constant(self, x: Any, dtype: Any, like: Any) -> Any:
        if isinstance(x, (np.ndarray, np.generic)):
            x = from_numpy(np.asarray(x))
        return torch.as_tensor(x, dtype=dtype, device=None if like is None else like.device)

    def stack(self, arrays: list[Any]) -> Any:
        return torch.stack(arrays)

    def devices(self) -> list[Any]:
        found = [torch.device("cpu")]
        if torch.cuda.is_available():
            found += [torch.device("cuda", i) for i in range(torch.cuda.device_count())]
        return found

    def _promote_kind(self, a: Any, b: Any) -> Any:
        return torch.promote_types(a, b)


def from_numpy(x: np.ndarray, copy: bool = False) -> torch.Tensor:
    """An array of NumPy as a tensor; a copy where PyTorch cannot share its memory (negative strides, read-only)."""
    dtype = x.dtype.newbyteorder("=")
    if dtype not in TORCH_DTYPE:
        raise TypeError(f"PyTorch has no tensors of NumPy's dtype {dtype} to compute with; cast the array first.")
    shared = not copy and x.flags.writeable and x.dtype.isnative and builtins.all(stride >= 0 for stride in x.strides)
    return torch.as_tensor(x if shared else np.array(x, dtype, order="C"))


# --- New tensors; dtypes are given, see `backends/standard/creation.py` -----------------------------------------------


def asarray(obj: Any, /, *, dtype: Any, device: Any, copy: bool | None) -> torch.Tensor:
    """A tensor of a tensor, an array of NumPy or another library's array."""
    if isinstance(obj, torch.Tensor):  # torch.asarray leaves derivatives behind, or warns of them
        moved = obj.to(device=device, dtype=dtype)
        if copy is False and moved is not obj:
            raise ValueError("xp.asarray got copy=False, and a tensor of another dtype or on another device.")
        return moved.clone() if copy and moved is obj else moved
    if isinstance(obj, (np.ndarray, np.generic)):
        host = np.asarray(obj) if dtype is None else np.asarray(obj, NUMPY_DTYPE.get(dtype))
        moved = from_numpy(host, copy=bool(copy)).to(device=device, dtype=dtype)
        if copy is False and not (isinstance(obj, np.ndarray) and np.shares_memory(moved.numpy(force=True), obj)):
            raise ValueError("xp.asarray got copy=False and an array of NumPy that PyTorch cannot share as it is.")
        return moved
    return torch.asarray(obj, dtype=dtype, device=device, copy=copy)


def astype(x: torch.Tensor, dtype: Any, /, *, copy: bool, device: Any) -> torch.Tensor:
    """`x` in another dtype."""
    return x.to(device=device, dtype=dtype, copy=copy)


def arange(start: Any, stop: Any, step: Any, *, dtype: Any, device: Any) -> torch.Tensor:
    """`start + i step` below `stop`, none where the step leads away from it."""
    if math.ceil((stop - start) / step) <= 0:
        return torch.empty(0, dtype=dtype, device=device)
    return torch.arange(start, stop, step, dtype=dtype, device=device)


def linspace(start: Any, stop: Any, num: int, *, dtype: Any, device: Any, endpoint: bool) -> torch.Tensor:
    """`num` numbers from `start` to `stop`."""
    count = num if endpoint else num + 1
    return torch.linspace(start, stop, count, dtype=dtype, device=device)[:num]


def eye(n_rows: int, n_cols: int, /, *, k: int, dtype: Any, device: Any) -> torch.Tensor:
    """Ones on the k-th diagonal."""
    return torch.ones((n_rows, n_cols), dtype=dtype, device=device).tril(k).triu(k)


def full(shape: tuple[int, ...], fill_value: Any, *, dtype: Any, device: Any) -> torch.Tensor:
    """A number, or a tensor without axes, everywhere."""
    if isinstance(fill_value, torch.Tensor):
        return fill_value.to(device=device, dtype=dtype).expand(shape).clone()
    return torch.full(shape, fill_value, dtype=dtype, device=device)


def full_like(x: torch.Tensor, /, fill_value: Any, *, dtype: Any, device: Any) -> torch.Tensor:
    """A number everywhere, in the shape of `x`."""
    return full(tuple(x.shape), fill_value, dtype=dtype, device=x.device if device is None else device)


def meshgrid(*arrays: torch.Tensor, indexing: str = "xy") -> list[torch.Tensor]:
    """Coordinates of a grid, one array for each axis."""
    return list(torch.meshgrid(*arrays, indexing=indexing)) if arrays else []


def tril(x: torch.Tensor, /, *, k: int = 0) -> torch.Tensor:
    """The part below the k-th diagonal, with it."""
    return torch.tril(x, k)


def triu(x: torch.Tensor, /, *, k: int = 0) -> torch.Tensor:
    """The part above the k-th diagonal, with it."""
    return torch.triu(x, k)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> torch.Tensor:
    """A tensor on the memory of another library's array."""
    if isinstance(x, (np.ndarray, torch.Tensor)):  # PyTorch ends the process at a negative stride, refuses gradients
        return asarray(x, dtype=None, device=device, copy=copy)
    shared = torch.from_dlpack(x)
    moved = shared.to(device=device)
    if copy is False and moved is not shared:
        raise ValueError(f"xp.from_dlpack got copy=False and an array on {shared.device}, not on {device}.")
    return moved.clone() if copy and moved is shared else moved


# --- Elementwise functions that PyTorch calls otherwise, or computes otherwise for some dtypes; others are its own ----

bitwise_invert = torch.bitwise_not
equal = torch.eq  # torch.equal gives one bool
_WHOLE = frozenset((torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64))


def _of_whole_numbers(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that leaves integers as they are, and rounds both parts of a complex number."""

    def rounded(x: torch.Tensor, /) -> torch.Tensor:
        if x.dtype in _WHOLE:
            return x.clone()
        return torch.complex(function(x.real), function(x.imag)) if x.is_complex() else function(x)

    return named(rounded, function.__name__)


ceil, floor, round, trunc = map(_of_whole_numbers, (torch.ceil, torch.floor, torch.round, torch.trunc))


def sign(x: torch.Tensor, /) -> torch.Tensor:
    """x / |x|, 0 of 0, and NaN of NaN."""
    if x.dtype in _WHOLE:
        return torch.sign(x)
    return torch.where(torch.isnan(x), x, torch.sgn(x))


def conj(x: torch.Tensor, /) -> torch.Tensor:
    """The conjugate, of real numbers themselves."""
    return torch.conj_physical(x) if x.is_complex() else x


def imag(x: torch.Tensor, /) -> torch.Tensor:
    """The imaginary part, 0 of real numbers."""
    return torch.imag(x) if x.is_complex() else torch.zeros_like(x)


def clip(x: torch.Tensor, min: torch.Tensor | None, max: torch.Tensor | None) -> torch.Tensor:
    """`x` between two bounds."""
    if min is None and max is None:
        return x.clone()
    return torch.clamp(x, min, max)


# --- Reductions over one axis, several or none (`axis=()`), and sums along an axis ------------------------------------


def _over(function: _Reduce, x: torch.Tensor, axis: Axis, keepdims: bool, **settings: Any) -> torch.Tensor:
    """`function(x, dim=..., keepdim=...)`; PyTorch reads an empty `dim` as all axes, so then a new axis is reduced."""
    if axis is None and not keepdims and x.numel():
        return function(x, **settings)
    dim = axes_of(axis, x.ndim)
    if not dim:
        return function(x.unsqueeze(-1), dim=(x.ndim,), keepdim=False, **settings)
    return function(x, dim=dim, keepdim=keepdims, **settings)


def sum(x: torch.Tensor, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> torch.Tensor:
    """The sum."""
    if axis is None and dtype is None and not keepdims:
        return torch.sum(x)
    return _over(torch.sum, x, axis, keepdims, dtype=dtype)


def prod(x: torch.Tensor, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> torch.Tensor:
    """The product, axis by axis."""
    x = x if dtype is None else x.to(dtype)
    if axis is None and not keepdims:
        return torch.prod(x)
    for a in sorted(axes_of(axis, x.ndim), reverse=True):
        x = torch.prod(x, dim=a, keepdim=keepdims)
    return x


def _reduction(function: _Reduce, cast: Any = None) -> Callable[..., torch.Tensor]:
    def reduced(x: torch.Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> torch.Tensor:
        return _over(function, x if cast is None else x.to(cast), axis, keepdims)

    return named(reduced, function.__name__)


def _deviation(function: _Reduce) -> Callable[..., torch.Tensor]:
    def deviation(
        x: torch.Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
    ) -> torch.Tensor:
        return _over(function, x, axis, keepdims, correction=correction)

    return named(deviation, function.__name__)


max, min, mean = map(_reduction, (torch.amax, torch.amin, torch.mean))  # NaN where there is one
any, all = (_reduction(function, torch.bool) for function in (torch.any, torch.all))
var, std = map(_deviation, (torch.var, torch.std))


def count_nonzero(x: torch.Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> torch.Tensor:
    """How many elements are not 0?"""
    return sum(x != 0, axis=axis, keepdims=keepdims, dtype=torch.int64)


def _along(name: str, function: _Reduce, first: int) -> Callable[..., torch.Tensor]:
    """A cumulative function; `include_initial` puts its value for no elements in front."""

    def cumulative(
        x: torch.Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
    ) -> torch.Tensor:
        axis = one_axis(cumulative.__name__, x, axis)
        found = function(x, dim=axis, dtype=dtype)
        if not include_initial:
            return found
        shape = list(found.shape)
        shape[axis] = 1
        return torch.cat([found.new_full(shape, first), found], dim=axis)

    return named(cumulative, name)


cumulative_sum = _along("cumulative_sum", torch.cumsum, 0)
cumulative_prod = _along("cumulative_prod", torch.cumprod, 1)


# --- Sorting, searching and sets --------------------------------------------------------------------------------------


def sort(x: torch.Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> torch.Tensor:
    """The elements in order along an axis."""
    return torch.sort(x, dim=axis, descending=descending, stable=True).values


def argsort(x: torch.Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> torch.Tensor:
    """The places of the elements in order."""
    return torch.sort(x, dim=axis, descending=descending, stable=True).indices


def _place_of(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def place(x: torch.Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> torch.Tensor:
        x = x.to(torch.uint8) if x.dtype == torch.bool else x
        found = function(x, dim=axis, keepdim=keepdims and axis is not None)
        return found.reshape((1,) * x.ndim) if keepdims and axis is None else found

    return named(place, function.__name__)


argmax, argmin = _place_of(torch.argmax), _place_of(torch.argmin)


def nonzero(x: torch.Tensor, /) -> tuple[torch.Tensor, ...]:
    """The places of the elements that are not 0, an array for each axis."""
    if x.ndim == 0:
        raise ValueError("xp.nonzero got an array without axes; expected one with places to name.")
    return torch.nonzero(x, as_tuple=True)


def searchsorted(x1: torch.Tensor, x2: torch.Tensor, /, *, side: str = "left", sorter: Any = None) -> torch.Tensor:
    """Where elements would have to be put into a sorted array; NaN is larger than all numbers."""
    x1 = x1 if sorter is None else x1[torch.as_tensor(sorter, device=x1.device)]
    if not x1.is_floating_point():
        return torch.searchsorted(x1.contiguous(), x2.contiguous(), side=side)
    not_numbers = torch.isnan(x1)  # which PyTorch compares with nothing
    numbers = (~not_numbers).sum()
    infinite = torch.where(not_numbers, torch.inf, x1).contiguous()
    found = torch.minimum(torch.searchsorted(infinite, x2.contiguous(), side=side), numbers)
    return torch.where(torch.isnan(x2), numbers if side == "left" else x1.shape[0], found)


def unique_all(x: torch.Tensor, /) -> UniqueAll:
    """The different elements in order, with their places and counts."""
    if x.is_complex():  # which PyTorch does not sort: by their parts
        parts = torch.view_as_real(x.flatten().resolve_conj())
        pairs, inverse, counts = torch.unique(parts, dim=0, return_inverse=True, return_counts=True)
        values, inverse = torch.view_as_complex(pairs), inverse.reshape(x.shape)
    else:
        values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    order = torch.sort(inverse.flatten(), stable=True).indices
    return UniqueAll(values, order[torch.cumsum(counts, 0) - counts], inverse, counts)


unique_counts, unique_inverse, unique_values = parts_of(unique_all)


# --- Shapes, and elements by their places -----------------------------------------------------------------------------

unstack = torch.unbind


def broadcast_arrays(*arrays: torch.Tensor) -> list[torch.Tensor]:
    """The arrays in their common shape."""
    return list(torch.broadcast_tensors(*map(torch.as_tensor, arrays)))


def broadcast_to(x: torch.Tensor, /, shape: Sequence[int]) -> torch.Tensor:
    """The array in a larger shape."""
    return torch.broadcast_to(x, tuple(shape))


def concat(arrays: list[torch.Tensor], /, *, axis: int | None) -> torch.Tensor:
    """The arrays one after the other; flat ones where the axis is None."""
    return torch.cat([x.flatten() for x in arrays]) if axis is None else torch.cat(arrays, dim=axis)


def expand_dims(x: torch.Tensor, /, axis: int | Sequence[int]) -> torch.Tensor:
    """New axes of length 1, at these places of the new shape."""
    count = len(axis) if hasattr(axis, "__len__") else 1
    for a in sorted(axes_of(axis, x.ndim + count)):
        x = torch.unsqueeze(x, a)
    return x


def squeeze(x: torch.Tensor, /, axis: int | Sequence[int]) -> torch.Tensor:
    """Without these axes, which have length 1."""
    axes = axes_of(axis, x.ndim)
    if builtins.any(x.shape[a] != 1 for a in axes):
        raise ValueError(f"xp.squeeze got axis={axis} of the shape {tuple(x.shape)}; expected axes of length 1.")
    return torch.squeeze(x, axes)


def flip(x: torch.Tensor, /, *, axis: int | Sequence[int] | None = None) -> torch.Tensor:
    """The elements in the other order."""
    return torch.flip(x, axes_of(axis, x.ndim))


def permute_dims(x: torch.Tensor, /, axes: Sequence[int]) -> torch.Tensor:
    """The axes in another order."""
    return torch.permute(x, tuple(axes))


def moveaxis(
    x: torch.Tensor, source: int | Sequence[int], destination: int | Sequence[int], /
) -> torch.Tensor:  # fmt: skip
    """Axes at other places; `torch.moveaxis` has no rule for `vmap`."""
    old, new = axes_of(source, x.ndim), axes_of(destination, x.ndim)
    order = [a for a in range(x.ndim) if a not in old]
    for place, a in sorted(zip(new, old, strict=True)):
        order.insert(place, a)
    return torch.permute(x, order)


def matrix_transpose(x: torch.Tensor, /) -> torch.Tensor:
    """With the last two axes exchanged."""
    return torch.transpose(x, -2, -1)


def reshape(x: torch.Tensor, /, shape: Sequence[int], *, copy: bool | None = None) -> torch.Tensor:
    """The elements in another shape."""
    if copy is False:
        try:
            return x.view(tuple(shape))
        except RuntimeError as error:
            raise ValueError(f"xp.reshape got copy=False, and the memory has no such view: {error}") from error
    found = torch.reshape(x, tuple(shape))
    return found.clone() if copy else found


def roll(
    x: torch.Tensor, /, shift: int | Sequence[int], *, axis: int | Sequence[int] | None = None
) -> torch.Tensor:  # fmt: skip
    """The elements shifted around."""
    if isinstance(shift, int) and axis is not None and not isinstance(axis, int):
        shift = (shift,) * len(axis)
    return torch.roll(x, shift, axis)


def repeat(x: torch.Tensor, repeats: Any, /, *, axis: int | None = None) -> torch.Tensor:
    """Each element so many times."""
    x, axis = (x.flatten(), 0) if axis is None else (x, axis)
    return torch.repeat_interleave(x, repeats if isinstance(repeats, int) else torch.as_tensor(repeats), dim=axis)


def take(x: torch.Tensor, indices: torch.Tensor, /, *, axis: int | None = None) -> torch.Tensor:
    """The parts at these places along an axis."""
    axis, indices = one_axis("take", x, axis), torch.as_tensor(indices, device=x.device)
    found = torch.index_select(x, axis, _not_negative(indices, x.shape[axis]).flatten())
    return found if indices.ndim == 1 else found.reshape(x.shape[:axis] + indices.shape + x.shape[axis + 1 :])


def take_along_axis(x: torch.Tensor, indices: torch.Tensor, /, *, axis: int = -1) -> torch.Tensor:
    """The elements at these places along an axis, line by line."""
    indices = torch.as_tensor(indices, device=x.device)
    return torch.take_along_dim(x, _not_negative(indices, x.shape[axis]), dim=axis)


def _not_negative(indices: torch.Tensor, length: int) -> torch.Tensor:
    indices = indices.long()
    return torch.where(indices < 0, indices + length, indices)


# --- Linear algebra: functions of `torch.linalg` by the standard's words; those that are missing here are its own -----

__all__ = ["matrix_transpose"]

outer, matmul = torch.outer, torch.matmul


def tensordot(x1: torch.Tensor, x2: torch.Tensor, /, *, axes: Any = 2) -> torch.Tensor:
    """Products summed over pairs of axes."""
    return torch.tensordot(x1, x2, dims=axes)


def vecdot(x1: torch.Tensor, x2: torch.Tensor, /, *, axis: int = -1) -> torch.Tensor:
    """The sum of conj(x1) x2 over an axis."""
    check_lengths("vecdot", x1, x2, axis)
    return torch.sum(torch.conj(x1) * x2, dim=axis, dtype=x1.dtype)


def cross(x1: torch.Tensor, x2: torch.Tensor, /, *, axis: int = -1) -> torch.Tensor:
    """The vector product."""
    check_lengths("linalg.cross", x1, x2, axis, 3)
    x1, x2 = torch.broadcast_tensors(x1, x2) if x1.ndim != x2.ndim else (x1, x2)
    return torch.linalg.cross(x1, x2, dim=axis)


def vector_norm(
    x: torch.Tensor, /, *, axis: int | Sequence[int] | None = None, keepdims: bool = False, ord: Any = 2
) -> torch.Tensor:
    """Norms of vectors, over one axis, several or all."""
    if axis == ():
        return torch.abs(x) if ord != 0 else (x != 0).to(torch.abs(x).dtype)
    return torch.linalg.vector_norm(x, ord, axis, keepdims)


def solve(x1: torch.Tensor, x2: torch.Tensor, /) -> torch.Tensor:
    """Solutions; `x2` is a vector only where it has one axis. PyTorch reads some stacks of matrices as vectors."""
    if x2.ndim == 1:
        return torch.linalg.solve(x1, x2[:, None])[..., 0]
    batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    return torch.linalg.solve(x1.expand(*batch, *x1.shape[-2:]), x2.expand(*batch, *x2.shape[-2:]))


def trace(x: torch.Tensor, /, *, offset: int = 0, dtype: Any = None) -> torch.Tensor:
    """The sum of a diagonal."""
    return torch.sum(torch.linalg.diagonal(x, offset=offset), dim=-1, dtype=dtype)


# --- Fourier transforms: `torch.fft` by the standard's words ----------------------------------------------------------


def _along_axes(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def transform(
        x: torch.Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
    ) -> torch.Tensor:
        return function(x, s, axes, norm)

    return named(transform, function.__name__)


fftn, ifftn, rfftn, irfftn = map(
    _along_axes, (torch.fft.fftn, torch.fft.ifftn, torch.fft.rfftn, torch.fft.irfftn)
)  # fmt: skip


def fftshift(x: torch.Tensor, /, *, axes: int | Sequence[int] | None = None) -> torch.Tensor:
    """Frequency 0 in the middle."""
    return torch.fft.fftshift(x, axes)


def ifftshift(x: torch.Tensor, /, *, axes: int | Sequence[int] | None = None) -> torch.Tensor:
    """The inverse of `fftshift`."""
    return torch.fft.ifftshift(x, axes)


_HERE = sys.modules[__name__]
xp = Namespace(TorchLibrary(), {"": (_HERE, torch), "linalg": (_HERE, torch.linalg), "fft": (_HERE, torch.fft)})
