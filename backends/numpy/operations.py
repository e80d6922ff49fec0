"""NumPy's own functions for operations that the standard does not have."""

from scipy.special import erf as erf
from scipy.special import gammainc as gammainc
from scipy.special import gammaincc as gammaincc
from scipy.special import gammaln as lgamma

__all__ = ["erf", "gammainc", "gammaincc", "lgamma"]
