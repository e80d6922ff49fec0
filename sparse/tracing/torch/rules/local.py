"""Rules for operators that are linear in one operand, by their images of its unit vectors; and for all without a rule.

The images are a dense matrix, so this is for small arrays: derivatives of interpolation, solves with a known matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from ...engine.arithmetic import scale
from ...engine.linear import Linear
from ...engine.operations.unit_images import by_unit_images, seems_linear
from ...engine.refusals import NoRule, NotLinear
from ...nested import mapped
from ..steps import Step
from .tensors import by_first, coefficient, device_of, first_only, tensor


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

LOCAL: dict[str, Callable[..., Any]] = {
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
