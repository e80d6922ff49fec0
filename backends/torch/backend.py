"""PyTorch backend: eager, vector updates in place, on the device of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import register_pytree_node, tree_flatten, tree_map_only, tree_unflatten

from ..communicators import by_torch
from ..interface.arrays import WRITES, Spec, native_order
from ..interface.backend import Array, Backend
from ..interface.containers import Opened
from ..numpy.kernels import COST_OF_STEP, recurrence
from ..settings import exponent_bits
from .derivatives.bilinear import bilinear
from .derivatives.functions import DerivativesOfFunctions, Refused, WithoutDerivatives, pullback
from .derivatives.implicit import implicit_solve
from .kernels import TorchFourier, TorchKernels, TorchLinalg
from .program.closures import open_function
from .program.recorded import is_recorded
from .sparse import TorchSparse
from .tensors import (
    NUMPY_DTYPE,
    TORCH_DTYPE,
    check_for_host,
    is_plain,
    is_tracked,
    is_transformed,
    may_have_derivatives,
    transforming,
    value_of,
    version,
)

_LONG = 2**15  # bytes of a row; see `dot`
_SHORT = 2**20  # bytes of a row: updates of longer ones take NumPy longer than torch, small operations included
_BOUNDARY = 64  # bytes


class TorchBackend(TorchKernels, DerivativesOfFunctions, Backend):
    """PyTorch tensors."""

    name = "torch"
    is_eager = True
    updates_in_place = True
    has_compiled_rows = True
    always_writable = True
    _native_dtypes = NUMPY_DTYPE
    derivatives = "torch.autograd or torch.func"
    _communicators = "a process group of torch.distributed, such as torch.distributed.group.WORLD or mesh.get_group()"
    explicit_derivatives = True
    linalg = TorchLinalg()
    fourier = TorchFourier()
    sparse = TorchSparse()

    @property
    def default_float(self) -> np.dtype:
        return NUMPY_DTYPE[torch.get_default_dtype()]

    _communicator = staticmethod(by_torch)

    def is_array(self, x: Any) -> bool:
        return isinstance(x, torch.Tensor) and x.layout == torch.strided

    def check_numbers(self, x: Any, what: str) -> None:
        if x.device.type == "meta":
            raise ValueError(
                f"{what} is a tensor on the device 'meta', which has a shape and no numbers; expected numbers. Give a "
                "tensor on the device 'cpu' or 'cuda'; matrix_from_function takes such a one as `like`."
            )
        if type(x).__name__ == "DTensor":
            raise TypeError(
                f"{what} is a DTensor, spread over processes; expected a tensor of one process: give its "
                "to_local() with over=mesh.get_group() and a function of local parts that exchanges what it needs, or "
                "its full_tensor()."
            )

    def asarray(self, x: Any, dtype: np.dtype | None = None, like: Array | None = None) -> Array:
        device = like.device if like is not None else x.device if isinstance(x, torch.Tensor) else None
        if isinstance(x, torch.Tensor):
            return x.to(device=device, dtype=TORCH_DTYPE[np.dtype(dtype)] if dtype is not None else None)
        array = native_order(np.asarray(x, dtype))
        if array.dtype not in TORCH_DTYPE:
            raise TypeError(f"PyTorch has no tensors of NumPy's dtype {array.dtype}; cast the array first.")
        # torch refuses negative strides and warns of read-only memory, so such arrays are copied first
        array = array if array.flags.c_contiguous and array.flags.writeable else array.copy()
        if not torch.is_inference_mode_enabled():
            return torch.as_tensor(array, device=device)
        with torch.inference_mode(False):  # matrices keep such tensors, and may have derivatives later
            return torch.as_tensor(array, device=device)

    def to_numpy(self, x: Array) -> np.ndarray:
        if not isinstance(x, torch.Tensor):
            return np.asarray(x)
        NUMPY_DTYPE[x.dtype]  # raises where NumPy has no such dtype
        return x.numpy(force=True)

    def host_call(self, function: Callable[..., Any], returns: Sequence[Spec], *arrays: Array) -> tuple[Array, ...]:
        check_for_host(arrays)
        return super().host_call(function, returns, *arrays)

    def rows_on_host(self, rows: Array) -> np.ndarray | None:
        short = rows.shape[1] * rows.element_size() < _SHORT
        return self.to_numpy(rows) if short and is_plain(rows) else None

    def from_host(self, x: np.ndarray, like: Array | None = None) -> Array:
        """In inference mode one of its tensors, as all are that are made there."""
        tensor = torch.from_numpy(x)
        return tensor if tensor.data_ptr() % _BOUNDARY == 0 else tensor.clone()  # see `_aligned`

    def dtype(self, x: Array) -> np.dtype:
        return NUMPY_DTYPE[x.dtype]

    def astype(self, x: Array, dtype: np.dtype) -> Array:
        return x.to(dtype if isinstance(dtype, torch.dtype) else TORCH_DTYPE[np.dtype(dtype)])

    def _zeros(self, shape: Any, dtype: np.dtype, like: Array | None) -> Array:
        return torch.zeros(shape, dtype=TORCH_DTYPE[dtype], device=like.device if like is not None else None)

    def _full(self, shape: Any, value: Any, dtype: np.dtype, like: Array | None) -> Array:
        device = like.device if like is not None else None
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        return torch.full(shape, value, dtype=TORCH_DTYPE[dtype], device=device)

    def device(self, x: Array) -> Hashable:
        return x.device

    def compiled(self, *arrays: Any) -> bool:
        return transforming()  # then tensors have no values to look at

    def concrete_value(self, function: Callable[[], Array]) -> np.ndarray | None:
        return self.constant_folded(function())

    def constant_folded(self, x: Array) -> np.ndarray | None:
        if not isinstance(x, torch.Tensor):
            return np.asarray(x)
        value = None if is_recorded(x) else value_of(x)
        if value is None:
            return None
        with torch._C._DisableFuncTorch():
            return self.to_numpy(value)

    def is_concrete(self, x: Array) -> bool:
        return x.device.type == "cpu" and not transforming()

    def copy(self, x: Array) -> Array:
        return x.clone(memory_format=torch.contiguous_format)

    def reshape(self, x: Array, shape: Sequence[int]) -> Array:
        return x.reshape(tuple(shape))  # also of NumPy's arrays, as constants of operators may be

    def matrix_transpose(self, matrix: Array) -> Array:
        return matrix.transpose(-1, -2)  # likewise

    def _open_container(self, x: Any) -> Opened | None:
        leaves, spec = tree_flatten(x)
        if spec.is_leaf() or type(x) in self.containers:
            return None
        return Opened(leaves, spec, lambda parts: tree_unflatten(parts, spec))

    abs = staticmethod(torch.abs)
    bilinear = bilinear
    implicit_solve = staticmethod(implicit_solve)
    trace = staticmethod(open_function)

    def _select(self, condition: Array, a: Any, b: Any) -> Array:
        is_bool = getattr(condition, "dtype", None) is torch.bool
        return torch.where(condition, a, b) if is_bool else self.xp.where(condition, a, b)

    def dot(self, a: Array, b: Array) -> Array:
        """One kernel per row length, whatever the number of rows: a batch is bitwise equal to single systems.

        For long rows one BLAS call each is as quick; vecdot would split a single row among threads.
        """
        if a.shape[1] * a.element_size() >= _LONG and a.shape[0]:
            dots = [torch.vdot(_aligned(a[i]), _aligned(b[i])) for i in range(a.shape[0])]
            return (torch.stack(dots) if len(dots) > 1 else dots[0]).reshape(-1, 1)
        return torch.linalg.vecdot(a.contiguous(), b.contiguous()).unsqueeze(1)

    def unit_in_first_place(self, x: Array) -> Array:
        integer, mask = exponent_bits(NUMPY_DTYPE[x.dtype])
        return (x.contiguous().view(TORCH_DTYPE[integer]) & mask).view(x.dtype)

    cost_of_step = COST_OF_STEP

    def recurrence(self, factors: Array, x: Array, backward: bool = False) -> Array:
        if not (is_plain(x) and is_plain(factors)):
            return super().recurrence(factors, x, backward)
        rows, numbers = (a.resolve_conj().resolve_neg().detach().numpy() for a in (factors, x))
        return torch.from_numpy(recurrence(rows, numbers, backward))

    def tracks(self, x: Any) -> bool:
        return may_have_derivatives() and is_tracked(x)

    def host_view(self, x: Array) -> np.ndarray | None:
        if not is_plain(x) or torch.is_inference_mode_enabled() or x.is_conj() or x.is_neg():
            return None
        return None if x.is_inference() or x.dtype not in NUMPY_DTYPE else x.detach().numpy()

    def constant(self, x: Array) -> Array:
        return x.detach()

    def refuse_derivatives(
        self, x: Array, why: str, error: type[Exception] = TypeError, sources: Sequence[Array] = ()
    ) -> Array:
        marker = x.new_zeros(1).requires_grad_() if sources else None
        result: Array = Refused.apply(x, marker, error(why))
        return result

    def owned(self, x: Array) -> Array:
        with torch.enable_grad():
            return self.copy(x) if x.layout == torch.strided else x.clone()

    def without_derivatives(self, x: Array, failed: Array) -> Array:
        result: Array = WithoutDerivatives.apply(x, failed)
        return result

    def _vmap(self, function: Callable[..., Any], axes: Sequence[int | None]) -> Callable[..., Any]:
        return torch.func.vmap(function, in_dims=tuple(axes), randomness="different")  # as one by one

    def _register(
        self,
        cls: type,
        flatten: Callable[[Any], tuple[Sequence[Array], Hashable]],
        unflatten: Callable[[Any, Sequence[Array]], Any],
    ) -> None:
        register_pytree_node(cls, lambda x: (list(flatten(x)[0]), flatten(x)[1]), lambda v, c: unflatten(c, v))

    def call_user(self, function: Callable[..., Any], x: Any, args: Sequence[Any]) -> Any:
        leaves, _ = self.leaves(x)
        versions = [version(leaf) for leaf in leaves]
        recorded = torch.is_grad_enabled()
        torch._C._set_grad_enabled(True)  # the function may take derivatives inside, of an energy say
        try:  # in a quarter of the time that `with torch.enable_grad()` takes
            image = function(x, *args)
        finally:
            torch._C._set_grad_enabled(recorded)
        if [version(leaf) for leaf in leaves] != versions:
            raise ValueError(WRITES.format("x += y or x.mul_(2)", "x.clone()"))
        if recorded:
            return image
        return _detached(image) if isinstance(image, torch.Tensor) else tree_map_only(torch.Tensor, _detached, image)

    def errstate(self) -> AbstractContextManager[Any]:
        return torch.no_grad()

    def product(self, matrix: Array, x: Array) -> Array:
        if matrix.ndim == 2:
            return x @ matrix.T
        return torch.matmul(matrix, x.unsqueeze(-1)).squeeze(-1)

    def transpose_function(self, function: Callable[[Array], Array], like: Array) -> Callable[[Array], Array]:
        try:
            transposed = pullback(function, torch.zeros_like(like))
        except RuntimeError as error:
            raise TypeError(
                f"The transpose of a function is found by differentiating it, which PyTorch refused: {error} Give the "
                "matrix, or a function of torch's operations alone: without u.numpy() and side effects."
            ) from error
        # torch's cotangent map is the conjugate transpose
        return lambda y: transposed(y.conj().resolve_conj())[0].conj().resolve_conj()

    # --- updates in place ---------------------------------------------------------------------------------------------

    def axpy(self, a: Array, x: Array, y: Array) -> Array:
        recorded = torch.is_grad_enabled() and (x.requires_grad or y.requires_grad)  # which may need y as it is
        if recorded or transforming():
            return torch.addcmul(y, x, _scalar(a))
        return y.addcmul_(x, _scalar(a))

    def xpay(self, x: Array, a: Array, y: Array) -> Array:
        return torch.addcmul(x, y, _scalar(a), out=y)

    def axpy_block(self, c: Array, x: Array, y: Array) -> Array:
        return y.addmm_(c, x)


def _detached(x: Array) -> Array:
    return x if is_transformed(x) else x.detach()


def _aligned(row: Array) -> Array:
    """Copy to aligned memory if needed: from other addresses, as in a batch, MKL may sum in another order."""
    return row if is_transformed(row) or row.data_ptr() % _BOUNDARY == 0 else row.clone()


__all__ = ["NUMPY_DTYPE", "TorchBackend"]


# --- Vectors and states updated in place ------------------------------------------------------------------------------


def _scalar(a: Array) -> Array:
    """One system's `(1, 1)` as a 0-d tensor: torch then updates vectors without broadcasting."""
    return a.reshape(()) if a.shape[0] == 1 else a
