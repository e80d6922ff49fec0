"""Follows a recorded function with linear maps in place of what depends on the input.

Three kinds of values meet here: known ones (NumPy arrays), tensors whose derivatives are being recorded, and `Linear`s.
Steps without a `Linear` are computed by torch, so that derivatives follow; the others have a rule each. An operation
without a matrix is an error only where what is returned depends on it: the value of a quadratic energy, of which only
the gradient is returned, need not be linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from ....backends import Backend
from ....backends.torch.tensors import NUMPY_DTYPE, TORCH_DTYPE, is_tracked, may_have_derivatives
from ...errors import NonlinearError, UnsupportedOperation
from ..engine import coefficients as co
from ..engine.arithmetic import negate, scale
from ..engine.linear import Linear
from ..engine.operands import NotLinear
from ..engine.structural import broadcast_to
from ..interpreter import Conjugate, Interpreter, in_dtype, mapped, proper
from .memory import StorageElements
from .recorder import REPORTER, Operand, Place, Step, StepRecord
from .rules import RULES
from .rules.layers import without_rule
from .rules.products import FOURIER

_EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"}
_BY_SHAPE = _EMPTY | {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"}
_OVERWRITES = {"copy_", "fill_", "zero_"}
_ADDS = {"add_": 1, "sub_": -1}  # in place, so that the terms that are there stay as they are


class StepInterpreter(Interpreter):
    """One trace."""

    def __init__(self, bk: Backend, record: StepRecord, keep_zeros: bool = False) -> None:
        super().__init__(bk, keep_zeros)
        self.record = record
        self._tracks = may_have_derivatives()
        self._tensors: dict[int, torch.Tensor] = {}  # by slot: those that do not depend on the input
        self._memories: dict[int, StorageElements] = {}  # by storage: those that do
        self._known: dict[int, np.ndarray] = {}  # copies of the user's tensors
        self._number = 0  # of the step

    def run(self, inputs: Sequence[Linear]) -> list[Any]:
        """What the function returns: `Linear`s, or coefficients."""
        for slot, x in self.record.captured.items():
            self._tensors[slot] = x if self._tracks else x.detach()
        for operand, value in zip(self.record.inputs, inputs):
            self._store(operand.dense, value)
        with torch.set_grad_enabled(self._tracks):
            for number, step in enumerate(self.record.steps):
                self._number = number
                self._step(step)
            outputs = [None if operand is None else self._value(operand) for operand in self.record.outputs]
            return [proper(self.bk, output) for output in outputs]

    # --- tensors ------------------------------------------------------------------------------------------------------

    def _depends(self, operand: Operand) -> bool:
        return operand.place is not None and operand.place.storage in self._memories

    def _value(self, operand: Operand) -> Any:
        if not self._depends(operand):
            return self._coefficient(operand)
        return self.settled(self._memories[operand.dense.storage].read(operand.dense))

    def _coefficient(self, operand: Operand) -> Any:
        """A NumPy array, or a tensor whose derivatives are being recorded; nobody writes to its memory later."""
        if operand.slot in self._known:
            return self._known[operand.slot]
        x = self._tensor(operand)
        if operand.place is None:
            return x
        if x._is_zerotensor():
            return np.zeros(tuple(x.shape), NUMPY_DTYPE[x.dtype])
        is_given = operand.place.storage in self.record.given
        is_changed = self.record.last_write.get(operand.place.storage, -1) >= self._number
        if is_tracked(x):
            return x.clone() if is_given or is_changed else x
        known = self.bk.to_numpy(x.float() if x.dtype == torch.bfloat16 else x)
        if is_given or is_changed:
            known = known.copy()
        if is_given and operand.place.storage not in self.record.last_write:
            self._known[operand.slot] = known
        return known

    def _tensor(self, operand: Operand) -> torch.Tensor:
        if operand.slot in self._tensors and not self._depends(operand):
            return self._tensors[operand.slot]
        place = operand.dense
        if not self._depends(operand):
            return self._on_storage(place)
        return self._made(place, self._value(operand))

    def _on_storage(self, place: Place) -> torch.Tensor:
        """A tensor of which no call told how it was made: another one on the same storage."""
        first = self.record.first[place.storage]
        return self._tensors[first.slot].as_strided(place.shape, place.strides, place.offset)

    def _made(self, place: Place, value: Any) -> torch.Tensor:
        """A coefficient as a tensor with this place's shape, and its strides where no elements share memory."""
        given = self.bk.asarray(np.asarray(value)).to(self.record.device) if co.known(value) else value
        tensor = torch.empty_strided(place.shape, place.strides, dtype=place.dtype, device=self.record.device)
        shares = torch._debug_has_internal_overlap(tensor) != 0  # or is not known not to
        tensor = torch.empty(place.shape, dtype=place.dtype, device=self.record.device) if shares else tensor
        return tensor.copy_(given)

    def _store(self, place: Place, value: Any) -> None:
        self._memories[place.storage] = StorageElements(self.bk, value, place, self.record.counts[place.storage])

    def _memory(self, place: Place) -> StorageElements:
        """That of a storage; from now on it may depend on the input."""
        if place.storage not in self._memories:
            first = self.record.first[place.storage]
            whole, count = self._tensors[first.slot], self.record.counts[place.storage]
            if is_tracked(whole):
                if first.dense.size != count:
                    raise UnsupportedOperation(
                        "it writes values of the input to a part of a tensor whose derivatives are recorded. Write to "
                        "a clone."
                    )
                memory = StorageElements(self.bk, whole.clone(), first.dense, count)
            else:
                flat = first.dense._replace(shape=(count,), strides=(1,), offset=0)
                values = self.bk.to_numpy(whole.detach().as_strided((count,), (1,), 0)).copy()
                memory = StorageElements(self.bk, values, flat, count)
            self._memories[place.storage] = memory
        return self._memories[place.storage]

    # --- steps --------------------------------------------------------------------------------------------------------

    def _step(self, step: Step) -> None:
        if not any(self._depends(operand) for operand in step.operands()):
            self._compute(step)
            return
        written = step.written()
        if not written and all(r is None or r.is_meta for r in step.results):
            return  # shapes
        if step.name in _BY_SHAPE:
            self._compute(step, shapes_only=True)
            return
        if not written and all(r is None or r.dense.storage in self._seen(step) for r in step.results):
            return  # views
        values: list[Any] = []
        try:
            self._follow(step, written, values)
        except (NonlinearError, UnsupportedOperation) as error:
            failed = REPORTER.located(error, step, values)
            for operand in (*written, *(r for r in step.results if r is not None)):
                self._fail(operand, failed)

    def _seen(self, step: Step) -> set[int]:
        return {operand.place.storage for operand in step.operands() if operand.place is not None}

    def _compute(self, step: Step, shapes_only: bool = False) -> None:
        """By torch, as the operands are tensors."""
        if step.results and all(r is not None and r.is_meta for r in step.results):
            return  # shapes

        def tensor(value: Any) -> Any:
            if not isinstance(value, Operand):
                return value
            if shapes_only and self._depends(value):
                p = value.dense
                return torch.empty_strided(p.shape, p.strides, dtype=p.dtype, device=self.record.device)
            return self._tensor(value)

        args, kwargs = mapped(tensor, step.args), {key: mapped(tensor, v) for key, v in step.kwargs.items()}
        out = step.function(*args, **kwargs)
        if step.name in _EMPTY:
            out = out.zero_()  # what it holds is never read, but must be the same each time
        for result, x in zip(step.results, out if isinstance(out, (list, tuple)) else [out]):
            if result is not None:
                self._tensors.setdefault(result.slot, x)

    def _follow(self, step: Step, written: Sequence[Operand], values: list[Any]) -> None:
        """By a rule; `values` are those of the operands, for messages."""
        if step.name == "copy_" and _same_elements(step):
            return
        if step.name in _ADDS and self._accumulate(step, values):
            return
        own = {id(operand) for operand in written}
        out_only = {key: v for key, v in step.kwargs.items() if id(v) in own or _all_in(v, own)}

        def value(operand: Any) -> Any:
            if not isinstance(operand, Operand):
                return operand
            values.append(self._value(operand))
            return values[-1]

        overwritten = step.name in _OVERWRITES
        args = (None, *mapped(value, step.args[1:])) if overwritten else mapped(value, step.args)
        kwargs = {key: mapped(value, v) for key, v in step.kwargs.items() if key not in out_only}
        if not overwritten and not any(isinstance(v, (Linear, Conjugate)) for v in values):
            results = self._by_torch(step, args, kwargs)
        else:
            self.note(values)
            rule = RULES.get(step.name) or RULES.get(step.name.rstrip("_"))
            if rule is None:
                raise without_rule(step, args, kwargs, values)
            results = self.by_rule(partial(rule, step), args, kwargs, commutes=step.name not in FOURIER)
        for operand, result in zip(step.results, results):
            if operand is not None:
                self._put(operand, result, values, step)

    def _by_torch(self, step: Step, args: Any, kwargs: Any) -> list[Any]:
        """Of values that do not depend on the input after all."""

        def tensor(operand: Any) -> Any:
            return self._tensor(operand) if isinstance(operand, Operand) else operand

        out = step.function(*mapped(tensor, step.args), **{k: mapped(tensor, v) for k, v in step.kwargs.items()})
        found = out if isinstance(out, (list, tuple)) else [out]
        return [x if not isinstance(x, torch.Tensor) or is_tracked(x) else self.bk.to_numpy(x).copy() for x in found]

    def _accumulate(self, step: Step, values: list[Any]) -> bool:
        """`x += y` on a part of a storage."""
        target, other = step.args[:2]
        place = target.dense
        if not isinstance(other, Operand):
            return False
        value = self._value(other)
        if not isinstance(value, Linear) or place.dtype != other.dense.dtype:
            return False
        values.append(value)
        self.note(values)
        factor = _ADDS[step.name] * step.kwargs.get("alpha", 1)
        value = negate(value) if factor == -1 else value if factor == 1 else scale(value, factor)
        self._memory(place).accumulate(place, broadcast_to(value, place.shape))
        return True

    def _put(self, operand: Operand, value: Any, values: list[Any], step: Step) -> None:
        """A result into its place, in its dtype."""
        place = operand.place
        if isinstance(value, Exception):
            self._fail(operand, REPORTER.located(value, step, values))
            return
        if place is None or operand.is_meta:
            return
        if isinstance(value, Conjugate):
            place, value = place._replace(conjugated=not place.conjugated), value.linear
        value = self._fitted(place, value, values, step)
        self.note([value])
        if place.storage in self._memories or place.storage in self._seen(step):
            self._memory(place).write(place, value)
        else:
            self._store(place, value)

    def _fitted(self, place: Place, value: Any, values: list[Any], step: Step) -> Any:
        if not isinstance(value, Linear):
            tensor = isinstance(value, torch.Tensor)
            dtype = NUMPY_DTYPE[place.dtype]
            value = co.cast(self.bk, value if tensor else np.asarray(value), dtype)
            return co.broadcast_to(self.bk, value, place.shape)
        if not (place.dtype.is_floating_point or place.dtype.is_complex):
            raise NotLinear(f"its result is of {place.dtype}")
        if place.dtype not in TORCH_DTYPE.values():
            raise NotLinear(f"{place.dtype} rounds to less than single precision")
        if value.shape != place.shape:
            raise UnsupportedOperation(
                f"its rule found the shape {value.shape} where torch has {place.shape}. Please report it."
            )
        return in_dtype(value, NUMPY_DTYPE[place.dtype])

    def _fail(self, operand: Operand, error: Exception) -> None:
        place = operand.place
        if place is None or operand.is_meta:
            return
        if place.dtype not in TORCH_DTYPE.values():
            place = place._replace(dtype=torch.float32)
        if place.storage not in self._memories:
            count = self.record.counts[place.storage]
            whole = Place(place.storage, (count,), (1,), 0, place.dtype)
            self._memories[place.storage] = StorageElements(self.bk, np.zeros(count), whole, count)
        self._memories[place.storage].fail(error)


def _all_in(value: Any, own: set[int]) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(id(v) in own for v in value)


def _same_elements(step: Step) -> bool:
    """Does it copy a tensor onto itself, as `y[1:] += x` does at its end?"""
    target, source = step.args[:2]
    return isinstance(source, Operand) and target.place == source.place
