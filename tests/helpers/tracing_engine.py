"""The functions of the engine of tracing, by their names."""

from krylix.sparse.tracing.engine import (
    arithmetic,
    coefficients,
    contraction,
    convolution,
    linear,
    positions,
    structural,
    to_matrix,
)

for _module in (coefficients, arithmetic, contraction, convolution, linear, positions, structural, to_matrix):
    globals().update({name: value for name, value in vars(_module).items() if not name.startswith("_")})
