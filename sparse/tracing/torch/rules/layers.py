"""Rules for layers of networks, and for operators that are linear in one operand, by images of unit vectors."""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from ....errors import UnsupportedOperation
from ...engine import coefficients as co
from ...engine.arithmetic import add, scale
from ...engine.images import by_unit_images, seems_linear
from ...engine.linear import Linear, linear_among
from ...engine.operands import NoRule, NotLinear, reshaped, shape_of, static, taken
from ...engine.positions import scatter_add
from ...engine.products import einsum, linear_factor, multiply, sparse_product
from ...interpreter import mapped
from ..recorder import Step
from .arithmetic import by_first, coefficient, device_of, first_only, tensor
from .structure import put

_SUM, _MEAN = 0, 1  # of embedding_bag
_REDUCTIONS = {"max": "the largest", "min": "the smallest", "prod": "the product"}  # of segment_reduce, not linear


def _bag(
    step: Step,
    table: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> list[Any]:
    """Sums of rows of a table: a sparse matrix with a row for each bag times the table."""
    if mode not in (_SUM, _MEAN):
        raise NotLinear("it takes the largest element")
    index, starts = static("index", indices), static("offset", offsets)
    if include_last_offset and starts[-1] != len(index):
        raise UnsupportedOperation("its last offset is not the number of indices. Leave the other indices out.")
    starts = starts if include_last_offset else np.append(starts, len(index))
    bags = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    kept = np.flatnonzero(index[: len(bags)] != padding_idx)
    bags, index = bags[kept], index[kept]
    if mode == _MEAN:
        weights = 1 / np.bincount(bags, minlength=len(starts))[bags]
    elif weights is None:
        weights = np.ones(len(index))
    else:
        weights = taken(linear_factor(table, weights).bk, weights, kept)
    return first_only(step, sparse_product(bags, index, weights, len(starts) - 1, table))


def _segments(
    step: Step,
    x: Any,
    reduce: str,
    *,
    lengths: Any = None,
    indices: Any = None,
    offsets: Any = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Linear:
    """Sums or means over parts of an axis; the axes before it have parts of their own."""
    if reduce not in ("sum", "mean"):
        raise NotLinear(f"it takes {_REDUCTIONS.get(reduce, reduce)} of the elements")
    if not isinstance(x, Linear):
        raise NoRule()
    axis %= x.ndim
    lead, n, inner = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
    if offsets is None:
        own, first = static("length", lengths), np.zeros(lead, int)
    else:  # and lengths do not count
        starts = static("offset", offsets)
        own, first = np.diff(starts), starts[..., 0].reshape(lead)
    counts = own.reshape(lead, -1)
    segments = np.full((lead, n), -1)
    for row, (start, parts) in enumerate(zip(first, counts)):
        found = np.repeat(np.arange(len(parts)) + row * len(parts), parts)
        segments[row, start : start + len(found)] = found
    where = np.where(segments[..., None] < 0, -1, segments[..., None] * inner + np.arange(inner))
    zeros = np.full(step.shape, 0 if initial is None else initial, x.dtype)
    total = scatter_add(zeros, where.reshape(x.shape), x)
    if reduce == "sum":
        return total
    if initial is None and not counts.all():
        raise UnsupportedOperation("a segment without elements has no mean. Give initial=0, or leave it out.")
    divisors = np.maximum(own, 1).reshape(*own.shape, *[1] * (len(step.shape) - own.ndim))
    return scale(total, 1 / divisors)


def _max_unpooling(step: Step, x: Any, index: Any, *settings: Any) -> Any:
    """Each element at the place in its plane where a maximum was."""
    index, d = static("index", index), {"max_unpool2d": 2, "max_unpool3d": 3}[step.name]
    plane = math.prod(step.shape[-d:])
    first = np.arange(math.prod(index.shape[:-d])).reshape(*index.shape[:-d], *[1] * d) * plane
    return put(np.zeros(step.shape, x.dtype), index + first, x)


def _batch_norm(
    step: Step, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: Any, eps: float
) -> list[Any]:
    """By known means and variances: a factor and a sum for each channel."""
    if training:
        raise NotLinear("it divides by the deviation of its elements. Use eval()")
    bk, space = linear_among([x, bias, mean, weight], "batch_norm").bk, [1] * (len(step.shape) - 2)
    factor = _channel_factor((x, mean), weight, variance, eps)

    def times(a: Any, b: Any) -> Any:
        return multiply(a, b) if isinstance(a, Linear) or isinstance(b, Linear) else co.multiply(bk, a, b)

    def spread(value: Any) -> Any:
        return reshaped(bk, value, (1, math.prod(shape_of(value)), *space))

    parts = [times(x, spread(factor)), times(spread(times(mean, factor)), -1.0)]
    found, *others = sorted(parts if bias is None else [*parts, spread(bias)], key=lambda v: not isinstance(v, Linear))
    for other in others:
        found = add(found, other)
    return first_only(step, found)


def _batch_norm_by_own(step: Step, x: Any, weight: Any, bias: Any, *settings: Any) -> list[Any]:
    return _batch_norm(step, x, weight, bias, *(settings if len(settings) == 5 else (None, None, *settings)))


def _batch_norm_by_known(step: Step, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, *rest: Any) -> list[Any]:
    return _batch_norm(step, x, weight, bias, mean, variance, False, *rest)


def _batch_norm_backward(
    step: Step, gradient: Any, x: Any, weight: Any, mean: Any, variance: Any, a: Any, b: Any, training: bool, *rest: Any
) -> list[Any]:
    if training or not isinstance(gradient, Linear):
        raise NotLinear("it depends on the deviation of its elements. Use eval()") if training else NoRule()
    factor = _channel_factor((gradient,), weight, variance, rest[0])
    return first_only(step, scale(gradient, factor.reshape(1, -1, *[1] * (gradient.ndim - 2))))


def _channel_factor(scaled: Sequence[Any], weight: Any, variance: Any, eps: float) -> Any:
    """What batch normalisation multiplies each channel of some arrays by."""
    if isinstance(variance, Linear) or (isinstance(weight, Linear) and any(isinstance(x, Linear) for x in scaled)):
        raise NotLinear("what it is scaled by depends on it")
    if isinstance(weight, Linear):
        raise NoRule()
    device = device_of((weight, variance))
    found = torch.rsqrt(tensor(variance, device) + eps)
    return coefficient(found if weight is None else found * tensor(weight, device))


def _bilinear(
    step: Step,
    a: Any,
    b: Any,
    c: Any,
    without_a: Sequence[int],
    without_b: Sequence[int],
    without_c: Sequence[int],
    summed: Sequence[int],
    unroll: int = 1,
) -> Linear:
    """The product of three arrays, each without some of the axes, summed over some."""
    letters = string.ascii_letters[: len(shape_of(a)) + len(without_a)]
    parts = ["".join(l for k, l in enumerate(letters) if k not in w) for w in (without_a, without_b, without_c)]
    result = "".join(l for k, l in enumerate(letters) if k not in summed)
    operands = [a, b, c]
    linear_factor(*operands)
    number = next(k for k, x in enumerate(operands) if isinstance(x, Linear))
    x, letters_of_x = operands.pop(number), parts.pop(number)
    wanted = "".join(l for l in letters if l in "".join(parts) and l in letters_of_x + result)
    device = device_of(operands)
    known = torch.einsum(f"{parts[0]},{parts[1]}->{wanted}", *(tensor(v, device) for v in operands))
    return einsum(x, letters_of_x, coefficient(known), wanted, result)


# --- operators that are linear in one operand, by images of unit vectors ----------------------------------------------
# The images are a dense matrix, so this is for small arrays: derivatives of interpolation, solves with a known matrix.


def by_images(*places: int) -> Callable[..., Any]:
    """A rule for an operator whose first result is linear in each of the arguments at these places, by number."""

    def rule(step: Step, *args: Any, **kwargs: Any) -> Any:
        linear = [k for k, arg in enumerate(args) if isinstance(arg, Linear)]
        if len(linear) != 1 or linear[0] not in places or any(isinstance(v, Linear) for v in kwargs.values()):
            raise NotLinear()
        device = device_of(args)
        given = [mapped(partial(tensor, device=device), arg) for arg in args]

        def image(unit: np.ndarray) -> Any:
            given[linear[0]] = tensor(unit, device)
            out = step.function(*given, **kwargs)
            return coefficient(out[0] if isinstance(out, (list, tuple)) else out)

        return first_only(step, by_unit_images(args[linear[0]], image))

    return rule


def _pointwise(step: Step, x: Any, *args: Any, **kwargs: Any) -> Any:
    """A function of single elements that is linear in the first operand, as derivatives are: a factor for each."""
    if not isinstance(x, Linear) or any(isinstance(arg, Linear) for arg in args):
        raise NotLinear()
    device = device_of(args)
    ones = torch.ones(step.shape, dtype=step.place.dtype, device=device)
    return scale(x, coefficient(step.function(ones, *[tensor(arg, device) for arg in args], **kwargs)))


def without_rule(step: Step, args: Sequence[Any], kwargs: dict[str, Any], values: Sequence[Any]) -> Exception:
    """The error for an operator without a rule: it is not linear, or it only might be."""
    device = device_of(args)

    def image(value_of: Callable[[Any], Any]) -> np.ndarray:
        def operand(value: Any) -> Any:
            return tensor(value_of(value), device)

        given = {key: mapped(operand, v) for key, v in kwargs.items()}
        out = step.function(*mapped(operand, args), **given)
        found: torch.Tensor = out[0] if isinstance(out, (list, tuple)) else out
        return found.detach().resolve_conj().resolve_neg().cpu().numpy()

    try:
        is_linear = seems_linear(image)
    except Exception:  # whatever an unknown operator does with such operands
        is_linear = not _returns_integers(step)
    return NoRule() if is_linear else NotLinear()


def _returns_integers(step: Step) -> bool:
    return any(
        r is not None and not (r.dense.dtype.is_floating_point or r.dense.dtype.is_complex) for r in step.results
    )


_BY_IMAGES = (
    "max_pool2d_with_indices",
    *("upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d"),
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"),
    *("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d"),
    *("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
)
_OTHERS_BY_IMAGES = (
    *("embedding_dense_backward", "_softmax_backward_data", "_log_softmax_backward_data"),
    *("col2im", "grid_sampler_2d", "grid_sampler_3d", "cholesky_solve"),
)
_POINTWISE = (
    *("threshold", "tanh", "sigmoid", "gelu", "elu", "hardtanh", "leaky_relu", "softplus", "silu", "mish"),
    *("hardswish", "hardsigmoid", "logit", "hardshrink", "softshrink"),
)

LAYERS: dict[str, Callable[..., Any]] = {
    "_embedding_bag": _bag,
    "_embedding_bag_forward_only": _bag,
    "segment_reduce": _segments,
    "max_unpool2d": _max_unpooling,
    "max_unpool3d": _max_unpooling,
    "native_batch_norm": _batch_norm,
    "_native_batch_norm_legit": _batch_norm_by_own,
    "_native_batch_norm_legit_no_training": _batch_norm_by_known,
    "native_batch_norm_backward": _batch_norm_backward,
    "_trilinear": _bilinear,
    **dict.fromkeys((f"{name}_backward" for name in _POINTWISE), _pointwise),
    **dict.fromkeys(("deg2rad", "rad2deg", "ldexp", "xlogy", "special_xlog1py"), _pointwise),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), by_images(0)),
    **dict.fromkeys((f"{name}_backward" for name in _BY_IMAGES), by_images(0)),
    **dict.fromkeys(_OTHERS_BY_IMAGES, by_images(0)),
    **{f"_adaptive_avg_pool{d}d_backward": by_first(by_images(0)) for d in (2, 3)},
    "_linalg_solve_ex": by_images(1),
    "linalg_solve_triangular": by_images(1),
    "triangular_solve": by_images(0),
    "linalg_lu_solve": by_images(2),
    "ormqr": by_images(2),
}
