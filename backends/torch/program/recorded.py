"""Python functions recorded as replayable programs of ATen calls.

One evaluation below autograd. Names, numbers and branches are as they were in it, so what changes later changes
nothing; tensors that were there before are arguments, where their derivatives are being recorded, or constants.
Replaying is ordinary torch code: under autograd, `torch.func` and forward mode, to every order.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import FrameType
from typing import Any, NoReturn

import torch
from torch.autograd import forward_ad
from torch.autograd.function import BackwardCFunction
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from ..derivatives.functions import Refused
from ..tensors import is_tracked, is_transformed, may_have_derivatives, version
from .straight_line import AtenCall, Operand, straight_line, written_arguments

_DETACH = torch.ops.aten.detach.default


class LeftTorch(Exception):
    """Raised where a function computes with values of its argument outside torch."""


class Recording(TorchDispatchMode):
    """Recording of a running function: a dispatch mode that does not import torch's compiler, which takes seconds."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:  # not public; where it is not asked, nothing but time is lost
        return False

    @abstractmethod
    def recorded(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an ATen call and record it."""

    @abstractmethod
    def depends_on_x(self, x: torch.Tensor) -> bool:
        """Whether it depends on the argument."""

    @abstractmethod
    def leave(self, func: Any) -> NoReturn:
        """A torch function takes values that depend on the argument out of torch."""

    @abstractmethod
    def cut(self, x: torch.Tensor) -> None:
        """Treat x as detached from here on."""

    @abstractmethod
    def capture(self, x: torch.Tensor) -> None:
        """Treat x as a captured tensor from here on: its derivative is not that of its computation."""

    @abstractmethod
    def pass_custom(self, of_x: bool) -> None:
        """The forward of an autograd.Function runs, whose backward is the user's; on values of the argument?"""

    def __enter__(self) -> Any:
        self._call = _disabled() if "torch._dynamo" in sys.modules else _recorded
        return super().__enter__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._call(self, func, args, kwargs or {})


def _recorded(mode: Recording, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    return mode.recorded(func, args, kwargs)


@cache
def _disabled() -> Callable[..., Any]:
    disabled: Callable[..., Any] = torch.compiler.disable(_recorded)
    return disabled


# --- Torch function mode that records a user's function above autograd ------------------------------------------------

_CUTS = {torch.Tensor.detach, torch.Tensor.detach_, torch.detach, torch.Tensor.data.__get__}
_LEAVES_TORCH = {  # values that a program could not follow
    torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.__float__,
    torch.Tensor.__int__, torch.Tensor.__complex__, torch.Tensor.__index__, torch.Tensor.__dlpack__,
    torch.Tensor.data_ptr, torch.Tensor.untyped_storage,
}  # fmt: skip


class Watch(TorchFunctionMode):
    """Above autograd: what the user cuts off (detach, data, all under no_grad), and values that leave torch.

    Also derivatives of the user's own, by an autograd.Function or a hook. A record is of what the forward does; a
    coefficient that has such a derivative is taken as it is, with autograd's graph behind it.
    """

    def __init__(self, tape: Recording) -> None:
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
    """Whether it depends on the argument of a function that is being recorded, so that its value varies by run."""
    if not torch._C._len_torch_function_stack():
        return False
    modes = torch.overrides._get_current_function_mode_stack()
    with torch._C.DisableTorchFunction():  # else the recorder would count these queries as operations of the user
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
    """Whether this is the forward pass of a custom function, which runs without gradients and cuts no derivative."""
    code = torch.autograd.Function.apply.__func__.__code__
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


# --- The tape ---------------------------------------------------------------------------------------------------------


class _Cut:
    """A user's `detach` of a value of the argument, as an operation of a program whose derivative raises.

    It would be zero, which is not that of a linear function; and where the transpose is known otherwise, as that of a
    symmetric function, only derivatives of second order would show that.
    """

    _schema = _DETACH._schema
    tags = _DETACH.tags

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if not (may_have_derivatives() and (is_tracked(x) or is_transformed(x))):
            return _DETACH(x)
        passed: torch.Tensor = Refused.apply(
            x,
            None,
            RuntimeError(
                "The derivative of A(x) by x is not A itself: something in the function cuts it, by detach(), data or "
                "no_grad(), and a derivative of the solution that needs it would be wrong. Take it out, or give the "
                "matrix: krylix.matrix_from_function follows the values."
            ),
        )
        return passed


_CUT = _Cut()


class _Tape(Recording):
    """Records ATen calls, with slots for their tensors."""

    def __init__(self, x: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.steps: list[AtenCall] = []
        self.settings: list[Any] = []
        self.constants: list[tuple[int, torch.Tensor, int]] = []  # with their versions
        self.written: set[int] = set()  # constants that the function writes to
        self.size = 0
        self._slots: dict[int, int] = {}
        self._alive: list[torch.Tensor] = []  # ids of tensors that are gone could come again
        self.x, self.others = [self._new(a) for a in x], [self._new(a) for a in others]
        self._of_x, self._given = set(self.x), {*self.x, *self.others}
        self.custom = self.custom_of_x = False  # was the forward of an autograd.Function seen, of values of x?

    def _new(self, x: torch.Tensor) -> int:
        slot = self.size
        self.size += 1
        self._alive.append(x)
        self._slots[id(x)] = slot
        return slot

    def slot(self, x: torch.Tensor) -> int:
        """Slot of a tensor; a tensor from before the recording becomes a constant."""
        found = self._slots.get(id(x))
        if found is None:
            found = self._new(x)
            self.constants.append((found, x, version(x)))
            self._given.add(found)
        return found

    def depends_on_x(self, x: torch.Tensor) -> bool:
        return self._slots.get(id(x)) in self._of_x

    def cut(self, x: torch.Tensor) -> None:
        """Treat x as detached from here on."""
        old = self.slot(x)
        self._note(_CUT if old in self._of_x else _DETACH, (old,), (self._new(x),))

    def capture(self, x: torch.Tensor) -> None:
        found = self._slots.get(id(x))
        if found is None or found not in self._given:
            slot = self._new(x)
            self.constants.append((slot, x, version(x)))
            self._given.add(slot)

    def pass_custom(self, of_x: bool) -> None:
        self.custom = True
        self.custom_of_x |= of_x

    def leave(self, func: Any) -> NoReturn:
        raise LeftTorch

    def _note(
        self, func: Any, args: tuple[Operand, ...], outs: tuple[int | None, ...],
        kwargs: tuple[tuple[str, Operand], ...] = (), settings: Sequence[Any] = (),
    ) -> None:  # fmt: skip
        step = AtenCall(func, args, kwargs, outs)
        self.steps.append(step)
        self.settings += settings
        if self._reads_x(args) or (kwargs and self._reads_x([value for _, value in kwargs])):
            self._of_x.update(step.results)

    def _reads_x(self, operands: Sequence[Operand]) -> bool:
        for value in operands:
            if type(value) is int:
                if value in self._of_x:
                    return True
            elif type(value) is tuple and self._reads_x(value[1:]):
                return True
        return False

    def recorded(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if func is _DETACH:  # autograd's own, of what it saves; replayed it would cut derivatives. Users' come by `cut`
            out = func(*args)
            self._slots[id(out)] = self.slot(args[0])
            self._alive.append(out)
            return out
        mutable, settings = func._schema.is_mutable, []  # type: ignore[var-annotated]
        if mutable:
            self._copy_what_is_written(func, args, kwargs)
        operands = tuple([self.operand(a, settings) for a in args])
        named = tuple([(name, self.operand(a, settings)) for name, a in kwargs.items()])
        out = func(*args, **kwargs)
        leaves = (out,) if isinstance(out, torch.Tensor) else tree_leaves(out)
        outs = tuple([self._result(leaf, mutable) if isinstance(leaf, torch.Tensor) else None for leaf in leaves])
        self._note(func, operands, outs, named, settings)
        return out

    def operand(self, value: Any, settings: list[Any]) -> Operand:
        """Operand for an argument; settings in it are appended to `settings`."""
        if isinstance(value, torch.Tensor):
            return self.slot(value)
        if isinstance(value, list | tuple) and any(True for _ in tensors_in(value)):
            return ("[" if isinstance(value, list) else "(", *[self.operand(part, settings) for part in value])
        settings.append(value)
        return None

    def _result(self, x: torch.Tensor, written: bool) -> int:
        known = self._slots.get(id(x)) if written else None
        return self._new(x) if known is None else known

    def _copy_what_is_written(self, func: Any, args: Any, kwargs: Any) -> None:
        """Copy workspaces of the caller that the function writes to, once per replay."""
        for value in written_arguments(func, args, kwargs):
            if isinstance(value, torch.Tensor):
                slot = self.slot(value)
                if slot in self._given:
                    self.written.add(slot)
                    self._note(torch.ops.aten.clone.default, (slot,), (self._new(value),))


class TapeFunction:
    """`f(x, *arrays)`: with x, the other arguments of the tape, and the tensors that were found, in this order.

    Attributes:
        captured: the tensors that were found, those whose derivatives are being recorded.
        constants: all other tensors that were there before, with their slots and versions.
        custom, custom_of_x: did an autograd.Function run in it, on values of x?
    """

    def __init__(self, tape: _Tape, image: Any, find: bool) -> None:
        leaves, self._structure = tree_flatten(image)
        # Before what was captured is looked at: a tensor that is returned as it came is one, too.
        settings = list(tape.settings)
        outputs = tuple([tape.operand(leaf, settings) for leaf in leaves])
        found = [(slot, x) for slot, x, _ in tape.constants if is_tracked(x)] if find else []
        inputs = {slot for slot, _ in found}
        self.captured = [x for _, x in found]
        self.custom, self.custom_of_x = tape.custom, tape.custom_of_x
        self._count = len(tape.x)
        self.constants = [
            (slot, x, None if slot in tape.written else before)
            for slot, x, before in tape.constants
            if slot not in inputs
        ]
        others = (*tape.others, *(slot for slot, _ in found), *(slot for slot, _, _ in self.constants))
        self._bind = straight_line(tuple(tape.x), others, tuple(tape.steps), outputs)(*settings)

    def __call__(self, x: Any, *arrays: torch.Tensor) -> Any:
        return self.bound(*arrays)(x)

    def bound(self, *arrays: torch.Tensor) -> Callable[[Any], Any]:
        """`x -> f(x, *arrays)`, with the calls that do not depend on x evaluated once."""
        for _, constant, before in self.constants:
            if before is not None and version(constant) != before:
                raise ValueError(
                    "A tensor that the function A closes over was changed in place between the solve and its "
                    "derivative, which is of the function as it was. Change a copy: w = w + 1 for w += 1."
                )
        program, structure = self._bind(*arrays, *(constant for _, constant, _ in self.constants)), self._structure
        if structure.is_leaf() and self._count == 1:
            return lambda x: program(x if isinstance(x, torch.Tensor) else tree_leaves(x)[0])[0]
        return lambda x: tree_unflatten(program(*tree_leaves(x)), structure)


def record(
    function: Callable[..., Any], x: Any, args: Sequence[Any], others: Sequence[torch.Tensor], find: bool
) -> TapeFunction:
    """The program of `function(x, *args)`.

    Args:
        x: an array or a container of arrays, with generic values.
        others: tensors that become arguments of the program, in this order.
        find: are tensors whose derivatives are being recorded to be found, as further arguments?

    Raises:
        LeftTorch: values of x leave torch.
    """
    tape = _Tape([leaf for leaf in tree_leaves(x) if isinstance(leaf, torch.Tensor)], others)
    with torch.enable_grad(), tape, Watch(tape):
        image = function(x, *args)
    return TapeFunction(tape, image, find)
