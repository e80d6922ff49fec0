"""Checks of the arguments that non-linear solves and minimisation share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...backends import Array, Backend, choose_backend, of_libraries, working_dtype
from ...sparse import Layout
from ..read.arguments import refuse_unusable, refused_args


def unknowns(
    name: str, f: Callable[..., Any], x0: Any, args: Sequence[Any], batch_ndim: int
) -> tuple[Backend, Array, Layout, np.dtype]:
    """The library, a copy of x0 as rows `(systems, n)`, its layout, and the dtype of the solve; `name` is that of f."""
    if not callable(f):
        raise TypeError(f"{name} must be a function {name}(x, *args); got a {type(f).__name__}.")
    if not isinstance(args, list | tuple):
        raise TypeError(refused_args(name, args))
    if isinstance(batch_ndim, bool) or not isinstance(batch_ndim, int) or batch_ndim < 0:
        raise ValueError(f"batch_ndim must be the number of batch axes, an integer >= 0; got {batch_ndim!r}.")
    bk = choose_backend(x0, *of_libraries(args))
    if not (bk.has_derivatives or bk.on_host):
        raise TypeError(
            f"x0 is an array of {bk.name}, which has no derivatives of functions; expected one of NumPy, JAX, PyTorch "
            "or TensorFlow. Convert it with krylix.convert(x0, 'jax'), say."
        )
    refuse_unusable(bk, x0, "x0")
    leaves, structure = bk.leaves(x0)
    if any(leaf is None or isinstance(leaf, str | bytes) for leaf in leaves):
        raise TypeError(f"x0 must be an array; got {x0!r}.")
    arrays = [leaf if bk.is_array(leaf) and not isinstance(leaf, np.generic) else bk.asarray(leaf) for leaf in leaves]
    layout = Layout.of(bk, bk.unleaves(structure, arrays), batch_ndim, "x0")
    if not layout.size:
        raise ValueError("x0 has no elements; expected at least one unknown.")
    found = np.result_type(*layout.dtypes)
    if found.kind == "c":
        raise TypeError(
            f"x0 is complex ({found}); expected real numbers. Make the real and imaginary parts unknowns of their own, "
            "on a new axis of x0."
        )
    dtype = working_dtype(found, integer=bk.default_float)
    layout = layout.in_kind_of(dtype)
    rows = bk.copy(bk.constant(layout.flatten(bk, bk.unleaves(structure, arrays), dtype, "x0")))
    return bk, rows, layout, dtype


def checked_limit(max_iter: Any, default: int) -> int:
    """Return max_iter, or the default for None, after a check."""
    if max_iter is None:
        return default
    if isinstance(max_iter, bool) or not isinstance(max_iter, int | np.integer):
        raise TypeError(f"max_iter must be an integer >= 0; got {max_iter!r}.")
    if max_iter < 0:
        raise ValueError(f"max_iter must be an integer >= 0; got {max_iter!r}.")
    return int(max_iter)


def checked_method(function: str, method: Any, methods: Sequence[str]) -> str:
    """Return the canonical name of a method that is given in any case."""
    names = {name.lower(): name for name in methods}
    if not isinstance(method, str):
        raise TypeError(f"method must be a name, one of {', '.join(methods)}; got {method!r}.")
    if method.lower() not in names:
        raise ValueError(f"{function} has no method {method!r}; there are {', '.join(methods)}.")
    return names[method.lower()]


def box_of(bk: Backend, bounds: Any, layout: Layout, rows: Array) -> tuple[Array, Array]:
    """Lower and upper bounds as rows, infinite where there are none."""
    if bounds is None:
        bounds = None, None
    if not isinstance(bounds, tuple) or len(bounds) != 2 or any(isinstance(b, list | tuple) for b in bounds):
        raise TypeError(
            "bounds must be a tuple (lower, upper) of numbers, arrays that broadcast to x0, or None; got "
            f"{bounds!r}. For SciPy's pairs, give (np.array([low for low, _ in pairs]), np.array([...]))."
        )
    low, high = (_numbers(bk, value, name, layout) for name, value in zip(("lower", "upper"), bounds, strict=True))
    if np.any((-np.inf if low is None else low) > (np.inf if high is None else high)):
        raise ValueError("A lower bound is above the upper one; expected bounds=(lower, upper).")
    return _placed(bk, low, -np.inf, layout, rows), _placed(bk, high, np.inf, layout, rows)


def _numbers(bk: Backend, value: Any, name: str, layout: Layout) -> np.ndarray | None:
    if value is None:
        return None
    if bk.is_array(value) and not bk.on_host and (bk.compiled(value) or bk.tracks(value)):
        raise TypeError(
            f"The {name} bound is an array of a compiled program, or its derivatives are being recorded, but x has "
            "none with respect to bounds. Give a number or a NumPy array."
        )
    numbers = np.asarray(bk.to_numpy(value) if bk.is_array(value) else value)
    if numbers.dtype.kind not in "iuf" or np.isnan(numbers).any():
        raise ValueError(f"The {name} bound must be real numbers, without NaN; got {value!r}.")
    if not numbers.ndim:
        return numbers
    if layout.structure is not None:
        raise TypeError(
            f"The {name} bound is an array of shape {numbers.shape}; expected a number, because x0 is a container."
        )
    whole = (*layout.batch, *layout.shapes[0])
    try:
        return np.broadcast_to(numbers, whole)
    except ValueError as error:
        raise ValueError(
            f"The {name} bound has the shape {numbers.shape}; expected a number, or an array that broadcasts "
            f"to {whole}."
        ) from error


def _placed(bk: Backend, numbers: np.ndarray | None, free: float, layout: Layout, rows: Array) -> Array:
    if numbers is None or not numbers.ndim:
        return bk.full_like(rows, free if numbers is None else float(numbers))
    return bk.asarray(np.array(numbers, bk.dtype(rows)).reshape(layout.systems, layout.size), like=rows)
