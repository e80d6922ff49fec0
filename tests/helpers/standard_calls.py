"""The functions of the array API standard 2024.12 with their signatures, and calls that use every argument.

A call reads `expression`, or `expression -> what NumPy says to get the same`, of the operands in `standard.py`. A group
has the kinds of dtypes that its functions take; what stands before a colon are those of one call.
"""

from __future__ import annotations

CREATION = """
arange(start, /, stop=None, step=1, *, dtype=None, device=None)
    xp.arange(4)
    xp.arange(1, 6, 2)
    xp.arange(5, 0, -2)
    xp.arange(3, 1)
    iuf: xp.arange(0.5, 3, dtype=dt, device=None)
asarray(obj, /, *, dtype=None, device=None, copy=None)
    xp.asarray([[1, 2], [3, 4]])
    xp.asarray([1.5, 2])
    xp.asarray([True, False])
    xp.asarray(x, dtype=dt, device=None, copy=True)
    c: xp.asarray(xp.subtract(x, xp.conj(x)), dtype=xp.bool)
    ifc: xp.asarray([[s, 2 * s], [s, 1]]) -> xp.asarray([[s, 2 * s], [s, 1]]).astype(dt)
empty(shape, *, dtype=None, device=None)
    xp.zeros_like(xp.empty((2, 0), dtype=dt, device=None))
empty_like(x, /, *, dtype=None, device=None)
    xp.zeros_like(xp.empty_like(x, dtype=dt, device=None))
eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None)
    xp.eye(3)
    xp.eye(2, 4, k=1, dtype=dt, device=None)
    xp.eye(3, k=-5)
from_dlpack(x, /, *, device=None, copy=None)
    xp.from_dlpack(native(x), device=None, copy=None) -> x
full(shape, fill_value, *, dtype=None, device=None)
    xp.full(3, 2)
    xp.full((2, 1), True)
    xp.full(shape=(2, 2), fill_value=1.5, dtype=dt, device=None)
    xp.full((2, 2), s)
full_like(x, /, fill_value, *, dtype=None, device=None)
    xp.full_like(x, 1)
    xp.full_like(x, fill_value=1, dtype=dt, device=None)
linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True)
    xp.linspace(0, 1, 5)
    xp.linspace(1.0, -1.0, num=4, endpoint=False, dtype=fl, device=None)
    xp.linspace(0, 1, 0)
    xp.linspace(2, 3, 1)
meshgrid(*arrays, indexing='xy')
    xp.meshgrid(v, y)
    xp.meshgrid(v, y, v, indexing='ij')
ones(shape, *, dtype=None, device=None)
    xp.ones(2)
    xp.ones(shape=(2, 3), dtype=dt, device=None)
ones_like(x, /, *, dtype=None, device=None)
    xp.ones_like(x, dtype=dt, device=None)
tril(x, /, *, k=0)
    xp.tril(m)
    xp.tril(m, k=1)
triu(x, /, *, k=0)
    xp.triu(x)
    xp.triu(m, k=-1)
zeros(shape, *, dtype=None, device=None)
    xp.zeros(())
    xp.zeros([2, 3], dtype=dt, device=None)
zeros_like(x, /, *, dtype=None, device=None)
    xp.zeros_like(x, dtype=dt, device=None)
astype(x, dtype, /, *, copy=True, device=None)
    xp.astype(z, dt, copy=False, device=None)
    c: xp.astype(xp.subtract(x, xp.conj(x)), xp.bool)
"""

DTYPES_OF = """
can_cast(from_, to, /)
    xp.can_cast(xp.int8, xp.int32)
    xp.can_cast(x, xp.complex128)
    xp.can_cast(xp.float64, xp.float32)
finfo(type, /)
    fc: xp.finfo(x).bits -> xp.finfo(x.dtype).bits
    fc: xp.finfo(dt).max -> float(xp.finfo(dt).max)
iinfo(type, /)
    iu: xp.iinfo(x).max -> xp.iinfo(x.dtype).max
    iu: xp.iinfo(dt).bits
isdtype(dtype, kind)
    xp.isdtype(dtype=x.dtype, kind="real floating")
    xp.isdtype(x.dtype, "numeric")
    xp.isdtype(x.dtype, ("bool", xp.uint8))
result_type(*arrays_and_dtypes)
    xp.zeros(1, dtype=xp.result_type(x, dt))
    ifc: xp.zeros(1, dtype=xp.result_type(x, 1, s))
"""

_REAL = "acos asin atan atanh cos cosh exp expm1 log log10 log1p log2 sin sinh sqrt tan tanh reciprocal asinh"
_ANY = "abs positive negative square sign conj real imag"
_TESTS = "isfinite isinf isnan"
_PAIRS = "add multiply subtract"
_REAL_PAIRS = "maximum minimum less less_equal greater greater_equal floor_divide remainder"


def lines(names: str, signature: str, *calls: str) -> str:
    return "".join(
        f"{name}{signature}\n" + "".join(f"    {call.replace('NAME', f'xp.{name}')}\n" for call in calls)
        for name in names.split()
    )


