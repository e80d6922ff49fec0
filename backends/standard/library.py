"""The functions of the array API standard, the dtypes of an array library, and the one promotion rule for all of them.

Kinds rise from bool over integers and real numbers to complex ones. Arrays decide, also those without axes; numbers of
Python only raise the kind. An integer with a real or complex array gives the latter's dtype. Otherwise NumPy's
`promote_types` holds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import numpy as np

from ..settings import get_precision

VERSION = "2024.12"

_BY_RULE = {
    # Two arrays, or an array and a number, in one dtype, and nothing else.
    "pair": """add bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor equal floor_divide greater
        greater_equal less less_equal logical_and logical_or logical_xor matmul maximum minimum multiply not_equal
        remainder subtract linalg.matmul linalg.outer""",
    # The same, and settings.
    "first_pair": "searchsorted tensordot vecdot linalg.cross linalg.tensordot linalg.vecdot",
    "power": "pow",
    # The same, and integers become real numbers.
    "real_pair": "atan2 copysign divide hypot logaddexp nextafter linalg.solve",
    # One array and nothing else, whose integers become real numbers.
    "real": """acos acosh asin asinh atan atanh cos cosh exp expm1 log log10 log1p log2 reciprocal signbit sin sinh sqrt
        tan tanh""",
    # One array, whose integers become real numbers, and settings.
    "real_first": """mean std var
        linalg.cholesky linalg.det linalg.eigh linalg.eigvalsh linalg.inv linalg.matrix_norm linalg.matrix_power
        linalg.matrix_rank linalg.pinv linalg.qr linalg.slogdet linalg.svd linalg.svdvals linalg.vector_norm
        fft.fft fft.fftn fft.hfft fft.ifft fft.ifftn fft.ihfft fft.irfft fft.irfftn fft.rfft fft.rfftn""",
    # Sums and products of integers are in the widest integer.
    "accumulated": "cumulative_prod cumulative_sum prod sum linalg.trace",
    # Several arrays in one dtype: in a list, after a condition, or where they are not None.
    "listed": "concat stack",
    "where": "where",
    "clip": "clip",
    "diff": "diff",
    # New arrays.
    "filled": "empty ones zeros",
    "arange": "arange",
    "asarray": "asarray",
    "eye": "eye",
    "full": "full",
    "linspace": "linspace",
    "frequencies": "fft.fftfreq fft.rfftfreq",
    "like": "empty_like ones_like zeros_like full_like",
    "astype": "astype",
    # What dtypes are.
    "dtypes": "can_cast finfo iinfo isdtype result_type",
    # Any dtype, which stays, or an answer of one dtype.
    "any": """abs all any argmax argmin argsort bitwise_invert broadcast_arrays broadcast_to ceil conj count_nonzero
        expand_dims flip floor from_dlpack imag isfinite isinf isnan logical_not matrix_transpose max meshgrid min
        moveaxis negative nonzero permute_dims positive real repeat reshape roll round sign sort square squeeze take
        take_along_axis tile tril triu trunc unique_all unique_counts unique_inverse unique_values unstack
        linalg.diagonal linalg.matrix_transpose fft.fftshift fft.ifftshift""",
}

RULES = {name: rule for rule, names in _BY_RULE.items() for name in names.split()}
# Functions of numbers that have an order, which complex ones have not.
ORDERED = {
    *("argmax", "argmin", "argsort", "atan2", "ceil", "clip", "copysign", "floor", "floor_divide", "greater"),
    *("greater_equal", "hypot", "less", "less_equal", "logaddexp", "max", "maximum", "min", "minimum", "nextafter"),
    *("remainder", "searchsorted", "signbit", "sort", "trunc"),
}
EXTENSIONS = ("linalg", "fft")
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "complex64", "complex128"),
)


def find(name: str, sources: dict[str, tuple[Any, ...]]) -> Any:
    """The function of this name in the first module that has it; None where none has.

    Args:
        sources: modules by extension, "" for those of names without a dot.
    """
    extension, _, own = name.rpartition(".")
    return next((getattr(module, own) for module in sources[extension] if hasattr(module, own)), None)


# --- The dtypes of an array library, and the one promotion rule for all of them ---------------------------------------

_COMPLEX_OF: dict[int, np.dtype] = {
    2: np.dtype(np.complex64),
    4: np.dtype(np.complex64),
    8: np.dtype(np.complex128),
}  # by bytes
_FLOAT_OF: dict[int, np.dtype] = {
    16: np.dtype(np.float16),
    32: np.dtype(np.float32),
    64: np.dtype(np.float64),
}  # by bits
_RANKS = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


class _Kinds(dict[Any, str]):
    def __missing__(self, dtype: Any) -> str:
        raise TypeError(f"xp computes with numbers; got an array of dtype {dtype}, which has no place in promotion.")


def is_number(x: Any) -> bool:
    """Is it a number of Python, which has no dtype? (NumPy's float64 is one, and has a dtype.)"""
    return isinstance(x, (bool, int, float, complex)) and not isinstance(x, np.generic)


class ArrayLibrary(ABC):
    """An array library as the standard needs it. `native` dtypes are the library's own."""

    name: str  # "PyTorch"
    module: str  # what it is imported as
    natives: Mapping[np.dtype, Any]  # the library's dtypes by NumPy's
    extra_kinds: Mapping[Any, str] = {}  # of dtypes that NumPy has not: "f"
    refused: Mapping[str, str] = {}  # names that the library cannot offer: why, and what to use instead
    max_axes = 64

    def __init__(self) -> None:
        self.numpy_dtypes = {native: dtype for dtype, native in self.natives.items()}
        kinds = {native: dtype.kind for native, dtype in self.numpy_dtypes.items()}
        self.kinds = _Kinds({**kinds, **self.extra_kinds})
        self.floating = frozenset(native for native, kind in self.kinds.items() if kind in "fc")
        self._promoted: dict[tuple[Any, Any], Any] = {}

    @property
    @abstractmethod
    def default_float(self) -> np.dtype:
        """The library's dtype of new real numbers, where no precision is set."""

    @property
    def default_integer(self) -> np.dtype:
        """The dtype of new integers, of indices, and of sums of integers."""
        return np.dtype(np.int64)

    @property
    def default_unsigned(self) -> np.dtype:
        """The dtype of sums of unsigned integers."""
        return np.dtype(np.uint64)

    @abstractmethod
    def is_array(self, x: Any) -> bool:
        """Is it an array of the library?"""

    @abstractmethod
    def cast(self, x: Any, dtype: Any) -> Any:
        """An array of the library in another native dtype."""

    @abstractmethod
    def constant(self, x: Any, dtype: Any, like: Any) -> Any:
        """A number or NumPy array as an array of a native dtype, where `like` (or None) lives."""

    @abstractmethod
    def stack(self, arrays: list[Any]) -> Any:
        """Arrays of one dtype and shape along a new first axis."""

    def devices(self) -> list[Any]:
        """The devices that `device=` may name."""
        return [None]

    # --- dtypes -------------------------------------------------------------------------------------------------------

    def float_type(self) -> np.dtype:
        """The dtype of new real numbers: of the precision in force, or the library's own."""
        bits = get_precision()
        if bits is None:
            return self.default_float
        return _FLOAT_OF[bits]

    def default_of(self, kind: str) -> Any:
        """The native dtype of new numbers of a kind: "b", "i", "f" or "c"."""
        if kind == "b":
            return self.native(np.bool_)
        if kind == "i":
            return self.native(self.default_integer)
        return self.native(self.float_type() if kind == "f" else _COMPLEX_OF[self.float_type().itemsize])

    def native(self, dtype: Any) -> Any:
        """The library's dtype for one of its own or of NumPy.

        Raises:
            TypeError: the library has none.
        """
        try:
            if dtype in self.kinds:
                return dtype
        except TypeError:  # without a hash
            pass
        try:
            numpy_dtype = np.dtype(dtype)
        except TypeError:
            numpy_dtype = None
        if numpy_dtype is not None and numpy_dtype in self.kinds:  # bfloat16 of JAX, given as a class
            return numpy_dtype
        if numpy_dtype not in self.natives:
            reason = self.refused.get(str(numpy_dtype))
            raise TypeError(
                f"{self.name} has no dtype {dtype!r} for xp; expected one of {', '.join(self.dtypes())}."
                + (f" {reason}" if reason else "")
            )
        return self.natives[numpy_dtype]

    def numpy_dtype(self, dtype: Any) -> np.dtype:
        """NumPy's dtype for a native one.

        Raises:
            TypeError: NumPy has none.
        """
        native = self.native(dtype)
        if native not in self.numpy_dtypes:
            raise TypeError(f"xp of {self.name} got {native}, which NumPy has not; expected one of NumPy's dtypes.")
        return self.numpy_dtypes[native]

    def dtypes(self) -> dict[str, Any]:
        """The native dtypes by their names in the standard, without those that the library cannot compute with."""
        return {name: self.natives[np.dtype(name)] for name in DTYPES if np.dtype(name) in self.natives}

    def dtype_of(self, x: Any) -> Any:
        """The native dtype of an array, or of a dtype."""
        if self.is_array(x):
            return x.dtype
        if isinstance(x, (np.ndarray, np.generic)):
            return self.native(x.dtype)
        if x is None or is_number(x) or isinstance(x, (list, tuple)):  # NumPy takes None for float64, and for NaN
            raise TypeError(
                f"xp of {self.name} got {x!r:.50}; expected an array, of which at least one must be given. Make one "
                "with xp.asarray."
            )
        if not isinstance(x, type) and hasattr(x, "dtype") and hasattr(x, "shape"):
            raise TypeError(
                f"xp of {self.name} got an array of type {type(x).__name__}; expected arrays of {self.name} or NumPy. "
                "Convert it with krylix.convert, or take the xp of its own backend."
            )
        return self.native(x)

    # --- promotion ----------------------------------------------------------------------------------------------------

    def promote(self, a: Any, b: Any) -> Any:
        """The native dtype of two arrays together."""
        if a is b:
            return a
        key = (a, b)
        if key not in self._promoted:
            self._promoted[key] = self._find_promoted(a, b)
        return self._promoted[key]

    def _find_promoted(self, a: Any, b: Any) -> Any:
        for one, other in ((a, b), (b, a)):
            if self.kinds[one] in "biu" and self.kinds[other] in "fc":
                return other
        return self._promote_kind(a, b)

    def _promote_kind(self, a: Any, b: Any) -> Any:
        return self.native(np.promote_types(self.numpy_dtypes[a], self.numpy_dtypes[b]))

    def with_number(self, dtype: Any, number: Any) -> Any:
        """The native dtype of an array together with a number of Python."""
        kind = "b" if isinstance(number, bool) else "i" if isinstance(number, int) else "f"
        kind = "c" if isinstance(number, complex) else kind
        own = self.kinds[dtype]
        if _RANKS[kind] <= _RANKS[own]:
            return dtype
        if own == "f":
            real = self.numpy_dtypes.get(dtype)
            return self.native(_COMPLEX_OF[real.itemsize if real is not None else 2])
        return self.default_of(kind)

    def result_type(self, *arrays_and_dtypes: Any) -> Any:
        """The dtype that arrays, dtypes and numbers of Python have together."""
        numbers = [x for x in arrays_and_dtypes if is_number(x)]
        found = [self.dtype_of(x) for x in arrays_and_dtypes if not is_number(x)]
        if not found:
            found = [self.dtype_of(numbers[0] if numbers else None)]  # raises
        dtype = found[0]
        for other in found[1:]:
            dtype = self.promote(dtype, other)
        for number in numbers:
            dtype = self.with_number(dtype, number)
        return dtype

    def in_dtype(self, x: Any, dtype: Any, like: Any) -> Any:
        """An array or a number of Python as an array of a native dtype.

        Raises:
            OverflowError: an integer that the dtype cannot hold.
        """
        if self.is_array(x):
            return x if x.dtype == dtype else self.cast(x, dtype)
        if is_number(x) and isinstance(x, int) and self.kinds[dtype] in "iu":
            limits = np.iinfo(self.numpy_dtypes[dtype])
            if not limits.min <= x <= limits.max:
                raise OverflowError(
                    f"xp of {self.name} got the number {x} beside an array of {limits.dtype}, which holds "
                    f"{limits.min} to {limits.max}. Cast the array with xp.astype first."
                )
        return self.constant(x, dtype, like)

    def together(self, *xs: Any) -> list[Any]:
        """Arrays and numbers as arrays of their common dtype."""
        dtype = self.result_type(*xs)
        like = next((x for x in xs if self.is_array(x)), None)
        return [self.in_dtype(x, dtype, like) for x in xs]


def named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The function, which errors and profiles show by this name."""
    function.__name__ = function.__qualname__ = name
    return function


def named_after(function: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator giving a wrapper the name and docstring of a function, but not its signature.

    TensorFlow's functions have a `name` more, and `tf.function` gives a function what its signature lists.
    """

    def as_function(wrapper: Callable[..., Any]) -> Callable[..., Any]:
        wrapper = wraps(function, updated=())(wrapper)
        del wrapper.__wrapped__
        return wrapper

    return as_function


# --- Axes as the standard takes them, for libraries that read them otherwise ------------------------------------------


def axes_of(axis: int | Sequence[int] | None, count: int) -> tuple[int, ...]:
    """Axes of an array with `count` axes, none of them negative; all where None is given.

    Raises:
        IndexError: an axis that the array has not, or one that is named twice.
    """
    if axis is None:
        return tuple(range(count))
    given = (axis,) if not hasattr(axis, "__len__") else tuple(axis)  # type: ignore[arg-type]
    found = tuple(int(a) % count if -count <= a < count else count for a in given)
    if count in found or len(set(found)) < len(found):
        raise IndexError(f"xp got axis={axis}; expected different axes of an array that has {count}.")
    return found


def one_axis(function: str, x: Any, axis: int | None) -> int:
    """An axis that is not negative; the only one where None is given.

    Raises:
        ValueError: None, and an array that has not one axis.
    """
    count = len(x.shape)
    if axis is None and count != 1:
        raise ValueError(f"xp.{function} got no axis and an array with {count} axes; expected axis=.")
    return axes_of(0 if axis is None else axis, count)[0]


def check_lengths(function: str, x1: Any, x2: Any, axis: int, length: int | None = None) -> None:
    """Refuse two arrays that differ along an axis, or have not this length: others would be broadcast."""
    lengths = (x1.shape[axis], x2.shape[axis])
    if lengths[0] != lengths[1] or length not in (None, lengths[0]):
        raise ValueError(
            f"xp.{function} got arrays of length {lengths[0]} and {lengths[1]} along axis {axis}; expected "
            + (f"{length} in both." if length is not None else "the same length.")
        )
