"""Coefficients as tensors and back, for rules that ask torch itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from .....backends.torch.transformed import is_tracked


def device_of(values: Iterable[Any]) -> torch.device:
    """Where some coefficients must meet: where those with derivatives are, else on the host."""
    return next((v.device for v in values if isinstance(v, torch.Tensor)), torch.device("cpu"))


def tensor(value: Any, device: torch.device) -> Any:
    """A coefficient as a tensor; anything else as it is."""
    return torch.tensor(np.array(value, order="C"), device=device) if isinstance(value, np.ndarray) else value


def coefficient(x: torch.Tensor) -> Any:
    """A tensor as a coefficient: itself, if its derivatives are being recorded, else an array of NumPy."""
    return x if is_tracked(x) else x.detach().resolve_conj().resolve_neg().cpu().numpy()
