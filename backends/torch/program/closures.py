"""Tensors that a Python function closes over: found and substituted while it runs.

PyTorch's derivative rules have explicit arguments only. A mode sees every call of a torch function with the objects
that the user's code passes, above all transformations, so it can record those that were not made inside, and hand in
others in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C import _functorch  # not public, but the only way to tell transformed tensors; a test pins it
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from ..tensors import is_tracked, is_transformed, transforming
from .recorded import LeftTorch, TapeFunction, record


class OpenFunction:
    """`f(x, *arrays)`, where the arrays replace its `args` that are tensors, and those that it closes over."""

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], closed: Sequence[torch.Tensor]) -> None:
        self.function, self.args, self.closed = function, tuple(args), list(closed)
        self.given = [a for a in tree_leaves(self.args) if isinstance(a, torch.Tensor)]

    @property
    def arrays(self) -> list[torch.Tensor]:
        """The arrays of the recording."""
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


def open_function(
    function: Callable[..., Any], x: Any, args: Sequence[Any]
) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    """`f(x, *arrays)`: `function` as it is now, and the arrays: of args, and closed over. Costs two evaluations.

    One is recorded, and one, of another vector, shows that the record is of the function. Inside of transformations of
    torch.func a third finds what it closes over. A function whose values leave torch is called as it is whenever its
    product is needed.

    Raises:
        RuntimeError: it depends on a tensor that is not seen by torch functions, or on a sparse one.
    """
    given = [a for a in tree_leaves(args) if isinstance(a, torch.Tensor)]
    inside = transforming() or forward_ad._current_level >= 0
    closed = _closed_over(function, x, args) if inside else []
    program: Callable[..., Any]
    hidden: list[torch.Tensor] = []
    try:
        if inside:
            program, hidden = _record_without_transformations(function, x, args, given, closed)
        else:
            program = recorded = record(function, tree_map(_point, x), args, given, find=True)
            closed = recorded.captured
            if recorded.custom_of_x and any(map(is_tracked, [*given, *closed])):
                raise LeftTorch  # its backward may be another one than that of what was recorded
            _compare(recorded, function, tree_map(_other_point, x), args, [*given, *closed])
    except LeftTorch:
        closed = _closed_over(function, x, args)
        program = opened = OpenFunction(function, args, closed)
        hidden = _hidden_from(opened, x)
    _refuse_sparse([*given, *closed])
    if hidden:
        raise RuntimeError(
            "The function A depends on a tensor whose derivatives are being recorded, but hides it from torch, for "
            "instance behind autograd.Function or a C++ extension. Pass this tensor on: "
            "linear_solve(A, b, args=(tensor,)) with A(x, tensor); or detach it if no derivative is meant."
        )
    return program, [*given, *closed]


def _closed_over(function: Callable[..., Any], x: Any, args: Sequence[Any]) -> list[torch.Tensor]:
    with torch.enable_grad(), _Recording([*tree_leaves(x), *tree_leaves(args)]) as seen:
        function(x, *args)
    return list(seen.found.values())


def _hidden_from(opened: OpenFunction, x: Any) -> list[torch.Tensor]:
    """Name what has derivatives although none of the captured tensors has."""
    with torch.enable_grad():
        image = opened(x, *(a.detach() for a in opened.arrays))
    return [leaf for leaf in tree_leaves(image) if is_tracked(leaf)]


def _record_without_transformations(
    function: Callable[..., Any],
    x: Any,
    args: Sequence[Any],
    given: Sequence[torch.Tensor],
    closed: Sequence[torch.Tensor],
) -> tuple[TapeFunction, list[torch.Tensor]]:
    """Record with plain tensors in place of transformed ones: the program, and tensors that were not replaced."""
    with temporarily_clear_interpreter_stack():
        plain = [_stand_in(a) for a in (*given, *closed)]
        z, other = (tree_map(lambda a, point=point: point(_plain(a)), x) for point in (_point, _other_point))
    new = iter(plain)
    others = tree_map_only(torch.Tensor, lambda _: next(new), tuple(args))
    swap = _Replacing(dict(zip(map(id, closed), plain[len(given) :], strict=True)))
    with temporarily_clear_interpreter_stack():
        inner = _within(swap, function)
        program = record(inner, z, others, plain, find=False)
        if program.custom:
            raise LeftTorch
        hidden = [c for _, c, _ in program.constants if is_tracked(c) or is_transformed(c)]
        if not hidden:
            _compare(program, inner, other, others, plain)
    return program, hidden


def _compare(
    program: TapeFunction, function: Callable[..., Any], x: Any, args: Sequence[Any], arrays: Sequence[torch.Tensor]
) -> None:
    """Compare program and function at another vector than the recorded one.

    Raises:
        LeftTorch: no; values went ways that the record did not see, or the function is a random one.
    """
    with torch.no_grad():
        again = tree_leaves(program(x, *arrays))
    with torch.enable_grad():  # the function may take derivatives inside
        image = tree_leaves(function(x, *args))
    for a, b in zip(image, again, strict=True):
        if isinstance(a, torch.Tensor) and not _is_close(a.detach(), b.detach()):
            raise LeftTorch


def _is_close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal up to rounding, as threads may split the same work differently?"""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    exact = not (a.dtype.is_floating_point or a.dtype.is_complex)
    size = 0.0 if exact or not a.numel() else float(a.abs().nan_to_num(posinf=0.0).max())
    bound = 0.0 if exact else size * torch.finfo(a.dtype).eps ** 0.5
    return torch.allclose(b, a, rtol=0.0, atol=bound, equal_nan=True)


