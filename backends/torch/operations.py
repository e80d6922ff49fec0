"""PyTorch's own functions for operations that the standard does not have."""

from torch import lgamma as lgamma
from torch.special import erf as erf
from torch.special import gammainc as gammainc
from torch.special import gammaincc as gammaincc

__all__ = ["erf", "gammainc", "gammaincc", "lgamma"]
