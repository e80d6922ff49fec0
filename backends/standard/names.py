"""The functions of the array API standard 2024.12, by what becomes of the dtypes of their arguments."""

from __future__ import annotations

from typing import Any

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
