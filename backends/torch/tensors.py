"""Dtypes of tensors, and queries of their state: `torch.func`, recording by autograd, in-place versions."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch._C import _functorch
from torch.autograd import forward_ad

TORCH_DTYPE = {
    np.dtype(np.bool_): torch.bool,
    np.dtype(np.uint8): torch.uint8,
    np.dtype(np.int8): torch.int8,
    np.dtype(np.int16): torch.int16,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.int64): torch.int64,
    np.dtype(np.float16): torch.float16,
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
    np.dtype(np.complex64): torch.complex64,
    np.dtype(np.complex128): torch.complex128,
}


class _NumpyDtypes(dict[torch.dtype, np.dtype]):
    def __missing__(self, dtype: torch.dtype) -> np.dtype:
        raise TypeError(
            f"krylix computes in single or double precision; got {dtype}. Cast to torch.float32 or torch.float64, and "
            "leave torch.autocast off inside of A (around a solve it is)."
        )


NUMPY_DTYPE = _NumpyDtypes({theirs: ours for ours, theirs in TORCH_DTYPE.items()})
"""NumPy's dtypes by those of PyTorch; a TypeError where NumPy has none (bfloat16, float8)."""


# --- Queries of a tensor's state: `torch.func` transformations, recording by autograd, in-place versions --------------


def with_signature(cls: type[torch.autograd.Function]) -> type[torch.autograd.Function]:
    """Decorator that caches the signature of `forward` for `apply`."""
    cls.forward.__signature__ = signature(cls.forward)
    return cls


def is_transformed(x: Any) -> bool:
    """Does a transformation of torch.func (grad, vmap, jvp) hold this tensor?"""
    return isinstance(x, torch.Tensor) and _functorch.is_functorch_wrapped_tensor(x)


def check_for_host(arrays: Sequence[Any]) -> None:
    """Refuse tensors without values for the host."""
    if any(map(is_transformed, arrays)):
        raise TypeError(
            "A call of the host (numpy_call) inside of torch.func got a tensor without values; expected plain ones. "
            "Call it outside of transformations (`bk.vmap` is that of torch.func), and take derivatives by autograd, "
            "`bk.jacobian`, with a rule by custom_gradient."
        )


def value_of(x: torch.Tensor) -> torch.Tensor | None:
    """The tensor with the value of one that transformations may hold, without derivatives; None in a `vmap` over it."""
    while is_transformed(x):
        if not _functorch.is_gradtrackingtensor(x):
            return None
        x = _functorch.get_unwrapped(x)
    with torch._C._DisableFuncTorch():
        return x.detach()


def transforming() -> bool:
    """Does a transformation of torch.func run? Then no tensor has a value to look at."""
    return _functorch.maybe_current_level() is not None


def may_have_derivatives() -> bool:
    """May derivatives of the current operations be taken?"""
    return torch.is_grad_enabled() or transforming() or forward_ad._current_level >= 0


def is_plain(x: Any) -> bool:
    """Is it in host memory, without autograd, transformations or modes, so that other libraries may use it?"""
    if type(x) is not torch.Tensor or x.device.type != "cpu" or x.layout != torch.strided:
        return False
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
        return False
    held = is_transformed(x) or transforming() or _functorch.is_legacy_batchedtensor(x)
    return not held and not (may_have_derivatives() and is_tracked(x))


def is_tracked(x: Any) -> bool:
    """Does this tensor depend on something whose derivatives are being recorded?"""
    while is_transformed(x):
        if _functorch.is_gradtrackingtensor(x) and (x.requires_grad or _is_dual(x)):
            return True
        x = _functorch.get_unwrapped(x)
    return isinstance(x, torch.Tensor) and (x.requires_grad or _is_dual(x))


def _is_dual(x: torch.Tensor) -> bool:
    try:
        return forward_ad.unpack_dual(x).tangent is not None
    except RuntimeError:  # outside of any dual level
        return False


def version(x: Any) -> int:
    """Version counter of the memory of `x`; inference mode has none."""
    return x._version if isinstance(x, torch.Tensor) and not x.is_inference() else 0
