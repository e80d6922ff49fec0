"""`torch.nn.Module`s as functions, whose derivatives by their parameters PyTorch records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ...backends import get_backend
from .read import Read

_RANDOM = ("_DropoutNd",)  # bases of classes that draw random numbers in training mode
_WRITING = ("_NormBase", "_SpectralNorm")  # and of those that write to their buffers
_CASTS = {"float32": "{}.float()", "float64": "{}.double()", "float16": "{}.half()"}
_CASTS = {"float32": "{}.float()", "float64": "{}.double()", "float16": "{}.half()"}


def read(A: Any) -> Read:
    """It is a function, which does not tell its shapes; NumPy's arrays become tensors for it.

    Raises:
        ValueError: a part in training mode is random, or writes to its buffers in every evaluation.
    """
    for name, part in A.named_modules():
        why = _unsteady(part) if part.training else None
        if why is not None:
            where = f"its part {name!r}, a {type(part).__name__}," if name else "it"
            raise ValueError(
                f"The module {type(A).__name__} is no linear function: {where} is in training mode, where {why}. Call "
                "module.eval() before the solve."
            )
    return Read(A, get_backend("torch"))


def mode(module: Any) -> tuple[bool, ...]:
    """Which of its parts are in training mode?"""
    return tuple(part.training for part in module.modules())


def keep(module: Any) -> Callable[[], None]:
    """A function that takes back what was written to its buffers since, if a part is in training mode.

    Cost: a copy of the buffers.
    """
    if not any(mode(module)):
        return lambda: None
    kept = [
        (part, name, buffer, buffer.detach().clone())
        for part in module.modules()
        for name, buffer in part._buffers.items()
        if buffer is not None
    ]

    def undo() -> None:
        for part, name, buffer, values in kept:
            with torch.no_grad():  # its version does not tell: normalisations write without
                buffer.copy_(values)
            part._buffers[name] = buffer

    return undo


def wrong_dtype(module: Any, dtype: np.dtype) -> str | None:
    """Words about its numbers, where all have one other dtype."""
    bk = get_backend("torch")
    found = {bk.dtype(p) for p in (*module.parameters(), *module.buffers()) if p.is_floating_point() or p.is_complex()}
    if len(found) != 1 or dtype in found:
        return None
    own = found.pop()
    what = f"the parameters of the module {type(module).__name__} are {own}, b is taken as {dtype}"
    if dtype.kind == "c" and own.kind != "c":
        return f"{what}: call module.to(torch.{dtype}), or solve for the real and the imaginary part of b"
    b, other = (_CASTS.get(name, f"{{}}.to(torch.{name})") for name in (own.name, dtype.name))
    return f"{what}: give {b.format('b')}, or call {other.format('module')}"


def _unsteady(part: Any) -> str | None:
    bases = {base.__name__ for base in type(part).__mro__}
    if bases.intersection(_RANDOM) and part.p > 0:
        return "it gives different values for the same x"
    if bases.intersection(_WRITING) and any(buffer is not None for buffer in part._buffers.values()):
        return "every evaluation changes its buffers"
    return None
