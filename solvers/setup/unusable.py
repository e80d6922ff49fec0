"""Errors for unusable inputs: sparse right-hand sides, arrays without numbers, offsets that are no numbers."""

from __future__ import annotations

import re
from numbers import Complex
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...backends import Backend

_ABOUT_SHAPES = re.compile(r"shape|dimension|size|broadcast|mismatch|align|length", re.IGNORECASE)
_OTHER_CAUSES = ("A(x) returned", "A(x) is complex", "The function writes")  # which our own errors name
_OF_SHAPES = (ValueError, TypeError, RuntimeError, IndexError)  # what libraries raise where shapes do not fit


def refuse_unusable(bk: Backend, x: Any, what: str) -> None:
    """Refuse `x`, or leaves of a container, that are no dense arrays with values.

    Raises:
        TypeError: a sparse matrix, or an array that is spread over processes.
        ValueError: an array without numbers, as of PyTorch's device "meta".
    """
    if bk.is_array(x):
        bk.check_numbers(x, what)
    elif sp.issparse(x) or bk.sparse.accepts(x):
        dense = "{}.toarray()" if sp.issparse(x) else bk.sparse.to_dense
        raise TypeError(
            f"{what} must be a dense array, as the solution is one; got a sparse {type(x).__name__} of shape "
            f"{tuple(x.shape)}. Give {dense.format(what)}, with the vector on the last axis."
        )
    elif isinstance(x, dict):
        for key, part in x.items():
            refuse_unusable(bk, part, f"{what}[{key!r}]")
    elif isinstance(x, list | tuple) and not all(isinstance(part, Complex) for part in x):
        for i, part in enumerate(x):
            refuse_unusable(bk, part, f"{what}[{i}]")


def checked_offset(bk: Backend, offset: Any, dtype: np.dtype) -> complex:
    """Check `matrix_offset`, and return it as a number.

    Raises:
        TypeError: it is none, or complex where the system is real, or not known yet.
        ValueError: it is not finite, or more than one.
    """
    value = offset
    if bk.is_array(offset) and not bk.on_host:
        value = bk.concrete_value(lambda: offset)
        if value is None:
            raise TypeError(
                "matrix_offset depends on an argument of the compiled function; expected a number that is known. Add "
                "the constant inside a function A instead: lambda x: f(x) + c * x.sum()."
            )
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, np.ndarray | list | tuple):
        raise ValueError(f"matrix_offset must be one finite number, which is added to all entries; got {offset!r}.")
    if isinstance(value, bool | np.bool_) or not isinstance(value, Complex):
        raise TypeError(
            f"matrix_offset must be one finite number, which is added to all entries; got {type(offset).__name__}, "
            f"{offset!r}. Leave it out for none."
        )
    number = complex(value)
    if not np.isfinite(number):
        raise ValueError(f"matrix_offset must be one finite number, which is added to all entries; got {offset!r}.")
    if number.imag and dtype.kind != "c":
        raise TypeError(
            f"matrix_offset={offset!r} is complex, and the system is one of {dtype}; expected a real number. Give a "
            "complex A or b."
        )
    return number if dtype.kind == "c" else number.real


def with_rectangular_hint(error: Exception, shape: Any, least_squares: bool, sure: bool) -> Exception:
    """What A raised for an x shaped as b, with advice for a rectangular A where that may be why; else the error itself.

    Args:
        error: of A, or of the test of its result.
        shape: of one right-hand side.
        least_squares: is the method one?
        sure: advise whatever the error says.
    """
    text, advice = str(error).rstrip(), "give x0: it tells the shape of x"
    if text.startswith(_OTHER_CAUSES) or "writes to its argument" in text:
        return error
    found = isinstance(error, _OF_SHAPES) or type(error).__module__.startswith("tensorflow")
    if not sure and not (found and "Tracer" not in type(error).__name__ and _ABOUT_SHAPES.search(text)):
        return error
    if not least_squares:
        advice = "use method='LSMR', and give x0: it tells the shape of x"
    if not text.startswith("A(x) "):
        text = f"A(x) failed for an x shaped as b, {shape}: {text}"
    return ValueError(f"{text}{'' if text.endswith('.') else '.'} If A is rectangular, {advice}.")
