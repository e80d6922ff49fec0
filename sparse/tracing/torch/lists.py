"""Operators on lists of tensors, recorded as the operators on single tensors that they are made of.

>>> for_each(of_one(torch.ops.aten._foreach_add.List), [[torch.ones(1)], [torch.ones(1)]], {"alpha": 3})
[tensor([4.])]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

_PREFIX = "_foreach_"
_NAMES = ("add", "sub", "mul", "div", "neg", "lerp", "addcmul", "addcdiv", "copy", "zero", "clone")
_BY_KEYWORD = {"addcmul": 3, "addcdiv": 3}  # place of what single operators call `value`


def of_one(function: Any) -> Callable[..., Any] | None:
    """The operator on single tensors; None where an operator is none on lists, or none that may be linear."""
    name = str(function._schema.name).split("::")[-1]
    single = name.removeprefix(_PREFIX)
    if single == name or single.rstrip("_") not in _NAMES:
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
