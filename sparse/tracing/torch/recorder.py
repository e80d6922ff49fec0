"""Recording of a function: ATen calls, and where in memory the tensors lie that they read, make and write.

Tensors may share memory: views, and what is written into a part of another. So a tensor is not an array, but a place in
a storage. Which tensor shares which storage is not derived from the calls: it is seen while the function runs.

>>> for_each(of_one(torch.ops.aten._foreach_add.List), [[torch.ones(1)], [torch.ones(1)]], {"alpha": 3})
[tensor([4.])]
"""

from __future__ import annotations

import itertools
import math
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_flatten

from ....backends.torch.program.recorded import Recording, Watch
from ....backends.torch.program.straight_line import written_arguments
from ....backends.torch.tensors import is_tracked
from ...errors import NonlinearError, UnsupportedOperation
from ..engine.operands import NoRule
from ..interpreter import leaves_of, mapped
from ..messages import FOLDERS, HANDED_TO_NUMPY, UNKNOWN, Operation, Reporter, kind_of, place_of


class Place(NamedTuple):
    """Elements of a storage.

    Attributes:
        storage: its number.
        shape, strides, offset: of the tensor, counted in elements of `dtype`.
        conjugated, negated: the elements are read so.
        device: the kind of device; "meta" has no values.
    """

    storage: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    conjugated: bool = False
    negated: bool = False
    device: str = "cpu"

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor in the record: its number, and its place; None for a sparse one."""

    slot: int
    place: Place | None

    @property
    def dense(self) -> Place:
        """Its place."""
        if self.place is None:
            raise TypeError("A sparse tensor has no place in memory.")
        return self.place

    @property
    def is_meta(self) -> bool:
        """Has it a shape, but no values?"""
        return self.place is not None and self.place.device == "meta"


class Step(NamedTuple):
    """One call.

    Attributes:
        function: the overload of an ATen operator.
        args, kwargs: with Operands for tensors.
        results: Operands, None where a result is no tensor.
        line: `(file, line, function)` of the user's code, None if unknown.
    """

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[Operand | None]
    line: tuple[str, int, str] | None

    @property
    def name(self) -> str:
        """Of the operator, without overload."""
        return str(self.function._schema.name).split("::")[-1]

    @property
    def place(self) -> Place:
        """That of the first result."""
        return next(result.dense for result in self.results if result is not None)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the first result."""
        return self.place.shape

    def operands(self) -> Iterator[Operand]:
        """All tensors that it gets."""
        return (v for v in leaves_of((self.args, *self.kwargs.values())) if isinstance(v, Operand))

    def written(self) -> list[Operand]:
        """The tensors that it writes to."""
        return list(written(self.function, self.args, self.kwargs, Operand))


@dataclass
class StepRecord:
    """What a function did to some tensors.

    Attributes:
        steps: the calls.
        inputs: the tensors that it was called with.
        outputs: the tensors that it returned, with `structure` of torch's pytrees; None in place of None.
        captured: tensors that were there before, by slot.
        given: their storages.
        first: the operand that each storage was seen with first.
        counts: elements of each storage, counted in those of its first operand.
        last_write: the number of the last step that writes to a storage.
        device: of the inputs.
    """

    steps: list[Step] = field(default_factory=list)
    inputs: list[Operand] = field(default_factory=list)
    outputs: list[Operand | None] = field(default_factory=list)
    structure: Any = None
    captured: dict[int, torch.Tensor] = field(default_factory=dict)
    given: set[int] = field(default_factory=set)
    first: dict[int, Operand] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    last_write: dict[int, int] = field(default_factory=dict)
    device: Any = None


def place_in(storage: int, x: torch.Tensor) -> Place:
    """The place of a tensor in the storage of this number."""
    return Place(
        storage,
        tuple(x.shape),
        tuple(x.stride()),
        int(x.storage_offset()),
        x.dtype,
        x.is_conj(),
        x.is_neg(),
        x.device.type,
    )


def written(function: Any, args: Sequence[Any], kwargs: dict[str, Any], kind: type) -> Iterator[Any]:
    """Those arguments of a call, of type `kind`, that it writes to."""
    yield from (v for v in leaves_of(written_arguments(function, args, kwargs)) if isinstance(v, kind))


# --- operators on lists of tensors, made of those on single ones ------------------------------------------------------

_PREFIX = "_foreach_"
_SINGLE = ("add", "sub", "mul", "div", "neg", "lerp", "addcmul", "addcdiv", "copy", "zero", "clone")
_BY_KEYWORD = {"addcmul": 3, "addcdiv": 3}  # place of what single operators call `value`


