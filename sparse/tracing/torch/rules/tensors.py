"""Coefficients as tensors and back, for rules that ask torch itself, and what torch makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from .....backends.torch.tensors import is_tracked
from ...engine.linear import Linear
from ...engine.refusals import NoRule
from ..steps import Step


def device_of(values: Iterable[Any]) -> torch.device:
    """Where some coefficients must meet: where those with derivatives are, else on the host."""
    return next((v.device for v in values if isinstance(v, torch.Tensor)), torch.device("cpu"))


def tensor(value: Any, device: torch.device) -> Any:
    """A coefficient as a tensor; anything else as it is."""
    return torch.tensor(np.array(value, order="C"), device=device) if isinstance(value, np.ndarray) else value


def coefficient(x: torch.Tensor) -> Any:
    """A tensor as a coefficient: itself, if its derivatives are being recorded, else an array of NumPy."""
    return x if is_tracked(x) else x.detach().resolve_conj().resolve_neg().cpu().numpy()


def first_only(step: Step, found: Any) -> list[Any]:
    """All results of an operator: the first, and for each of the others, which may be linear, why there is none."""
    _, *others = step.function._schema.returns
    names = (f"'{other.name}'" if other.name else f"{k} of {len(others) + 1}" for k, other in enumerate(others, 2))
    return [found, *(NoRule(f"its result {name}") for name in names)]


def by_shapes(step: Step, args: Sequence[Any]) -> Any:
    """What torch makes of operands, where only the shapes count of those that depend on the input."""
    device = device_of(args)
    out = step.function(*(tensor(_zeros(arg), device) for arg in args))
    return [None if x is None else coefficient(x) for x in out] if isinstance(out, (list, tuple)) else coefficient(out)


def by_first(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule for an operator that is linear in its first operand, and of whose others only the shapes count."""

    def found(step: Step, x: Any, *args: Any) -> Any:
        if isinstance(x, Linear):
            return rule(step, x, *map(_zeros, args))
        return by_shapes(step, (x, *args))

    return found


def _zeros(value: Any) -> Any:
    return np.zeros(value.shape, value.dtype) if isinstance(value, Linear) else value
