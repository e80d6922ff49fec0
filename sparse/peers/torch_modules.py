"""`torch.nn.Module`s as functions, whose derivatives by their parameters PyTorch records."""

from __future__ import annotations

from typing import Any

from ...backends import get_backend
from .read import Read


def read(A: Any) -> Read:
    """It is a function, which does not tell its shapes; NumPy's arrays become tensors for it."""
    return Read(A, get_backend("torch"))
