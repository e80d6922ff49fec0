"""Sums, multiples and changes of dtype.

Sums keep the terms of both, with new factors; what does not depend on the input becomes the bias:

>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine import identity
>>> u = identity(get_backend("numpy"), (3,), float)
>>> v = add(scale(u, 2.0), np.array([5.0, 6.0, 7.0]))
>>> v.terms
(Box(lo=(0,), shape=(3,), offset=0, strides=(1,), factor=2.0, values=None, mask=None),)
>>> v.bias
array([5., 6., 7.])
>>> subtract(v, u).terms[1].factor
-1
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ....backends import Backend
from ...errors import NonlinearError, UnsupportedOperation
from . import coefficients as co
from .coefficients import Coefficient, Number
from .linear import Linear, aligned
from .merging import settle
from .structural import broadcast_to
from .terms import Entries, Gathered, Term, elements


def add(a: Linear | Coefficient, b: Linear | Coefficient) -> Linear:
    """a + b with NumPy's broadcasting; one of the two may be a coefficient.

    Raises:
        TypeError: both are.
    """
    if not isinstance(a, Linear):
        a, b = b, a
    if not isinstance(a, Linear):
        raise TypeError("add got two coefficients; at least one operand must be a Linear.")
    if not isinstance(b, Linear):
        return _add_coefficient(a, b)
    shape = np.broadcast_shapes(a.shape, b.shape)
    a, b = aligned(broadcast_to(a, shape), broadcast_to(b, shape))
    bias = co.add(a.bk, a.bias, b.bias)
    joint = a.changed(
        a.terms + b.terms,
        bias,
        dtype=np.result_type(a.dtype, b.dtype),
        real_input=a.real_input and b.real_input,
        settled=max(a.settled, b.settled),
    )
    return settle(joint)


def _add_coefficient(x: Linear, c: Coefficient) -> Linear:
    shape = np.broadcast_shapes(x.shape, co.shape_of(c))
    x = replace(broadcast_to(x, shape), dtype=_joint_dtype(x, c))
    if co.is_zero(c):
        return x
    return x.changed(x.terms, co.add(x.bk, x.bias, co.broadcast_to(x.bk, c, shape)))


def _joint_dtype(x: Linear, c: Coefficient) -> np.dtype:
    return np.result_type(x.dtype, c if isinstance(c, (int, float, complex)) else co.dtype_of(x.bk, c))


def subtract(a: Linear | Coefficient, b: Linear | Coefficient) -> Linear:
    """a - b with NumPy's broadcasting; one of the two may be a coefficient."""
    return add(a, negate(b) if isinstance(b, Linear) else co.negative(b))


def negate(x: Linear) -> Linear:
    """-x."""
    return x.changed([term._replace(factor=-term.factor) for term in x.terms], co.negative(x.bias))


def scale(x: Linear, c: Coefficient) -> Linear:
    """x * c with NumPy's broadcasting."""
    shape = np.broadcast_shapes(x.shape, co.shape_of(c))
    dtype, x = _joint_dtype(x, c), broadcast_to(x, shape)
    bias = None if x.bias is None else co.multiply(x.bk, x.bias, c)
    number = co.single_value(c)
    if number is not None:
        return x.changed([term._replace(factor=term.factor * number) for term in x.terms], bias, dtype=dtype)
    return _times(x, c, dtype, bias)


def divide(x: Linear, c: Coefficient) -> Linear:
    """x / c with NumPy's broadcasting."""
    shape = np.broadcast_shapes(x.shape, co.shape_of(c))
    dtype, x = _joint_dtype(x, c), broadcast_to(x, shape)
    if dtype.kind not in "fc":
        raise UnsupportedOperation(f"Dividing an array of {x.dtype} rounds, which is not linear. Use a float dtype.")
    bias = None if x.bias is None else co.divide(x.bk, x.bias, c)
    number = co.single_value(c)
    if number is not None:
        terms = [term._replace(factor=_quotient(term.factor, number)) for term in x.terms]
        return x.changed(terms, bias, dtype=dtype)
    one = dtype.type(1) if co.known(c) else 1
    return _times(x, co.divide(x.bk, one, c), dtype, bias)


def _quotient(a: Number, b: Number) -> Number:
    """As the libraries divide: by zero gives infinity or NaN."""
    with np.errstate(all="ignore"):
        return np.true_divide(a, b).item()