def _within(mode: TorchFunctionMode, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        with mode:
            return function(*args)

    return call


def _point(x: torch.Tensor) -> torch.Tensor:
    """Sample point of the shape and dtype of x; not zero, where functions may branch."""
    numbers = torch.arange(x.numel(), device=x.device, dtype=torch.float64 if x.dtype.itemsize > 4 else torch.float32)
    return torch.cos(numbers).to(x.dtype).reshape(x.shape)


def _other_point(x: torch.Tensor) -> torch.Tensor:
    """Another sample point, not proportional to the first one."""
    return _point(x).flip(-1) + _point(x).square() if x.ndim else 2 * _point(x)


def _plain(x: torch.Tensor) -> torch.Tensor:
    """A plain tensor of the same kind; the first element of a batch."""
    while is_transformed(x):
        if _functorch.is_batchedtensor(x):
            axis = _functorch.maybe_get_bdim(x)
            x = _functorch.get_unwrapped(x).select(axis, 0)
        else:
            x = _functorch.get_unwrapped(x)
    return x.detach()


def _stand_in(x: torch.Tensor) -> torch.Tensor:
    x = _plain(x)
    return x.requires_grad_() if x.dtype.is_floating_point or x.dtype.is_complex else x


def _refuse_sparse(arrays: Sequence[torch.Tensor]) -> None:
    sparse = next((a for a in arrays if a.layout != torch.strided and is_tracked(a)), None)
    if sparse is not None:
        raise RuntimeError(
            f"The function A multiplies by a {sparse.layout} tensor whose derivatives are being recorded, which "
            "PyTorch does not differentiate twice. Give the sparse tensor itself as A, or compute with its values() in "
            "A; or detach it if no derivative is meant."
        )


class _Recording(TorchFunctionMode):
    """Mode that records inputs of torch functions which have derivatives and are neither outputs nor arguments."""

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
    """Mode that substitutes tensors in calls of torch functions, by identity."""

    def __init__(self, others: dict[int, torch.Tensor]) -> None:
        super().__init__()
        self._others = others

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def other(x: torch.Tensor) -> torch.Tensor:
            return self._others.get(id(x), x)

        return func(*tree_map_only(torch.Tensor, other, args), **tree_map_only(torch.Tensor, other, kwargs or {}))
