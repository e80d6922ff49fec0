"""Opaque functions as linear maps: their entries are found by evaluations, and tested.

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
import scipy.sparse as sp

from ...backends import get_backend
from ..errors import NonlinearError, UnsupportedOperation
from .engine.linear import Linear
from .engine.terms import Entries
from .front_end import FrontEnd, Traced, check_dtypes, matrix_dtype
from .messages import is_linear_operator
from .peeling import MOST_EVALUATIONS, Probe, Triplets, matmat_of, peeled_entries, stencil_entries

# --- a guess that costs little first, and a test of what was found last -----------------------------------------------

_FEW = 4096  # columns that are worth an evaluation each
_SMALL = 24  # unknowns, for each axis, that are not worth a guess
_TOLERANCE = 1e3  # units of rounding


def find_entries(probe: Probe, grid: tuple[int, ...] | None) -> Triplets:
    """The entries of the matrix, tested by random vectors; `grid` is the shape of the argument, if it is one array."""
    rng = np.random.default_rng(0)
    if not (probe.n and probe.m):
        return _column_by_column(probe)
    found: Triplets | None = None
    if grid is not None and probe.n > _SMALL * len(grid):
        found = stencil_entries(probe, grid, rng)
        if found is not None and _reproduces(probe, found, rng):
            return found
    _check_linear(probe, rng)  # before many evaluations
    found = peeled_entries(probe, rng, probe.count + probe.n if probe.n <= _FEW else MOST_EVALUATIONS)
    if found is None and probe.n <= _FEW:
        found = _column_by_column(probe)
    if found is None:
        raise UnsupportedOperation(
            f"{probe.count} evaluations of the function did not show its matrix: it couples too many unknowns, or "
            "rounding hides which. Solve with the function itself, or write it with NumPy's functions, which are "
            "followed."
        )
    if _reproduces(probe, found, rng):
        return found
    _check_linear(probe, rng)
    raise UnsupportedOperation(
        "The matrix that evaluations of the function showed does not reproduce it for a random vector: it couples more "
        "unknowns than were seen, rounds, or does not do the same each time. Solve with the function itself, or write "
        "it with NumPy's functions, which are followed."
    )


def _column_by_column(probe: Probe) -> Triplets:
    images = probe.images(np.eye(probe.n, dtype=probe.dtype)) if probe.n else np.zeros((0, probe.m), probe.bias.dtype)
    columns, rows = np.nonzero(images)
    return Triplets(rows, columns, images[columns, rows])


def _random(probe: Probe, rng: np.random.Generator) -> np.ndarray:
    x = rng.standard_normal(probe.n)
    return (x + 1j * rng.standard_normal(probe.n) if probe.dtype.kind == "c" else x).astype(probe.dtype)


def _reproduces(probe: Probe, found: Triplets, rng: np.random.Generator) -> bool:
    """Do two random vectors give the same by both, row by row?"""
    matrix = sp.csr_array((found.values, (found.rows, found.columns)), shape=(probe.m, probe.n))
    for scale in (1.0, -3.0):
        x = (scale * _random(probe, rng)).astype(probe.dtype)
        size = abs(matrix) @ abs(x) + np.abs(probe.bias)
        error = np.abs(matrix @ x + probe.bias - probe.evaluate(x))
        if not (error <= _TOLERANCE * probe.eps * size).all():
            return False
    return True


def _check_linear(probe: Probe, rng: np.random.Generator) -> None:
    """f(x - 2 y) = f(x) - 2 f(y), but for f(0) and rounding."""
    x, y = _random(probe, rng), _random(probe, rng)
    factor = -2j if probe.dtype.kind == "c" else -2.0
    joint = probe.image((x + factor * y).astype(probe.dtype))
    parts = probe.image(x), factor * probe.image(y)
    size = max(float(np.abs(part).max(initial=0)) for part in (*parts, probe.bias))
    if not np.abs(joint - sum(parts)).max(initial=0) <= 10 * _TOLERANCE * probe.eps * size:
        raise NonlinearError(
            "The function is not linear: f(x - 2 y) - f(0) differs from f(x) - f(0) - 2 (f(y) - f(0)) for random x and "
            "y. Expected a linear or affine function that does the same each time."
        )


# --- the front end ----------------------------------------------------------------------------------------------------

_HOST = get_backend("numpy")


class ProbingFrontEnd(FrontEnd):
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

    def forward_derivative(self, f: Any, x: Any, args: Any, kwargs: Any) -> NoReturn:
        raise UnsupportedOperation("Functions that tracing cannot look into have no derivatives.")


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
