"""Torch function mode that records a user's function above autograd."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn, Protocol

import torch
from torch.autograd import forward_ad
from torch.autograd.function import BackwardCFunction
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from ..tensors import is_transformed

_CUTS = {torch.Tensor.detach, torch.Tensor.detach_, torch.detach, torch.Tensor.data.__get__}
_LEAVES_TORCH = {  # values that a program could not follow
    torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.__float__,
    torch.Tensor.__int__, torch.Tensor.__complex__, torch.Tensor.__index__, torch.Tensor.__dlpack__,
    torch.Tensor.data_ptr, torch.Tensor.untyped_storage,
}  # fmt: skip


class WatchedFunction(Protocol):
    """Interface of a recording of a running function."""

    def depends_on_x(self, x: torch.Tensor) -> bool:
        """Does it depend on the argument?"""

    def leave(self, func: Any) -> NoReturn:
        """A torch function takes values that depend on the argument out of torch."""

    def cut(self, x: torch.Tensor) -> None:
        """Treat x as detached from here on."""

    def capture(self, x: torch.Tensor) -> None:
        """Treat x as a captured tensor from here on: its derivative is not that of its computation."""

    def pass_custom(self, of_x: bool) -> None:
        """The forward of an autograd.Function runs, whose backward is the user's; on values of the argument?"""


class Watch(TorchFunctionMode):
    """Above autograd: what the user cuts off (detach, data, all under no_grad), and values that leave torch.

    Also derivatives of the user's own, by an autograd.Function or a hook. A record is of what the forward does; a
    coefficient that has such a derivative is taken as it is, with autograd's graph behind it.
    """

    def __init__(self, tape: WatchedFunction) -> None:
        super().__init__()
        self._tape = tape

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _on_lists(func) and _in_forward_mode():
            raise RuntimeError(
                f"torch.{func.__name__} under forward-mode derivatives, in which PyTorch crashes while operations are "
                "recorded. Use reverse mode, or operators on single tensors."
            )
        if func in _LEAVES_TORCH and any(self._tape.depends_on_x(a) for a in args if isinstance(a, torch.Tensor)):
            self._tape.leave(func)
        enabled, operands = torch.is_grad_enabled(), (*args, *(kwargs or {}).values())
        if enabled:
            for a in tensors_in(operands):
                if _has_own_derivative(a) and not self._tape.depends_on_x(a):
                    self._tape.capture(a)
        custom = not enabled and _in_autograd_function()
        if custom:
            self._tape.pass_custom(any(self._tape.depends_on_x(a) for a in tensors_in(operands)))
        result = func(*args, **(kwargs or {}))
        if func in _CUTS or not (enabled or custom):
            for leaf in tree_leaves(result):
                if isinstance(leaf, torch.Tensor) and not is_transformed(leaf):
                    self._tape.cut(leaf)
        return result


def _on_lists(func: Any) -> bool:
    return str(getattr(func, "__name__", "")).startswith("_foreach_")


def _in_forward_mode() -> bool:
    interpreter = torch._C._functorch.peek_interpreter_stack()
    forward = interpreter is not None and interpreter.key() == torch._C._functorch.TransformType.Jvp
    return forward or forward_ad._current_level >= 0


def is_recorded(x: torch.Tensor) -> bool:
    """Does it depend on the argument of a function that is being recorded, so that its value varies by run?"""
    if not torch._C._len_torch_function_stack():
        return False
    modes = torch.overrides._get_current_function_mode_stack()
    with torch._C.DisableTorchFunction():  # which would take what is looked at here for something of the user's
        return any(isinstance(mode, Watch) and mode._tape.depends_on_x(x) for mode in modes)


def tensors_in(args: Any) -> Iterator[torch.Tensor]:
    """Tensors in arguments, and in lists and tuples of them."""
    for a in args:
        if isinstance(a, torch.Tensor):
            yield a
        elif isinstance(a, list | tuple):
            yield from tensors_in(a)


def _has_own_derivative(x: torch.Tensor) -> bool:
    node = x.grad_fn
    return node is not None and (isinstance(node, BackwardCFunction) or bool(x._backward_hooks))


def _in_autograd_function() -> bool:
    """Is this the forward of one? It runs without gradients, and means no cut."""
    code = torch.autograd.Function.apply.__func__.__code__
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None
