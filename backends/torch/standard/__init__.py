"""The array API standard on PyTorch: what differs from PyTorch's own functions, an idea a file."""

import torch

from ...standard.namespace import Namespace
from . import creation, elementwise, fft, linalg, manipulation, ordering, reductions
from .library import TorchLibrary

xp = Namespace(
    TorchLibrary(),
    {
        "": (creation, elementwise, reductions, ordering, manipulation, linalg, torch),
        "linalg": (linalg, torch.linalg),
        "fft": (fft, torch.fft),
    },
)
