"""JAX's own functions for operations that the standard does not have."""

from jax.scipy.special import erf as erf
from jax.scipy.special import gammainc as gammainc
from jax.scipy.special import gammaincc as gammaincc
from jax.scipy.special import gammaln as lgamma

__all__ = ["erf", "gammainc", "gammaincc", "lgamma"]
