"""Opaque functions as linear maps: their entries are found by evaluations.

>>> from scipy.ndimage import laplace
>>> like = np.zeros((40, 40))
>>> traced = FRONT_END.trace(laplace, like, (), {}, False)
>>> [term.size for term in traced.outputs[0].terms]  # of 1600 evaluations with unit vectors few were needed
[7840]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from ....backends import get_backend
from ...errors import UnsupportedOperation
from ..engine.linear import Linear
from ..engine.terms import Entries
from ..front_end import FrontEnd
from ..opaque import is_linear_operator
from ..traced import Traced, check_dtypes, matrix_dtype
from .entries import find_entries
from .evaluate import Probe, matmat_of

_HOST = get_backend("numpy")


class ProbingFrontEnd:
    """Functions and LinearOperators on arrays of NumPy, of which nothing is known but what they return."""

    def trace(
        self, function: Callable[..., Any], like: Any, args: Sequence[Any], kwargs: Mapping[str, Any], keep_zeros: bool
    ) -> Traced:
        leaves, structure = _HOST.leaves(like)
        inputs = [leaf if hasattr(leaf, "dtype") else np.asarray(leaf) for leaf in leaves]
        inputs = [np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape) for leaf in inputs]
        check_dtypes(inputs, "the input")
        n = sum(leaf.size for leaf in inputs)
        called = _of_operator(function, n) if is_linear_operator(function) else function
        containers: list[Any] = []
        evaluate = partial(_evaluate, called, inputs, structure, args, kwargs, containers)
        dtype = np.result_type(*(leaf.dtype for leaf in inputs))
        probe = Probe(evaluate, n, dtype, matmat_of(function))
        entries = find_entries(probe, inputs[0].shape if structure is None else None)
        shapes, out_structure = containers[0]
        outputs, start = [], 0
        for shape, out_dtype in shapes:
            size = math.prod(shape)
            own = np.flatnonzero((entries.rows >= start) & (entries.rows < start + size))
            term = Entries(
                (entries.rows[own] - start).astype(np.int32),
                entries.columns[own].astype(np.int32),
                1,
                entries.values[own],
            )
            bias = probe.bias[start : start + size].reshape(shape).astype(out_dtype)
            outputs.append(Linear(_HOST, shape, shape, out_dtype, (term,), bias if bias.any() else None))
            start += size
        check_dtypes(outputs, "an output")
        return Traced(
            _HOST,
            evaluate,
            tuple(outputs),
            tuple(inputs),
            (),
            partial(_HOST.unleaves, out_structure),
            inputs[0].shape if structure is None else None,
            shapes[0][0] if out_structure is None else None,
            matrix_dtype([*inputs, *outputs]),
            probe.eps,
        )

    def evaluate(self, traced: Traced, leaves: Sequence[np.ndarray], watch: bool = False) -> tuple[list[Any], float]:
        flat = np.concatenate([leaf.reshape(-1) for leaf in leaves])
        image, start, found = traced.program(flat), 0, []
        for output in traced.outputs:
            size = math.prod(output.shape)
            found.append(image[start : start + size].reshape(output.shape))
            start += size
        return found, 0.0

    def sample(self, traced: Traced, inputs: Any, wanted: Any) -> None:
        """The function computes whole arrays only."""

    def forward_derivative(self, f: Any, x: Any, args: Any, kwargs: Any) -> NoReturn:
        raise UnsupportedOperation("Functions that tracing cannot look into have no derivatives.")

    reverse_derivative = forward_derivative

    def has_only_reverse_rule(self, error: Exception) -> bool:
        return False


def _of_operator(operator: Any, n: int) -> Callable[[np.ndarray], np.ndarray]:
    rows, columns = operator.shape
    if columns != n:
        raise ValueError(
            f"The LinearOperator has the shape {operator.shape}, and `like` {n} elements; expected {columns}."
        )

    def product(x: np.ndarray) -> np.ndarray:
        image = np.asarray(operator.matvec(x.reshape(-1)))
        return image.reshape(x.shape if rows == columns else (rows,))

    return product


def _evaluate(
    function: Callable[..., Any],
    inputs: Sequence[np.ndarray],
    structure: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    containers: list[Any],
    x: np.ndarray,
) -> np.ndarray:
    """The elements of all that the function returns, for those of all that it takes."""
    leaves, start = [], 0
    for leaf in inputs:
        own = x[start : start + leaf.size].reshape(leaf.shape)
        leaves.append(own.astype(leaf.dtype))
        start += leaf.size
    result = function(_HOST.unleaves(structure, leaves), *args, **kwargs)
    if result is None:
        raise TypeError("The function returned None; expected an array. Is a `return` missing?")
    found, out_structure = _HOST.leaves(result)
    arrays = [np.asarray(leaf) for leaf in found]
    check_dtypes(arrays, "an output")
    shapes = [(a.shape, a.dtype) for a in arrays]
    containers[:] = containers or [(shapes, out_structure)]
    if shapes != containers[0][0]:
        raise UnsupportedOperation(
            f"The function returned arrays of {shapes}, and before those of {containers[0][0]}; expected the same "
            "shapes and dtypes for every vector."
        )
    return np.concatenate([a.reshape(-1) for a in arrays]) if arrays else np.zeros(0)


FRONT_END: FrontEnd = ProbingFrontEnd()