ELEMENTWISE = (
    lines(_REAL, "(x, /)", "fc: NAME(part)", "fc: NAME(xp.real(s))", "f: NAME(e)")
    + lines("acosh", "(x, /)", "fc: NAME(part + 1)")
    + lines(_ANY, "(x, /)", "iufc: NAME(x)", "iufc: NAME(s)")
    + lines(_TESTS, "(x, /)", "biufc: NAME(x)", "fc: NAME(special)")
    + lines("ceil floor trunc round", "(x, /)", "iuf: NAME(x)", "f: NAME(special)")
    + lines("signbit", "(x, /)", "f: NAME(special)")
    + lines(_PAIRS, "(x1, x2, /)", "iufc: NAME(x, y)", "iufc: NAME(s, x)", "iufc: NAME(x, 2)", "ifc: NAME(3, x)")
    + lines(_REAL_PAIRS, "(x1, x2, /)", "iuf: NAME(x, y)", "iuf: NAME(x, 2)", "iuf: NAME(5, y)")
    + lines("maximum minimum", "(x1, x2, /)", "f: NAME(special, v[1])")
    + lines("equal not_equal", "(x1, x2, /)", "biufc: NAME(x, y)", "iufc: NAME(x, 2)", "f: NAME(special, special)")
    + lines("divide", "(x1, x2, /)", "fc: NAME(x, y)", "fc: NAME(1, y)", "f: NAME(x, 0)")
    + lines("pow", "(x1, x2, /)", "iufc: NAME(y, 3)", "fc: NAME(y, 0.5)", "iuf: NAME(y, y)")
    + lines("atan2 hypot copysign logaddexp nextafter", "(x1, x2, /)", "f: NAME(x, y)", "f: NAME(v, -1.5)")
    + lines("hypot logaddexp", "(x1, x2, /)", "f: NAME(big, big)")
    + lines("copysign", "(x1, x2, /)", "f: NAME(v, special[:4])")
    + lines("bitwise_and bitwise_or bitwise_xor", "(x1, x2, /)", "biu: NAME(x, y)", "iu: NAME(x, 3)")
    + lines("bitwise_left_shift bitwise_right_shift", "(x1, x2, /)", "iu: NAME(x, y)", "iu: NAME(x, 2)")
    + lines("bitwise_invert", "(x, /)", "biu: NAME(x)")
    + lines("logical_and logical_or logical_xor", "(x1, x2, /)", "b: NAME(x, y)")
    + lines("logical_not", "(x, /)", "b: NAME(x)")
    + """clip(x, /, min=None, max=None)
    iuf: xp.clip(x, 1, 2)
    iuf: xp.clip(x, min=y)
    iuf: xp.clip(x, max=s)
    f: xp.clip(special, min=-1.0, max=1.0)
    iuf: xp.clip(x) -> x
"""
)

STATISTICS = (
    lines(
        "sum prod", "(x, /, *, axis=None, dtype=None, keepdims=False)", "biufc: NAME(x)", "iufc: NAME(e, axis=0)",
        "biufc: NAME(x, axis=-1, keepdims=True)", "iufc: NAME(m, axis=(0, -1), dtype=wide)", "iufc: NAME(s)",
        "iufc: NAME(x, axis=())", "iufc: NAME(x, keepdims=True)",
    )
    + lines(
        "cumulative_sum cumulative_prod", "(x, /, *, axis=None, dtype=None, include_initial=False)", "iufc: NAME(v)",
        "iufc: NAME(x, axis=-2, dtype=wide, include_initial=True)", "iufc: NAME(e, axis=1, include_initial=True)",
    )
    + lines(
        "max min", "(x, /, *, axis=None, keepdims=False)", "iuf: NAME(x)", "f: NAME(special)", "iuf: NAME(e, axis=1)",
        "iuf: NAME(m, axis=(-1, 0), keepdims=True)", "iuf: NAME(s)", "iuf: NAME(x, axis=())",
    )
    + lines(
        "mean", "(x, /, *, axis=None, keepdims=False)", "fc: NAME(x)", "fc: NAME(m, axis=(0, 2), keepdims=True)",
        "fc: NAME(s)", "fc: NAME(x, axis=())",
    )
    + lines(
        "std var", "(x, /, *, axis=None, correction=0.0, keepdims=False)", "f: NAME(x)", "f: NAME(x, axis=())",
        "f: NAME(m, axis=(0, -1), correction=1.0, keepdims=True)", "f: NAME(s)", "f: NAME(x, axis=1, correction=0.5)",
    )
    + lines(
        "all any", "(x, /, *, axis=None, keepdims=False)", "biufc: NAME(x)", "biufc: NAME(x, axis=0, keepdims=True)",
        "biufc: NAME(m, axis=(0, 1))", "b: NAME(e)", "b: NAME(s)", "b: NAME(x, axis=())",
        "c: NAME(xp.subtract(x, xp.conj(x)), axis=0)",
    )
    + """diff(x, /, *, axis=-1, n=1, prepend=None, append=None)
    biufc: xp.diff(x)
    iufc: xp.diff(x, axis=0)
    iufc: xp.diff(m, n=2, prepend=m, append=m[..., :1])
    iufc: xp.diff(x, n=0)
"""
)  # fmt: skip

