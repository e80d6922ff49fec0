"""PyTorch: eager, vector updates in place, on the device of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch

from .base import Array, Backend
from .shared import NO_DERIVATIVES, native_order
from .torch_dtypes import NUMPY_DTYPE, TORCH_DTYPE, numpy_dtype
from .torch_sparse import TorchSparse
from .tree import tree_leaves


class TorchBackend(Backend):
    """PyTorch tensors."""

    name = "torch"
    updates_in_place = True
    sparse = TorchSparse()

    @property
    def default_float(self) -> np.dtype:
        return numpy_dtype(torch.get_default_dtype())

    def is_array(self, x: Any) -> bool:
        return isinstance(x, torch.Tensor) and x.layout == torch.strided

    def as_array(self, x: Any, dtype: np.dtype | None = None, like: Array | None = None) -> Array:
        device = like.device if like is not None else x.device if isinstance(x, torch.Tensor) else None
        if isinstance(x, torch.Tensor):
            return x.to(device=device, dtype=TORCH_DTYPE[np.dtype(dtype)] if dtype is not None else None)
        array = native_order(np.asarray(x, dtype))
        if array.dtype not in TORCH_DTYPE:
            raise TypeError(f"PyTorch has no tensors of NumPy's dtype {array.dtype}; cast the array first.")
        # torch refuses negative strides and warns of read-only memory, so such arrays are copied first
        return torch.as_tensor(
            array if array.flags.c_contiguous and array.flags.writeable else array.copy(), device=device
        )

    def to_numpy(self, x: Array) -> np.ndarray:
        if not isinstance(x, torch.Tensor):
            return np.asarray(x)
        numpy_dtype(x.dtype)  # raises where NumPy has no such dtype
        return x.detach().resolve_conj().resolve_neg().cpu().numpy()

    def dtype(self, x: Array) -> np.dtype:
        return numpy_dtype(x.dtype)

    def cast(self, x: Array, dtype: np.dtype) -> Array:
        return x.to(TORCH_DTYPE[np.dtype(dtype)])

    def zeros(self, shape: Sequence[int], dtype: np.dtype, like: Array | None = None) -> Array:
        return torch.zeros(
            tuple(shape), dtype=TORCH_DTYPE[np.dtype(dtype)], device=like.device if like is not None else None
        )

    def full(self, shape: Sequence[int], value: Any, dtype: np.dtype, like: Array | None = None) -> Array:
        device = like.device if like is not None else None
        return torch.full(tuple(shape), value, dtype=TORCH_DTYPE[np.dtype(dtype)], device=device)

    def device(self, x: Array) -> Hashable:
        return x.device

    def copy(self, x: Array) -> Array:
        return x.clone(memory_format=torch.contiguous_format)

    def reshape(self, x: Array, shape: Sequence[int]) -> Array:
        return x.reshape(tuple(shape))

    def concat(self, arrays: Sequence[Array], axis: int) -> Array:
        return torch.cat(list(arrays), axis)

    def stack(self, arrays: Sequence[Array]) -> Array:
        return torch.stack(list(arrays))

    broadcast_to = staticmethod(torch.broadcast_to)
    where = staticmethod(torch.where)
    sqrt = staticmethod(torch.sqrt)
    abs = staticmethod(torch.abs)
    conj = staticmethod(torch.conj_physical)
    isfinite = staticmethod(torch.isfinite)

    def real(self, x: Array) -> Array:
        return x.real if x.is_complex() else x

    def maximum(self, a: Array, b: Array) -> Array:
        return torch.maximum(a, b)

    def any(self, condition: Array) -> bool:
        return bool(condition.any())

    def max_abs(self, v: Array) -> Array:
        return v.abs().amax(1, keepdim=True) if v.shape[1] else v.new_zeros((v.shape[0], 1)).abs()

    def dot(self, a: Array, b: Array) -> Array:
        if a.shape[0] == 1:
            return torch.vdot(a[0], b[0]).reshape(1, 1)
        return torch.linalg.vecdot(a, b).unsqueeze(1)

    def row_sum(self, v: Array) -> Array:
        return v.sum(1, keepdim=True)

    def _keep_exponent(self, x: Array) -> Array:
        integer, mask = self._exponent_bits(numpy_dtype(x.dtype))
        return (x.contiguous().view(TORCH_DTYPE[integer]) & mask).view(x.dtype)

    def axpy(self, a: Array, x: Array, y: Array) -> Array:
        return y.addcmul_(x, _scalar(a))

    def xpay(self, x: Array, a: Array, y: Array) -> Array:
        return torch.addcmul(x, y, _scalar(a), out=y)

    def step_active(self, step: Callable[[Any], Any], state: Any, active: Array) -> Any:
        if active.shape[0] == 1 or bool(active.all()):
            return step(state)
        # Steps overwrite the state, so the finished systems are set aside and put back.
        finished = (~active[:, 0]).nonzero()[:, 0]
        kept = [leaf.index_select(0, finished) for leaf in tree_leaves(state)]
        new = step(state)
        for leaf, old in zip(tree_leaves(new), kept, strict=True):
            leaf.index_copy_(0, finished, old)
        return new

    def put(self, buffer: Array, row: Array, values: Array, active: Array) -> Array:
        systems = active[:, 0].nonzero()[:, 0]
        buffer[row[systems, 0], systems] = values[systems, 0]
        return buffer

    def tracks(self, x: Any) -> bool:
        return isinstance(x, torch.Tensor) and x.requires_grad

    def refuse_derivatives(self, x: Any, sources: Sequence[Any], tracked: bool) -> Any:
        recorded = [s for s in sources if isinstance(s, torch.Tensor) and (s.requires_grad or _is_dual(s))]
        if not torch.is_grad_enabled() or not (recorded or tracked):
            return x
        if any(_is_dual(s) for s in recorded):
            raise RuntimeError(NO_DERIVATIVES.format(library="PyTorch"))
        return _NoDerivative.apply(x, *(recorded or [x.new_zeros(1).requires_grad_()]))

    def call(self, function: Callable[..., Any], x: Any, args: Sequence[Any]) -> Any:
        version = _version(x)
        with torch.enable_grad():  # the function may take derivatives inside, of an energy say
            image = function(x, *args)
        if _version(x) != version:
            raise ValueError(
                "The function writes to its argument, which belongs to the solver: an operation such as x += y or "
                "x.mul_(2). Make a copy first: x = x.clone()."
            )
        return image.detach() if isinstance(image, torch.Tensor) and not torch.is_grad_enabled() else image

    def quiet(self) -> AbstractContextManager[Any]:
        return torch.no_grad()

    def product(self, matrix: Array, x: Array) -> Array:
        if matrix.ndim == 2:
            return x @ matrix.T
        return torch.matmul(matrix, x.unsqueeze(-1)).squeeze(-1)

    def transpose(self, matrix: Array) -> Array:
        return matrix.transpose(-1, -2)

    def diagonal(self, matrix: Array) -> Array:
        return torch.diagonal(matrix, dim1=-2, dim2=-1)

    def lu_factor(self, matrix: Array) -> tuple[Array, ...]:
        lu, pivots, _ = torch.linalg.lu_factor_ex(matrix)
        return lu, pivots

    def lu_solve(self, factors: tuple[Array, ...], b: Array) -> Array:
        lu, pivots = factors
        if lu.ndim == 2:
            return torch.linalg.lu_solve(lu, pivots, b.T).T
        return torch.linalg.lu_solve(lu, pivots, b.unsqueeze(-1)).squeeze(-1)

    def cholesky(self, matrix: Array) -> Array | None:
        factor, info = torch.linalg.cholesky_ex(matrix)
        return factor if not bool(info.any()) and bool(torch.isfinite(factor).all()) else None

    def cholesky_solve(self, factor: Array, b: Array) -> Array:
        if factor.ndim == 2:
            return torch.cholesky_solve(b.T, factor).T
        return torch.cholesky_solve(b.unsqueeze(-1), factor).squeeze(-1)

    def transpose_function(self, function: Callable[[Array], Array], like: Array) -> Callable[[Array], Array]:
        try:
            with torch.enable_grad():
                _, transposed = torch.func.vjp(function, torch.zeros_like(like))
        except RuntimeError as error:
            raise TypeError(
                f"The transpose of a function is found by differentiating it, which PyTorch refused: {error} "
                "Give the matrix, or a function without side effects."
            ) from error
        # torch's cotangent map is the conjugate transpose
        return lambda y: transposed(y.conj().resolve_conj())[0].conj().resolve_conj()


def _version(x: Any) -> int:
    """How many times the memory of `x` was written to; inference mode does not count."""
    return x._version if isinstance(x, torch.Tensor) and not x.is_inference() else 0


def _scalar(a: Array) -> Array:
    """One system's `(1, 1)` as a 0-d tensor: torch then updates vectors without broadcasting."""
    return a.reshape(()) if a.shape[0] == 1 else a


class _NoDerivative(torch.autograd.Function):
    """Passes x on and raises when a derivative is asked for."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *sources: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        raise RuntimeError(NO_DERIVATIVES.format(library="PyTorch"))


def _is_dual(x: torch.Tensor) -> bool:
    try:
        return torch.autograd.forward_ad.unpack_dual(x).tangent is not None
    except RuntimeError:  # outside of any dual level
        return False


__all__ = ["NUMPY_DTYPE", "TorchBackend"]
