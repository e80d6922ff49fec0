"""Value arrays of a sparse matrix: NumPy arrays where they are known, else arrays of a library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backends import Array, Backend
from .structure import Structure


def are_known(values: Sequence[Any]) -> bool:
    """Are all of them NumPy's?"""
    return all(isinstance(v, (np.ndarray, np.generic)) for v in values)


def check_values(structure: Structure, values: Sequence[Any]) -> int | None:
    """Number of systems along one more axis in front of the shapes of the structure; None: no such axis.

    Raises:
        ValueError: they are shaped in another way.
    """
    found = tuple(tuple(int(n) for n in v.shape) for v in values)
    if found == structure.value_shapes:
        return None
    systems = {shape[0] for shape in found if shape}
    if len(systems) == 1 and tuple(shape[1:] for shape in found) == structure.value_shapes and all(found):
        return systems.pop()
    raise ValueError(
        f"Values of the shapes {found} were given; expected {structure.value_shapes}, or for a batch of matrices of "
        "this structure the same with one more axis in front."
    )


def mapped_values(bk: Backend, structure: Structure, arrays: Sequence[Any]) -> tuple[tuple[Any, ...], int | None]:
    """Normalise the values that a transformation puts into a container, and count their systems.

    A transformation that maps over the making of matrices puts an axis in front of all arrays; several become one.

    Raises:
        ValueError: it has put it elsewhere.
    """
    arrays, wanted = tuple(arrays), structure.value_shapes
    if not arrays or not all(hasattr(a, "shape") and hasattr(a, "dtype") for a in arrays):
        return arrays, None  # but placeholders
    found = [tuple(int(n) for n in a.shape) for a in arrays]
    leads = {len(shape) - len(own) for shape, own in zip(found, wanted, strict=True)}
    lead = leads.pop()
    if leads or lead < 1:
        return arrays, None
    if any(shape[lead:] != own for shape, own in zip(found, wanted, strict=True)):
        raise ValueError(
            f"A transformation made values of the shapes {found} for a matrix of {wanted}; expected the axis of "
            "the systems in front: jax.vmap(..., out_axes=0)."
        )
    if lead > 1 and all(map(bk.is_array, arrays)):
        arrays = tuple(bk.reshape(a, (-1, *own)) for a, own in zip(arrays, wanted, strict=True))
    return arrays, math.prod(found[0][:lead])


def in_library(bk: Backend, values: Sequence[Any], like: Array | None) -> tuple[Array, ...]:
    """Arrays of the library, on the device of those that are among the values, else of `like`."""
    anchor = next((v for v in values if bk.is_array(v)), like)
    return tuple(v if bk.is_array(v) else bk.asarray(v, like=anchor) for v in values)


def in_one_dtype(bk: Backend, values: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Cast known values to one dtype that the library stores."""
    if not values:
        return ()
    dtype = bk.stored_dtype(np.result_type(*values))
    return tuple(np.asarray(v, dtype) for v in values)


def device_marker(bk: Backend, dtype: np.dtype, like: Array | None) -> Array | None:
    """An array without elements on `like`'s device where there is a choice: `like` itself may be large, or traced."""
    return None if like is None or bk.device(like) is None else bk.zeros((0,), dtype, like)
