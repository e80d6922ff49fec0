"""Linearity test of a Python function."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ..errors import NonlinearError
from .by_record import known_product
from .function import FunctionOperator

_tested: weakref.WeakKeyDictionary[Any, set[Any]] = weakref.WeakKeyDictionary()


def linear_part(operator: FunctionOperator) -> FunctionOperator:
    """Linear part of an operator: the constant of an affine function is evaluated and subtracted.

    Costs one evaluation, four when this function object is seen for the first time. Where the function's values are
    not known yet (it closes over traced arrays), the constant part is taken off inside the compiled program and the
    test is left to the final residual.

    Raises:
        NonlinearError: the function is neither linear nor affine.
        ValueError: it writes to its argument.
        TypeError: it computes with fewer digits than its argument has.
    """
    if operator.is_linear:
        return operator
    operator = operator.as_traced()
    bk, shape = operator.bk, (operator.layout.systems, operator.shape[1])

    def at(x: np.ndarray) -> np.ndarray | None:
        return known_product(operator, x, operator.like)

    constant = at(np.zeros(shape))
    if constant is None:
        return _linear(operator.with_constant(operator.apply(bk.zeros(shape, operator.dtype, operator.like))))
    key = (operator.layout.shapes, operator.layout.batch, operator.dtype.char)
    seen = _memory_of(operator.function)
    if key not in seen:
        u, v = np.random.default_rng(0).standard_normal((2, *shape))
        factor = -2j if operator.dtype.kind == "c" else -2.0
        images = [at(u), at(v), at(factor * u + v)]
        if all(image is not None for image in images):
            _compare(operator, factor, constant, *images)
            seen.add(key)
    if not _is_affine(constant):
        return _linear(operator)
    if operator.tracked:  # the constant part may have derivatives too
        return _linear(operator.with_constant(operator.apply(bk.zeros(shape, operator.dtype, operator.like))))
    return _linear(operator.with_constant(bk.asarray(constant, like=operator.like)))


def _linear(operator: FunctionOperator) -> FunctionOperator:
    """A copy that is not asked again; the user's own operator is, as its function may close over what changes."""
    copy = operator.with_constant(operator.constant)
    copy.is_linear = True
    return copy


def _is_affine(constant: np.ndarray) -> bool:
    return bool(np.any(constant[np.isfinite(constant)]))


def _memory_of(function: Any) -> set[Any]:
    try:
        return _tested.setdefault(function, set())
    except TypeError:  # a callable that cannot be hashed or weakly referenced is tested every time
        return set()


def _compare(operator: FunctionOperator, factor: complex, constant: np.ndarray, Au: Any, Av: Any, both: Any) -> None:
    """Test A(-2 u + v) = -2 A(u) + A(v), with -2i where complex, up to the rounding inside A."""
    with np.errstate(all="ignore"):
        expected = operator.dtype.type(factor) * (Au - constant) + (Av - constant)
        error = np.abs((both - constant) - expected)
        known = np.abs(Au) + np.abs(Av) + np.abs(constant)
        known = np.where(np.isfinite(known), known, 0)
        size = np.broadcast_to(np.max(known, axis=1, keepdims=True, initial=0), error.shape)
        wrong = np.isfinite(error) & (error > 1e4 * np.finfo(operator.dtype).eps * size)
    if wrong.any():
        raise NonlinearError(
            f"{operator.name} is not linear: with random u and v and the constant part taken off, A({factor} u + v) "
            f"differs from {factor} A(u) + A(v) by {np.max(error[wrong]):.1e} where these are of size "
            f"{np.max(size[wrong]):.1e}. linear_solve takes linear and affine functions; for a non-linear one, solve "
            "with its Jacobian in a Newton iteration."
        )
