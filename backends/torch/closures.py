"""The tensors that a Python function closes over, found and replaced while it runs.

PyTorch's derivative rules have explicit arguments only. A mode sees every call of a torch function with the objects
that the user's code passes, above all transformations, so it can record those that were not made inside, and hand in
others in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C import _functorch  # not public, but the only way to tell transformed tensors; a test pins it
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only


def is_transformed(x: Any) -> bool:
    """Does a transformation of torch.func (grad, vmap, jvp) hold this tensor?"""
    return isinstance(x, torch.Tensor) and _functorch.is_functorch_wrapped_tensor(x)


def transforming() -> bool:
    """Does a transformation of torch.func run? Then no tensor has a value to look at."""
    return _functorch.maybe_current_level() is not None


def may_have_derivatives() -> bool:
    """Can a derivative of what happens now be asked for?"""
    return torch.is_grad_enabled() or transforming() or forward_ad._current_level >= 0


def is_tracked(x: Any) -> bool:
    """Was this tensor computed from something whose derivatives are being recorded?"""
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


class OpenFunction:
    """`f(x, *arrays)`, where the arrays replace its `args` that are tensors, and those that it closes over."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], closed: Sequence[torch.Tensor]) -> None:
        self.function, self.args, self.closed = function, tuple(args), list(closed)
        self.given = [a for a in tree_leaves(self.args) if isinstance(a, torch.Tensor)]

    @property
    def arrays(self) -> list[torch.Tensor]:
        """What it was recorded with."""
        return [*self.given, *self.closed]

    def __call__(self, x: Any, *arrays: torch.Tensor) -> Any:
        originals = self.arrays
        if all(a is b for a, b in zip(arrays, originals, strict=True)):
            return self.function(x, *self.args)
        count = len(self.given)
        new = iter(arrays[:count])
        args = tree_map_only(torch.Tensor, lambda _: next(new), self.args)
        with _Replacing(dict(zip(map(id, self.closed), arrays[count:], strict=True))):
            return self.function(x, *args)


def open_function(function: Callable[..., Any], x: Any, args: Sequence[Any]) -> OpenFunction:
    """`function` with everything that it closes over as arguments; costs two evaluations, at `x`.

    Raises:
        RuntimeError: it depends on a tensor that is not seen by torch functions, or on a sparse one.
    """
    with torch.enable_grad(), _Recording([x, *tree_leaves(args)]) as seen:
        function(x, *args)
    opened = OpenFunction(function, args, list(seen.found.values()))
    sparse = next((a for a in opened.arrays if a.layout != torch.strided and is_tracked(a)), None)
    if sparse is not None:
        raise RuntimeError(
            f"The function A multiplies by a {sparse.layout} tensor whose derivatives are being recorded, which "
            "PyTorch does not differentiate twice. Give the sparse tensor itself as A, or compute with its values() in "
            "A; or detach it if no derivative is meant."
        )
    with torch.enable_grad():
        image = opened(x, *(a.detach() for a in opened.arrays))
    if any(is_tracked(leaf) for leaf in tree_leaves(image)):
        raise RuntimeError(
            "The function A depends on a tensor whose derivatives are being recorded, but hides it from torch, for "
            "instance behind autograd.Function or a C++ extension. Pass this tensor on: "
            "linear_solve(A, b, args=(tensor,)) with A(x, tensor); or detach it if no derivative is meant."
        )
    return opened


class _Recording(TorchFunctionMode):
    """Notes the tensors with derivatives that go into torch functions and neither came out of one nor were given."""

    def __init__(self, given: Sequence[Any]) -> None:
        super().__init__()
        self.found: dict[int, torch.Tensor] = {}
        self._level = _functorch.maybe_current_level() or 0
        self._inside = {id(x) for x in given}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for x in tree_leaves((args, kwargs)):
            if isinstance(x, torch.Tensor) and id(x) not in self._inside and self._counts(x):
                self.found[id(x)] = x
        result = func(*args, **(kwargs or {}))
        self._inside.update(id(x) for x in tree_leaves(result) if isinstance(x, torch.Tensor))
        return result

    def _counts(self, x: torch.Tensor) -> bool:
        if is_transformed(x):  # by a transformation around the solve, not one inside the function
            return _functorch.maybe_get_level(x) <= self._level
        return is_tracked(x)


class _Replacing(TorchFunctionMode):
    """Hands other tensors to torch functions, by identity."""

    def __init__(self, others: dict[int, torch.Tensor]) -> None:
        super().__init__()
        self._others = others

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def other(x: torch.Tensor) -> torch.Tensor:
            return self._others.get(id(x), x)

        return func(*tree_map_only(torch.Tensor, other, args), **tree_map_only(torch.Tensor, other, kwargs or {}))
