"""A JAX function as linear maps, one per array that it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.extend import core

from ....backends import Backend, get_backend
from ..engine.linear import Linear, identity
from .interpreter import Interpreter


@dataclass(frozen=True)
class Traced:
    """What a function does to arrays of given shapes.

    Attributes:
        bk: the JAX backend.
        program: the closed program that JAX made of the function.
        outputs: `Linear`s, or plain arrays where the output does not depend on the input.
        inputs: shapes and dtypes of the input's arrays.
        structure: of the container that the function returns.
        in_shape, out_shape: of input and output; None for a container of arrays.
        dtype: of the matrix; single precision at least, as SciPy has no sparse matrices in half precision.
        precision: the coarsest rounding unit of the arrays that depend on the input.
    """

    bk: Backend
    program: Any
    outputs: tuple[Any, ...]
    inputs: tuple[Any, ...]
    structure: Any
    in_shape: tuple[int, ...] | None
    out_shape: tuple[int, ...] | None
    dtype: np.dtype
    precision: float

    @property
    def columns(self) -> int:
        """Number of unknowns."""
        return sum(int(leaf.size) for leaf in self.inputs)

    def own(self, bias: Any) -> Any:
        """A copy of a bias that is an array of the user's, who may write into it."""
        if not isinstance(bias, np.ndarray):
            return bias
        constants = [c for c in self.program.consts if isinstance(c, np.ndarray)]
        return bias.copy() if any(np.may_share_memory(bias, constant) for constant in constants) else bias

    def output_of(self, leaves: Sequence[Any]) -> Any:
        """Arrays in the container that the function returns."""
        return jax.tree.unflatten(self.structure, leaves)


def trace_function(
    function: Callable[..., Any],
    like: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    keep_zeros: bool = False,
) -> Traced:
    """Follow `function(x, *args, **kwargs)` for an x like `like`: an array, its shape and dtype, or a container.

    With `keep_zeros` also what is multiplied by a known zero counts as dependent on x, except in comparisons and other
    non-linear operations, which then refuse it. Nothing is compiled: NumPy computes what `function` does to known
    values.

    Raises:
        TypeError: input or output are not floating or complex arrays.
        NonlinearError: the function is not linear or affine in x.
        UnsupportedOperation: an operation that could be linear cannot be traced.
    """
    kwargs = kwargs or {}
    like = jax.tree.map(_specification, like)
    program, shapes = jax.make_jaxpr(lambda x: function(x, *args, **kwargs), return_shape=True)(like)
    program = _without_unused(program)
    inputs, outputs = program.in_avals, program.out_avals
    if not outputs:
        raise TypeError(f"The traced function returned {shapes!r}; expected an array. Is a `return` missing?")
    _check_dtypes(inputs, "the input")
    _check_dtypes(outputs, "an output")
    bk = get_backend("jax")
    interpreter = Interpreter(bk, keep_zeros)
    arguments: list[Linear] = []
    first = 0
    for aval in inputs:
        arguments.append(identity(bk, aval.shape, aval.dtype, first))
        first += aval.size
    results = interpreter.run(program, arguments)
    return Traced(
        bk,
        program,
        tuple(results),
        tuple(inputs),
        jax.tree.structure(shapes),
        _single_shape(like, inputs),
        _single_shape(shapes, outputs),
        np.result_type(np.float32, *(aval.dtype for aval in (*inputs, *outputs))),
        interpreter.precision,
    )


def evaluate_program(traced: Traced, leaves: Sequence[np.ndarray], watch: bool = False) -> tuple[list[Any], float]:
    """The outputs for a known input, and the largest number that came up if `watch`; nothing is compiled."""
    interpreter = Interpreter(traced.bk, watch=watch)
    return interpreter.run(traced.program, leaves), interpreter.largest


def _without_unused(program: Any) -> Any:
    """Without operations whose results nobody needs, as the value of a quadratic function of which only the gradient
    is returned: these need not be linear.
    """
    try:
        from jax.interpreters.partial_eval import dce_jaxpr  # an internal part; without it more is refused

        jaxpr, _ = dce_jaxpr(program.jaxpr, [True] * len(program.jaxpr.outvars), instantiate=True)
        return core.ClosedJaxpr(jaxpr, program.consts)
    except (ImportError, TypeError):
        return program


def _specification(leaf: Any) -> Any:
    """Shape and dtype only, so that JAX does not move values to a device."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    x = leaf if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else np.asarray(leaf)
    return jax.ShapeDtypeStruct(x.shape, jax.dtypes.canonicalize_dtype(x.dtype))


def _check_dtypes(avals: Sequence[Any], what: str) -> None:
    for aval in avals:
        if aval.dtype.kind not in "fc":
            raise TypeError(
                f"{what} of the traced function has the dtype {aval.dtype}; expected a floating or complex one of "
                "NumPy, since linear maps act on real or complex numbers. Convert it, or leave it out."
            )


def _single_shape(tree: Any, avals: Sequence[Any]) -> tuple[int, ...] | None:
    single = jax.tree.structure(tree) == jax.tree.structure(0)
    return tuple(avals[0].shape) if single else None
