"""Rules for sums, multiples, dtypes, sums over axes, and for operations that change no value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from .....backends.torch.tensors import NUMPY_DTYPE, TORCH_DTYPE, is_tracked
from ...engine import coefficients as co
from ...engine.arithmetic import cumulative_sum, divide, negate, real_part, reduce_sum, scale
from ...engine.linear import Linear, linear_among
from ...engine.operands import NoRule, NotLinear, complex_of, plus
from ...engine.products import cross, multiply, quotient
from ...engine.structural import broadcast_to
from ...interpreter import conjugated
from ..recorder import Step


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


# --- rules ------------------------------------------------------------------------------------------------------------


def times(*factors: Any) -> Any:
    """The product of values, of which one at most may depend on the input."""
    product: Any = 1
    for factor in factors:
        if _is_one(product) or _is_one(factor):
            product = factor if _is_one(product) else product
        else:
            linear = isinstance(product, Linear) or isinstance(factor, Linear)
            product = multiply(product, factor) if linear else product * factor
    return product


def _over(a: Any, b: Any) -> Any:
    return quotient(a, b) if isinstance(a, Linear) or isinstance(b, Linear) else a / b


def _is_one(c: Any) -> bool:
    return isinstance(c, (int, float)) and c == 1


def _divide(step: Step, a: Any, b: Any, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode is not None:
        raise NotLinear("it rounds")
    return quotient(a, b)


def _power(step: Step, a: Any, b: Any) -> Any:
    if not co.known(b) or not np.all(np.asarray(b) == 1):
        raise NotLinear()
    return broadcast_to(a, step.shape)


def _between(step: Step, start: Any, end: Any, weight: Any) -> Any:
    if isinstance(weight, Linear):
        raise NotLinear("the weight depends on it")
    return plus(times(start, 1 - weight), times(end, weight))


def _same(step: Step, x: Any, *args: Any, **kwargs: Any) -> Any:
    return x


def _convert(step: Step, x: Linear, *args: Any, **kwargs: Any) -> Any:
    dtype = step.place.dtype
    if dtype not in TORCH_DTYPE.values() or NUMPY_DTYPE[dtype].kind in "biu":
        raise NotLinear(f"{dtype} rounds")
    return real_part(x) if x.dtype.kind == "c" and not dtype.is_complex else x


def _copy(step: Step, x: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
    if not isinstance(source, Linear):
        return source
    return broadcast_to(_convert(step, source), step.shape)


def _complex(step: Step, real: Any, imaginary: Any) -> Any:
    return complex_of(linear_among([real, imaginary], "complex").bk, real, imaginary, NUMPY_DTYPE[step.place.dtype])


def _sum(step: Step, x: Linear, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return reduce_sum(x, _axes(x, dim), keepdim)


def _mean(step: Step, x: Linear, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    count = math.prod(x.shape[a] for a in _axes(x, dim))
    return divide(_sum(step, x, dim, keepdim), float(count))


def _axes(x: Linear, dim: Any) -> list[int]:
    if dim is None or (isinstance(dim, Sequence) and not dim):
        return list(range(x.ndim))
    return [d % max(x.ndim, 1) for d in (dim if isinstance(dim, Sequence) else [dim])] if x.ndim else []


ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": lambda step, a, b, *, alpha=1: plus(a, times(alpha, b)),
    "sub": lambda step, a, b, *, alpha=1: plus(a, times(-alpha, b)),
    "rsub": lambda step, a, b, alpha=1: plus(b, times(-alpha, a)),
    "mul": lambda step, a, b: times(a, b),
    "div": _divide,
    "true_divide": _divide,
    "neg": lambda step, x: negate(x),
    "pow": _power,
    "addcmul": lambda step, x, a, b, *, value=1: plus(x, times(value, a, b)),
    "addcdiv": lambda step, x, a, b, *, value=1: plus(x, _over(times(value, a), b)),
    "lerp": _between,
    "_to_copy": _convert,
    "copy": _copy,
    "fill": lambda step, x, value: broadcast_to(value, step.shape) if isinstance(value, Linear) else value,
    "zero": lambda step, x: np.zeros(step.shape),
    "complex": _complex,
    "conj_physical": lambda step, x: conjugated(x.bk, x),
    "_conj_physical": lambda step, x: conjugated(x.bk, x),
    "sum": _sum,
    "mean": _mean,
    "cumsum": lambda step, x, dim, *, dtype=None: cumulative_sum(x, dim) if x.ndim else x,
    "trace": lambda step, x: reduce_sum(scale(x, np.eye(*x.shape, dtype=x.dtype)), [0, 1]),
    "linalg_cross": lambda step, a, b, dim=-1: cross(a, b, dim),
    **dict.fromkeys(("clone", "alias_copy", "detach_copy", "lift_fresh_copy", "positive"), _same),
}
