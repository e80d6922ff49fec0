"""Rules for operators that are linear in one operand, by their images of its unit vectors; and for all without a rule.

The images are a dense matrix, so this is for small arrays: derivatives of interpolation, solves with a known matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from .....backends.torch.dtypes import TORCH_DTYPE
from ....errors import UnsupportedOperation
from ...engine.arithmetic import scale
from ...engine.linear import Linear, reshape
from ...engine.products.rounding import dense_along
from ...engine.refusals import NoRule, NotLinear
from ...nested import mapped
from ..steps import Step
from .tensors import coefficient, device_of, tensor

MOST = 2**22  # entries of the matrix of one operator
MOST_UNITS = 4096


def by_images(*places: int, results: int = 1) -> Callable[..., Any]:
    """A rule for an operator that is linear in each of the arguments at these places.

    Args:
        places: of arguments, by number.
        results: how many of its results there are; the first is linear, the others do not depend on the argument.
    """

    def rule(step: Step, *args: Any, **kwargs: Any) -> Any:
        linear = [k for k, arg in enumerate(args) if isinstance(arg, Linear)]
        if len(linear) != 1 or linear[0] not in places or any(isinstance(v, Linear) for v in kwargs.values()):
            raise NotLinear()
        x = args[linear[0]]
        if x.size > MOST_UNITS or x.size * math.prod(step.shape) > MOST:
            raise UnsupportedOperation(
                f"it has no rule but by its images of all {x.size} unit vectors. Trace a smaller problem, or "
                "solve with the function itself instead of its matrix."
            )
        device = device_of(args)
        given = [mapped(partial(tensor, device=device), arg) for arg in args]

        def image(unit: torch.Tensor) -> torch.Tensor:
            given[linear[0]] = unit.reshape(x.shape)
            found = step.function(*given, **kwargs)
            return (found[0] if isinstance(found, (list, tuple)) else found).reshape(-1)

        units = torch.eye(x.size, dtype=TORCH_DTYPE[x.dtype], device=device)
        none = torch.zeros(math.prod(step.shape), 0, dtype=units.dtype, device=device)
        matrix = coefficient(torch.stack([image(unit) for unit in units], 1) if x.size else none)
        found = reshape(dense_along(reshape(x, (x.size,)), [0], matrix, [matrix.shape[0]]), step.shape)
        return found if results == 1 else [found, *[NoRule()] * (results - 1)]

    return rule


def _pointwise(step: Step, x: Any, *args: Any, **kwargs: Any) -> Any:
    """The derivative of a function of single elements: a factor for each."""
    if not isinstance(x, Linear) or any(isinstance(arg, Linear) for arg in args):
        raise NotLinear()
    device = device_of(args)
    ones = torch.ones(step.shape, dtype=step.place.dtype, device=device)
    return scale(x, coefficient(step.function(ones, *[tensor(arg, device) for arg in args], **kwargs)))


def without_rule(step: Step, args: Sequence[Any], kwargs: dict[str, Any], values: Sequence[Any]) -> Exception:
    """The error for an operator without a rule: it is not linear, or it only might be."""
    try:
        zero, u, v, both = (_image(step, args, kwargs, *factors) for factors in ((0, 0), (1, 0), (0, 1), (1, -2)))
        is_linear = torch.allclose(both - zero, (u - zero) - 2 * (v - zero), equal_nan=True)
    except Exception:  # whatever an unknown operator does with such operands
        is_linear = not _returns_integers(step)
    return NoRule() if is_linear else NotLinear()


def _returns_integers(step: Step) -> bool:
    return any(
        r is not None and not (r.dense.dtype.is_floating_point or r.dense.dtype.is_complex) for r in step.results
    )


def _image(step: Step, args: Sequence[Any], kwargs: dict[str, Any], a: float, b: float) -> torch.Tensor:
    """The operator of a u + b v for random u and v."""
    rng, device = np.random.default_rng(0), device_of(args)

    def operand(value: Any) -> Any:
        if not isinstance(value, Linear):
            return tensor(value, device)
        u, v = rng.standard_normal((2, *value.shape))
        return tensor(np.asarray(a * u + b * v, value.dtype), device)

    out = step.function(*[mapped(operand, arg) for arg in args], **{k: mapped(operand, v) for k, v in kwargs.items()})
    found: torch.Tensor = out[0] if isinstance(out, (list, tuple)) else out
    return found.cpu()


_BY_IMAGES = (
    *("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "avg_pool2d", "avg_pool3d", "max_pool2d_with_indices"),
    *("upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d"),
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"),
)
_OTHERS_BY_IMAGES = (
    *("embedding_dense_backward", "_softmax_backward_data", "_log_softmax_backward_data"),
    *("col2im", "grid_sampler_2d", "grid_sampler_3d", "cholesky_solve"),
)
_POINTWISE = (
    *("threshold", "tanh", "sigmoid", "gelu", "elu", "hardtanh", "leaky_relu", "softplus", "silu", "mish"),
    *("hardswish", "hardsigmoid", "logit", "hardshrink", "softshrink"),
)

LOCAL: dict[str, Callable[..., Any]] = {
    **dict.fromkeys((f"{name}_backward" for name in _POINTWISE), _pointwise),
    **dict.fromkeys((f"{name}_backward" for name in _BY_IMAGES), by_images(0)),
    **dict.fromkeys(_OTHERS_BY_IMAGES, by_images(0)),
    "_linalg_solve_ex": by_images(1, results=4),
    "linalg_solve_triangular": by_images(1),
    "triangular_solve": by_images(0, results=2),
    "linalg_lu_solve": by_images(2),
}
