"""Random numbers: with a key functions of it, on every library, eagerly and compiled; without one a stream."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import index
from typing import Any

from ..interface.arrays import Array
from ..interface.random_numbers import RandomNumbers
from ..standard.library import is_number


def random_key(bk: Any, seed: int) -> Array:
    """The key of an integer from 0 on: `key=` of the functions that draw numbers."""
    return _drawn(bk, "key", seed)


def random_split(bk: Any, key: Array, count: int = 2) -> tuple[Array, ...]:
    """Several keys of one, whose numbers have nothing to do with each other; the one is not to be used again."""
    return tuple(_drawn(bk, "split", key, index(count)))


def seed(bk: Any, seed: int) -> None:
    """Begin the stream anew from which numbers without a key come, in this thread.

    PyTorch and TensorFlow have one stream for all threads, which `torch.manual_seed` and `tf.random.set_seed` set.
    """
    _drawn(bk, "seed", seed)


def random_uniform(
    bk: Any,
    shape: int | Sequence[int] = (),
    low: Any = 0,
    high: Any = 1,
    dtype: Any = None,
    key: Array | int | None = None,
    device: Any = None,
) -> Array:
    """Numbers in [low, high), all as likely; integers if `dtype` says so.

    Args:
        shape: of the array.
        low: the least number; of real numbers also an array that fits the shape.
        high: the first that is too large, which rounding may give of real numbers; of these also an array that fits
            the shape.
        dtype: the dtype of new real numbers if it is not given.
        key: of `random_key` or `random_split`, or an integer as a seed. JAX needs it in compiled functions and in
            `vmap`; a graph of TensorFlow without it draws new numbers at each run.
        device: where to make the array.
    """
    dtype, kind = _dtype(bk, "random_uniform", dtype)
    with _on(bk, device):
        if kind == "integral":
            limits = _known_limits(bk, low, high, dtype, key)
            return bk.xp.astype(_drawn(bk, "integers", _shape(shape), *limits, key), dtype)
        numbers = _real(bk, _drawn(bk, "uniform", _shape(shape), dtype == bk.xp.float64, key), dtype)
        if is_number(low) and is_number(high):
            return numbers if (low, high) == (0, 1) else (high - low) * numbers + low
        low, high = (bk.xp.astype(x, dtype) if bk.is_array(x) else bk.xp.asarray(x, dtype=dtype) for x in (low, high))
        return bk.add(bk.multiply(bk.subtract(high, low), numbers), low)


def random_normal(
    bk: Any, shape: int | Sequence[int] = (), dtype: Any = None, key: Array | int | None = None, device: Any = None
) -> Array:
    """Numbers of the normal distribution with mean 0 and variance 1. Arguments as of `random_uniform`."""
    dtype, kind = _dtype(bk, "random_normal", dtype)
    if kind == "integral":
        raise TypeError(f"random_normal got dtype {dtype}; expected real numbers.")
    with _on(bk, device):
        return bk.xp.astype(_drawn(bk, "normal", _shape(shape), dtype == bk.xp.float64, key), dtype)


def random_permutations(
    bk: Any, permutations: int, n: int, key: Array | int | None = None, device: Any = None
) -> Array:
    """`(permutations, n)`: in each row the integers below n, in an order of its own."""
    with _on(bk, device):
        return _drawn(bk, "permutations", index(permutations), index(n), key)


def _numbers(bk: Any) -> RandomNumbers:
    numbers: RandomNumbers = getattr(bk._own_operations, "RandomNumbers", RandomNumbers)(bk)
    return numbers


def _drawn(bk: Any, what: str, *args: Any) -> Any:
    return bk._outside_compilers(getattr(_numbers(bk), what))(*args)


def _known_limits(bk: Any, low: Any, high: Any, dtype: Any, key: Any) -> tuple[int, int]:
    """Limits of integers as numbers of Python, between which there is one that the dtype holds."""
    try:
        first, end = index(low), index(high)
    except TypeError as error:
        raise TypeError(
            f"random_uniform got low={low!r:.40} and high={high!r:.40} for {dtype}; expected numbers for integers, and "
            "no arrays."
        ) from error
    held = bk.xp.iinfo(dtype)
    if not held.min <= first < end <= held.max + 1:
        raise ValueError(
            f"random_uniform got the integers [{low}, {high}) of {dtype}; expected at least one that it holds."
        )
    least, most = _numbers(bk).widest_limits(key)
    if not least <= first < end <= most:
        raise ValueError(
            f"random_uniform got the integers [{low}, {high}) of {dtype}; expected limits from {least} to {most}, "
            f"which {bk.name} draws here."
        )
    return first, end


def _on(bk: Any, device: Any) -> AbstractContextManager[Any]:
    return nullcontext() if device is None else bk.on_device(device)


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (index(shape),) if hasattr(shape, "__index__") else tuple(shape)


def _dtype(bk: Any, name: str, dtype: Any) -> tuple[Any, str]:
    """The library's dtype of the numbers, and its kind."""
    dtype = bk.xp.result_type(bk.float_type if dtype is None else dtype)
    for kind in ("real floating", "integral"):
        if bk.xp.isdtype(dtype, kind):
            return dtype, kind
    raise TypeError(f"{name} got dtype {dtype}; expected real numbers. Draw complex ones part by part.")


def _real(bk: Any, numbers: Array, dtype: Any) -> Array:
    """Numbers in [0, 1) in a dtype; a short one could round them up to 1."""
    if dtype not in (bk.xp.float32, bk.xp.float64):
        steps = 2.0**8  # which all of them hold
        numbers = bk.xp.floor(numbers * steps) / steps
    return bk.xp.astype(numbers, dtype)