SEARCHING = (
    lines(
        "argmax argmin", "(x, /, *, axis=None, keepdims=False)", "iuf: NAME(x)", "iuf: NAME(x, keepdims=True)",
        "iuf: NAME(m, axis=-2, keepdims=True)", "f: NAME(special)", "f: NAME(xp.stack([v, special[:4]]), axis=1)",
    )
    + """count_nonzero(x, /, *, axis=None, keepdims=False)
    biufc: xp.count_nonzero(x)
    biufc: xp.count_nonzero(m, axis=(0, 1), keepdims=True)
nonzero(x, /)
    biufc: xp.nonzero(x)
    c: xp.nonzero(xp.subtract(x, xp.conj(x)))
searchsorted(x1, x2, /, *, side='left', sorter=None)
    iuf: xp.searchsorted(up, x)
    iuf: xp.searchsorted(v, y, side='right', sorter=xp.argsort(v))
where(condition, x1, x2, /)
    biufc: xp.where(b, x, y)
    iufc: xp.where(b, x, 1)
    iufc: xp.where(b, 2, s)
unique_all(x, /)
    biufc: xp.unique_all(m) -> xp.unique_all(m)
    f: xp.unique_all(special)
    f: xp.unique_all(e)
unique_counts(x, /)
    biufc: xp.unique_counts(m)
unique_inverse(x, /)
    biufc: xp.unique_inverse(m)
unique_values(x, /)
    biuf: xp.sort(xp.unique_values(x))
argsort(x, /, *, axis=-1, descending=False, stable=True)
    iuf: xp.argsort(m) -> xp.argsort(m, stable=True)
    iuf: xp.argsort(x, axis=0, descending=True, stable=True) -> 1 - xp.argsort(x[::-1], 0, stable=True)[::-1]
    f: xp.argsort(special)
sort(x, /, *, axis=-1, descending=False, stable=True)
    iuf: xp.sort(m)
    iuf: xp.sort(m, axis=1, descending=True, stable=False) -> xp.flip(xp.sort(m, axis=1), axis=1)
    f: xp.sort(special)
    f: xp.sort(special, descending=True) -> xp.sort(special)[::-1]
take(x, indices, /, *, axis=None)
    biufc: xp.take(v, i)
    biufc: xp.take(m, i, axis=-2)
    biufc: xp.take(x, i[:0], axis=1)
take_along_axis(x, indices, /, *, axis=-1)
    biufc: xp.take_along_axis(x, i2) -> xp.take_along_axis(x, i2, axis=-1)
    biufc: xp.take_along_axis(m, i2[:1, None, :], axis=1)
"""
)  # fmt: skip

SHAPES = """
broadcast_arrays(*arrays)
    xp.broadcast_arrays(x, y, s)
broadcast_to(x, /, shape)
    xp.broadcast_to(y, shape=(2, 3))
    xp.broadcast_to(s, (2,))
concat(arrays, /, *, axis=0)
    xp.concat([x, x])
    xp.concat((x, x[:, :1]), axis=-1)
    xp.concat([x, v], axis=None)
expand_dims(x, /, axis)
    xp.expand_dims(x, axis=1)
    xp.expand_dims(x, -1)
    xp.expand_dims(s, 0)
flip(x, /, *, axis=None)
    xp.flip(x)
    xp.flip(m, axis=(0, -1))
    xp.flip(s)
moveaxis(x, source, destination, /)
    xp.moveaxis(m4, 0, -2)
    xp.moveaxis(m4, (-1, 0), (0, 2))
permute_dims(x, /, axes)
    xp.permute_dims(m, axes=(2, 0, 1))
    xp.permute_dims(m, (-1, 0, 1))
repeat(x, repeats, /, *, axis=None)
    xp.repeat(x, 2)
    xp.repeat(x, xp.abs(i[:2]) + 1, axis=0)
reshape(x, /, shape, *, copy=None)
    xp.reshape(x, shape=(3, -1), copy=True)
    xp.reshape(x, (6,), copy=False)
    xp.reshape(s, ())
roll(x, /, shift, *, axis=None)
    xp.roll(x, 2)
    xp.roll(x, shift=-1, axis=1)
    xp.roll(m, (1, 2), axis=(0, -1))
    xp.roll(m, 1, axis=(0, -1))
squeeze(x, /, axis)
    xp.squeeze(x[:1, :], axis=0)
    xp.squeeze(m[:1, :, :1], (0, -1))
stack(arrays, /, *, axis=0)
    xp.stack([x, x])
    xp.stack((x, x), axis=-1)
tile(x, repetitions, /)
    xp.tile(x, (2, 1, 2))
    xp.tile(m, (2,))
unstack(x, /, *, axis=0)
    xp.unstack(x)
    xp.unstack(m, axis=-1)
matrix_transpose(x, /)
    xp.matrix_transpose(m)
    xp.linalg.matrix_transpose(m)
"""
