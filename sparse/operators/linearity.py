"""Linearity test of a Python function."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends import Array
from ..errors import NonlinearError
from ..peers.modules import WITH_MODES, state_of
from .by_record import known_product
from .function import FunctionOperator

Image = Callable[[np.ndarray], np.ndarray | None]
_tested: weakref.WeakKeyDictionary[Any, set[Any]] = weakref.WeakKeyDictionary()


def linear_part(operator: FunctionOperator) -> FunctionOperator:
    """Linear part of an operator: the constant of an affine function is evaluated and subtracted.

    Costs one evaluation, four when this function object is seen for the first time, or a module of PyTorch in another
    mode; what evaluations write to the buffers of a module in training mode is taken back. Where the function's values
    are not known yet (it closes over traced arrays), the constant part is taken off inside the compiled program and the
    test is left to the final residual.

    Raises:
        NonlinearError: the function is neither linear nor affine, or has several values for one vector.
        ValueError: it writes to its argument.
        TypeError: it computes with fewer digits than its argument has.
    """
    if operator.is_linear:
        return operator
    operator = operator.as_traced()
    bk, shape = operator.bk, (operator.layout.systems, operator.shape[1])

    def at(x: np.ndarray) -> np.ndarray | None:
        return known_product(operator, x, operator.like)

    mode, undo = state_of(operator.function) if bk.name in WITH_MODES else ((), None)
    try:
        constant = at(np.zeros(shape))
        if constant is not None:
            _test_once(operator, at, constant, mode)
    finally:
        if undo is not None:
            undo()
    if constant is None:
        return _linear(operator.with_constant(_image_of_zero(operator)))
    if not np.any(constant[np.isfinite(constant)]):  # it is linear
        return _linear(operator)
    if operator.tracked:  # the constant part may have derivatives too
        return _linear(operator.with_constant(_image_of_zero(operator)))
    return _linear(operator.with_constant(bk.asarray(constant, like=operator.like)))


def _image_of_zero(operator: FunctionOperator) -> Array:
    """As a grid where the library spreads arrays over devices: a flat one would lie on each of them."""
    bk, image = operator.bk, operator.image
    rows = operator.apply(bk.zeros((operator.layout.systems, operator.shape[1]), operator.dtype, operator.like))
    return rows if image.structure is not None else bk.on_grid(rows, image.shapes[0])


def _test_once(operator: FunctionOperator, at: Image, constant: np.ndarray, mode: tuple[Any, ...]) -> None:
    """Compare, where this function is new in the mode in which it is: a module may be another one in training."""
    layout = operator.layout
    key = (layout.shapes, layout.batch, operator.dtype.char, mode, *_flags(operator.function))
    seen = _memory_of(operator.function)
    if key in seen:
        return
    u, v = np.random.default_rng(0).standard_normal((2, layout.systems, operator.shape[1]))
    factor = -2j if operator.dtype.kind == "c" else -2.0
    images = [at(u), at(v), at(factor * u + v)]
    if all(image is not None for image in images):
        message = _compare(operator, factor, constant, *images)
        if message:
            raise NonlinearError(_if_unsteady(operator, images[0], at(u)) or message)
        seen.add(key)


def _flags(function: Any) -> list[bool]:
    """Truth values that it closes over, which may be other ones at the next solve."""
    flags = []
    for cell in getattr(function, "__closure__", None) or ():
        try:
            value = cell.cell_contents
        except ValueError:  # a name without a value yet
            continue
        if isinstance(value, bool):
            flags.append(value)
    return flags


def _memory_of(function: Any) -> set[Any]:
    try:
        return _tested.setdefault(function, set())
    except TypeError:  # a callable that cannot be hashed or weakly referenced is tested every time
        return set()


def _linear(operator: FunctionOperator) -> FunctionOperator:
    """A copy that is not asked again; the user's own operator is, as its function may close over what changes."""
    copy = operator.with_constant(operator.constant)
    copy.is_linear = True
    return copy


def _compare(
    operator: FunctionOperator, factor: complex, constant: np.ndarray, Au: Any, Av: Any, both: Any
) -> str | None:
    """Test A(-2 u + v) = -2 A(u) + A(v), with -2i where complex, up to the rounding inside A; the message if not."""
    with np.errstate(all="ignore"):
        expected = operator.dtype.type(factor) * (Au - constant) + (Av - constant)
        error = np.abs((both - constant) - expected)
        error, size = _beyond_rounding(operator, error, np.abs(Au) + np.abs(Av) + np.abs(constant))
    if not error.size:
        return None
    return (
        f"{operator.name} is not linear: with random u and v and the constant part taken off, A({factor} u + v) "
        f"differs from {factor} A(u) + A(v) by {np.max(error):.1e} where these are of size "
        f"{np.max(size):.1e}. linear_solve takes linear and affine functions; for a non-linear one, solve "
        "with its Jacobian in a Newton iteration."
    )


def _if_unsteady(operator: FunctionOperator, once: Any, again: Any) -> str | None:
    """The message about a function that has two values for one vector."""
    if again is None:
        return None
    with np.errstate(all="ignore"):
        error, size = _beyond_rounding(operator, np.abs(again - once), np.abs(once) + np.abs(again))
    if not error.size:
        return None
    return (
        f"{operator.name} gives different values for the same x, by {np.max(error):.1e} where these are of size "
        f"{np.max(size):.1e}: Dropout in training mode (call module.eval()), random numbers, or state that it changes?"
    )


def _beyond_rounding(operator: FunctionOperator, error: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The errors that are no rounding, and the sizes of the values there."""
    known = np.where(np.isfinite(known), known, 0)
    size = np.broadcast_to(np.max(known, axis=1, keepdims=True, initial=0), error.shape)
    wrong = np.isfinite(error) & (error > 1e4 * np.finfo(operator.dtype).eps * size)
    return error[wrong], size[wrong]
