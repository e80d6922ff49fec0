"""Records what a function does, while it runs once on numbers.

The calls are seen below autograd and `torch.func`, so derivatives and `vmap` inside of the function are plain calls.
Tensors are told apart by their storage, whose number is its own as long as the record is made: a tensor that autograd
makes of memory that is known is no constant. Where a number or a shape would depend on values of the input, the record
would be of these values only, and is refused.

This is what `make_fx` does, in a twentieth of its time, with the places in memory that it does not tell.
"""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NoReturn

import torch
from torch.multiprocessing.reductions import StorageWeakRef  # not documented, but used by torch.func itself
from torch.utils._pytree import tree_flatten

from ....backends.torch.program.recorded import Recording
from ....backends.torch.program.watch import Watch
from ....backends.torch.tensors import is_tracked
from ..engine.refusals import NoRule
from ..nested import mapped
from .lists import for_each, of_one
from .messages import LIBRARY, REPORTER, leaves_torch, own_derivative, random, shape_of_values, writes_to_tracked
from .steps import Operand, Step, StepRecord, place_in, written

_DETACH = torch.ops.aten.detach.default
_BY_SHAPE = {  # results that depend on shape and dtype of the operands only
    *("empty_like", "zeros_like", "ones_like", "full_like"),
    *("new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided", "_efficientzerotensor"),
}
_SHAPES = {"is_same_size", "_has_same_storage_numel", "sym_size", "sym_stride", "sym_numel", "sym_storage_offset"}
_MASKS = {"index", "_unsafe_index", "masked_select"}  # shapes depend on the values of all operands but the first
_UNUSABLE = {"set_", "resize_", "resize_as_", "resize", "set", "swap"}


