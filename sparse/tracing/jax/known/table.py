"""The second table: equations whose operands are all known, evaluated by NumPy.

JAX would compile a program for each of them, which takes longer than tracing the whole function. A rule gets the
operands, the parameters, and shapes and dtypes of the results; it returns the result, or a list of them, which may be
smaller where it repeats along an axis. It returns None where NumPy and XLA differ (division of integers by zero, sums
in half precision ...); such equations, and those without a rule, are evaluated by JAX itself.

>>> import jax
>>> (equation,) = jax.make_jaxpr(lambda x: jax.lax.rev(x, (0,)))(np.zeros(3, np.float32)).eqns
>>> evaluate_equation(equation, [np.array([1, 2, 3], np.float32)])
[array([3., 2., 1.], dtype=float32)]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .....backends.jax.sharding.varying import axes_of, is_mapped, vary
from .elementwise import ELEMENTWISE
from .pooling import POOLING
from .reductions import REDUCTIONS
from .structure import STRUCTURE

Rule = Callable[[Sequence[np.ndarray], dict[str, Any], Sequence[Any]], Any]
RULES: dict[str, Rule] = {**ELEMENTWISE, **STRUCTURE, **REDUCTIONS, **POOLING}


def is_known(x: Any) -> bool:
    """Does this value of the interpreter have values now? Random keys stay arrays of JAX."""
    return isinstance(x, np.ndarray) or (isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer))


def as_known(x: Any, dtype: Any = None) -> Any:
    """A number or array as NumPy, a tracer or a random key as it is."""
    if isinstance(x, jax.core.Tracer):
        return x
    if isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.extended):
        return x
    return np.asarray(x, dtype)


def evaluate_equation(equation: Any, values: Sequence[Any]) -> list[Any]:
    """The results of one equation for known operands.

    They have the equation's dtypes, but where the operands have others: positions that were put in the place of numbers
    stay integers, as those above 2^24 are no numbers of single precision.
    """
    rule = RULES.get(equation.primitive.name)
    avals = [v.aval for v in equation.outvars]
    if rule is not None and all(isinstance(value, np.ndarray) for value in values):
        with np.errstate(all="ignore"):
            result = rule(values, equation.params, avals)
        if result is not None:
            results = result if isinstance(result, list) else [result]
            if any(_is_integer(v.dtype) and not _is_integer(a.aval.dtype) for v, a in zip(values, equation.invars)):
                return [np.broadcast_to(r, aval.shape) for r, aval in zip(results, avals)]
            return [_fitting(r, aval) for r, aval in zip(results, avals)]
    return evaluate_by_jax(equation, values)


def evaluate_by_jax(equation: Any, values: Sequence[Any]) -> list[Any]:
    """The same by JAX, also where a transformation is running; XLA compiles the equation for it."""
    with jax.ensure_compile_time_eval():
        return [as_known(result) for result in bind(equation, [jnp.asarray(value) for value in values])]


def bind(equation: Any, values: Sequence[Any]) -> list[Any]:
    """The equation as an operation on arrays and tracers of JAX, as if the user had called it."""
    primitive, params = equation.primitive, equation.primitive.get_bind_params(equation.params)
    if is_mapped():  # known operands are the same on all devices
        values = [vary(v, axes_of([atom.aval])) for v, atom in zip(values, equation.invars)]
    if isinstance(params, tuple):  # JAX < 0.8
        functions, params = params
        result = primitive.bind(*functions, *values, **params)
    else:
        result = primitive.bind(*values, **params)
    return list(result) if primitive.multiple_results else [result]


def _is_integer(dtype: Any) -> bool:
    return np.dtype(dtype).kind in "iu" if isinstance(dtype, np.dtype) else False


def _fitting(result: Any, aval: Any) -> np.ndarray:
    result = np.asarray(result, aval.dtype)
    return result if result.shape == aval.shape else np.broadcast_to(result, aval.shape)