def of_one(function: Any) -> Callable[..., Any] | None:
    """The operator on single tensors; None where an operator is none on lists, or none that may be linear."""
    name = str(function._schema.name).split("::")[-1]
    single = name.removeprefix(_PREFIX)
    if single == name or single.rstrip("_") not in _SINGLE:
        return None
    operator = getattr(torch.ops.aten, single)
    place = _BY_KEYWORD.get(single.rstrip("_"))
    if place is None:
        return operator
    if function._overloadname == "Tensor":  # a tensor for the number: in the order that torch multiplies in
        return lambda x, a, b, value: operator(x, a * value, b)
    return lambda *args, **kwargs: operator(*args[:place], **dict(zip(["value"], args[place:])), **kwargs)


def for_each(single: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The results for the elements of all lists among the arguments, or of tensors with axes, one after the other."""
    count = len(args[0])

    def element(value: Any, k: int) -> Any:
        has_elements = isinstance(value, (list, tuple)) or (isinstance(value, torch.Tensor) and value.ndim)
        return value[k] if has_elements else value

    return [
        single(*(element(v, k) for v in args), **{key: element(v, k) for key, v in kwargs.items()})
        for k in range(count)
    ]


# --- errors -----------------------------------------------------------------------------------------------------------

LIBRARY = (f"{Path(torch.__file__).parent}/", *FOLDERS)  # code that is not the user's

_ARRAYS = ("numpy", "__array__", "tolist")
_NAMES = {"_local_scalar_dense": "item", "is_nonzero": "bool"}


def leaves_torch(step: Step, name: str | None = None) -> NonlinearError | UnsupportedOperation:
    """A value of the input becomes a number of Python or an array of NumPy."""
    if name in _ARRAYS:
        return REPORTER.unsupported(
            step,
            HANDED_TO_NUMPY.format("torch"),
            name,
        )
    return REPORTER.nonlinear(
        step,
        "it makes a number or an array outside of torch of a tensor that depends on the input, and what follows from "
        "it is not traced. Compute with the tensor, as torch.where does",
        name or _NAMES.get(step.name),
    )


def _operation(step: Step, values: Sequence[Any], name: str | None = None) -> Operation:
    kinds = [kind_of(value, not isinstance(value, torch.Tensor)) for value in values]
    place = UNKNOWN if step.line is None else place_of([step.line])
    return Operation(name or step.name, place, kinds or ["input-dependent"])


REPORTER = Reporter(_operation, "Detach it.")


# --- recording --------------------------------------------------------------------------------------------------------
# The calls are seen below autograd and `torch.func`, so derivatives and `vmap` inside of the function are plain calls.
# Tensors are told apart by their storage, whose number is its own as long as the record is made: a tensor that autograd
# makes of memory that is known is no constant. Where a number or a shape would depend on values of the input, the
# record would be of these values only, and is refused.
#
# This is what `make_fx` does, in a twentieth of its time, with the places in memory that it does not tell.

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

    # --- tensors ------------------------------------------------------------------------------------------------------

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

    # --- calls --------------------------------------------------------------------------------------------------------

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

    # --- what no record can hold --------------------------------------------------------------------------------------

    def _check(self, step: Step, depends: bool) -> None:
        tags = step.function.tags
        if torch.Tag.nondeterministic_seeded in tags:
            raise REPORTER.unsupported(
                step, "it is random, and a matrix is the same at each call. Draw the numbers before."
            )
        if not depends:
            return
        if torch.Tag.data_dependent_output in tags:
            raise leaves_torch(step)
        if step.name in _UNUSABLE:
            raise REPORTER.located(NoRule(), step)
        if torch.Tag.dynamic_output_shape in tags:
            deciding = list(step.operands())[1 if step.name in _MASKS else 0 :]
            if any(o.place is not None and o.place.storage in self._of_input for o in deciding):
                raise REPORTER.nonlinear(step, "the shape of its result depends on the values of the input")

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
            raise REPORTER.unsupported(
                step,
                "it writes to a tensor that the function closes over and whose derivatives are recorded. Write to a "
                "clone.",
            )
        self._snapshots[storage] = x.untyped_storage().clone()
        for slot in same:
            self.record.captured[slot] = self._captured(self.record.captured[slot], storage)

    @staticmethod
    def _on(a: torch.Tensor, b: torch.Tensor) -> bool:
        return a.layout == torch.strided and a.untyped_storage()._cdata == b.untyped_storage()._cdata


def record(function: Callable[[Any], Any], x: Any) -> tuple[StepRecord, Any]:
    """What `function` does to x, a container of tensors that are written to if it writes, and what it returned."""
    leaves, _ = tree_flatten(x)
    recorder = Recorder(leaves)
    with torch.inference_mode(False), torch.enable_grad(), recorder, Watch(recorder):
        image = function(x)
    made = recorder.record
    if recorder.custom_of_x and any(map(is_tracked, made.captured.values())):
        raise UnsupportedOperation(  # a matrix has the derivatives of what the function does forward
            "The function calls a torch.autograd.Function on values of its argument, and on tensors whose derivatives "
            "are recorded: the matrix would not have the derivatives of its `backward`. Compute the coefficients by it "
            "outside of the part that is linear, or detach them."
        )
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
