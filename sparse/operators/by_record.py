"""NumPy evaluation of recorded functions on known vectors while a program is traced.

XLA would compile each operation of the function separately, which takes longer than all the rest of the set-up.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend
from ..analysis.symmetry import PRODUCTS
from ..layout import Layout
from ..tracing.front_end import front_end_of
from .function import FunctionOperator


class _Record(NamedTuple):
    """Arguments of `FrontEnd.evaluate`."""

    bk: Backend
    program: Any


def known_product(A: FunctionOperator, x: np.ndarray, like: Any) -> np.ndarray | None:
    """`A.apply` of rows of NumPy, in memory of its own, where its numbers are known now; else None."""
    if A.recorded is not None and not A.recorded.is_known:
        return None
    bk, x = A.bk, np.ascontiguousarray(x.astype(A.dtype))
    if A.recorded is not None and A.constant is None and not A.may_round:
        found = _by_numpy(bk, A.recorded.program, A.layout, A.image, A.dtype, x)
        if found is not None:
            return found

    def image() -> Array:
        # made in here: outside, JAX would take it for a part of the compiled program
        image = A.apply(bk.asarray(x, like=like))
        A.tracked |= bk.tracks(image)
        return image

    value = bk.concrete_value(image)
    return None if value is None else value.copy()  # the function may use the same memory again


def products_agree(A: FunctionOperator, systems: int, like: Array) -> bool:
    """<u, A v> = <A u, v> for random u and v, in each of the systems taken at once: see `analysis.symmetry`.

    False where the function cannot be evaluated now. Costs two products.
    """
    shape = (systems, A.shape[1])
    u, v = (np.random.default_rng(seed).standard_normal(shape).astype(A.dtype) for seed in (4, 5))
    Au, Av = known_product(A, u, like), known_product(A, v, like)
    if Au is None or Av is None:
        return False
    left, right = (np.sum(a.conj() * b, axis=1) for a, b in ((u, Av), (Au, v)))
    size = np.linalg.norm(u, axis=1) * np.linalg.norm(Av, axis=1)
    return bool(np.all(np.abs(left - right) <= PRODUCTS * np.finfo(A.dtype).eps * size))


def _by_numpy(
    bk: Backend, program: Any, layout: Layout, image: Layout, dtype: np.dtype, x: np.ndarray
) -> np.ndarray | None:
    """Evaluate a recorded program by NumPy; None where it fails, or returns other arrays than expected."""
    if layout.axis is not None or image.axis is not None:
        return None
    traced: Any = _Record(bk, program)
    try:
        with np.errstate(all="ignore"):
            results, _ = front_end_of(bk.name).evaluate(traced, _leaves(layout, x))
    except Exception:  # an operation that is for XLA alone
        return None
    shapes = [(*image.batch, *shape) for shape in image.shapes]
    as_expected = len(results) == len(shapes) and all(
        isinstance(found, np.ndarray) and found.shape == shape and found.dtype == dtype
        for found, shape in zip(results, shapes, strict=True)
    )
    if not as_expected:
        return None
    return np.concatenate(
        [found.reshape(image.systems, math.prod(shape)) for found, shape in zip(results, image.shapes, strict=True)],
        axis=1,
    )


def _leaves(layout: Layout, x: np.ndarray) -> list[np.ndarray]:
    ends = np.cumsum([math.prod(shape) for shape in layout.shapes])[:-1]
    parts = np.split(x, ends, axis=1)
    return [
        part.reshape(*layout.batch, *shape).astype(dtype)
        for part, shape, dtype in zip(parts, layout.shapes, layout.dtypes, strict=True)
    ]
