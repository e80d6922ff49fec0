"""From a function to its sparse matrix: the structure engine, which knows no framework."""

from .arithmetic import (
    add,
    conjugate,
    convert,
    cumulative_sum,
    divide,
    imaginary_part,
    negate,
    real_part,
    reduce_sum,
    scale,
    subtract,
    window_sum,
)
from .coefficients import known
from .contraction import contract, dense_along, dense_product
from .convolution import convolve
from .linear import Linear, identity, reshape
from .positions import assemble, scatter_add, select, take
from .structural import broadcast_in_dim, concatenate, pad, reverse, slice_, stack, transpose
from .to_matrix import to_matrix

__all__ = [
    "Linear",
    "add",
    "assemble",
    "broadcast_in_dim",
    "concatenate",
    "conjugate",
    "contract",
    "convert",
    "convolve",
    "cumulative_sum",
    "dense_along",
    "dense_product",
    "divide",
    "identity",
    "imaginary_part",
    "known",
    "negate",
    "pad",
    "real_part",
    "reduce_sum",
    "reshape",
    "reverse",
    "scale",
    "scatter_add",
    "select",
    "slice_",
    "stack",
    "subtract",
    "take",
    "to_matrix",
    "transpose",
    "window_sum",
]