def _times(x: Linear, c: Coefficient, dtype: np.dtype, bias: Coefficient | None) -> Linear:
    """All terms times an array, or a traced number."""
    if co.dtype_of(x.bk, c).kind not in "fc":  # there is no -1 among bools and unsigned integers
        c = co.cast(x.bk, c, dtype)
    if co.shape_of(c):
        c = co.reshape(x.bk, co.broadcast_to(x.bk, c, x.shape), x.base)
    return x.changed([_term_times(x.bk, term, c) for term in x.terms], bias, dtype=dtype)


def _term_times(bk: Backend, term: Term, c: Coefficient) -> Term:
    if isinstance(term, Entries):
        return _product(bk, term, elements(bk, co.reshape(bk, c, (-1,)), term.rows) if co.shape_of(c) else c)
    if isinstance(term, Gathered):
        zeros = _known_zeros(term.values, c)
        product = _product(bk, term, c)
        return product if zeros is None else product._replace(columns=np.where(zeros, np.int32(-1), term.columns))
    if co.shape_of(c) and term.shape != tuple(co.shape_of(c)):
        c = c[term.slices]
    zeros = _known_zeros(term.values, c)
    product = _product(bk, term, c)
    if zeros is None:
        return product
    return product._replace(mask=~zeros if term.mask is None else term.mask & ~zeros)


def _product(bk: Backend, term: Any, c: Coefficient) -> Any:
    return term._replace(values=c if term.values is None else co.multiply(bk, term.values, c))


def _known_zeros(a: Coefficient | None, b: Coefficient) -> np.ndarray | None:
    """Where a product with one traced factor is zero, as the other is known and zero there; None: nowhere."""
    if a is None or co.known(a) == co.known(b):
        return None
    c = a if co.known(a) else b
    if not np.ndim(c):
        return None
    zeros = np.asarray(c) == 0
    return zeros if zeros.any() else None


def convert(x: Linear, dtype: Any) -> Linear:
    """In another dtype.

    Raises:
        NonlinearError: to integers or bool, which rounds.
        UnsupportedOperation: from complex to real; take the real part instead.
    """
    dtype = np.dtype(dtype)
    if dtype == x.dtype:
        return x
    if dtype.kind not in "fc" and not (x.dtype.kind in "iu" and dtype.kind in "iu"):
        raise NonlinearError(f"Converting {x.dtype} to {dtype} rounds, which is not linear. Keep a float dtype.")
    if x.dtype.kind == "c" and dtype.kind != "c":
        raise UnsupportedOperation(f"Converting {x.dtype} to {dtype} drops the imaginary part; use the real part.")
    return x.changed(x.terms, None if x.bias is None else co.cast(x.bk, x.bias, dtype), dtype=dtype)


def real_part(x: Linear) -> Linear:
    """Real part.

    Raises:
        UnsupportedOperation: the input is complex: then no complex matrix does this.
    """
    return _of_entries(x, "The real part", "real", _real_dtype(x.dtype))


def imaginary_part(x: Linear) -> Linear:
    """Imaginary part; raises as `real_part`."""
    if x.dtype.kind != "c":
        return x.changed((), None)
    rotated = x.changed([t._replace(factor=t.factor * -1j) for t in x.terms], None)
    found = _of_entries(rotated, "The imaginary part", "real", _real_dtype(x.dtype))
    if x.bias is None:
        return found
    turned = co.multiply(x.bk, x.bias, -1j)
    return found.changed(found.terms, co.side(x.bk, turned).real(turned))


def conjugate(x: Linear) -> Linear:
    """Complex conjugate; raises as `real_part`."""
    return _of_entries(x, "The complex conjugate", "conj", x.dtype)


def _real_dtype(dtype: np.dtype) -> np.dtype:
    return np.zeros((), dtype).real.dtype


def _of_entries(x: Linear, what: str, method: str, dtype: np.dtype) -> Linear:
    """The part of all entries, which is that of the array where the input is real."""
    if x.dtype.kind != "c":
        return x
    if not (x.real_input or x.is_zero):
        raise UnsupportedOperation(
            f"{what} of a complex input is linear over the real numbers only, so there is no matrix with f(x) = A x. "
            "Pass real and imaginary part as two real inputs."
        )

    def part(c: Coefficient) -> Coefficient:
        return getattr(co.side(x.bk, c), method)(c) if co.dtype_of(x.bk, c).kind == "c" else c

    terms = []
    for term in x.terms:
        if term.values is None or co.dtype_of(x.bk, term.values).kind != "c":
            factor = term.factor.real if method == "real" else term.factor.conjugate()
            terms.append(term._replace(factor=factor))
        else:
            terms.append(term._replace(factor=1, values=part(co.multiply(x.bk, term.values, term.factor))))
    return x.changed(terms, None if x.bias is None else part(x.bias), dtype=dtype)
