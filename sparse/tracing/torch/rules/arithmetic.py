"""Rules for sums, multiples, dtypes, sums over axes, and for operations that change no value."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .....backends.torch.tensors import TORCH_DTYPE, numpy_dtype
from ...conjugates import conjugated
from ...engine import coefficients as co
from ...engine.arithmetic import add, convert, divide, negate, real_part, scale
from ...engine.linear import Linear, reshape
from ...engine.operations.products import cross, multiply, quotient
from ...engine.reductions import cumulative_sum, reduce_sum
from ...engine.refusals import NotLinear
from ...engine.structural import broadcast_to
from ..steps import Step


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


def plus(a: Any, b: Any) -> Any:
    """The sum of values."""
    return add(a, b) if isinstance(a, Linear) or isinstance(b, Linear) else a + b


def _over(a: Any, b: Any) -> Any:
    return quotient(a, b) if isinstance(a, Linear) or isinstance(b, Linear) else a / b


def _is_one(c: Any) -> bool:
    return isinstance(c, (int, float)) and c == 1


def _add(step: Step, a: Any, b: Any, *, alpha: Any = 1) -> Any:
    return plus(a, times(alpha, b))


def _subtract(step: Step, a: Any, b: Any, *, alpha: Any = 1) -> Any:
    return plus(a, times(-alpha, b))


def _subtract_from(step: Step, a: Any, b: Any, alpha: Any = 1) -> Any:
    return plus(b, times(-alpha, a))


def _divide(step: Step, a: Any, b: Any, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode is not None:
        raise NotLinear("it rounds")
    return quotient(a, b)


def _power(step: Step, a: Any, b: Any) -> Any:
    if not co.known(b) or not np.all(np.asarray(b) == 1):
        raise NotLinear()
    return broadcast_to(a, step.shape)


def _add_product(step: Step, x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    return plus(x, times(value, a, b))


def _add_quotient(step: Step, x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    return plus(x, _over(times(value, a), b))


def _between(step: Step, start: Any, end: Any, weight: Any) -> Any:
    if isinstance(weight, Linear):
        raise NotLinear("the weight depends on it")
    return plus(times(start, 1 - weight), times(end, weight))


def _same(step: Step, x: Any, *args: Any, **kwargs: Any) -> Any:
    return x


def _convert(step: Step, x: Linear, *args: Any, **kwargs: Any) -> Any:
    dtype = step.place.dtype
    if dtype not in TORCH_DTYPE.values() or numpy_dtype(dtype).kind in "biu":
        raise NotLinear(f"{dtype} rounds")
    return real_part(x) if x.dtype.kind == "c" and not dtype.is_complex else x


def _copy(step: Step, x: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
    if not isinstance(source, Linear):
        return source
    return broadcast_to(_convert(step, source), step.shape)


def _fill(step: Step, x: Any, value: Any) -> Any:
    return broadcast_to(value, step.shape) if isinstance(value, Linear) else value


def _zero(step: Step, x: Any) -> Any:
    return np.zeros(step.shape)


def _complex(step: Step, real: Any, imaginary: Any) -> Any:
    dtype = numpy_dtype(step.place.dtype)
    turned = convert(imaginary, dtype) if isinstance(imaginary, Linear) else imaginary
    return plus(real, times(turned, 1j))


def _sum(step: Step, x: Linear, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    axes = _axes(x, dim)
    total = reduce_sum(x, axes)
    return reshape(total, [1 if a in axes else n for a, n in enumerate(x.shape)]) if keepdim else total


def _mean(step: Step, x: Linear, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    count = math.prod(x.shape[a] for a in _axes(x, dim))
    return divide(_sum(step, x, dim, keepdim), float(count))


def _axes(x: Linear, dim: Any) -> list[int]:
    if dim is None or (isinstance(dim, Sequence) and not dim):
        return list(range(x.ndim))
    return [d % max(x.ndim, 1) for d in (dim if isinstance(dim, Sequence) else [dim])] if x.ndim else []


def _cumulative_sum(step: Step, x: Linear, dim: int, *, dtype: Any = None) -> Any:
    return cumulative_sum(x, dim) if x.ndim else x


def _trace(step: Step, x: Linear) -> Any:
    return reduce_sum(scale(x, np.eye(*x.shape, dtype=x.dtype)), [0, 1])


ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": _add,
    "sub": _subtract,
    "rsub": _subtract_from,
    "mul": lambda step, a, b: times(a, b),
    "div": _divide,
    "true_divide": _divide,
    "neg": lambda step, x: negate(x),
    "pow": _power,
    "addcmul": _add_product,
    "addcdiv": _add_quotient,
    "lerp": _between,
    "_to_copy": _convert,
    "copy": _copy,
    "fill": _fill,
    "zero": _zero,
    "complex": _complex,
    "conj_physical": lambda step, x: conjugated(x.bk, x),
    "_conj_physical": lambda step, x: conjugated(x.bk, x),
    "sum": _sum,
    "mean": _mean,
    "cumsum": _cumulative_sum,
    "trace": _trace,
    "linalg_cross": lambda step, a, b, dim=-1: cross(a, b, dim),
    **dict.fromkeys(("clone", "alias_copy", "detach_copy", "lift_fresh_copy", "positive"), _same),
}
