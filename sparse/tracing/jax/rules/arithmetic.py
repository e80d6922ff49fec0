"""Rules for sums, multiples, dtypes, and for operations that change no value.

`3 * u`, whose operands are a known number and the input: the factor of each term changes.

>>> import jax
>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine.linear import identity
>>> u = identity(get_backend("jax"), (4,), float)
>>> (equation,) = jax.make_jaxpr(lambda u: 3.0 * u)(np.zeros(4)).eqns
>>> ARITHMETIC["mul"](equation, [np.asarray(3.0), u]).terms
(Box(lo=(0,), shape=(4,), offset=0, strides=(1,), factor=3.0, values=None, mask=None),)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....errors import UnsupportedOperation
from ...engine.arithmetic import (
    add,
    conjugate,
    convert,
    cumulative_sum,
    imaginary_part,
    negate,
    real_part,
    reduce_sum,
    scale,
    subtract,
)
from ...engine.linear import Linear, linear_among
from ...engine.operands import NotLinear, complex_of
from ...engine.products import multiply, quotient

Values = Sequence[Any]


def _power(equation: Any, values: Values) -> Any:
    if equation.params["y"] != 1:
        raise NotLinear()
    return values[0]


def _real_power(equation: Any, values: Values) -> Any:
    x, y = values
    if isinstance(y, Linear) or not isinstance(y, np.ndarray | np.generic) or not np.all(y == 1):
        raise NotLinear()
    return scale(x, np.ones(np.shape(y), x.dtype))


def _convert(equation: Any, values: Values) -> Any:
    (x,), dtype = values, np.dtype(equation.outvars[0].aval.dtype)
    if dtype.kind in "biu":
        raise NotLinear(f"{dtype} has no fractions")
    if x.dtype.kind == "c" and dtype.kind != "c":
        x = real_part(x)
    return convert(x, dtype)


def _complex(equation: Any, values: Values) -> Any:
    real, imaginary = values
    return complex_of(linear_among(values, "complex").bk, real, imaginary, np.dtype(equation.outvars[0].aval.dtype))


def _conjugate(equation: Any, values: Values) -> Any:
    (x,) = values
    return conjugate(x) if x.dtype.kind == "c" else convert(x, equation.outvars[0].aval.dtype)


def _reduce_precision(equation: Any, values: Values) -> Any:
    (x,), limits = values, np.finfo(np.zeros((), values[0].dtype).real.dtype)
    if equation.params["exponent_bits"] < limits.nexp or equation.params["mantissa_bits"] < limits.nmant:
        raise NotLinear("it rounds")
    return x


def _sum_over_axes(equation: Any, values: Values) -> Any:
    """What `vmap` makes of a sum over the axis that it named."""
    axes = equation.params["axes"]
    if equation.params.get("axis_index_groups") is not None or not all(isinstance(axis, int) for axis in axes):
        _over_devices(equation, values)
    return [reduce_sum(x, axes) if isinstance(x, Linear) else x.sum(axes) for x in values]


def _over_devices(equation: Any, values: Values) -> Any:
    raise UnsupportedOperation("it acts across devices or a named axis. Trace the function outside of it.")


_SAME = (
    *("copy", "copy_p", "optimization_barrier", "sharding_constraint", "device_put", "name"),
    *("stop_gradient", "mesh_cast", "reshard", "layout_constraint", "pvary", "tie"),
)
_NOTHING = ("debug_callback", "debug_print", "dce_sink")
_DEVICES = (*("psum2", "psum_invariant", "pbroadcast", "ppermute", "all_gather", "all_to_all", "reduce_scatter"),)

ARITHMETIC: dict[str, Callable[[Any, Values], Any]] = {
    **dict.fromkeys(("add", "add_any"), lambda equation, values: add(*values)),
    "sub": lambda equation, values: subtract(*values),
    "mul": lambda equation, values: convert(multiply(*values), equation.outvars[0].aval.dtype),
    "div": lambda equation, values: quotient(*values),
    "neg": lambda equation, values: negate(values[0]),
    "integer_pow": _power,
    "pow": _real_power,
    "convert_element_type": _convert,
    "real": lambda equation, values: real_part(values[0]),
    "imag": lambda equation, values: imaginary_part(values[0]),
    "conj": _conjugate,
    "complex": _complex,
    "reduce_sum": lambda equation, values: reduce_sum(values[0], equation.params["axes"]),
    "cumsum": lambda equation, values: cumulative_sum(values[0], equation.params["axis"], equation.params["reverse"]),
    "psum": _sum_over_axes,
    "reduce_precision": _reduce_precision,
    **dict.fromkeys(_SAME, lambda equation, values: list(values)),
    **dict.fromkeys(_NOTHING, lambda equation, values: []),
    **dict.fromkeys(_DEVICES, _over_devices),
}
