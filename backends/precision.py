"""The floating-point precision in which krylix computes, and the limits of each dtype."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from .setting import Setting

_BITS = (16, 32, 64, None)
_COMPLEX: dict[int, np.dtype] = {32: np.dtype(np.complex64), 64: np.dtype(np.complex128)}
_FLOAT: dict[int, np.dtype] = {16: np.dtype(np.float16), 32: np.dtype(np.float32), 64: np.dtype(np.float64)}
_EXPONENT_BITS: dict[int, tuple[np.dtype, int]] = {  # by the bytes of a real number
    4: (np.dtype(np.int32), 0x7F800000),
    8: (np.dtype(np.int64), 0x7FF0000000000000),
}

_setting: Setting[int | None] = Setting("precision", None, compiled=True)


def _checked(bits: int | None) -> int | None:
    if bits not in _BITS:
        raise ValueError(
            f"precision must be 16, 32, 64 (bits of a real number) or None (follow the inputs); got {bits!r}."
        )
    return bits


def get_precision() -> int | None:
    """Bits of a real floating-point number in force here (16, 32, 64), or None: follow the inputs.

    Examples:
        >>> import krylix
        >>> with krylix.precision(32):
        ...     print(krylix.get_precision())
        32
    """
    return _setting.get()


def set_global_precision(bits: int | None) -> None:
    """Set the precision for the whole process; `precision(bits)` overrides it locally.

    Args:
        bits: 16, 32 or 64 bits for a real number (a complex one takes twice that); None follows the inputs.

    Raises:
        ValueError: `bits` is not 16, 32, 64 or None.

    Examples:
        >>> import krylix
        >>> krylix.set_global_precision(64)
        >>> krylix.get_precision()
        64
        >>> krylix.set_global_precision(None)  # follow the inputs
    """
    _setting.set_global(_checked(bits))


@contextmanager
def precision(bits: int | None) -> Iterator[None]:
    """Compute in this precision inside the `with` block (per thread and task).

    A function of `jax.jit` that is called inside is compiled for it (where there is `jax.make_user_context`). Other
    compiled functions keep the precision that held when they were traced.

    Args:
        bits: 16, 32 or 64 bits for a real number (a complex one takes twice that); None follows the inputs.

    Raises:
        ValueError: `bits` is not one of these.

    Examples:
        >>> import numpy as np, krylix
        >>> with krylix.precision(32):
        ...     x = krylix.linear_solve(np.diag([2.0, 4.0]), np.ones(2)).x
        >>> x.dtype
        dtype('float32')
    """
    with _setting.local(_checked(bits)):
        yield


def exponent_bits(dtype: np.dtype) -> tuple[np.dtype, int]:
    """The integer dtype as wide as a real one, and the mask of its exponent bits."""
    return _EXPONENT_BITS[dtype.itemsize]


def real_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of the real part."""
    return np.empty(0, dtype).real.dtype


def working_dtype(dtype: np.dtype, *, complex_: bool = False, integer: np.dtype | None = None) -> np.dtype:
    """The dtype in which a solve with a right-hand side of `dtype` computes.

    Floats keep their width (unless `precision` says otherwise); integers and booleans become `integer`, a float
    dtype (double precision where None); `complex_=True` asks for the complex dtype of that width.
    """
    bits = get_precision()
    if bits is None:
        if dtype.kind in "fc":
            bits = 8 * real_dtype(dtype).itemsize
        elif dtype.kind in "biu":
            bits = 8 * real_dtype(integer).itemsize if integer is not None else 64
        else:
            raise TypeError(
                f"krylix computes with real and complex floating-point numbers; got an array of dtype {dtype}."
            )
    if bits not in _COMPLEX:
        raise TypeError(
            f"krylix solves in single or double precision; got {bits}-bit numbers ({dtype}), in which no useful "
            "tolerance can be met. Cast the inputs to float32 or float64, or use krylix.precision(32)."
        )
    return _COMPLEX[bits] if complex_ or dtype.kind == "c" else _FLOAT[bits]
