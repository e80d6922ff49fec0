"""Rules for products with known arrays, SciPy's sparse matrices, and the matrices of short Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...engine.arithmetic import conjugate, convert, scale
from ...engine.contraction import dense_product
from ...engine.images import transform, transform_to_real
from ...engine.linear import Linear
from ...engine.operands import NotLinear
from ...engine.positions import take
from ...engine.products import einsum as einsum_of_linear
from ...engine.products import linear_factor, multiply, parsed, product, sizes_of, sparse_product
from ...engine.structural import pad
from ..values import NotFollowed, as_linear, plus, reshape, transpose

MOST = 2048  # unknowns of a dense system; its inverse has four million entries


def is_matrix(x: Any) -> bool:
    """Is it a sparse matrix of SciPy?"""
    return bool(sp.issparse(x))


def matmul(x: Any, y: Any) -> Any:
    """`x @ y`."""
    if is_matrix(x):
        return _sparse_product(x, y)
    if is_matrix(y):
        return transpose(_sparse_product(y.T, transpose(x, range(x.ndim)[::-1])), range(x.ndim)[::-1])
    x, y = _arrays(x, y)
    if not (x.ndim and y.ndim):
        raise ValueError("matmul: an operand has no axes.")
    left = "ij" if x.ndim > 1 else "j"
    right = "jk" if y.ndim > 1 else "j"
    result = left.replace("j", "") + right.replace("j", "")
    return einsum(f"...{left},...{right}->...{result}", x, y)


def _arrays(x: Any, y: Any) -> tuple[Any, Any]:
    linear_factor(x, y)
    return (x if isinstance(x, Linear) else np.asarray(x)), (y if isinstance(y, Linear) else np.asarray(y))


def _sparse_product(matrix: Any, x: Linear) -> Linear:
    if matrix.ndim != 2 or x.ndim not in (1, 2) or x.shape[0] != matrix.shape[1]:
        raise ValueError(f"A sparse matrix of shape {matrix.shape} was multiplied by an array of shape {x.shape}.")
    entries = matrix.tocoo()
    return sparse_product(entries.row, entries.col, np.asarray(entries.data), matrix.shape[0], x)


def _dot(a: Any, b: Any) -> Any:
    a, b = _arrays(a, b)
    if not (a.ndim and b.ndim):
        return multiply(a, b)
    return _contracted(a, b, [a.ndim - 1], [max(b.ndim - 2, 0)])


def _inner(a: Any, b: Any) -> Any:
    a, b = _arrays(a, b)
    if not (a.ndim and b.ndim):
        return multiply(a, b)
    return _contracted(a, b, [a.ndim - 1], [b.ndim - 1])


def _vdot(a: Any, b: Any) -> Any:
    a, b = _arrays(a, b)
    if isinstance(a, Linear):
        a = conjugate(a) if a.dtype.kind == "c" else a
    else:
        a = a.conj()
    return _contracted(reshape(a, (a.size,)), reshape(b, (b.size,)), [0], [0])


def _outer(a: Any, b: Any) -> Any:
    a, b = _arrays(a, b)
    return _contracted(reshape(a, (a.size,)), reshape(b, (b.size,)), [], [])


def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    a, b = _arrays(a, b)
    if isinstance(axes, int | np.integer):
        return _contracted(a, b, list(range(a.ndim - int(axes), a.ndim)), list(range(int(axes))))
    first, second = ([int(n) for n in np.atleast_1d(part)] for part in axes)
    return _contracted(a, b, [n % a.ndim for n in first], [n % b.ndim for n in second])


def _contracted(a: Any, b: Any, first: list[int], second: list[int]) -> Linear:
    if [a.shape[n] for n in first] != [b.shape[n] for n in second]:
        raise ValueError(f"Arrays of the shapes {a.shape} and {b.shape} cannot be multiplied along {first}, {second}.")
    return product(a, b, (first, second))


def _kron(a: Any, b: Any) -> Any:
    a, b = _arrays(a, b)
    ndim = max(a.ndim, b.ndim)
    a, b = (reshape(x, (*(1,) * (ndim - x.ndim), *x.shape)) for x in (a, b))
    spread = _contracted(a, b, [], [])
    order = [k for pair in zip(range(ndim), range(ndim, 2 * ndim)) for k in pair]
    return reshape(transpose(spread, order), [n * m for n, m in zip(a.shape, b.shape)])


def _convolve(a: Any, v: Any, mode: str = "full") -> Any:
    a, v = _arrays(a, v)
    if v.shape[0] > a.shape[0]:
        a, v = v, a
    n, m = a.shape[0], v.shape[0]
    if isinstance(v, Linear):  # the kernel is unknown: as many slices as the signal has elements
        a, v = v, a
    length = n + m - 1
    result = as_linear(np.zeros(length, np.result_type(a.dtype, v.dtype)))
    if v.shape[0] > 512:
        raise NotFollowed("it convolves with more than 512 elements.")
    for k, weight in enumerate(v):
        result = plus(result, pad(scale(a, np.asarray(weight)), [(k, length - k - a.shape[0], 0)]))
    lengths = {"full": (0, length), "same": ((m - 1) // 2, (m - 1) // 2 + n), "valid": (m - 1, n)}
    if mode not in lengths:
        raise NotFollowed(f"there is no rule for mode={mode!r}.")
    start, stop = lengths[mode]
    return take(result, np.arange(start, stop))


def einsum(subscripts: Any, *operands: Any, **settings: Any) -> Any:
    """`np.einsum` with one operand that depends on the input."""
    if not isinstance(subscripts, str) or set(settings) - {"optimize", "casting", "order"}:
        raise NotFollowed("there is no rule for these arguments; give the subscripts as a string.")
    linear = [k for k, x in enumerate(operands) if isinstance(x, Linear)]
    if len(linear) > 1:
        raise NotLinear("several factors depend on it")
    arrays: list[Any] = [x if isinstance(x, Linear) else np.asarray(x) for x in operands]
    parts, result = parsed(subscripts, [x.ndim for x in arrays])
    number = linear[0]
    x, own = arrays[number], parts[number]
    others = [(p, a) for k, (p, a) in enumerate(zip(parts, arrays)) if k != number]
    if not others:
        return einsum_of_linear(x, own, None, "", result)
    sizes = sizes_of(parts, [a.shape for a in arrays])
    wanted = "".join(c for c in dict.fromkeys("".join(p for p, _ in others)) if c in own or c in result)
    known = np.einsum(
        ",".join(p for p, _ in others) + "->" + wanted, *[np.broadcast_to(a, [sizes[c] for c in p]) for p, a in others]
    )  # fmt: skip
    found = einsum_of_linear(x, own, known, wanted, result)
    return convert(found, np.result_type(x.dtype, *(a.dtype for _, a in others)))


def _solve(a: Any, b: Any) -> Any:
    if isinstance(a, Linear):
        raise NotLinear("the matrix depends on it")
    a = np.asarray(a)
    if a.ndim != 2 or len(a) > MOST:
        raise NotFollowed(f"the inverse of a matrix is dense; up to {MOST} unknowns it is computed.")
    return dense_product(b, np.linalg.inv(a), ((0,), (1,)), x_first=False)


# --- Fourier transforms of short axes ---------------------------------------------------------------------------------

LONGEST = 4096  # elements along an axis; the matrix has as many squared
_TO_REAL = ("irfft", "hfft")


def _transform(x: Linear, name: str, n: Any, axis: int, norm: Any) -> Linear:
    length = x.shape[axis]
    if max(length, n or 0) > LONGEST:
        raise NotFollowed(f"the matrix of a transform is dense, and that of more than {LONGEST} elements too large.")
    function, unit = getattr(np.fft, name), np.eye(length)
    if name == "ihfft" or (name == "rfft" and x.dtype.kind == "c"):
        raise NotFollowed("it has no rule.")
    images = function(unit, n, norm=norm)
    if name not in _TO_REAL or x.dtype.kind != "c":
        return transform(x, axis, images)
    return transform_to_real(x, axis, images, function(1j * unit, n, norm=norm))


def _single(name: str) -> Callable[..., Any]:
    def rule(a: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
        return _transform(a, name, n, axis % a.ndim, norm)

    return rule


def _several(name: str, last: str, default: Any) -> Callable[..., Any]:
    """Transforms along axes: a real one along the last axis comes first, or last where it is inverse."""

    def rule(a: Any, s: Any = None, axes: Any = default, norm: Any = None) -> Any:
        if axes is None:
            axes = range(a.ndim) if s is None else range(a.ndim - len(s), a.ndim)
        axes = [int(k) % a.ndim for k in axes]
        lengths = [None if s is None or n == -1 else n for n in (s if s is not None else axes)]
        steps = [(name, k, n) for k, n in zip(axes, lengths)]
        steps[-1] = (last, axes[-1], lengths[-1])
        for own, k, n in steps if last == "irfft" else steps[::-1]:
            a = _transform(a, own, n, k, norm)
        return a

    return rule


PRODUCTS: dict[Any, Callable[..., Any]] = {
    np.dot: _dot,
    np.inner: _inner,
    np.vdot: _vdot,
    np.outer: _outer,
    np.tensordot: _tensordot,
    np.einsum: einsum,
    np.kron: _kron,
    np.convolve: _convolve,
    np.linalg.solve: _solve,
    **{getattr(np.fft, name): _single(name) for name in ("fft", "ifft", "rfft", "irfft", "hfft")},
    **{
        getattr(np.fft, prefix + name + suffix): _several(
            inverse, prefix + inverse if prefix != "ir" else "irfft", default
        )
        for suffix, default in (("2", (-2, -1)), ("n", None))
        for prefix, name, inverse in (
            ("", "fft", "fft"),
            ("", "ifft", "ifft"),
            ("r", "fft", "fft"),
            ("ir", "fft", "ifft"),
        )
    },
}