class Recorder(Recording):
    """The record of a function that is running.

    Args:
        inputs: the tensors that it is called with, each the only one on its storage.
    """

    def __init__(self, inputs: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.record = StepRecord(device=inputs[0].device if inputs else None)
        self._slots = 0
        self._operands: dict[int, tuple[Any, Operand]] = {}  # by id, with a weak reference to the tensor
        self._storages: dict[int, tuple[Any, int]] = {}  # by address; weak references keep that their own
        self._numbers = itertools.count()
        self._of_input: set[int] = set()  # storages that hold values of the input
        self.custom_of_x = False  # did the forward of an autograd.Function run on values of the input?
        self._snapshots: dict[int, torch.UntypedStorage] = {}
        self.record.inputs = [self._made(x) for x in inputs]
        self._of_input.update(operand.place.storage for operand in self.record.inputs if operand.place is not None)

    # --- tensors ----------------------------------------------------------------------------------------------------

    def operand(self, x: torch.Tensor) -> Operand:
        """That of a tensor; one that was there before is a constant."""
        found = self._found(x)
        if found is not None:
            return found
        operand = self._made(x)
        storage = None if operand.place is None else operand.place.storage
        if storage is None or storage in self.record.given or self.record.first[storage] is operand:
            if storage is not None:
                self.record.given.add(storage)
            self.record.captured[operand.slot] = self._captured(x, storage)
        return operand

    def _found(self, x: torch.Tensor) -> Operand | None:
        """What was noted of a tensor, unless it has another place now: `x.data = y` is not seen."""
        reference, operand = self._operands.get(id(x), (None, None))
        if reference is None or reference() is not x:
            return None
        place = None if x.layout != torch.strided else place_in(self._storage(x), x)
        return operand if operand is not None and operand.place == place else None

    def _made(self, x: torch.Tensor) -> Operand:
        operand = Operand(self._slots, None if x.layout != torch.strided else place_in(self._storage(x), x))
        self._slots += 1
        self._operands[id(x)] = (weakref.ref(x), operand)
        if operand.place is not None and operand.place.storage not in self.record.first:
            self.record.first[operand.place.storage] = operand
            self.record.counts[operand.place.storage] = x.untyped_storage().nbytes() // max(x.element_size(), 1)
        return operand

    def _storage(self, x: torch.Tensor) -> int:
        storage = x.untyped_storage()
        found = self._storages.get(storage._cdata)
        if found is None:
            found = self._storages[storage._cdata] = (StorageWeakRef(storage), next(self._numbers))
        return found[1]

    def _captured(self, x: torch.Tensor, storage: int | None) -> torch.Tensor:
        """The tensor, or one on a copy of its storage that was made before the function wrote to it."""
        if storage not in self._snapshots:
            return x
        copy = torch.empty(0, dtype=x.dtype, device=x.device)
        return copy.set_(self._snapshots[storage], x.storage_offset(), x.shape, x.stride())

    def depends_on_x(self, x: torch.Tensor) -> bool:
        while torch._C._functorch.is_functorch_wrapped_tensor(x):
            x = torch._C._functorch.get_unwrapped(x)
        if x.layout != torch.strided:
            return False
        found = self._storages.get(x.untyped_storage()._cdata)
        return found is not None and found[1] in self._of_input

    # --- calls ------------------------------------------------------------------------------------------------------

    def recorded(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        with torch._C.DisableTorchFunction():  # what is asked of tensors here is no part of the function
            return self._recorded(func, args, kwargs)

    def _recorded(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if func is _DETACH:  # autograd's own, of what it saves; replayed it would cut derivatives. Users' come by `cut`
            out = func(*args)
            self._same(out, self.operand(args[0]))
            return out
        single = of_one(func)
        if single is not None:
            with self:
                found = for_each(single, args, kwargs)
            return found if func._schema.returns else None  # nothing where it writes in place
        if func._can_decompose():  # in inference mode, torch asks for the whole of what is made of others
            with self:
                return func.decompose(*args, **kwargs)
        step = Step(
            func,
            mapped(self._spec, tuple(args)),
            {key: mapped(self._spec, value) for key, value in kwargs.items()},
            [],
            _users_line(),
        )
        depends = any(o.place is not None and o.place.storage in self._of_input for o in step.operands())
        self._check(step, depends)
        if torch.Tag.inplace_view not in func.tags:
            for x in written(func, args, kwargs, torch.Tensor):
                self._before_write(step, x)
        known = next(self._numbers)
        out = func(*args, **kwargs)
        leaves = out if isinstance(out, (list, tuple)) else [out]
        self._refuse_numbers(step, leaves, depends)
        if torch.Tag.inplace_view in func.tags:  # of the same memory: other strides, nothing is written
            self._note_view(step, out)
            return out
        self._renew_resized(step, args, kwargs)
        step.results.extend(self._result(x, step) if isinstance(x, torch.Tensor) else None for x in leaves)
        if depends and step.name not in _BY_SHAPE:
            self._of_input.update(o.place.storage for o in step.written() if o.place is not None)
            self._of_input.update(
                result.place.storage
                for x, result in zip(leaves, step.results)
                if result is not None and result.place is not None and result.place.storage >= known
                if x.device.type != "meta"
            )
        self._note(step)
        return out

    def _spec(self, value: Any) -> Any:
        return self.operand(value) if isinstance(value, torch.Tensor) else value

    def _result(self, x: torch.Tensor, step: Step) -> Operand:
        found = self._found(x)
        return found if found is not None and any(found is operand for operand in step.operands()) else self._made(x)

    def _renew_resized(self, step: Step, args: Any, kwargs: dict[str, Any]) -> None:
        """`out=` of no elements gets as many as are needed: then it is as if on a new storage."""
        for x in written(step.function, args, kwargs, torch.Tensor):
            found = self._operands.get(id(x))
            place = None if found is None else found[1].place
            if place is not None and (place.shape, place.strides) != (tuple(x.shape), tuple(x.stride())):
                reference, _ = self._storages[x.untyped_storage()._cdata]
                self._storages[x.untyped_storage()._cdata] = (reference, next(self._numbers))

    def _note_view(self, step: Step, x: torch.Tensor) -> None:
        made = self._made(x)
        place = made.dense
        args = (next(step.operands()), place.shape, place.strides, place.offset)
        self.record.steps.append(Step(torch.ops.aten.as_strided.default, args, {}, [made], step.line))

    def _note(self, step: Step) -> None:
        for operand in step.written():
            if operand.place is not None:
                self.record.last_write[operand.place.storage] = len(self.record.steps)
        self.record.steps.append(step)

    def _same(self, x: torch.Tensor, operand: Operand) -> None:
        self._operands[id(x)] = (weakref.ref(x), operand)

    def cut(self, x: torch.Tensor) -> None:
        operand = self.operand(x)
        made = Operand(self._slots, operand.place)
        self._slots += 1
        self._same(x, made)
        self.record.steps.append(Step(_DETACH, (operand,), {}, [made], None))

    def capture(self, x: torch.Tensor) -> None:
        found = self._found(x)
        if found is not None and found.slot in self.record.captured:
            return
        storage = x.untyped_storage()
        self._storages[storage._cdata] = (StorageWeakRef(storage), next(self._numbers))  # as if it were another one
        self.operand(x)

    def pass_custom(self, of_x: bool) -> None:
        self.custom_of_x |= of_x

    # --- what no record can hold ------------------------------------------------------------------------------------

    def _check(self, step: Step, depends: bool) -> None:
        tags = step.function.tags
        if torch.Tag.nondeterministic_seeded in tags:
            raise random(step)
        if not depends:
            return
        if torch.Tag.data_dependent_output in tags:
            raise leaves_torch(step)
        if step.name in _UNUSABLE:
            raise REPORTER.located(NoRule(), step)
        if torch.Tag.dynamic_output_shape in tags:
            deciding = list(step.operands())[1 if step.name in _MASKS else 0 :]
            if any(o.place is not None and o.place.storage in self._of_input for o in deciding):
                raise shape_of_values(step)

    def _refuse_numbers(self, step: Step, results: Sequence[Any], depends: bool) -> None:
        if depends and step.name not in _SHAPES:
            if any(isinstance(r, (bool, int, float, complex)) for r in results):
                raise leaves_torch(step)
            if any(isinstance(r, torch.Tensor) and r.layout != torch.strided for r in results):
                raise REPORTER.located(NoRule(), step)

    def leave(self, func: Any) -> NoReturn:
        name = getattr(func, "__name__", str(func))
        raise leaves_torch(Step(None, (), {}, [], _users_line()), name)

    def _before_write(self, step: Step, x: torch.Tensor) -> None:
        """Of a tensor that was there before, keep what it holds."""
        operand = self.operand(x)
        if operand.place is None or operand.place.storage not in self.record.given:
            return
        storage = operand.place.storage
        if storage in self._snapshots:
            return
        same = [slot for slot, other in self.record.captured.items() if self._on(other, x)]
        if any(is_tracked(self.record.captured[slot]) for slot in same) or x.is_conj() or x.is_neg():
            raise writes_to_tracked(step)
        self._snapshots[storage] = x.untyped_storage().clone()
        for slot in same:
            self.record.captured[slot] = self._captured(self.record.captured[slot], storage)

    @staticmethod
    def _on(a: torch.Tensor, b: torch.Tensor) -> bool:
        return a.layout == torch.strided and a.untyped_storage()._cdata == b.untyped_storage()._cdata


def record(function: Callable[[Any], Any], x: Any) -> tuple[StepRecord, Any]:
    """What `function` does to x, a container of tensors that are written to if it writes, and what it returned.

    Raises:
        NonlinearError: it asks for numbers, or shapes, that depend on x.
        UnsupportedOperation: it is random, or has derivatives of the user's own.
    """
    leaves, _ = tree_flatten(x)
    recorder = Recorder(leaves)
    with torch.inference_mode(False), torch.enable_grad(), recorder, Watch(recorder):
        image = function(x)
    made = recorder.record
    if recorder.custom_of_x and any(map(is_tracked, made.captured.values())):
        raise own_derivative()
    found, structure = tree_flatten(image)
    made.structure = structure
    made.outputs = [recorder.operand(leaf) if isinstance(leaf, torch.Tensor) else None for leaf in found]
    return made, found


def _users_line() -> tuple[str, int, str] | None:
    """The innermost call outside of torch and krylix."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(LIBRARY):
            return file, frame.f_lineno, frame.f_code.co_name
        frame = frame.f_back
    return None
