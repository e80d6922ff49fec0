"""Operations on values: a `Linear` depends on the input, an array of NumPy does not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ....backends import get_backend
from ..engine import structural
from ..engine.arithmetic import add, convert, real_part
from ..engine.linear import Linear
from ..engine.operands import permuted, reshaped, spread, taken

Value: TypeAlias = Any  # Linear or np.ndarray
HOST = get_backend("numpy")
reshape, transpose, broadcast, take = (partial(f, HOST) for f in (reshaped, permuted, spread, taken))


class NotFollowed(Exception):
    """What a function does with these arguments may be linear, but is not known here."""


def as_linear(value: Value) -> Linear:
    """An array that does not depend on the input, as one that may."""
    if isinstance(value, Linear):
        return value
    value = np.asarray(value)
    return Linear(HOST, value.shape, value.shape, value.dtype, (), value)


def moveaxis(x: Value, source: int, target: int) -> Value:
    """One axis at another place."""
    axes = [a for a in range(x.ndim) if a != source % x.ndim]
    axes.insert(target % x.ndim, source % x.ndim)
    return transpose(x, axes)


def assigned(x: Value, shape: Sequence[int]) -> Value:
    """As `broadcast`, where more axes of length 1 in front may fall away, as they do in assignments."""
    x = x if isinstance(x, Linear) else np.asarray(x)
    extra = x.ndim - len(shape)
    if extra > 0 and all(n == 1 for n in x.shape[:extra]):
        x = reshape(x, x.shape[extra:])
    return broadcast(x, shape)


def concatenate(parts: Sequence[Value], axis: int) -> Value:
    """Along an axis."""
    if any(isinstance(part, Linear) for part in parts):
        return structural.concatenate([p if isinstance(p, Linear) else np.asarray(p) for p in parts], axis)
    return np.concatenate(parts, axis)


def cast(x: Value, dtype: Any) -> Value:
    """In another dtype, as `astype` does it."""
    dtype = np.dtype(dtype)
    if not isinstance(x, Linear):
        return np.asarray(x).astype(dtype, copy=False)
    if x.dtype.kind == "c" and dtype.kind == "f":
        x = real_part(x)
    return convert(x, dtype)


def embed_known(value: np.ndarray, positions: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Zeros of a shape with values at some positions."""
    found = np.zeros(math.prod(shape), np.asarray(value).dtype)
    found[positions.reshape(-1)] = np.broadcast_to(value, positions.shape).reshape(-1)
    return found.reshape(tuple(shape))


def plus(a: Value, b: Value) -> Value:
    """a + b."""
    return add(a, b) if isinstance(a, Linear) or isinstance(b, Linear) else np.add(a, b)
